//! A tool that starts several agents: each member has a placeholder of its own, and the group has
//! its receipt when the last of them has its result.

use hookstash_shared::store::Opening;
use serde_json::{Map, Value, json};

use super::AgentRuntime;
use super::barrier::BarrierError;
use super::bridges::{GroupMode, MemberCallback};
use super::completions::{Context, Source};
use super::pipeline::ToolRun;
use super::ports::PortError;
use super::projection::takes_none;
use super::row::{NewToolRow, ToolRow};
use super::sub_agents::{AgentCall, deferred, failed};
use crate::hooks::{ToolCall, ToolRunResult};

/// Most members of a group.
const MEMBERS_MAX: usize = 64;

/// Agents to call together.
#[derive(Debug, Clone)]
pub struct GroupCall {
    /// The agents.
    pub members: Vec<AgentCall>,
    /// Where they answer.
    pub mode: GroupMode,
    /// What the run does afterwards: `finish` ends it.
    pub on_complete: Option<String>,
    /// When waiting for them is over, in milliseconds since 1970; `None` = never.
    pub deadline_at: Option<u64>,
}

impl ToolRun<'_> {
    /// Starts all members. Those that cannot be started have their result at once; when none can,
    /// nothing is left of the group but an error.
    ///
    /// # Errors
    /// A placeholder cannot be opened.
    pub async fn call_group(&self, group: GroupCall) -> Result<ToolRunResult, PortError> {
        let count = group.members.len();
        if count == 0 || count > MEMBERS_MAX {
            return Ok(failed(&format!("A group has 1 to {MEMBERS_MAX} members.")));
        }
        let mut state = Map::new();
        state.insert("expectedMembers".to_owned(), json!(count));
        if let Some(on_complete) = &group.on_complete {
            state.insert("onComplete".to_owned(), json!(on_complete));
        }
        let row = self.open(state).await?;
        let anchors = self.anchors(&row, &group).await?;
        let mut missing = Vec::new();
        for (agent, (anchor, is_final)) in group.members.iter().zip(&anchors) {
            // An earlier try has started it, and it has ended.
            if *is_final {
                continue;
            }
            let member = MemberCallback {
                anchor_message_id: anchor.clone(),
                deadline_at: group.deadline_at,
                expected_members: count,
                group_tool_message_id: row.id.clone(),
                mode: group.mode,
                on_complete: group.on_complete.clone(),
                parent_operation_id: self.operation.id().to_owned(),
                thread_id: agent.thread_id.clone(),
            };
            let record = serde_json::to_value(&member)?;
            let bridge = self.operation.runtime.member_bridge(member);
            let started = self
                .operation
                .start_agent(anchor, agent.clone(), bridge, Some(record))
                .await;
            if started.is_err() {
                missing.push((agent, anchor));
            }
        }
        if missing.len() == count {
            self.take_back(&row, &anchors).await?;
            return Ok(failed("No agent member could be started."));
        }
        self.give_up(missing).await?;
        Ok(deferred())
    }

    /// One placeholder for each member, and whether it has its result already. A single member uses
    /// that of the group.
    async fn anchors(
        &self,
        group: &ToolRow,
        what: &GroupCall,
    ) -> Result<Vec<(String, bool)>, PortError> {
        if what.members.len() == 1 {
            return Ok(vec![(group.id.clone(), false)]);
        }
        let runtime = &self.operation.runtime;
        let mut anchors = Vec::with_capacity(what.members.len());
        for index in 0..what.members.len() {
            let row = NewToolRow {
                call: ToolCall {
                    tool_call_id: anchor_call_id(&self.call.tool_call_id, index),
                    tool_message_id: None,
                    ..self.call.clone()
                },
                state: json!({ "status": "pending" }).as_object().cloned(),
                ..NewToolRow::default()
            };
            let row = runtime.parts().messages.insert(row).await?;
            if row.is_final {
                anchors.push((row.id, true));
                continue;
            }
            let context = Context {
                call: Some(ToolCall {
                    tool_message_id: Some(row.id.clone()),
                    ..self.call.clone()
                }),
                operations: self.deferral.operations.clone(),
                on_complete: what.on_complete.clone(),
            };
            let completions = &runtime.0.completions;
            let opening = completions.open(self.operation.id(), &row.id, &context);
            if opening.await? == Opening::Stopped {
                self.operation.stop(group).await?;
                return Err(takes_none(&group.id));
            }
            anchors.push((row.id, false));
        }
        Ok(anchors)
    }

    /// Members that could not be started have that as their result, after its controls.
    async fn give_up(&self, members: Vec<(&AgentCall, &String)>) -> Result<(), PortError> {
        for (agent, anchor) in members {
            let text = format!("Agent member \"{}\" failed to start.", agent.agent_id);
            let parent = self.operation.id();
            let runtime = &self.operation.runtime;
            runtime
                .fill(parent, anchor, failed(&text), Source::Run)
                .await?;
        }
        Ok(())
    }

    /// Nobody was started: the members' placeholders go; the group's takes the error.
    async fn take_back(
        &self,
        group: &ToolRow,
        anchors: &[(String, bool)],
    ) -> Result<(), PortError> {
        let runtime = &self.operation.runtime;
        for (anchor, _) in anchors.iter().filter(|(anchor, _)| *anchor != group.id) {
            runtime
                .0
                .completions
                .withdraw(self.operation.id(), anchor)
                .await?;
            runtime.parts().messages.remove(anchor).await?;
        }
        Ok(())
    }
}

impl AgentRuntime {
    /// Gives a group its receipt when all of its members have their results; whether it has it.
    pub(super) async fn check_group(
        &self,
        operation_id: &str,
        group: &ToolRow,
    ) -> Result<bool, BarrierError> {
        let expected = members_of(group);
        if expected < 2 {
            return Ok(false);
        }
        let members = self.members(group).await.map_err(BarrierError::Rows)?;
        if members.len() < expected {
            return Ok(false);
        }
        for anchor in members {
            let is_there =
                anchor.is_fulfilled() || self.collect(operation_id, &anchor.id).await?.is_some();
            if !is_there {
                return Ok(false);
            }
        }
        let receipt = ToolRunResult {
            content: format!("All {expected} agent members completed."),
            success: true,
            ..ToolRunResult::default()
        };
        self.fill(operation_id, &group.id, receipt, Source::Run)
            .await?;
        Ok(true)
    }

    /// The rows of a group's members, as far as there are any; none for other calls, and where a
    /// single member uses the row of its group.
    pub(super) async fn members(&self, group: &ToolRow) -> Result<Vec<ToolRow>, PortError> {
        let expected = members_of(group);
        let mut members = Vec::new();
        for index in (0..expected).filter(|_| expected > 1) {
            let call_id = anchor_call_id(&group.call.tool_call_id, index);
            let message = &group.call.assistant_message_id;
            members.extend(self.parts().messages.find(message, &call_id).await?);
        }
        Ok(members)
    }
}

/// How many members a group's row says that it has; 0 for rows of other calls.
fn members_of(group: &ToolRow) -> usize {
    let state = group.state.as_ref();
    let expected = state.and_then(|state| state.get("expectedMembers"));
    let expected = expected.and_then(Value::as_u64).unwrap_or_default();
    usize::try_from(expected).map_or(MEMBERS_MAX, |expected| expected.min(MEMBERS_MAX))
}

fn anchor_call_id(call_id: &str, index: usize) -> String {
    format!("{call_id}::m{index}")
}
