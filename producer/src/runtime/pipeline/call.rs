//! One call: whether it is made at all, or was made before a crash.

use serde_json::json;

use super::way::{Made, Way};
use super::{CallEnd, CallOutcome, Deferral, Permission, PipelineError, ToolRequest};
use crate::hooks::{HOOK_DENIED, HookType, ToolCall, ToolRunResult};
use crate::runtime::operation::Operation;
use crate::runtime::ports::{StreamEvent, ToolEnd};
use crate::runtime::publication::{Publication, StateChange};
use crate::runtime::row::{Intervention, InterventionStatus, NewToolRow, ToolRow};

/// The error of a call that its run does not list.
const NOT_ALLOWED: &str = "tool_not_allowed";

impl Operation {
    /// Makes one call, or finds out what came of it before a crash.
    pub(super) async fn run_call(
        &self,
        request: ToolRequest,
    ) -> Result<CallOutcome, PipelineError> {
        let mut call = request.call.clone();
        self.id().clone_into(&mut call.operation_id);
        let messages = &self.runtime.parts().messages;
        let mut found = messages
            .find(&call.assistant_message_id, &call.tool_call_id)
            .await
            .map_err(PipelineError::Rows)?;
        if let Some(row) = &mut found
            && !row.is_final
        {
            // Its result may have come from elsewhere before a crash.
            let collected = self.runtime.collect(self.id(), &row.id).await;
            *row = collected
                .map_err(PipelineError::Collect)?
                .unwrap_or_else(|| row.clone());
        }
        if let Some(row) = &found {
            call.tool_message_id = Some(row.id.clone());
        }
        let status = found.as_ref().and_then(ToolRow::intervention_status);
        if let Some(row) = found.as_ref().filter(|row| row.is_final) {
            // Whoever wrote it may have died before it could do this.
            self.runtime.withdraw(self.id(), row).await?;
            let made = Made::nothing(CallEnd::Published);
            return Ok(self.replay(call, row, made).await);
        }
        match (request.permission, status) {
            (Permission::NotAllowed, _) => {
                let publication = not_allowed();
                let made = Made::nothing(CallEnd::NotAllowed);
                return self.way(call, found).publish(publication, made).await;
            }
            (_, Some(InterventionStatus::Pending)) | (Permission::NeedsApproval, None) => {
                return self.wait_for_human(call, found).await;
            }
            // Settled when its run was cancelled, or by a human: it is not made any more.
            (_, Some(InterventionStatus::Aborted | InterventionStatus::Rejected)) => {
                return self.way(call, found).interrupt().await;
            }
            _ => {}
        }
        let mut way = self.way(call, found);
        way.rounds = way.find_rounds().await?;
        let rounds = way.rounds.iter();
        let operations = rounds.map(|round| round.operation_id.clone()).collect();
        let deferral = Deferral::new(operations, way.row.clone());
        let request = ToolRequest {
            call: way.call.clone(),
            ..request
        };
        Box::pin(way.walk(&request, &deferral)).await
    }

    fn way(&self, call: ToolCall, row: Option<ToolRow>) -> Way<'_> {
        Way {
            operation: self,
            call,
            row,
            rounds: Vec::new(),
        }
    }

    /// A call that has its result: told once more, because nobody knows whether it was. `made` is
    /// what was spent on it here, in vain.
    pub(super) async fn replay(&self, call: ToolCall, row: &ToolRow, made: Made) -> CallOutcome {
        let result = ToolRunResult {
            content: row.content.clone(),
            error: row.error.clone(),
            state: row.state.clone(),
            success: row.error.is_none(),
            ..ToolRunResult::default()
        };
        let outcome = CallOutcome {
            tool_message_id: row.id.clone(),
            result: Some(result.clone()),
            attempts: made.attempts,
            attempts_max: made.attempts_max,
            cost: made.cost,
            ..CallOutcome::not_made(call, end_of(row))
        };
        self.stream(&outcome, &result).await;
        outcome
    }

    async fn wait_for_human(
        &self,
        call: ToolCall,
        row: Option<ToolRow>,
    ) -> Result<CallOutcome, PipelineError> {
        let row = if let Some(row) = row {
            row
        } else {
            let pending = NewToolRow {
                call: call.clone(),
                intervention: Some(Intervention {
                    operation_id: Some(self.id().to_owned()),
                    ..Intervention::default()
                }),
                ..NewToolRow::default()
            };
            let inserted = self.runtime.parts().messages.insert(pending).await;
            inserted.map_err(PipelineError::Rows)?
        };
        if row.is_final {
            let made = Made::nothing(CallEnd::Published);
            return Ok(self.replay(call, &row, made).await);
        }
        Ok(CallOutcome {
            tool_message_id: row.id,
            ..CallOutcome::not_made(call, CallEnd::WaitingForHuman)
        })
    }

    pub(super) async fn stream(&self, outcome: &CallOutcome, result: &ToolRunResult) {
        let Some(stream) = &self.runtime.parts().stream else {
            return;
        };
        let call = &outcome.call;
        let end = ToolEnd {
            operation_id: self.id().to_owned(),
            step_index: call.step_index,
            tool_call_id: call.tool_call_id.clone(),
            tool_message_id: outcome.tool_message_id.clone(),
            identifier: call.identifier.clone(),
            api_name: call.api_name.clone(),
            attempts: outcome.attempts,
            max_attempts: outcome.attempts_max,
            execution_time: result.execution_time.unwrap_or_default(),
            cost: outcome.cost,
            is_success: result.success,
            result: result.clone(),
        };
        if let Err(error) = stream.send(StreamEvent::ToolEnd(Box::new(end))).await {
            tracing::warn!(
                operation_id = self.id(),
                error = &*error as &dyn std::error::Error,
                "the end of a tool call was not streamed"
            );
        }
    }
}

/// How a call ended whose row has its result.
fn end_of(row: &ToolRow) -> CallEnd {
    let is_denied = row.error.as_ref().is_some_and(|error| error == HOOK_DENIED)
        && row.intervention_status() == Some(InterventionStatus::Rejected);
    let phase = row.state.as_ref().and_then(|state| state.get("phase"));
    match (is_denied, phase) {
        (false, _) => CallEnd::Published,
        (true, Some(phase)) if phase == HookType::AfterToolCall.as_str() => CallEnd::DeniedAfter,
        (true, _) => CallEnd::DeniedBefore,
    }
}

fn not_allowed() -> Publication {
    let state = json!({ "reason": NOT_ALLOWED, "type": "blocked" });
    let result = ToolRunResult {
        content: "This tool is not allowed in this run.".to_owned(),
        error: Some(NOT_ALLOWED.into()),
        execution_time: Some(0.0),
        state: state.as_object().cloned(),
        ..ToolRunResult::default()
    };
    Publication::allowed(result, StateChange::Replace)
}
