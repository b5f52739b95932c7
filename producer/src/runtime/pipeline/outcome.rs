//! What came of tool calls.

use crate::hooks::{ToolCall, ToolRunResult};
use crate::runtime::row::ToolRow;

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// Its result is published, a failed one too.
    Published,
    /// A control denied the call: the tool has not run.
    DeniedBefore,
    /// A control denied the result: the tool has run, and nothing of what it said is left.
    DeniedAfter,
    /// It brought no result but an error, which is published in place of one.
    Failed,
    /// The tool is not on the list of this run.
    NotAllowed,
    /// Its result comes later.
    Deferred,
    /// A human has to decide first.
    WaitingForHuman,
    /// The run was cancelled: nothing is published.
    Interrupted,
}

/// What came of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutcome {
    /// The call.
    pub call: ToolCall,
    /// How it ended.
    pub end: CallEnd,
    /// Its row; empty when there is none.
    pub tool_message_id: String,
    /// What the model gets to read; `None` while there is nothing.
    pub result: Option<ToolRunResult>,
    /// How often the tool was run.
    pub attempts: u32,
    /// How often it might have been; 0 when the call was not made.
    pub attempts_max: u32,
    /// What it costs.
    pub cost: f64,
    /// Whether a handler put its result in place of the call.
    pub mocked: bool,
}

impl CallOutcome {
    /// A call that ended without being made.
    pub(crate) fn not_made(call: ToolCall, end: CallEnd) -> Self {
        Self {
            call,
            end,
            tool_message_id: String::new(),
            result: None,
            attempts: 0,
            attempts_max: 0,
            cost: 0.0,
            mocked: false,
        }
    }

    /// A call of which nothing is published, because its run was cancelled.
    pub(super) fn interrupted(call: ToolCall, row: Option<&ToolRow>) -> Self {
        Self {
            tool_message_id: row.map(|row| row.id.clone()).unwrap_or_default(),
            ..Self::not_made(call, CallEnd::Interrupted)
        }
    }
}

/// How the run goes on after its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// With the model.
    Running,
    /// Not: a tool says that the run ends here.
    Done,
    /// When a human has decided.
    WaitingForHuman,
    /// When results have come.
    WaitingForAsyncTool,
    /// Not: it was cancelled.
    Interrupted,
}

/// What came of the calls of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolsOutcome {
    /// The calls, lane by lane.
    pub calls: Vec<CallOutcome>,
    /// What all of them cost.
    pub cost: f64,
    /// How the run goes on.
    pub state: RunState,
}

impl ToolsOutcome {
    /// The run was cancelled: nothing is waited for.
    pub(super) fn interrupted(mut self) -> Self {
        self.state = RunState::Interrupted;
        for call in &mut self.calls {
            if call.end == CallEnd::Deferred {
                call.end = CallEnd::Interrupted;
            }
        }
        self
    }

    pub(super) fn of(calls: Vec<CallOutcome>, is_cancelled: bool) -> Self {
        let any = |end: CallEnd| calls.iter().any(|call| call.end == end);
        let stops = |call: &CallOutcome| {
            let result = call.result.as_ref();
            result.is_some_and(|result| result.stop == Some(true))
        };
        let state = if is_cancelled || any(CallEnd::Interrupted) {
            RunState::Interrupted
        } else if any(CallEnd::WaitingForHuman) {
            RunState::WaitingForHuman
        } else if any(CallEnd::Deferred) {
            RunState::WaitingForAsyncTool
        } else if calls.iter().any(stops) {
            RunState::Done
        } else {
            RunState::Running
        };
        Self {
            cost: calls.iter().map(|call| call.cost).sum(),
            calls,
            state,
        }
    }
}
