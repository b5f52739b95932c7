//! The way of one call, from its first control to its row.

use serde_json::{Map, json};

use super::attempts::{self, Ran, is_deferred};
use super::first::Written;
use super::{ATTEMPTS_MAX, CallEnd, CallOutcome, Deferral, PipelineError, ToolRequest};
use crate::hooks::{
    AfterToolCall, EnvironmentError, OnToolCallError, ToolCall, ToolRunResult, Verdict,
};
use crate::runtime::error::ReviewError;
use crate::runtime::operation::Operation;
use crate::runtime::ports::PortError;
use crate::runtime::publication::{Kept, Publication, StateChange, blocked_by_tool};
use crate::runtime::review::{Reviewer, Round, Subject};
use crate::runtime::row::ToolRow;

/// A call on its way.
pub(super) struct Way<'a> {
    pub(super) operation: &'a Operation,
    pub(super) call: ToolCall,
    /// Its row, as far as it is known to have one. It may have a placeholder, which this attempt
    /// or an earlier one opened.
    pub(super) row: Option<ToolRow>,
    pub(super) rounds: Vec<Round>,
}

/// What is known when a call has its result.
#[derive(Clone, Copy)]
pub(super) struct Made {
    pub(super) end: CallEnd,
    pub(super) attempts: u32,
    pub(super) attempts_max: u32,
    pub(super) cost: f64,
    pub(super) mocked: bool,
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
        mut self,
        request: &ToolRequest,
        deferral: &Deferral,
    ) -> Result<CallOutcome, PipelineError> {
        match self.review(Subject::Call).await {
            Ok(Verdict::Allow) => {}
            Ok(Verdict::Blocked { reason }) => {
                let publication = Publication::denied_before(&reason);
                let made = Made::nothing(CallEnd::DeniedBefore);
                return self.publish(publication, made).await;
            }
            Ok(Verdict::Cancelled) => return self.abort().await,
            // Nobody could be asked, so the call is not made.
            Err(ReviewError::Environment(error)) => {
                return self.fail(&error.to_string(), 0, 0.0).await;
            }
            Err(error) => return Err(error.into()),
        }
        // Its result may have come from elsewhere while its controls were asked.
        if let Some(row) = &self.row
            && let Some(row) = self.collect(row).await?
        {
            let made = Made::nothing(CallEnd::Published);
            return Ok(self.operation.replay(self.call, &row, made).await);
        }
        let mocked = tokio::select! {
            biased;
            () = self.operation.cancel.cancelled() => None,
            mocked = self.mock() => Some(mocked),
        };
        let mocked = match mocked {
            Some(Ok(mocked)) if !self.operation.is_cancelled() => mocked,
            Some(Err(error)) => return self.fail(&error.to_string(), 0, 0.0).await,
            // A handler that hangs holds up no cancellation.
            _ => return self.abort().await,
        };
        let is_mocked = mocked.is_some();
        let (ran, attempts) = match mocked {
            Some(result) => (Ran::Result(Box::new(result)), 0),
            None => attempts::run(self.operation, request, deferral).await,
        };
        let made = Made {
            end: CallEnd::Published,
            attempts,
            attempts_max: ATTEMPTS_MAX,
            cost: if is_mocked { 0.0 } else { request.tool.cost() },
            mocked: is_mocked,
        };
        if let Some(asked) = deferral.asked() {
            self.row = Some(asked.clone());
        }
        match ran {
            // Whoever was to complete its placeholder finds that nobody waits.
            Ran::Cancelled if deferral.asked().is_some() => return self.abort().await,
            Ran::Cancelled => return self.interrupt().await,
            Ran::Result(result) if is_deferred(&result) => {
                return self.defer(request, deferral, made).await;
            }
            Ran::Failed(_) | Ran::Result(_) => {}
        }
        // It answers at once, so nobody else may any more, or somebody has.
        if self.row.is_some()
            && let Some(outcome) = Box::pin(self.overtaken(made)).await?
        {
            return Ok(outcome);
        }
        match ran {
            Ran::Result(result) => self.decide(*result, made).await,
            Ran::Failed(error) => self.fail(&error.to_string(), attempts, made.cost).await,
            Ran::Cancelled => self.interrupt().await,
        }
    }

    /// Tells observers of the call, detached, and asks handlers for a result in place of it.
    async fn mock(&self) -> Result<Option<ToolRunResult>, EnvironmentError> {
        let hooks = self.operation.runtime.hooks();
        hooks.observe_before_tool_call(self.call.clone(), self.operation.hooks())?;
        hooks.dispatch_before_tool_call(self.call.clone()).await
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
        mut self,
        result: ToolRunResult,
        mut made: Made,
    ) -> Result<CallOutcome, PipelineError> {
        let subject = Subject::Result {
            result: &result,
            mocked: made.mocked,
        };
        let publication = match self.review(subject).await {
            Ok(Verdict::Allow) => {
                // What lost is not archived.
                if let Some(outcome) = Box::pin(self.overtaken(made)).await? {
                    return Ok(outcome);
                }
                let result = tokio::select! {
                    biased;
                    () = self.operation.cancel.cancelled() => return self.interrupt().await,
                    shown = self.archive(result) => shown,
                };
                let publication = Publication::allowed(result, StateChange::Replace);
                // A tool that blocked itself did nothing, and costs nothing.
                if blocked_by_tool(&publication.result).is_some() {
                    made.cost = 0.0;
                }
                // An archive takes its time, in which another result may have come.
                return Box::pin(self.publish(publication, made)).await;
            }
            Ok(Verdict::Blocked { reason }) => {
                made.end = CallEnd::DeniedAfter;
                Publication::denied_after(&reason, &result, Kept::Nothing)
            }
            Ok(Verdict::Cancelled) => return self.interrupt().await,
            // Nobody could be asked, so the result is dropped.
            Err(ReviewError::Environment(error)) => {
                return self
                    .fail(&error.to_string(), made.attempts, made.cost)
                    .await;
            }
            Err(error) => return Err(error.into()),
        };
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

    /// Tells hooks what the call brought: after every verdict and the archive, and before its row is
    /// written, which is the order of the specification (section 11.3). Of two processes that make
    /// one call and have both passed their reviews at that moment, one row stays, and both tell.
    fn tell(&self, result: &ToolRunResult, made: Made) {
        let call = self.call.clone();
        let (runtime, hooks) = (&self.operation.runtime, self.operation.hooks());
        match made.end {
            CallEnd::Failed => {
                let error = result.content.clone();
                runtime.announce(OnToolCallError { call, error }, hooks);
            }
            CallEnd::Published | CallEnd::DeniedBefore | CallEnd::DeniedAfter => {
                let event = AfterToolCall {
                    call,
                    mocked: made.mocked,
                    result: result.clone(),
                };
                runtime.announce(event, hooks);
            }
            _ => {}
        }
    }

    /// The call brought no result: its error takes the place of one.
    async fn fail(
        self,
        error: &str,
        attempts: u32,
        cost: f64,
    ) -> Result<CallOutcome, PipelineError> {
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

    /// Its placeholder waits. It is not reviewed before its result has come, and nothing that the
    /// tool says now is kept.
    async fn defer(
        mut self,
        request: &ToolRequest,
        deferral: &Deferral,
        made: Made,
    ) -> Result<CallOutcome, PipelineError> {
        let run = super::ToolRun {
            call: &request.call,
            attempt: made.attempts,
            operation: self.operation,
            deferral,
        };
        let row = match run.open(Map::new()).await {
            Ok(row) => row,
            Err(error) => return self.not_deferred(error, deferral, made).await,
        };
        let tool_message_id = row.id.clone();
        self.row = Some(row);
        if self.operation.is_cancelled() {
            return self.abort().await;
        }
        Ok(CallOutcome {
            tool_message_id,
            attempts: made.attempts,
            attempts_max: made.attempts_max,
            cost: made.cost,
            mocked: made.mocked,
            ..CallOutcome::not_made(self.call, CallEnd::Deferred)
        })
    }

    /// Its placeholder was not opened: because it was cancelled here or elsewhere, because a result
    /// came first, or because of a failure.
    async fn not_deferred(
        mut self,
        error: PortError,
        deferral: &Deferral,
        made: Made,
    ) -> Result<CallOutcome, PipelineError> {
        if self.operation.is_cancelled() {
            self.row = deferral.asked().cloned().or(self.row);
            return self.abort().await;
        }
        let overtaken = Box::pin(self.overtaken(made)).await?;
        overtaken.ok_or(PipelineError::Rows(error))
    }

    /// Publishes a result, unless another one came first: that is then the outcome.
    pub(super) async fn publish(
        mut self,
        publication: Publication,
        made: Made,
    ) -> Result<CallOutcome, PipelineError> {
        match Box::pin(self.overtaken(made)).await? {
            Some(outcome) => Ok(outcome),
            None => Box::pin(self.put(publication, made)).await,
        }
    }

    /// The one place where a result of a call becomes visible, after [`Self::overtaken`].
    async fn put(
        mut self,
        publication: Publication,
        made: Made,
    ) -> Result<CallOutcome, PipelineError> {
        // What is told now would arrive after the end of the run.
        if self.operation.is_cancelled() {
            return self.interrupt().await;
        }
        self.tell(&publication.result, made);
        let row = match self.write(&publication).await? {
            Written::Ours(row) => row,
            Written::Other(row) => {
                return Ok(self.operation.replay(self.call, &row, made).await);
            }
            Written::Stopped(row) => return Ok(CallOutcome::interrupted(self.call, Some(&row))),
        };
        let result = publication.result;
        let outcome = CallOutcome {
            call: self.call,
            end: made.end,
            tool_message_id: row.id,
            result: Some(result.clone()),
            attempts: made.attempts,
            attempts_max: made.attempts_max,
            cost: made.cost,
            mocked: made.mocked,
        };
        self.operation.stream(&outcome, &result).await;
        Ok(outcome)
    }
}
