//! The way of one call, from its first control to its row.

use hookstash_shared::store::Withdrawn;
use serde_json::json;

use super::attempts::{self, Ran, is_deferred};
use super::{ATTEMPTS_MAX, CallEnd, CallOutcome, Deferral, PipelineError, ToolRequest};
use crate::hooks::{AfterToolCall, OnToolCallError, ToolCall, ToolRunResult, Verdict};
use crate::runtime::error::ReviewError;
use crate::runtime::operation::Operation;
use crate::runtime::ports::Write;
use crate::runtime::publication::{Kept, Publication, StateChange, blocked_by_tool};
use crate::runtime::review::{Reviewer, Round, Subject};
use crate::runtime::row::{InterventionStatus, NewToolRow, ToolRow};

/// A call on its way.
pub(super) struct Way<'a> {
    pub(super) operation: &'a Operation,
    pub(super) call: ToolCall,
    pub(super) row: Option<ToolRow>,
    pub(super) rounds: Vec<Round>,
}

/// What is known when a call has its result.
pub(super) struct Made {
    end: CallEnd,
    attempts: u32,
    attempts_max: u32,
    cost: f64,
    mocked: bool,
}

impl Made {
    pub(super) fn nothing(end: CallEnd) -> Self {
        Self {
            end,
            attempts: 0,
            attempts_max: 0,
            cost: 0.0,
            mocked: false,
        }
    }
}

