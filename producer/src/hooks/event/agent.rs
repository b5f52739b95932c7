//! Events of starting a sub-agent. They belong to the operation that starts it.

use serde::Serialize;

/// `beforeCallAgent`: a sub-agent is about to be started.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeCallAgent {
    /// The operation that starts it.
    pub operation_id: String,
    /// The agent to start.
    pub agent_id: String,
    /// The beginning of what it is told.
    pub instruction: String,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}

/// `afterCallAgent`: a sub-agent has been started. Its end is told by its own `onComplete`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterCallAgent {
    /// The operation that started it.
    pub operation_id: String,
    /// The agent.
    pub agent_id: String,
    /// The operation of the sub-agent.
    pub sub_operation_id: String,
    /// Whether it was started.
    pub success: bool,
    /// Its thread; absent for members of a group that share one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}

/// `onCallAgentError`: a sub-agent could not be started.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OnCallAgentError {
    /// The operation that wanted to start it.
    pub operation_id: String,
    /// The agent.
    pub agent_id: String,
    /// What went wrong.
    pub error: String,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}
