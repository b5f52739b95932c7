//! Tools that start other agents. Their events belong to the operation that starts them; "after"
//! means started, not ended.

use serde_json::{Map, json};

use super::bridges::AgentCallback;
use super::operation::Operation;
use super::pipeline::ToolRun;
use super::ports::{PortError, StartAgent, StartedAgent};
use super::truncate::head;
use crate::hooks::{AfterCallAgent, AgentHook, BeforeCallAgent, OnCallAgentError, ToolRunResult};

/// Most UTF-16 units of an instruction that hooks are told.
const INSTRUCTION_UNITS: usize = 200;
/// What an agent that could not be started says when nothing better is known.
const FAILED: &str = "Sub-agent execution failed";

/// An agent to call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentCall {
    /// The agent.
    pub agent_id: String,
    /// What it is told.
    pub instruction: String,
    /// The thread to continue; `None` = a new one.
    pub thread_id: Option<String>,
}

impl ToolRun<'_> {
    /// Starts a sub-agent whose answer becomes the result of this call: the whole body of a tool.
    ///
    /// # Errors
    /// The placeholder cannot be opened; nothing was started. An agent that cannot be started is
    /// a result like any other.
    pub async fn call_agent(&self, agent: AgentCall) -> Result<ToolRunResult, PortError> {
        let mut state = Map::new();
        if let Some(thread_id) = &agent.thread_id {
            state.insert("threadId".to_owned(), json!(thread_id));
        }
        let row = self.open(state).await?;
        let bridge = self.operation.runtime.agent_bridge(AgentCallback {
            parent_operation_id: self.operation.id().to_owned(),
            thread_id: agent.thread_id.clone(),
            tool_message_id: row.id.clone(),
        });
        match self
            .operation
            .start_agent(&row.id, agent, bridge, None)
            .await
        {
            Ok(_) => Ok(deferred()),
            Err(error) => Ok(failed(&error)),
        }
    }
}

impl Operation {
    /// Starts one agent and tells the hooks of this operation how it went.
    pub(super) async fn start_agent(
        &self,
        key: &str,
        agent: AgentCall,
        bridge: AgentHook,
        member: Option<serde_json::Value>,
    ) -> Result<StartedAgent, String> {
        let user_id = self.user_id().map(str::to_owned);
        let operation_id = self.id().to_owned();
        let before = BeforeCallAgent {
            operation_id: operation_id.clone(),
            agent_id: agent.agent_id.clone(),
            instruction: head(&agent.instruction, INSTRUCTION_UNITS).to_owned(),
            user_id: user_id.clone(),
        };
        self.runtime.announce(before, self.hooks());
        let start = StartAgent {
            key: key.to_owned(),
            parent_operation_id: operation_id.clone(),
            agent_id: agent.agent_id.clone(),
            instruction: agent.instruction,
            thread_id: agent.thread_id,
            user_id: user_id.clone(),
            bridge,
            group_member_bridge: member,
        };
        match self.runtime.parts().runs.start(start).await {
            Ok(started) => {
                let after = AfterCallAgent {
                    operation_id,
                    agent_id: agent.agent_id,
                    sub_operation_id: started.operation_id.clone(),
                    success: true,
                    thread_id: started.thread_id.clone(),
                    user_id,
                };
                self.runtime.announce(after, self.hooks());
                Ok(started)
            }
            Err(error) => {
                let mut text = error.to_string();
                if text.is_empty() {
                    FAILED.clone_into(&mut text);
                }
                let failed = OnCallAgentError {
                    operation_id,
                    agent_id: agent.agent_id,
                    error: text.clone(),
                    user_id,
                };
                self.runtime.announce(failed, self.hooks());
                Err(text)
            }
        }
    }
}

pub(super) fn deferred() -> ToolRunResult {
    ToolRunResult {
        deferred: Some(true),
        success: true,
        ..ToolRunResult::default()
    }
}

pub(super) fn failed(text: &str) -> ToolRunResult {
    ToolRunResult {
        content: text.to_owned(),
        error: Some(json!({ "message": text })),
        ..ToolRunResult::default()
    }
}
