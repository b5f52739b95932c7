//! How the end of another agent comes back: as the only publisher of its tool message.
//!
//! A bridge is a hook of the other operation. In local mode its handler brings the end back in
//! process, in queue mode its webhook does, to a path that the runtime serves by handing the body
//! to [`AgentRuntime::agent_callback`] or [`AgentRuntime::member_callback`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::AgentRuntime;
use super::barrier::BarrierError;
use super::completions::Source;
use super::error::CompleteError;
use super::ports::{Answer, PortError};
use super::record::OperationRecord;
use super::row::ToolRow;
use super::run_end::RunReason;
use crate::hooks::{AgentHook, OnComplete, ToolRunResult, Webhook};

/// Where the end of a sub-agent is posted.
pub const AGENT_CALLBACK_PATH: &str = "/api/agent/webhooks/subagent-callback";
/// Where the end of a group's member is posted.
pub const MEMBER_CALLBACK_PATH: &str = "/api/agent/webhooks/group-member-callback";

const AGENT_BRIDGE: &str = "sub-agent-bridge";
const MEMBER_BRIDGE: &str = "group-member-bridge";
const EVENT_FIELDS: [&str; 3] = ["operationId", "reason", "status"];
/// A member that did not answer in time.
const TIMEOUT: &str = "timeout";

/// Where the end of a sub-agent belongs: the body of its bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCallback {
    /// The operation that waits.
    pub parent_operation_id: String,
    /// The thread of the sub-agent.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_id: Option<String>,
    /// The tool message to fill.
    pub tool_message_id: String,
}

/// Where members of a group answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupMode {
    /// In the group's own thread, where everybody reads it.
    Shared,
    /// In threads of their own; the answer is the result.
    Isolated,
}

/// Where the end of a group's member belongs: the body of its bridge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberCallback {
    /// The tool message of the member.
    pub anchor_message_id: String,
    /// When waiting for it is over, in milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline_at: Option<u64>,
    /// How many members there are.
    pub expected_members: usize,
    /// The tool message of the group.
    pub group_tool_message_id: String,
    /// Where it answers.
    pub mode: GroupMode,
    /// What the run does afterwards.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub on_complete: Option<String>,
    /// The operation that waits.
    pub parent_operation_id: String,
    /// The thread of the member.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub thread_id: Option<String>,
}

/// What a callback answers its sender with, status 200.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallbackReceipt {
    /// The operation that ended.
    pub operation_id: String,
    /// The operation that waits.
    pub parent_operation_id: String,
    /// Whether this call let it go on.
    pub resumed: bool,
    /// Always true.
    pub success: bool,
}

