//! What becomes visible of a result, after every verdict: one value for rows, streams and the
//! record that arbitrates.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::row::{Intervention, InterventionStatus, ToolRow};
use crate::hooks::{HOOK_DENIED, HookType, ToolRunResult};

/// What of a child's result stays when it is blocked: it was paid for.
const USAGE: [&str; 5] = [
    "totalCost",
    "totalInputTokens",
    "totalOutputTokens",
    "totalToolCalls",
    "totalTokens",
];

/// What happens to the state that a row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateChange {
    /// Its keys are added, or put in place of those of the same name.
    Merge,
    /// It is replaced.
    #[default]
    Replace,
}

/// A result as it becomes visible.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Publication {
    /// The result.
    pub result: ToolRunResult,
    /// What happens to the state that its row has.
    pub state: StateChange,
    /// Why the row's card is rejected; `None` = it is not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rejected_reason: Option<String>,
}

impl Publication {
    /// An allowed result.
    pub fn allowed(result: ToolRunResult, state: StateChange) -> Self {
        Self {
            rejected_reason: blocked_by_tool(&result),
            result,
            state,
        }
    }

    /// A denied call: the tool has not run.
    pub(crate) fn denied_before(reason: &str) -> Self {
        Self {
            result: ToolRunResult {
                content: reason.to_owned(),
                error: Some(HOOK_DENIED.into()),
                execution_time: Some(0.0),
                state: object(json!({ "reason": reason, "type": "blocked" })),
                ..ToolRunResult::default()
            },
            state: StateChange::Replace,
            rejected_reason: Some(reason.to_owned()),
        }
    }

    /// A denied result: nothing of it stays but what it took, and whether the run ends with it.
    pub(crate) fn denied_after(reason: &str, original: &ToolRunResult, kept: Kept) -> Self {
        let phase = HookType::AfterToolCall.as_str();
        let mut state = object(json!({ "phase": phase, "reason": reason, "type": "blocked" }))
            .unwrap_or_default();
        if kept == Kept::Usage {
            state.extend(usage(original));
        }
        Self {
            result: ToolRunResult {
                content: reason.to_owned(),
                error: Some(HOOK_DENIED.into()),
                execution_time: original.execution_time,
                device_execution_time: original.device_execution_time,
                stop: original.stop,
                state: Some(state),
                ..ToolRunResult::default()
            },
            state: StateChange::Replace,
            rejected_reason: Some(reason.to_owned()),
        }
    }

    /// Puts it into `row`, whole.
    pub fn apply(&self, row: &mut ToolRow) {
        let ToolRunResult {
            content,
            error,
            state,
            ..
        } = self.result.clone();
        row.content = content;
        row.error = error;
        row.state = match (self.state, row.state.take(), state) {
            (StateChange::Merge, Some(mut had), Some(new)) => {
                had.extend(new);
                Some(had)
            }
            (StateChange::Merge, had, new) => new.or(had),
            (StateChange::Replace, _, new) => new,
        };
        if let Some(reason) = &self.rejected_reason {
            let intervention = row.intervention.get_or_insert_with(Intervention::default);
            intervention.status = InterventionStatus::Rejected;
            intervention.rejected_reason = Some(reason.clone());
        }
        row.is_final = true;
    }

    /// Whether it is what `row` shows, when its state replaces the row's.
    pub(crate) fn is_shown_by(&self, row: &ToolRow) -> bool {
        let result = &self.result;
        row.is_final
            && row.content == result.content
            && row.error == result.error
            && row.state == result.state
    }
}

/// What of a blocked result stays in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Nothing.
    Nothing,
    /// What a run of our own used.
    Usage,
}

fn usage(result: &ToolRunResult) -> Map<String, Value> {
    let counters = result.state.iter().flatten();
    counters
        .filter(|(name, value)| USAGE.contains(&name.as_str()) && value.is_number())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// A tool that blocks itself, before it does anything: its card is rejected and it is free. A
/// state that looks like a verdict about a result is data like any other.
pub(crate) fn blocked_by_tool(result: &ToolRunResult) -> Option<String> {
    let state = result.state.as_ref()?;
    let is_blocked = state.get("type")? == "blocked";
    let is_of_a_result = state.get("phase").is_some_and(|it| it == "afterToolCall");
    let reason = state.get("reason").and_then(Value::as_str);
    (is_blocked && !is_of_a_result).then(|| reason.unwrap_or(&result.content).to_owned())
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(object) => Some(object),
        _ => None,
    }
}
