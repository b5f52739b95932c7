//! 25.15: agents that are started by tools, and how their ends come back.

mod agents;
mod callbacks;
mod groups;
mod watched;

use std::sync::Arc;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;

use crate::support::*;

/// Calls one agent.
pub(super) struct CallsAgent(AgentCall);

impl Tool for CallsAgent {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move { run.call_agent(self.0.clone()).await })
    }
}

/// Calls a group.
pub(super) struct CallsGroup(GroupCall);

impl Tool for CallsGroup {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move { run.call_group(self.0.clone()).await })
    }
}

pub(super) fn agent(id: &str) -> AgentCall {
    AgentCall {
        agent_id: id.to_owned(),
        instruction: format!("{}🚀 go", "x".repeat(199)),
        thread_id: Some(format!("thread-{id}")),
    }
}

pub(super) fn group(members: &[&str]) -> GroupCall {
    GroupCall {
        members: members.iter().map(|id| agent(id)).collect(),
        mode: GroupMode::Isolated,
        on_complete: Some("finish".to_owned()),
        deadline_at: None,
    }
}

/// Starts the parent with these hooks and lets it call.
pub(super) async fn call_from(
    world: &World,
    hooks: Vec<AgentHook>,
    tool: Arc<dyn Tool>,
) -> CallOutcome {
    let operation = world.start(hooks).await;
    let outcome = run(&operation, "c1", &tool).await;
    world.others.park(OP);
    world.drain().await;
    outcome
}

/// The operation of the agent that was started.
pub(super) async fn child(world: &World, id: &str) -> Operation {
    let started = {
        let mut all = world.others.started.lock().unwrap();
        let index = all
            .iter()
            .position(|one| one.agent_id == id)
            .expect("started");
        all.remove(index)
    };
    let new = NewOperation {
        id: format!("sub-{id}"),
        agent_id: id.to_owned(),
        parent_operation_id: Some(started.parent_operation_id),
        group_member_bridge: started.group_member_bridge,
        ..new_operation("", vec![started.bridge])
    };
    world.runtime.start(new).await.expect("started")
}

/// Ends the agent with this text.
pub(super) async fn ends(world: &World, id: &str, reason: RunReason, answer: Answer) {
    world.others.answer_with(&format!("sub-{id}"), answer);
    let operation = child(world, id).await;
    operation
        .end(reason, RunEnd::default())
        .await
        .expect("told");
}

pub(super) fn says(text: &str) -> Answer {
    Answer {
        text: text.to_owned(),
        ..Answer::default()
    }
}
