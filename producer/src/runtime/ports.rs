//! What a runtime implements: a few small traits, each of which may be called from many tasks.

use std::error::Error;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pipeline::ToolRun;
use super::record::OperationRecord;
use super::row::{NewToolRow, ToolRow};
use crate::hooks::{AgentHook, ToolCall, ToolRunResult};

/// Whatever a port fails with. It reaches the caller of the seam, which tries the step again.
pub type PortError = Box<dyn Error + Send + Sync>;
/// What a port answers.
pub type PortResult<'a, T> = BoxFuture<'a, Result<T, PortError>>;

/// A tool: built in, in a sandbox, behind MCP or in the user's client. All take the same path.
pub trait Tool: Send + Sync + 'static {
    /// Runs the call once. The future is dropped when the run is cancelled.
    ///
    /// A tool whose result comes later asks for its placeholder with [`ToolRun::defer`], hands it
    /// to whoever will complete it, and returns a result with `deferred` set.
    ///
    /// # Errors
    /// The call brought no result at all: `onToolCallError`. A tool that ran and failed returns a
    /// result with `success: false`.
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult>;

    /// Whether the call is worth repeating after `result`, which failed.
    fn may_retry(&self, result: &ToolRunResult) -> bool {
        let _ = result;
        false
    }

    /// What one call costs that was made, however often it was tried.
    fn cost(&self) -> f64 {
        0.0
    }
}

/// What to do with rows that were changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// Write all of them.
    Commit,
    /// Write none.
    Abandon,
}

/// Changes rows in memory: one entry for each id that was asked for, `None` where there is no such
/// row. May be called again when the transaction is tried again.
pub type Change<'a> = Box<dyn FnMut(&mut [Option<ToolRow>]) -> Write + Send + 'a>;

/// Keeps tool messages, in whatever database the runtime has.
pub trait MessageStore: Send + Sync + 'static {
    /// Puts a new row, unless there is one for the same assistant message and tool call: then that
    /// one is returned as it is. The row has an id. A row that was put comes back with equal content,
    /// error and state: by them the caller finds out whether its result is the one that is shown.
    fn insert(&self, row: NewToolRow) -> PortResult<'_, ToolRow>;

    /// The row of a call; `None` when there is none.
    fn find<'a>(
        &'a self,
        assistant_message_id: &'a str,
        tool_call_id: &'a str,
    ) -> PortResult<'a, Option<ToolRow>>;

    /// Reads the rows with these ids under lock, lets `change` change them, and writes them in the
    /// same transaction if it says so. `change` gets them in the order of `ids`; lock them in
    /// the order of their names, so that two transactions never wait for each other.
    fn change<'a>(&'a self, ids: &'a [String], change: Change<'a>) -> PortResult<'a, ()>;

    /// Removes a row. Safe to repeat.
    fn remove<'a>(&'a self, id: &'a str) -> PortResult<'a, ()>;
}

/// Keeps what an operation leaves for other processes. [`StoredOperations`] keeps it in our store.
///
/// [`StoredOperations`]: super::StoredOperations
pub trait OperationStore: Send + Sync + 'static {
    /// Stores the record durably, in place of the one there is. Safe to repeat.
    fn save<'a>(&'a self, operation_id: &'a str, record: &'a OperationRecord)
    -> PortResult<'a, ()>;

    /// The record; `None` when there is none. A failure to read is an error, never `None`.
    fn load<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, Option<OperationRecord>>;

    /// The operation has ended: its record may go after a while. Safe to repeat.
    fn retire<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, ()>;
}

/// Shortens what is too large for a row.
pub trait Archive: Send + Sync + 'static {
    /// Keeps the whole result of `call` elsewhere and returns what its row should show. A failure
    /// is logged, and the row shows the whole result. The future is dropped when the run is
    /// cancelled.
    fn archive<'a>(
        &'a self,
        call: &'a ToolCall,
        result: &'a ToolRunResult,
    ) -> PortResult<'a, ToolRunResult>;
}

/// A tool call that has ended, as it is streamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolEnd {
    /// The operation.
    pub operation_id: String,
    /// Number of the step, from 0.
    pub step_index: u64,
    /// The model's id of the call.
    pub tool_call_id: String,
    /// The row of the result.
    pub tool_message_id: String,
    /// The tool.
    pub identifier: String,
    /// The function.
    pub api_name: String,
    /// How often the tool was run; 0 when it was not.
    pub attempts: u32,
    /// How often it might have been.
    pub max_attempts: u32,
    /// How long it took, in milliseconds.
    pub execution_time: f64,
    /// What the call costs.
    pub cost: f64,
    /// Whether it succeeded.
    pub is_success: bool,
    /// What the model gets to read, after every verdict.
    pub result: ToolRunResult,
}

/// What is streamed to whoever watches a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "type", content = "data")]
pub enum StreamEvent {
    /// A tool call has ended and its row is written.
    ToolEnd(Box<ToolEnd>),
}

/// Tells whoever watches a run.
pub trait EventStream: Send + Sync + 'static {
    /// Sends one event. A failure is logged and goes no further: the row is what counts.
    fn send(&self, event: StreamEvent) -> PortResult<'_, ()>;
}

/// How a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// It has work to do.
    Running,
    /// It waits for a human.
    WaitingForHuman,
    /// It waits for results of tools.
    WaitingForAsyncTool,
    /// It has ended.
    Done,
    /// It has failed.
    Error,
    /// It was stopped.
    Interrupted,
}

impl RunStatus {
    /// Whether nothing will come of it any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Error | Self::Interrupted)
    }
}

/// An agent to start.
#[derive(Debug)]
pub struct StartAgent {
    /// The same for every repeat of this start: two starts with one key are one.
    pub key: String,
    /// Who starts it: [`NewOperation::parent_operation_id`](super::NewOperation) of the new one,
    /// by which its end is known to belong here.
    pub parent_operation_id: String,
    /// The agent.
    pub agent_id: String,
    /// What it is told.
    pub instruction: String,
    /// The thread to continue; `None` = a new one.
    pub thread_id: Option<String>,
    /// The owner.
    pub user_id: Option<String>,
    /// The hook that brings its end back. Register it with the new operation.
    pub bridge: AgentHook,
    /// What to store with the new operation so that its end can be brought back after its hooks
    /// are gone: [`NewOperation::group_member_bridge`](super::NewOperation).
    pub group_member_bridge: Option<Value>,
}

/// An agent that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedAgent {
    /// Its operation.
    pub operation_id: String,
    /// Its thread; `None` where members of a group share one.
    pub thread_id: Option<String>,
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// What its agent said last.
    pub text: String,
    /// What went wrong.
    pub error: Option<String>,
    /// What it used: `totalCost`, `totalTokens` and the like.
    pub usage: Map<String, Value>,
}

/// The runtime's own runs.
pub trait Runs: Send + Sync + 'static {
    /// Starts another agent: [`AgentRuntime::start`](super::AgentRuntime::start) with its bridge
    /// among the hooks and `parent_operation_id` as in `agent`. Without that its end is refused.
    fn start(&self, agent: StartAgent) -> PortResult<'_, StartedAgent>;

    /// What came of an operation; `None` when it is not known.
    fn answer<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, Option<Answer>>;

    /// How an operation is; `None` when it is not known.
    fn status<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, Option<RunStatus>>;

    /// Lets an operation that waits for tools go on. Compare and set: of many callers one gets
    /// `true`, and only while the operation waits.
    fn resume<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, bool>;
}
