//! The loop of the runtime: a step is what the model says, tools, or compressing.

use std::collections::VecDeque;

use anyhow::Result;
use hookstash_producer::hooks::{
    AfterStep, BeforeStep, Belonging, CalledTool, RequestedCall, RunEnd, StepType, ToolCallSources,
    ToolOutcome,
};
use hookstash_producer::runtime::{
    CallEnd, Compacted, Compaction, Lane, NewOperation, Operation, Permission, RunReason, RunState,
    StepTracker, ToolRequest, ToolsOutcome,
};
use serde_json::Value;

use crate::hooks;
use crate::house::House;

/// What the scripted model does next.
#[derive(Clone)]
pub(crate) enum Turn {
    /// It says something.
    Say(&'static str),
    /// It calls tools: lanes beside each other, the calls of a lane in order.
    Call(Vec<Vec<Call>>),
    /// The conversation has become long.
    Compact,
    /// The same, and the model that summarises is not there.
    CompactBadly,
}

/// A call as the model writes it.
#[derive(Clone)]
pub(crate) struct Call {
    tool: &'static str,
    arguments: Value,
}

pub(crate) fn call(tool: &'static str, arguments: Value) -> Call {
    Call { tool, arguments }
}

/// Why a run returned.
pub(crate) enum Paused {
    /// Its script is at its end.
    AtTheEnd,
    /// A human has to decide about these calls.
    ForHuman(ToolsOutcome),
}

/// One run.
pub(crate) struct Agent<'a> {
    pub(crate) operation: Operation,
    house: &'a House,
    script: VecDeque<Turn>,
    last: Option<Turn>,
    step_index: u64,
    tracker: StepTracker,
}

impl<'a> Agent<'a> {
    pub(crate) async fn start(house: &'a House, id: &str, script: Vec<Turn>) -> Result<Self> {
        println!("agent  {id} starts");
        let operation = house
            .runtime
            .start(NewOperation {
                id: id.to_owned(),
                user_id: "ada".to_owned(),
                agent_id: "assistant".to_owned(),
                hooks: hooks::all(),
                ..NewOperation::default()
            })
            .await?;
        Ok(Self {
            operation,
            house,
            script: script.into(),
            last: None,
            step_index: 0,
            tracker: StepTracker::default(),
        })
    }

    /// Puts the last turn back: its calls go on where they stopped.
    pub(crate) fn repeat_last(&mut self) {
        if let Some(turn) = self.last.take() {
            self.script.push_front(turn);
            self.step_index -= 1;
        }
    }

    pub(crate) async fn run(&mut self) -> Result<Paused> {
        while let Some(turn) = self.script.pop_front() {
            self.last = Some(turn.clone());
            let paused = self.step(turn).await?;
            self.house.settle().await;
            self.step_index += 1;
            if let Some(outcome) = paused {
                let waits = RunReason::WaitingForHuman;
                self.operation.end(waits, RunEnd::default()).await?;
                return Ok(Paused::ForHuman(outcome));
            }
        }
        Ok(Paused::AtTheEnd)
    }

    /// Tells the end, once everything that was told before has been heard.
    pub(crate) async fn end(self, reason: RunReason, run: RunEnd) -> Result<()> {
        self.house.settle().await;
        self.operation.end(reason, run).await?;
        println!("agent  {} ends: {}", self.operation.id(), reason.as_str());
        Ok(())
    }

