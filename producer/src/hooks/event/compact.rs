//! Events of compressing a conversation.

use serde::Serialize;

/// `beforeCompact`: the conversation is about to be compressed. It may turn out that there is
/// nothing to compress; then no other event follows.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeCompact {
    /// The operation.
    pub operation_id: String,
    /// Number of the step, from 0.
    pub step_index: u64,
    /// Messages there are.
    pub message_count: u64,
    /// Tokens they have.
    pub token_count: u64,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}

/// `afterCompact`: the conversation has been compressed.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterCompact {
    /// The operation.
    pub operation_id: String,
    /// Number of the step, from 0.
    pub step_index: u64,
    /// The group of messages that the summary replaces.
    pub group_id: String,
    /// Messages before.
    pub messages_before: u64,
    /// Messages after.
    pub messages_after: u64,
    /// The beginning of the summary.
    pub summary: String,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}

/// `onCompactError`: compressing has failed.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OnCompactError {
    /// The operation.
    pub operation_id: String,
    /// Number of the step, from 0.
    pub step_index: u64,
    /// What went wrong.
    pub error: String,
    /// Tokens there are.
    pub token_count: u64,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
}
