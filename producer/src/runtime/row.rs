//! A tool message: the row in which a result becomes visible.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::hooks::ToolCall;

/// How far a human's decision about a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InterventionStatus {
    /// Nobody has decided.
    #[default]
    Pending,
    /// The call may be made.
    Approved,
    /// The call must not be made, or its result not be used.
    Rejected,
    /// The run ended before.
    Aborted,
}

/// What was decided about a call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Intervention {
    /// How far it is.
    pub status: InterventionStatus,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected_reason: Option<String>,
    /// The operation that waited for the decision, whose hooks count first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// Who decided: the same id may repeat the same decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolution_request_id: Option<String>,
}

/// A tool message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolRow {
    /// Its id.
    pub id: String,
    /// The call.
    pub call: ToolCall,
    /// What the model gets to read; empty while there is no result.
    pub content: String,
    /// The error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// What the tool keeps beside its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Map<String, Value>>,
    /// What was decided about the call; `None` when nobody was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervention: Option<Intervention>,
    /// Whether it has its result, which may be empty. Readers of history need not look at it.
    pub is_final: bool,
}

impl ToolRow {
    /// Whether nothing has to be waited for: it has its result, or its tool says so.
    pub fn is_fulfilled(&self) -> bool {
        let status = self.state.as_ref().and_then(|state| state.get("status"));
        let status = status.and_then(Value::as_str);
        self.is_final || !self.content.is_empty() || matches!(status, Some("completed" | "error"))
    }

    /// Whether its call must not be made any more: its run was cancelled, or a human says so.
    pub(crate) fn is_stopped(&self) -> bool {
        let status = self.intervention_status();
        let stopped = [InterventionStatus::Aborted, InterventionStatus::Rejected];
        !self.is_final && status.is_some_and(|status| stopped.contains(&status))
    }

    /// Whether it can still be given a result.
    pub(crate) fn takes_result(&self) -> bool {
        !self.is_final && !self.is_stopped()
    }

    pub(crate) fn intervention_status(&self) -> Option<InterventionStatus> {
        self.intervention.as_ref().map(|it| it.status)
    }
}

/// A row that has no id yet. The database gives it one.
pub type NewToolRow = ToolRow;
