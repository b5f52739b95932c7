//! What a human decides, and why a decision may not be taken.

use std::fmt;

use crate::hooks::ToolRunResult;
use crate::runtime::error::ReviewError;
use crate::runtime::ports::PortError;
use crate::runtime::publication::{Publication, StateChange};
use crate::runtime::row::InterventionStatus;

/// Most calls that are decided at once.
pub(super) const BATCH_MAX: usize = 256;

/// What a human said about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may be made, or its answer used.
    Approve,
    /// It must not be made, and the run goes on with that as its result.
    RejectAndContinue {
        /// Why; `None` = no reason given.
        reason: Option<String>,
    },
    /// It must not be made, and the run stops.
    RejectAndStop {
        /// Why; `None` = no reason given.
        reason: Option<String>,
    },
}

impl Decision {
    pub(super) fn status(&self) -> InterventionStatus {
        match self {
            Self::Approve => InterventionStatus::Approved,
            _ => InterventionStatus::Rejected,
        }
    }

    pub(super) fn reason(&self) -> Option<&str> {
        match self {
            Self::Approve => None,
            Self::RejectAndContinue { reason } | Self::RejectAndStop { reason } => {
                reason.as_deref()
            }
        }
    }

    /// What the model gets to read of a rejection. It is ours, so no control is asked about it.
    pub(super) fn receipt(&self) -> Option<Publication> {
        let text = match (self, self.reason()) {
            (Self::Approve, _) => return None,
            (_, Some(reason)) => format!("User reject this tool calling with reason: {reason}"),
            (_, None) => "User reject this tool calling without reason".to_owned(),
        };
        let result = ToolRunResult {
            content: text,
            ..ToolRunResult::default()
        };
        Some(Publication::allowed(result, StateChange::Merge))
    }
}

/// A decision about one call.
#[derive(Clone)]
pub struct Resolution {
    /// The row of the call.
    pub tool_message_id: String,
    /// The decision.
    pub decision: Decision,
    /// What the human answered in place of the tool; `None` = the tool runs. Private until it is
    /// reviewed.
    pub answer: Option<ToolRunResult>,
}

impl fmt::Debug for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolution")
            .field("tool_message_id", &self.tool_message_id)
            .field("decision", &self.decision)
            .field("answer", &self.answer.as_ref().map(|_| "private"))
            .finish()
    }
}

/// All that was decided at once.
#[derive(Debug, Clone)]
pub struct Approval {
    /// Names this decision: a repeat with the same id and content changes nothing.
    pub request_id: String,
    /// The decisions.
    pub resolutions: Vec<Resolution>,
}

/// Whether a claim changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// The rows were pending and are claimed now.
    Applied,
    /// The same request had claimed them.
    Idempotent,
}

/// Why a decision was not taken. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// One row is decided twice.
    #[error("Human approval batch contains duplicate tool messages")]
    Duplicates,
    /// There is no such row.
    #[error("Plugin not found: {0}")]
    NotFound(String),
    /// Another request, or another decision, came first.
    #[error("Human approval already resolved: {0}")]
    AlreadyResolved(String),
    /// Some rows are claimed by this request, and some are not claimed.
    #[error("Human approval batch contains a partial idempotent claim")]
    PartialClaim,
    /// Too many rows.
    #[error("a decision is about at most {BATCH_MAX} calls")]
    TooMany,
    /// Controls could not be asked.
    #[error(transparent)]
    Review(#[from] ReviewError),
    /// The run was cancelled before the answer was reviewed.
    #[error("cancelled before the answer was reviewed")]
    Cancelled,
    /// The rows cannot be read or written.
    #[error("tool messages cannot be read or written")]
    Rows(#[source] PortError),
}