/// Why a callback was not taken.
#[derive(Debug, thiserror::Error)]
pub enum CallbackError {
    /// The body is no JSON, or lacks an id.
    #[error("the body of the callback is not what its bridge sends")]
    Body(#[source] serde_json::Error),
    /// Nobody knows the operation, or whose it is, or it was not started by the one that waits.
    #[error("Unauthorized")]
    UnknownOperation,
    /// Something failed that may work later.
    #[error("a port failed")]
    Port(#[source] PortError),
    /// The result was not taken.
    #[error(transparent)]
    Complete(#[from] CompleteError),
    /// It is not known whether the parent can go on.
    #[error(transparent)]
    Barrier(#[from] BarrierError),
}

impl CallbackError {
    /// The HTTP status to answer with. 500 makes the queue deliver the callback again.
    pub fn status(&self) -> u16 {
        match self {
            Self::Body(_) => 400,
            Self::UnknownOperation => 401,
            Self::Port(_) | Self::Complete(_) | Self::Barrier(_) => 500,
        }
    }
}

/// What `onComplete` adds to a bridge's body.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct End {
    operation_id: String,
    reason: String,
}

impl AgentRuntime {
    pub(super) fn agent_bridge(&self, callback: AgentCallback) -> AgentHook {
        let webhook = bridge_webhook(AGENT_CALLBACK_PATH, &callback);
        let weak = Arc::downgrade(&self.0);
        let handler = move |event: Arc<OnComplete>| {
            let (weak, callback) = (weak.clone(), callback.clone());
            async move {
                if let Some(inner) = weak.upgrade() {
                    let ended = Self(inner).agent_ended(&callback, &end_of(&event)).await;
                    log(ended);
                }
                Ok(())
            }
        };
        AgentHook::handler(AGENT_BRIDGE, handler).with_webhook(webhook)
    }

    pub(super) fn member_bridge(&self, callback: MemberCallback) -> AgentHook {
        let webhook = bridge_webhook(MEMBER_CALLBACK_PATH, &callback);
        let weak = Arc::downgrade(&self.0);
        let handler = move |event: Arc<OnComplete>| {
            let (weak, callback) = (weak.clone(), callback.clone());
            async move {
                if let Some(inner) = weak.upgrade() {
                    let ended = Self(inner).member_ended(&callback, &end_of(&event)).await;
                    log(ended);
                }
                Ok(())
            }
        };
        AgentHook::handler(MEMBER_BRIDGE, handler).with_webhook(webhook)
    }

    /// Takes the body that was posted to [`AGENT_CALLBACK_PATH`]. The caller has checked its
    /// signature. Safe to repeat: the first result stays.
    pub async fn agent_callback(&self, body: &[u8]) -> Result<CallbackReceipt, CallbackError> {
        let callback = serde_json::from_slice(body).map_err(CallbackError::Body)?;
        let end = serde_json::from_slice(body).map_err(CallbackError::Body)?;
        self.agent_ended(&callback, &end).await
    }

    /// Takes the body that was posted to [`MEMBER_CALLBACK_PATH`], in the same way.
    pub async fn member_callback(&self, body: &[u8]) -> Result<CallbackReceipt, CallbackError> {
        let callback = serde_json::from_slice(body).map_err(CallbackError::Body)?;
        let end = serde_json::from_slice(body).map_err(CallbackError::Body)?;
        self.member_ended(&callback, &end).await
    }

    async fn agent_ended(
        &self,
        callback: &AgentCallback,
        end: &End,
    ) -> Result<CallbackReceipt, CallbackError> {
        let (parent, message) = (&callback.parent_operation_id, &callback.tool_message_id);
        self.child(end, parent).await?;
        let answer = self.answer_of(end).await?;
        let result = result_of("Sub-agent", end, &answer, None);
        self.bring_back(end, parent, message, None, result).await
    }

    async fn member_ended(
        &self,
        callback: &MemberCallback,
        end: &End,
    ) -> Result<CallbackReceipt, CallbackError> {
        let (parent, message) = (&callback.parent_operation_id, &callback.anchor_message_id);
        let group = Some(&callback.group_tool_message_id);
        let child = self.child(end, parent).await?;
        let answer = self.answer_of(end).await?;
        let agent_id = match callback.mode {
            GroupMode::Isolated => None,
            GroupMode::Shared => Some(child.agent_id.unwrap_or_default()),
        };
        let result = result_of("Agent member", end, &answer, agent_id.as_deref());
        self.bring_back(end, parent, message, group, result).await
    }

    /// The record of an operation that has ended, whose owner is known, and which `parent` has
    /// started: nobody else brings results to a placeholder of `parent` this way.
    async fn child(&self, end: &End, parent: &str) -> Result<OperationRecord, CallbackError> {
        let record = self.parts().operations.load(&end.operation_id).await;
        let record = record.map_err(CallbackError::Port)?;
        let is_child = |record: &OperationRecord| {
            let user = record.user_id.as_deref();
            user.is_some_and(|user| !user.is_empty())
                && record.parent_operation_id.as_deref() == Some(parent)
        };
        record
            .filter(is_child)
            .ok_or(CallbackError::UnknownOperation)
    }

    async fn answer_of(&self, end: &End) -> Result<Answer, CallbackError> {
        let answer = self.parts().runs.answer(&end.operation_id).await;
        Ok(answer.map_err(CallbackError::Port)?.unwrap_or_default())
    }

    async fn bring_back(
        &self,
        end: &End,
        parent: &str,
        message: &String,
        group: Option<&String>,
        result: ToolRunResult,
    ) -> Result<CallbackReceipt, CallbackError> {
        // One that waits for a human has not ended: its parent waits on.
        let mut resumed = false;
        if RunReason::parse(&end.reason) != Some(RunReason::WaitingForHuman) {
            match self.fill(parent, message, result, Source::Run).await {
                // Nobody wants it any more, however often it is sent.
                Err(CompleteError::Unknown) if !self.is_wanted(parent, message, group).await? => {}
                // Its row was removed, so that nothing is waited for there.
                Err(CompleteError::NoRow(_)) if self.is_removed(message).await? => {
                    resumed = self.check_barrier(parent).await?;
                }
                filled => {
                    filled?;
                    resumed = self.check_barrier(parent).await?;
                }
            }
        }
        Ok(CallbackReceipt {
            operation_id: end.operation_id.clone(),
            parent_operation_id: parent.to_owned(),
            resumed,
            success: true,
        })
    }
}

impl AgentRuntime {
    async fn is_removed(&self, message: &String) -> Result<bool, CallbackError> {
        Ok(self.rows(std::slice::from_ref(message)).await?.is_empty())
    }

    /// Whether a result without a placeholder may find one later, because the call is made again:
    /// its row and that of its group are there and take one, and `parent` was not cancelled.
    async fn is_wanted(
        &self,
        parent: &str,
        message: &String,
        group: Option<&String>,
    ) -> Result<bool, CallbackError> {
        let stopped = self.0.completions.is_stopped(parent).await;
        if stopped.map_err(CompleteError::from)? {
            return Ok(false);
        }
        for message in [Some(message), group].into_iter().flatten() {
            let rows = self.rows(std::slice::from_ref(message)).await?;
            if !rows.first().is_some_and(ToolRow::takes_result) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn bridge_webhook(path: &str, callback: &impl Serialize) -> Webhook {
    let body = match serde_json::to_value(callback) {
        Ok(Value::Object(body)) => body,
        _ => Map::new(),
    };
    Webhook::to(path)
        .durable()
        .critical()
        .event_fields(EVENT_FIELDS)
        .body(body)
}

fn end_of(event: &OnComplete) -> End {
    End {
        operation_id: event.0.operation_id.clone(),
        reason: event.0.reason.clone(),
    }
}

/// The result of a run. `responder` has answered where everybody reads it.
fn result_of(what: &str, end: &End, answer: &Answer, responder: Option<&str>) -> ToolRunResult {
    let reason = end.reason.as_str();
    let is_success = RunReason::parse(reason).is_some_and(RunReason::is_success);
    let is_failed = !is_success || reason == TIMEOUT;
    let content = match (&answer.error, responder) {
        (Some(error), _) if is_failed => format!("{what} did not complete ({reason}): {error}"),
        (None, _) if is_failed => format!("{what} did not complete ({reason})."),
        (_, Some(agent_id)) => format!("Agent {agent_id} responded in the group."),
        _ if answer.text.trim().is_empty() => {
            format!("{what} completed without a textual answer.")
        }
        _ => answer.text.clone(),
    };
    ToolRunResult {
        content,
        success: is_success,
        state: Some(answer.usage.clone()),
        ..ToolRunResult::default()
    }
}

/// In process nobody tries again: the watchdog of the parent does.
fn log(ended: Result<CallbackReceipt, CallbackError>) {
    if let Err(error) = ended {
        let error = &error as &dyn std::error::Error;
        tracing::error!(error, "the end of another agent was not brought back");
    }
}
