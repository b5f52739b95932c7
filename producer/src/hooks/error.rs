//! How a delivery fails, and which failures reach the caller.

use std::fmt;

use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::http::AttemptError;

use super::environment_hooks::EnvironmentError;
use super::hook::HookError;

/// What kind of failure a delivery ended in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HookErrorCode {
    /// The hook, its variables or its destination are set up wrongly; nothing was sent.
    Configuration,
    /// The receiver answered with a status that is no success; redirects are not followed.
    HttpError,
    /// The answer of a control is not what a control may answer.
    InvalidResponse,
    /// The receiver was not reached, or the connection broke.
    NetworkError,
    /// The answer of a control is longer than 64 KiB.
    ResponseTooLarge,
    /// The deadline passed.
    Timeout,
}

impl HookErrorCode {
    /// The word in texts and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::HttpError => "http_error",
            Self::InvalidResponse => "invalid_response",
            Self::NetworkError => "network_error",
            Self::ResponseTooLarge => "response_too_large",
            Self::Timeout => "timeout",
        }
    }
}

impl From<ErrorClass> for HookErrorCode {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::Configuration | ErrorClass::Egress | ErrorClass::Critical => {
                Self::Configuration
            }
            ErrorClass::Status | ErrorClass::Redirect | ErrorClass::Gone => Self::HttpError,
            ErrorClass::ResponseTooLarge => Self::ResponseTooLarge,
            ErrorClass::InvalidResponse => Self::InvalidResponse,
            ErrorClass::Timeout => Self::Timeout,
            ErrorClass::Dns
            | ErrorClass::Connect
            | ErrorClass::Tls
            | ErrorClass::Network
            | ErrorClass::BodyMissing
            | ErrorClass::WorkerLost => Self::NetworkError,
        }
    }
}

impl fmt::Display for HookErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A delivery that failed. Holds nothing of what the receiver said but its status, and no header,
/// token, variable or query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Hook HTTP request failed: {code}{}", detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default())]
pub struct DeliveryError {
    /// What kind of failure it was.
    pub code: HookErrorCode,
    /// The status that the receiver, or a remote queue, answered with.
    pub status: Option<u16>,
    /// More about it, when it is safe to show.
    pub detail: Option<String>,
}

impl DeliveryError {
    pub(crate) fn new(code: HookErrorCode) -> Self {
        Self {
            code,
            status: None,
            detail: None,
        }
    }

    pub(crate) fn configuration() -> Self {
        Self::new(HookErrorCode::Configuration)
    }

    pub(crate) fn status(status: http::StatusCode) -> Self {
        Self {
            status: Some(status.as_u16()),
            ..Self::new(HookErrorCode::HttpError)
        }
    }

    pub(crate) fn with_detail(self, detail: impl Into<String>) -> Self {
        Self {
            detail: Some(detail.into()),
            ..self
        }
    }
}

impl From<AttemptError> for DeliveryError {
    fn from(error: AttemptError) -> Self {
        let failure = Self::new(error.class.into());
        match error.class {
            // Says which address is refused and what opens it.
            ErrorClass::Egress => failure.with_detail(error.message),
            ErrorClass::Dns | ErrorClass::Connect | ErrorClass::Tls => {
                failure.with_detail(error.class.as_str())
            }
            _ => failure,
        }
    }
}

/// One critical webhook that was not delivered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("hook {hook_id:?} was not delivered")]
pub struct CriticalFailure {
    /// The hook.
    pub hook_id: String,
    /// Why.
    #[source]
    pub cause: DeliveryError,
}

/// At least one critical webhook was not delivered. Raised after all other hooks of the event have
/// run; dispatching the event again repeats those too, so receivers must be idempotent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Critical webhook delivery failed: {}", first.hook_id)]
pub struct CriticalHookDeliveryError {
    #[source]
    first: CriticalFailure,
    others: Vec<CriticalFailure>,
}

impl CriticalHookDeliveryError {
    /// `None` when there is no failure.
    pub(crate) fn of(failures: Vec<CriticalFailure>) -> Option<Self> {
        let mut failures = failures.into_iter();
        Some(Self {
            first: failures.next()?,
            others: failures.collect(),
        })
    }

    /// The first hook that failed.
    pub fn hook_id(&self) -> &str {
        &self.first.hook_id
    }

    /// Why the first hook failed.
    pub fn cause(&self) -> &DeliveryError {
        &self.first.cause
    }

    /// All failures, in the order of the hooks.
    pub fn failures(&self) -> impl Iterator<Item = &CriticalFailure> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

/// Why an event was not dispatched, or not to all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DispatchError {
    /// The environment's hooks cannot be read: nothing was dispatched.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// A critical webhook was not delivered.
    #[error(transparent)]
    Critical(#[from] CriticalHookDeliveryError),
}

/// Why hooks are not registered, or not read. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// One hook is refused, and with it all of the list.
    #[error("hook {index} ({id:?}): {reason}")]
    Hook {
        /// Its place in the list, from 0.
        index: usize,
        /// The beginning of its id; empty when it has none.
        id: String,
        /// Why.
        reason: HookError,
    },
    /// There are too many.
    #[error("an operation has at most {max} hooks")]
    TooMany {
        /// The limit.
        max: usize,
    },
    /// Their matchers are too long together.
    #[error("the matchers of an operation have at most {max} characters together")]
    Patterns {
        /// The limit.
        max: usize,
    },
    /// Their persisted form is too large.
    #[error("the webhooks of an operation take at most {max} bytes as JSON")]
    TooLarge {
        /// The limit in bytes.
        max: usize,
    },
    /// Persisted hooks are a JSON array.
    #[error("persisted hooks are an array")]
    NotAList,
    /// The environment's hooks cannot be read.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

impl RegisterError {
    /// Why the hook is refused; `None` when no single hook is at fault.
    pub fn hook_error(&self) -> Option<&HookError> {
        match self {
            Self::Hook { reason, .. } => Some(reason),
            _ => None,
        }
    }
}
