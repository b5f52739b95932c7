//! What was answered in place of a tool: private until it is reviewed.

use super::{ApprovalError, Claim, Decision};
use crate::hooks::{
    AfterHumanIntervention, Event, HumanAction, OnStopByHumanIntervention, ToolRunResult, Verdict,
};
use crate::runtime::error::ReviewError;
use crate::runtime::operation::Operation;
use crate::runtime::publication::{Kept, Publication, StateChange};
use crate::runtime::review::Subject;
use crate::runtime::row::ToolRow;

impl Operation {
    /// Reviews the answers of a claim by the controls of the operation that waited and of this
    /// one, publishes what is left of them, and tells hooks what was decided. Returns the rows as
    /// they are now: the first published result, if this is a repeat. Load the history that the
    /// run will see after this.
    ///
    /// # Errors
    /// Nothing was published: do not go on, and [`Claim::restore`] or repeat.
    pub async fn continue_after(&self, claim: &Claim) -> Result<Vec<ToolRow>, ApprovalError> {
        let approval = &claim.approval;
        let ids: Vec<_> = claim.before.iter().map(|row| row.id.clone()).collect();
        let now = self.runtime.rows(&ids).await;
        let now = now.map_err(|error| ApprovalError::Rows(error.into()))?;
        let mut publications = Vec::with_capacity(approval.resolutions.len());
        for resolution in &approval.resolutions {
            let row = now.iter().find(|row| row.id == resolution.tool_message_id);
            publications.push(match (row, &resolution.answer) {
                (Some(row), Some(answer))
                    if !row.is_final && resolution.decision == Decision::Approve =>
                {
                    Some(self.review_answer(row, answer).await?)
                }
                _ => None,
            });
        }
        let (_, _, after) = self.runtime.resolve(approval, &publications).await?;
        for (resolution, row) in approval.resolutions.iter().zip(&after) {
            let event = self.decided(&resolution.decision, row);
            self.runtime.announce(event, self.hooks());
        }
        Ok(after)
    }

    async fn review_answer(
        &self,
        row: &ToolRow,
        answer: &ToolRunResult,
    ) -> Result<Publication, ApprovalError> {
        let reviewer = self.runtime.0.completions.reviewer();
        let original = row.intervention.as_ref();
        let original = original.and_then(|it| it.operation_id.as_deref());
        let operations = [original.unwrap_or_default(), self.id()];
        let rounds = reviewer
            .rounds(operations)
            .await
            .map_err(ReviewError::from)?;
        if rounds.len() > 1 && self.user_id().is_none() {
            return Err(ReviewError::NoOwner.into());
        }
        let subject = Subject::Result {
            result: answer,
            mocked: false,
        };
        let mut call = row.call.clone();
        call.tool_message_id = Some(row.id.clone());
        let cancel = &self.cancel;
        Ok(
            match reviewer.review(&rounds, &call, subject, cancel).await? {
                Verdict::Allow => Publication::allowed(answer.clone(), StateChange::Merge),
                Verdict::Blocked { reason } => {
                    Publication::denied_after(&reason, answer, Kept::Nothing)
                }
                Verdict::Cancelled => return Err(ApprovalError::Cancelled),
            },
        )
    }

    fn decided(&self, decision: &Decision, row: &ToolRow) -> Event {
        let operation_id = self.id().to_owned();
        let tool_call_id = Some(row.call.tool_call_id.clone());
        let user_id = self.user_id().map(str::to_owned);
        let rejection_reason = decision.reason().map(str::to_owned);
        let action = match decision {
            Decision::Approve => HumanAction::Approve,
            Decision::RejectAndContinue { .. } => HumanAction::RejectAndContinue,
            Decision::RejectAndStop { .. } => {
                return OnStopByHumanIntervention {
                    operation_id,
                    tool_call_id,
                    rejection_reason,
                    user_id,
                }
                .into();
            }
        };
        AfterHumanIntervention {
            operation_id,
            action,
            tool_call_id,
            rejection_reason,
            user_id,
        }
        .into()
    }
}
