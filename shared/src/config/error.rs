//! Why the process does not start.

use crate::signing::keys::KeysError;
use crate::signing::webhook_secret::WebhookSecretError;

/// A setting that is missing, wrong or unknown. Values are never repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The value cannot be used.
    #[error("{name} {reason}")]
    Value {
        /// The flag or variable the value came from.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A variable begins with `HOOKSTASH_` and is no setting.
    #[error("{name} is not a setting of Hookstash{}", suggestion(.closest.as_deref()))]
    Unknown {
        /// The variable.
        name: String,
        /// The setting whose name is most like it.
        closest: Option<String>,
    },
    /// A setting that this command needs is not set.
    #[error("{name} is required and not set")]
    Missing {
        /// The setting.
        name: &'static str,
    },
    /// The signing keys cannot be used.
    #[error(transparent)]
    SigningKeys(#[from] KeysError),
    /// The Standard Webhooks secret cannot be used.
    #[error(transparent)]
    WebhookSecret(#[from] WebhookSecretError),
    /// Two settings contradict each other.
    #[error("{0}")]
    Conflict(String),
}

fn suggestion(closest: Option<&str>) -> String {
    closest.map_or_else(String::new, |name| format!(": did you mean {name}?"))
}