impl Way<'_> {
    fn reviewer(&self) -> &Reviewer {
        self.operation.runtime.0.completions.reviewer()
    }

    /// The operations whose controls count: the one that waited for a human, then this one.
    pub(super) async fn find_rounds(&self) -> Result<Vec<Round>, PipelineError> {
        let own = Round {
            operation_id: self.operation.id().to_owned(),
            hooks: self.operation.hooks().cloned(),
        };
        let intervention = self.row.as_ref().and_then(|row| row.intervention.as_ref());
        let original = intervention
            .and_then(|it| it.operation_id.as_deref())
            .filter(|original| *original != self.operation.id());
        let Some(original) = original else {
            return Ok(vec![own]);
        };
        if self.operation.user_id().is_none() {
            return Err(ReviewError::NoOwner.into());
        }
        let mut rounds = self.reviewer().rounds([original]).await?;
        rounds.push(own);
        Ok(rounds)
    }

    pub(super) async fn walk(
        self,
        request: &ToolRequest,
        deferral: &Deferral,
    ) -> Result<CallOutcome, PipelineError> {
        match self.review(Subject::Call).await {
            Ok(Verdict::Allow) => {}
            Ok(Verdict::Blocked { reason }) => {
                let publication = Publication::denied_before(&reason);
                let made = Made::nothing(CallEnd::DeniedBefore);
                self.notify(&publication.result, false);
                return self.publish(publication, made).await;
            }
            Ok(Verdict::Cancelled) => return self.abort().await,
            // Nobody could be asked, so the call is not made.
            Err(ReviewError::Environment(error)) => {
                return self.fail(&error.to_string(), 0, 0.0).await;
            }
            Err(error) => return Err(error.into()),
        }
        let hooks = self.operation.runtime.hooks();
        let observed = hooks.observe_before_tool_call(self.call.clone(), self.operation.hooks());
        let mocked = match observed {
            Ok(()) => hooks.dispatch_before_tool_call(self.call.clone()).await,
            Err(error) => Err(error),
        };
        let mocked = match mocked {
            Ok(mocked) => mocked,
            Err(error) => return self.fail(&error.to_string(), 0, 0.0).await,
        };
        let is_mocked = mocked.is_some();
        let (ran, attempts) = match mocked {
            Some(result) => (Ran::Result(Box::new(result)), 0),
            None => attempts::run(self.operation, request, deferral).await,
        };
        let cost = if is_mocked { 0.0 } else { request.tool.cost() };
        let deferred = Made {
            end: CallEnd::Deferred,
            attempts,
            attempts_max: ATTEMPTS_MAX,
            cost,
            mocked: is_mocked,
        };
        match ran {
            Ran::Cancelled => Ok(CallOutcome::not_made(self.call, CallEnd::Interrupted)),
            Ran::Result(result) if is_deferred(&result) => {
                self.defer(request, deferral, *result, deferred).await
            }
            Ran::Failed(_) | Ran::Result(_) if self.is_answered(deferral).await? => {
                self.defer(request, deferral, ToolRunResult::default(), deferred)
                    .await
            }
            Ran::Failed(error) => self.fail(&error.to_string(), attempts, cost).await,
            Ran::Result(result) => {
                let made = Made {
                    end: CallEnd::Published,
                    ..deferred
                };
                self.decide(*result, made).await
            }
        }
    }

    async fn review(&self, subject: Subject<'_>) -> Result<Verdict, ReviewError> {
        let cancel = &self.operation.cancel;
        let reviewer = self.reviewer();
        reviewer
            .review(&self.rounds, &self.call, subject, cancel)
            .await
    }

    /// The result is complete: nothing of it is anywhere yet.
    async fn decide(
        self,
        result: ToolRunResult,
        mut made: Made,
    ) -> Result<CallOutcome, PipelineError> {
        let subject = Subject::Result {
            result: &result,
            mocked: made.mocked,
        };
        let publication = match self.review(subject).await {
            Ok(Verdict::Allow) => {
                let result = self.archive(result).await;
                Publication::allowed(result, StateChange::Replace)
            }
            Ok(Verdict::Blocked { reason }) => {
                made.end = CallEnd::DeniedAfter;
                Publication::denied_after(&reason, &result, Kept::Nothing)
            }
            Ok(Verdict::Cancelled) => {
                return Ok(CallOutcome::not_made(self.call, CallEnd::Interrupted));
            }
            // Nobody could be asked, so the result is dropped.
            Err(ReviewError::Environment(error)) => {
                return self
                    .fail(&error.to_string(), made.attempts, made.cost)
                    .await;
            }
            Err(error) => return Err(error.into()),
        };
        // A tool that blocked itself did nothing, and costs nothing.
        if made.end == CallEnd::Published && blocked_by_tool(&publication.result).is_some() {
            made.cost = 0.0;
        }
        if self.operation.is_cancelled() {
            return Ok(CallOutcome::not_made(self.call, CallEnd::Interrupted));
        }
        self.notify(&publication.result, made.mocked);
        self.publish(publication, made).await
    }

    async fn archive(&self, result: ToolRunResult) -> ToolRunResult {
        let Some(archive) = &self.operation.runtime.parts().archive else {
            return result;
        };
        match archive.archive(&self.call, &result).await {
            Ok(shown) => shown,
            Err(error) => {
                let error = &*error as &dyn std::error::Error;
                tracing::warn!(
                    operation_id = self.operation.id(),
                    error,
                    "a result was not archived"
                );
                result
            }
        }
    }

    /// `afterToolCall`, unless the run was cancelled: it would arrive after its end.
    fn notify(&self, result: &ToolRunResult, mocked: bool) {
        if self.operation.is_cancelled() {
            return;
        }
        let event = AfterToolCall {
            call: self.call.clone(),
            mocked,
            result: result.clone(),
        };
        self.operation
            .runtime
            .announce(event, self.operation.hooks());
    }

    /// The call brought no result: its error takes the place of one.
    async fn fail(
        self,
        error: &str,
        attempts: u32,
        cost: f64,
    ) -> Result<CallOutcome, PipelineError> {
        let event = OnToolCallError {
            call: self.call.clone(),
            error: error.to_owned(),
        };
        self.operation
            .runtime
            .announce(event, self.operation.hooks());
        let result = ToolRunResult {
            content: error.to_owned(),
            error: Some(json!({ "message": error })),
            ..ToolRunResult::default()
        };
        let made = Made {
            attempts,
            attempts_max: if attempts == 0 { 0 } else { ATTEMPTS_MAX },
            cost,
            ..Made::nothing(CallEnd::Failed)
        };
        let publication = Publication::allowed(result, StateChange::Replace);
        self.publish(publication, made).await
    }

    /// Cancelled before anything was launched.
    async fn abort(self) -> Result<CallOutcome, PipelineError> {
        let messages = &self.operation.runtime.parts().messages;
        let aborted = |row: &mut ToolRow| {
            row.intervention.get_or_insert_default().status = InterventionStatus::Aborted;
        };
        let written = match &self.row {
            None => {
                let mut row = NewToolRow {
                    call: self.call.clone(),
                    ..NewToolRow::default()
                };
                aborted(&mut row);
                messages.insert(row).await.map(|row| row.id)
            }
            Some(row) => {
                let ids = [row.id.clone()];
                let change = messages.change(
                    &ids,
                    Box::new(|rows| {
                        rows.iter_mut().flatten().for_each(aborted);
                        Write::Commit
                    }),
                );
                change.await.map(|()| row.id.clone())
            }
        };
        Ok(CallOutcome {
            tool_message_id: written.map_err(PipelineError::Rows)?,
            ..CallOutcome::not_made(self.call, CallEnd::Interrupted)
        })
    }

    /// Its placeholder waits. It is not reviewed before its result has come.
    async fn defer(
        self,
        request: &ToolRequest,
        deferral: &Deferral,
        result: ToolRunResult,
        made: Made,
    ) -> Result<CallOutcome, PipelineError> {
        let run = super::ToolRun {
            call: &request.call,
            attempt: made.attempts,
            operation: self.operation,
            deferral,
        };
        let state = result.state.clone().unwrap_or_default();
        let row = run.open(state).await.map_err(PipelineError::Rows)?;
        Ok(CallOutcome {
            call: self.call,
            end: made.end,
            tool_message_id: row.id,
            result: None,
            attempts: made.attempts,
            attempts_max: made.attempts_max,
            cost: made.cost,
            mocked: made.mocked,
        })
    }

    /// Whether the placeholder that the tool asked for has its result already; it is withdrawn
    /// otherwise, because the tool answers at once after all.
    async fn is_answered(&self, deferral: &Deferral) -> Result<bool, PipelineError> {
        let Some(row) = deferral.opened.get() else {
            return Ok(false);
        };
        let completions = &self.operation.runtime.0.completions;
        let withdrawn = completions.withdraw(self.operation.id(), &row.id).await?;
        Ok(withdrawn == Withdrawn::Final)
    }

    /// The one place where a result of a call becomes visible.
    pub(super) async fn publish(
        self,
        publication: Publication,
        made: Made,
    ) -> Result<CallOutcome, PipelineError> {
        let row = self.write(&publication).await?;
        let result = publication.result;
        let outcome = CallOutcome {
            call: self.call,
            end: made.end,
            tool_message_id: row,
            result: Some(result.clone()),
            attempts: made.attempts,
            attempts_max: made.attempts_max,
            cost: made.cost,
            mocked: made.mocked,
        };
        self.operation.stream(&outcome, &result).await;
        Ok(outcome)
    }

    /// Puts it into the call's row, or into a new one; the row's id.
    async fn write(&self, publication: &Publication) -> Result<String, PipelineError> {
        let messages = &self.operation.runtime.parts().messages;
        let existing = if let Some(row) = &self.row {
            row.clone()
        } else {
            let mut row = NewToolRow {
                call: self.call.clone(),
                ..NewToolRow::default()
            };
            publication.apply(&mut row);
            messages.insert(row).await.map_err(PipelineError::Rows)?
        };
        if !existing.is_final {
            let ids = [existing.id.clone()];
            let change = messages.change(
                &ids,
                Box::new(|rows| match rows {
                    [Some(row)] if !row.is_final => {
                        publication.apply(row);
                        Write::Commit
                    }
                    _ => Write::Abandon,
                }),
            );
            change.await.map_err(PipelineError::Rows)?;
        }
        Ok(existing.id)
    }
}
