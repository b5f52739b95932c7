//! Why a review or a completion did not come to its end. Nothing has become visible then, and the
//! same call can be made again.

use hookstash_shared::store::host::HostError;

use super::ports::PortError;
use crate::hooks::{EnvironmentError, RegisterError};

/// Why the hooks of an operation are not known. Never to be taken for "it has none".
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The record cannot be read now.
    #[error("the hooks of operation {operation_id} cannot be read")]
    Unread {
        /// The operation.
        operation_id: String,
        /// Why.
        #[source]
        source: PortError,
    },
    /// What is stored breaks a rule of hooks.
    #[error("the stored hooks of operation {operation_id} are wrong")]
    Unreadable {
        /// The operation.
        operation_id: String,
        /// Why.
        #[source]
        source: RegisterError,
    },
    /// There is no record, so that nobody knows what guards it.
    #[error("operation {operation_id} is unknown, or its record has expired")]
    Unknown {
        /// The operation.
        operation_id: String,
    },
}

/// Why controls could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// An operation's hooks are not known.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The environment's hooks cannot be read.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// Nobody knows whose controls to ask, or about which call.
    #[error("Cannot evaluate afterToolCall: tool call context is unavailable")]
    NoContext,
    /// A call that waited for a human has no owner any more.
    #[error("Cannot review a resumed tool result without its runtime owner and dispatcher")]
    NoOwner,
}

/// Why a deferred result was not taken.
#[derive(Debug, thiserror::Error)]
pub enum CompleteError {
    /// Nothing waits for it: the placeholder was never opened, or its time is over.
    #[error("unknown or expired placeholder")]
    Unknown,
    /// Its controls could not be asked.
    #[error(transparent)]
    Review(#[from] ReviewError),
    /// Whoever brought it went away before its verdict.
    #[error("cancelled before its verdict")]
    Cancelled,
    /// The store failed. It may have taken this result; a repeat tells.
    #[error("the store failed a completion")]
    Store(#[from] HostError),
    /// What is stored cannot be read.
    #[error("the stored placeholder cannot be read")]
    Unreadable(#[source] serde_json::Error),
    /// The result is final, but its row could not be written. A repeat writes it.
    #[error("the row of a final result cannot be written")]
    Row(#[source] PortError),
    /// The result is final, but its row is gone, or belongs to another user.
    #[error("the tool message {0} is not there, or another user's")]
    NoRow(String),
}
