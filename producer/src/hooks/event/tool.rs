//! Events of one tool call.

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::local::Mock;
use super::number;

/// Where a tool runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// In the runtime, or wherever the runtime sends it.
    #[default]
    Server,
    /// In the user's client.
    Client,
}

/// A tool call and everything that says where it comes from. [`super::super::ToolCallSources`]
/// makes one by the rules of precedence.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolCall {
    /// The user's device that is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_device_id: Option<String>,
    /// The agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The function of the tool.
    pub api_name: String,
    /// Its arguments; empty when the model wrote no JSON object.
    pub args: Map<String, Value>,
    /// The message in which the model asked for the call.
    pub assistant_message_id: String,
    /// Which call of this function it is in the run, from 1. Calls of one batch share a number:
    /// tell them apart by `tool_call_id`.
    pub call_index: u64,
    /// The document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_id: Option<String>,
    /// What the call is executed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub execution_target: Option<String>,
    /// Where it runs.
    pub executor: Executor,
    /// The group of agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_id: Option<String>,
    /// The tool.
    pub identifier: String,
    /// The operation.
    pub operation_id: String,
    /// The operation that started this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_operation_id: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The message that caused the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_message_id: Option<String>,
    /// Number of the step, from 0.
    pub step_index: u64,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// The thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The model's own id of the call, never made up.
    pub tool_call_id: String,
    /// The existing row that will take the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_message_id: Option<String>,
    /// Where the tool comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_source: Option<String>,
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,
    /// The owner of the operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<String>,
}

/// What a tool call brought.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ToolRunResult {
    /// What the model gets to read.
    pub content: String,
    /// The error, of whatever shape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// How long it took, in milliseconds.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "number::optional"
    )]
    pub execution_time: Option<f64>,
    /// How long it took on the user's device, in milliseconds.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "number::optional"
    )]
    pub device_execution_time: Option<f64>,
    /// What the tool keeps beside its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Map<String, Value>>,
    /// Whether the run should end here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<bool>,
    /// Whether it succeeded.
    pub success: bool,
    /// Whether this is a placeholder for a result that comes later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<bool>,
    /// What the tool registers as done work: an object with a `type`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_registration: Option<Value>,
    /// Whatever else the runtime keeps with a result. What has the name of a field above is not
    /// written: a receiver would read it in place of the field.
    #[serde(flatten, serialize_with = "others")]
    pub other: Map<String, Value>,
}

/// The fields of a result by their names in JSON.
const RESULT_FIELDS: [&str; 9] = [
    "content",
    "error",
    "executionTime",
    "deviceExecutionTime",
    "state",
    "stop",
    "success",
    "deferred",
    "workRegistration",
];

fn others<S: Serializer>(other: &Map<String, Value>, serializer: S) -> Result<S::Ok, S::Error> {
    let others = other.iter();
    serializer.collect_map(others.filter(|(name, _)| !RESULT_FIELDS.contains(&name.as_str())))
}

/// `beforeToolCall`: a tool is about to be called.
#[derive(Debug, Clone, Default, Serialize)]
pub struct BeforeToolCall {
    /// The call.
    #[serde(flatten)]
    pub call: ToolCall,
    /// Takes a result in place of the call, where handlers are asked for one.
    #[serde(skip)]
    pub(crate) mock: Mock,
}

impl BeforeToolCall {
    /// The event of `call`.
    pub fn of_call(call: ToolCall) -> Self {
        Self {
            call,
            mock: Mock::default(),
        }
    }

    /// Puts `result` in place of the call, which is then not made. The first result wins: `false`
    /// when there is one already, or when this event only observes.
    pub fn mock(&self, result: ToolRunResult) -> bool {
        self.mock.put(result)
    }
}

impl From<ToolCall> for BeforeToolCall {
    fn from(call: ToolCall) -> Self {
        Self::of_call(call)
    }
}

/// `afterToolCall`: a tool call has brought a result, a failed or mocked one too.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AfterToolCall {
    /// The call.
    #[serde(flatten)]
    pub call: ToolCall,
    /// Whether a handler put the result in place of the call.
    pub mocked: bool,
    /// The result.
    pub result: ToolRunResult,
}

/// `onToolCallError`: a tool call has failed without a result.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OnToolCallError {
    /// The call.
    #[serde(flatten)]
    pub call: ToolCall,
    /// What went wrong.
    pub error: String,
}
