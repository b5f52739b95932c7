//! Events of a human who is asked to decide.

use serde::Serialize;

/// A tool call that waits for a decision.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingTool {
    /// The function.
    pub api_name: String,
    /// The tool.
    pub identifier: String,
}

/// `beforeHumanIntervention`: a run is about to wait for a human.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeHumanIntervention {
    /// The operation.
    pub operation_id: String,
    /// Number of the step, from 0.
    pub step_index: u64,
    /// What waits.
    pub pending_tools: Vec<PendingTool>,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}

/// What a human decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HumanAction {
    /// The call may be made.
    #[default]
    Approve,
    /// The call must not be made.
    Reject,
    /// The call must not be made, and the run goes on with what the human said instead.
    RejectAndContinue,
}

/// `afterHumanIntervention`: a human has decided and the run goes on.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterHumanIntervention {
    /// The operation.
    pub operation_id: String,
    /// The decision.
    pub action: HumanAction,
    /// The call it was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejection_reason: Option<String>,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}

/// `onStopByHumanIntervention`: a human has decided and the run stops.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OnStopByHumanIntervention {
    /// The operation.
    pub operation_id: String,
    /// The call it was about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Why it was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejection_reason: Option<String>,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}
