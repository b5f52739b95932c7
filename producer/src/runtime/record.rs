//! What an operation leaves for other processes.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::error::RecoverError;
use crate::hooks::PersistedHooks;

/// Everything another process needs to go on with an operation's hooks. JSON, camel case.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OperationRecord {
    /// The callers' webhooks, with header templates and without any secret. `None`: it was stored
    /// by something that knows no hooks, and has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Value>,
    /// The owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The operation that started this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_operation_id: Option<String>,
    /// The body of its bridge, when it is a member of a group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_member_bridge: Option<Value>,
    /// The tool messages whose results it waits for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
}

impl OperationRecord {
    /// Its hooks, checked anew.
    ///
    /// # Errors
    /// They cannot be read: whoever asks must not go on as if there were none.
    pub(crate) fn restore(
        &self,
        operation_id: &str,
    ) -> Result<Option<PersistedHooks>, RecoverError> {
        let hooks = self.hooks.clone().map(PersistedHooks::from_json);
        hooks
            .transpose()
            .map_err(|source| RecoverError::Unreadable {
                operation_id: operation_id.to_owned(),
                source,
            })
    }
}
