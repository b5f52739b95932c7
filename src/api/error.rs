//! Every refusal of the front door: its status and its text, in one table.
//!
//! SDK users match on these texts, so the known ones are the cloud's, byte for byte. No text
//! repeats a body, a header's value or a secret.

use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use hookstash_producer::publish::PublishError;
use hookstash_shared::message::NewMessageError;
use hookstash_shared::signing::keys::{SETTING_CURRENT, SETTING_NEXT};
use hookstash_shared::store::host::HostError;
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use crate::key_ring::RotateError;

/// When a client may try again after a 503, in seconds: a restart of Redis takes about as long.
const RETRY_AFTER_S: u16 = 5;
/// Longest text of the caller's that an error repeats, in bytes.
const ECHO_BYTES_MAX: usize = 200;

/// Why a request was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// No token, or another one.
    #[error("unable to authenticate: invalid token")]
    Token,
    /// A web page asked, and only programs of this machine may.
    #[error(
        "`hookstash dev` answers programs of this machine only, not web pages: its credentials are \
         public. Call it without Origin and Sec-Fetch-Site, as localhost or 127.0.0.1"
    )]
    Browser,
    /// The request is wrong; the text names the field at fault.
    #[error("{0}")]
    Invalid(String),
    /// What the path names does not exist.
    #[error("{0} not found")]
    NotFound(String),
    /// No placeholder takes a result under this name.
    #[error("unknown or expired placeholder: nothing was applied")]
    Placeholder,
    /// Deliveries are not signed here.
    #[error(
        "no signing keys are configured: {} and {} are not set",
        SETTING_CURRENT,
        SETTING_NEXT
    )]
    NoKeys,
    /// No resource has this path.
    #[error("no such path: {0} (this API begins with /v2 at the root of the server)")]
    Path(String),
    /// The resource does not take this method.
    #[error("method {0} is not allowed here")]
    Method(Method),
    /// The body did not come in time.
    #[error("the request body did not arrive within {} seconds", .0.as_secs())]
    BodyTimeout(Duration),
    /// The connection broke, or the body's framing is wrong.
    #[error("the request body could not be read")]
    BodyRead,
    /// The state of the server does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// What the path names has lost what is needed.
    #[error("{0}")]
    Gone(String),
    /// The body is too large. Clients match on the phrase.
    #[error("quota maxMessageSize exceeded: the limit is {0} bytes")]
    TooLarge(usize),
    /// There is no room for one more.
    #[error("{0}")]
    Quota(String),
    /// Part of the protocol, but not of this server.
    #[error("{0} is not supported by this server yet")]
    NotBuilt(String),
    /// Nothing was done; the same request can be sent again.
    #[error("{0}; nothing was changed, sending the request again is safe")]
    Unavailable(&'static str),
    /// It is not known whether it was done.
    #[error("{0}")]
    Unknown(String),
    /// Our own fault.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl ApiError {
    /// The status of the answer.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::Browser => StatusCode::FORBIDDEN,
            Self::Invalid(_) | Self::BodyRead => StatusCode::BAD_REQUEST,
            Self::NotFound(_) | Self::Placeholder | Self::NoKeys | Self::Path(_) => {
                StatusCode::NOT_FOUND
            }
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::BodyTimeout(_) => StatusCode::REQUEST_TIMEOUT,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Gone(_) => StatusCode::GONE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Quota(_) => StatusCode::PRECONDITION_FAILED,
            Self::NotBuilt(_) => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable(_) | Self::Unknown(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// A setting called `name` has a wrong value.
    pub(super) fn invalid(name: &str, why: impl std::fmt::Display) -> Self {
        Self::Invalid(format!("invalid {name}: {why}"))
    }

    /// `what` (a header, a path) belongs to a part of the protocol that does not exist here.
    pub(super) fn not_built(what: &str) -> Self {
        Self::NotBuilt(echo(what).to_owned())
    }

    pub(super) fn no_such_path(path: &str) -> Self {
        Self::Path(echo(path).to_owned())
    }

    pub(super) fn no_such_message(id: &str) -> Self {
        Self::NotFound(format!("message {}", echo(id)))
    }

    pub(super) fn no_such_dead_letter(id: &str) -> Self {
        Self::NotFound(format!("dlq message {}", echo(id)))
    }

    pub(super) fn no_such_schedule(id: &str) -> Self {
        Self::NotFound(format!("schedule {}", echo(id)))
    }

    pub(super) fn no_such_flow_key(key: &str) -> Self {
        Self::NotFound(format!("flow control key {}", echo(key)))
    }

    /// A publish that did not end in "accepted". `has_dedup_id` decides whether a repeat is safe
    /// when its outcome is unknown.
    pub(super) fn of_publish(error: &PublishError, has_dedup_id: bool) -> Self {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "a publish was not accepted"
        );
        match error {
            PublishError::NotAccepted(source) => Self::of_store(source),
            PublishError::Unknown { id, .. } => {
                let advice = if has_dedup_id {
                    "sending it again is safe, because it has a deduplication id"
                } else {
                    "sending it again may deliver it twice: only a deduplication id makes a \
                     repeat safe"
                };
                Self::Unknown(format!(
                    "it is unknown whether message {id} was accepted; {advice}"
                ))
            }
            PublishError::Envelope(_) => Self::Internal("the message cannot be stored"),
        }
    }

    /// The store failed something that only reads, so that nothing can have changed.
    pub(super) fn of_read(error: HostError) -> Self {
        match error {
            HostError::Lost(_) => {
                log_failure(&error);
                Self::Unavailable("the store did not answer")
            }
            _ => error.into(),
        }
    }

    /// The store failed a completion, which may always be repeated.
    pub(super) fn of_completion(error: &HostError) -> Self {
        match error {
            HostError::Lost(_) => Self::Unknown(
                "it is unknown whether this result was taken; sending it again is safe and tells"
                    .to_owned(),
            ),
            other => Self::of_store(other),
        }
    }

    /// The store failed a change that may always be repeated.
    pub(super) fn of_change(error: &HostError) -> Self {
        log_failure(error);
        match error {
            HostError::Lost(_) => Self::Unknown(
                "it is unknown whether this was done; sending the request again is safe".to_owned(),
            ),
            other => Self::of_store(other),
        }
    }

    /// The store failed a change of `count` messages, and some of them may be changed.
    pub(super) fn of_several(error: HostError, count: usize) -> Self {
        match error {
            HostError::Full(_) | HostError::RetryLater(_) | HostError::Lost(_) if count > 1 => {
                log_failure(&error);
                Self::Unknown(
                    "the store failed: part of it may have been done; the same request goes on with \
                     what is left"
                        .to_owned(),
                )
            }
            _ => error.into(),
        }
    }

    /// This failure of a bulk action that had done something before; `done` says what.
    pub(super) fn after(self, done: &str) -> Self {
        match self {
            Self::Unavailable(_) | Self::Unknown(_) | Self::Internal(_) => Self::Unknown(format!(
                "{done}, then the store failed; the same request goes on with what is left"
            )),
            refusal => refusal,
        }
    }

    /// What the store's refusal means to a caller whose request may be repeated.
    fn of_store(error: &HostError) -> Self {
        match error {
            HostError::Full(_) => Self::Unavailable("the store is full"),
            HostError::RetryLater(_) => Self::Unavailable("the store cannot be reached or written"),
            HostError::Lost(_) => {
                Self::Unknown("the store did not answer: the outcome is unknown".to_owned())
            }
            HostError::Unconfirmed(_) => {
                Self::Unknown("it was done, but too few replicas have it".to_owned())
            }
            HostError::Fault(_) => {
                Self::Internal("the store refused the command; the server's log says why")
            }
        }
    }
}