    /// One step; the calls that wait for a human, if it stops there.
    async fn step(&mut self, turn: Turn) -> Result<Option<ToolsOutcome>> {
        let before = BeforeStep {
            step_index: self.step_index,
            steps: self.step_index,
            ..BeforeStep::default()
        };
        self.operation.before_step(before).await;
        let mut after = AfterStep {
            step_index: self.step_index,
            steps: self.step_index + 1,
            should_continue: !self.script.is_empty(),
            ..AfterStep::default()
        };
        let mut waiting = None;
        match turn {
            Turn::Say(text) => after.content = Some(text.to_owned()),
            Turn::Call(lanes) => {
                after.step_type = StepType::CallTool;
                after.tools_calling = lanes.iter().flatten().map(called).collect();
                let requests = self.requests(lanes);
                let outcome = self.operation.run_tools(requests).await?;
                after.tools_result = outcome.calls.iter().map(outcome_of).collect();
                match outcome.state {
                    RunState::WaitingForAsyncTool => self.wait().await?,
                    RunState::WaitingForHuman => waiting = Some(outcome),
                    RunState::Running | RunState::Done | RunState::Interrupted => {}
                }
            }
            Turn::Compact => drop(self.compact(true).await),
            Turn::CompactBadly => drop(self.compact(false).await),
        }
        self.house.settle().await;
        self.operation.after_step(after, &mut self.tracker).await;
        Ok(waiting)
    }

    /// Parks until the last result has come.
    async fn wait(&self) -> Result<()> {
        println!("agent  {} waits for its tools", self.operation.id());
        let id = self.operation.id();
        self.house.crew.park(id);
        self.house.runtime.watch(id).await?;
        self.house.crew.until_resumed(id).await;
        println!("agent  {id} goes on");
        Ok(())
    }

    async fn compact(&self, works: bool) -> Result<Option<Compacted>, &'static str> {
        let what = Compaction {
            step_index: self.step_index,
            message_count: 12,
            token_count: 4_000,
        };
        let compress = async {
            if !works {
                return Err("the model that summarises is not there");
            }
            Ok(Some(Compacted {
                group_id: "group-1".to_owned(),
                message_count: 3,
                summary: "Notes were written. Nothing was deleted.".to_owned(),
            }))
        };
        self.operation.compact(what, compress).await
    }

    fn requests(&self, lanes: Vec<Vec<Call>>) -> Vec<Lane> {
        let mut number = 0;
        let mut request = |call: Call| {
            number += 1;
            let (identifier, api_name) = call.tool.split_once('/').unwrap_or((call.tool, ""));
            let sources = ToolCallSources {
                call: RequestedCall {
                    id: format!("call_{}_{number}", self.step_index),
                    identifier: identifier.to_owned(),
                    api_name: api_name.to_owned(),
                    arguments: call.arguments.to_string(),
                    ..RequestedCall::default()
                },
                operation_id: self.operation.id().to_owned(),
                step_index: self.step_index,
                assistant_message_id: format!("said in {}", self.operation.id()),
                runtime: Belonging {
                    agent_id: Some("assistant".to_owned()),
                    user_id: self.operation.user_id().map(str::to_owned),
                    ..Belonging::default()
                },
                ..ToolCallSources::default()
            };
            ToolRequest {
                call: sources.build(),
                tool: self.house.tool(call.tool),
                permission: match identifier {
                    "mail" => Permission::NeedsApproval,
                    _ => Permission::Granted,
                },
            }
        };
        let lanes = lanes.into_iter();
        lanes
            .map(|lane| lane.into_iter().map(&mut request).collect())
            .collect()
    }
}

fn called(call: &Call) -> CalledTool {
    let (identifier, api_name) = call.tool.split_once('/').unwrap_or((call.tool, ""));
    CalledTool {
        api_name: api_name.to_owned(),
        arguments: call.arguments.to_string(),
        identifier: identifier.to_owned(),
    }
}

fn outcome_of(call: &hookstash_producer::runtime::CallOutcome) -> ToolOutcome {
    let shown = call.result.as_ref().map(|result| result.content.as_str());
    let tool = format!("{}/{}", call.call.identifier, call.call.api_name);
    match call.end {
        CallEnd::DeniedBefore | CallEnd::DeniedAfter => {
            println!("tool   {tool} is denied: {}", shown.unwrap_or_default());
        }
        CallEnd::Deferred | CallEnd::WaitingForHuman => println!("tool   {tool} answers later"),
        _ => println!("tool   {tool}: {}", shown.unwrap_or_default()),
    }
    ToolOutcome {
        api_name: call.call.api_name.clone(),
        identifier: call.call.identifier.clone(),
        is_success: call.result.as_ref().is_some_and(|result| result.success),
        output: shown.map(str::to_owned),
    }
}
