//! Queueing a notification durably: in our own store, or at a remote service that speaks `QStash`.

mod remote;
mod store;

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::Clock;
use hookstash_shared::environment::Environment;
use hookstash_shared::headers::{HeaderSource, Headers};
use hookstash_shared::http::is_trusted;
use hookstash_shared::message::{Limits, MessageId};
use url::Url;

use crate::hooks::error::{DeliveryError, HookErrorCode};
use crate::hooks::outbound::{ContentType, Outbound, templates};
use crate::hooks::webhook::{BaseOf, WebhookConfig};
use crate::publish::{PATIENCE_MAX, Publisher};

pub(crate) use remote::TOKEN_VARIABLE as REMOTE_TOKEN_VARIABLE;

/// What opens a protected deployment to our worker.
pub(crate) const BYPASS_VARIABLE: &str = "VERCEL_AUTOMATION_BYPASS_SECRET";
const BYPASS_HEADER: &str = "x-vercel-protection-bypass";

/// Who makes queued notifications durable.
#[derive(Clone)]
pub enum HookPublisher {
    /// Our own store. The message carries header templates; the worker fills them from its own
    /// environment at every attempt.
    Store {
        /// Puts messages into the store.
        publisher: Publisher,
        /// What the installation allows.
        limits: Limits,
    },
    /// A service that speaks the `QStash` protocol, named by the variables `QSTASH_URL` and
    /// `QSTASH_TOKEN`, which are read at every call. It gets headers with their values.
    Remote,
}

/// A notification that was not, or not surely, queued.
pub(crate) struct NotQueued {
    pub(crate) error: DeliveryError,
    /// Its id if it was queued nevertheless.
    pub(crate) id: Option<MessageId>,
    /// Whether the queue was not reached or gave no answer, so that the next notification need not
    /// wait for it either.
    pub(crate) is_unanswered: bool,
}

/// A notification ready to be queued.
pub(crate) struct Queued<'a> {
    url: Url,
    headers: Headers,
    body: Bytes,
    webhook: &'a WebhookConfig,
}

impl From<DeliveryError> for NotQueued {
    fn from(error: DeliveryError) -> Self {
        Self {
            error,
            id: None,
            is_unanswered: false,
        }
    }
}

impl<'a> Queued<'a> {
    /// Resolves where it goes and checks its headers.
    ///
    /// # Errors
    /// `configuration`: it could never be sent, and nothing else may be sent in its place.
    pub(crate) fn new(
        webhook: &'a WebhookConfig,
        body: Bytes,
        environment: &dyn Environment,
    ) -> Result<Self, DeliveryError> {
        let url = webhook
            .url
            .resolve(BaseOf::Queue, environment)
            .ok_or_else(DeliveryError::configuration)?;
        let mut headers = templates(webhook, ContentType::Fixed)?;
        let is_bypass_set = environment
            .get(BYPASS_VARIABLE)
            .is_some_and(|it| !it.is_empty());
        if is_bypass_set && is_trusted(&url, environment) {
            let template = HeaderSource::Template {
                text: format!("${{{BYPASS_VARIABLE}}}"),
                allowed_env_vars: vec![BYPASS_VARIABLE.to_owned()],
            };
            let set = headers.set(BYPASS_HEADER.as_bytes(), template);
            set.map_err(|_| DeliveryError::configuration())?;
        }
        Ok(Self {
            url,
            headers,
            body,
            webhook,
        })
    }
}

/// Queues through `publisher`, repeating an unclear call for up to `patience`.
///
/// # Errors
/// See [`NotQueued`]. The outer error is `configuration`, for which there is no fallback.
pub(crate) async fn publish(
    publisher: Option<&HookPublisher>,
    outbound: &Outbound,
    clock: &dyn Clock,
    queued: &Queued<'_>,
    is_patient: bool,
) -> Result<Result<(), NotQueued>, DeliveryError> {
    let patience = if is_patient {
        queued.webhook.timeout.min(PATIENCE_MAX)
    } else {
        Duration::ZERO
    };
    match publisher {
        None => Ok(Err(no_token().into())),
        Some(HookPublisher::Store { publisher, limits }) => {
            Ok(store::publish(publisher, limits, clock, queued, patience).await)
        }
        Some(HookPublisher::Remote) => remote::publish(outbound, queued, patience).await,
    }
}

fn no_token() -> DeliveryError {
    DeliveryError::configuration().with_detail("QSTASH_TOKEN not available")
}

fn refused(status: u16) -> DeliveryError {
    DeliveryError {
        code: HookErrorCode::HttpError,
        status: Some(status),
        detail: Some(format!("QStash publish failed (HTTP {status})")),
    }
}

fn unreachable() -> DeliveryError {
    DeliveryError::new(HookErrorCode::NetworkError).with_detail("QStash publish failed")
}