/// The beginning of a text from the request.
pub(super) fn echo(text: &str) -> &str {
    text.get(..text.floor_char_boundary(ECHO_BYTES_MAX))
        .unwrap_or_default()
}

fn log_failure(error: &HostError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the store failed a request"
    );
}

impl From<HostError> for ApiError {
    fn from(error: HostError) -> Self {
        log_failure(&error);
        Self::of_store(&error)
    }
}

impl From<RotateError> for ApiError {
    fn from(error: RotateError) -> Self {
        match error {
            RotateError::Store(error) => error.into(),
            RotateError::Busy => Self::Unavailable("other rotations came first"),
            refused => Self::Conflict(refused.to_string()),
        }
    }
}

impl From<NewMessageError> for ApiError {
    fn from(error: NewMessageError) -> Self {
        match error {
            NewMessageError::BodyTooLarge { max, .. } => Self::TooLarge(max),
            other => Self::Invalid(other.to_string()),
        }
    }
}

impl ApiError {
    /// An answer with the status of this refusal and a body that says more than its text.
    pub(super) fn respond(&self, body: &Value) -> Response {
        let status = self.status();
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = HeaderValue::from(RETRY_AFTER_S);
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.respond(&json!({ "error": self.to_string() }))
    }
}

#[cfg(test)]
mod tests {
    use hookstash_shared::store::host::HostError;

    use super::*;

    #[test]
    fn a_read_without_an_answer_says_that_it_can_be_repeated() {
        let lost = || HostError::Lost("gone".into());
        let read = ApiError::of_read(lost()).to_string();
        assert!(read.contains("sending the request again is safe"), "{read}");
        let write = ApiError::from(lost()).to_string();
        assert!(write.contains("the outcome is unknown"), "{write}");
        let fault = ApiError::from(HostError::Fault("WRONGTYPE".into())).to_string();
        assert!(
            fault.contains("server's log") && !fault.contains("WRONG"),
            "{fault}"
        );
    }
}
