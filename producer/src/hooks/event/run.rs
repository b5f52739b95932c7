//! Events of a run and its steps.

use serde::Serialize;
use serde_json::Value;

use super::local::LocalState;
use super::number;

/// `beforeStep`: a step is about to run.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BeforeStep {
    /// The agent; empty when unknown.
    pub agent_id: String,
    /// The operation.
    pub operation_id: String,
    /// The owner of the operation.
    pub user_id: String,
    /// Number of the step, from 0.
    pub step_index: u64,
    /// Steps done so far.
    pub steps: u64,
    /// The runtime's state, for handlers only.
    #[serde(skip)]
    pub final_state: Option<LocalState>,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepType {
    /// It asked the model.
    #[default]
    CallLlm,
    /// It called tools.
    CallTool,
}

/// A tool that the model wants to call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CalledTool {
    /// The function.
    pub api_name: String,
    /// Its arguments as the model wrote them.
    pub arguments: String,
    /// The tool.
    pub identifier: String,
}

/// What came of one tool call of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolOutcome {
    /// The function; `unknown` when it is not known.
    pub api_name: String,
    /// The tool; `unknown` when it is not known.
    pub identifier: String,
    /// Whether it succeeded.
    pub is_success: bool,
    /// What it answered; JSON text when that was no string.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// `afterStep`: a step has run.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AfterStep {
    /// The agent; empty when unknown.
    pub agent_id: String,
    /// The operation.
    pub operation_id: String,
    /// The owner of the operation.
    pub user_id: String,
    /// Number of the step, from 0.
    pub step_index: u64,
    /// Steps done, this one included.
    pub steps: u64,
    /// What the step did.
    pub step_type: StepType,
    /// Whether the model was asked.
    pub thinking: bool,
    /// Whether another step follows.
    pub should_continue: bool,
    /// Status of the run after the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// What the model wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// How the model came to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<String>,
    /// The tools that the model wants to call; absent when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools_calling: Vec<CalledTool>,
    /// What came of tool calls; absent when there was none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools_result: Vec<ToolOutcome>,
    /// How long the step took, in milliseconds.
    pub execution_time_ms: u64,
    /// How long the run has taken, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_ms: Option<u64>,
    /// What the step cost.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "number::optional"
    )]
    pub step_cost: Option<f64>,
    /// What the run has cost.
    #[serde(serialize_with = "number::plain")]
    pub total_cost: f64,
    /// Tokens given to models so far.
    pub total_input_tokens: u64,
    /// Tokens written by models so far.
    pub total_output_tokens: u64,
    /// All tokens so far.
    pub total_tokens: u64,
    /// All steps so far.
    pub total_steps: u64,
    /// All tool calls so far, those of this step included.
    pub total_tool_calls: u64,
    /// Tool calls as the run's usage counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// The beginning of what the model wrote last.
    #[serde(rename = "lastLLMContent", skip_serializing_if = "Option::is_none")]
    pub last_llm_content: Option<String>,
    /// The tools that the model wanted to call last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_tools_calling: Option<Value>,
    /// A label of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_label: Option<String>,
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,
    /// The runtime's state, for handlers only.
    #[serde(skip)]
    pub final_state: Option<LocalState>,
}

/// What kind of file an attachment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AttachmentType {
    /// A picture.
    Image,
    /// Any file.
    File,
    /// A film.
    Video,
    /// Sound.
    Audio,
}

/// A file that belongs to an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// What it is.
    pub r#type: AttachmentType,
    /// Its content in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Where to get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_url: Option<String>,
    /// Its media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Whose error it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorAttribution {
    /// The user's.
    User,
    /// The model provider's.
    Provider,
    /// The runtime's.
    Harness,
    /// The platform's.
    System,
}

/// How a run ended, or why it waits for a human.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunEnd {
    /// The agent; empty when unknown.
    pub agent_id: String,
    /// The operation.
    pub operation_id: String,
    /// The owner of the operation.
    pub user_id: String,
    /// `done`, `error`, `interrupted`, `max_steps`, `cost_limit` or `waiting_for_human`.
    pub reason: String,
    /// Status of the run; its reason when there is none.
    pub status: String,
    /// Steps done.
    pub steps: u64,
    /// What went wrong in words; empty when nothing did.
    pub error_message: String,
    /// What the run cost.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "number::optional"
    )]
    pub cost: Option<f64>,
    /// How long it took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<u64>,
    /// How often models were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_calls: Option<u64>,
    /// How often tools were called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// All tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_tokens: Option<u64>,
    /// The topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic_id: Option<String>,
    /// What the agent said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_assistant_content: Option<String>,
    /// Files that belong to it; absent when there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The error as the runtime has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_detail: Option<Value>,
    /// Its type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// Whose it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_attribution: Option<ErrorAttribution>,
    /// How much of the budget for errors is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_budget: Option<Value>,
    /// What a foreign runtime says about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_heterogeneous: Option<Value>,
    /// Whatever the starter of the run attached to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// The runtime's state, for handlers only.
    #[serde(skip)]
    pub final_state: Option<LocalState>,
}

/// `onComplete`: a run has ended, or waits for a human.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OnComplete(pub RunEnd);

/// `onError`: a run has failed. Dispatched after `onComplete`, with the same content.
#[derive(Debug, Clone, Default, Serialize)]
pub struct OnError(pub RunEnd);
