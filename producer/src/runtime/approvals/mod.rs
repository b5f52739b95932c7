//! A human decides: the decision is claimed once, an answer stays private until it is reviewed, and
//! what is published first stays.
//!
//! 1. [`AgentRuntime::claim_approval`] claims all rows of a batch or none.
//! 2. The runtime begins its continuation; when that fails, [`Claim::restore`].
//! 3. [`Operation::continue_after`] reviews the answers, publishes them, and tells hooks, before
//!    the runtime loads the history that the continuation will see.

mod rules;

use std::fmt;

use tokio_util::sync::CancellationToken;

use super::AgentRuntime;
use super::error::ReviewError;
use super::operation::Operation;
use super::ports::{PortError, Write};
use super::publication::{Kept, Publication, StateChange};
use super::review::Subject;
use super::row::{InterventionStatus, ToolRow};
use crate::hooks::{
    AfterHumanIntervention, Event, HumanAction, OnStopByHumanIntervention, ToolRunResult, Verdict,
};

/// Most calls that are decided at once.
const BATCH_MAX: usize = 256;

/// What a human said about a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It may be made, or its answer used.
    Approve,
    /// It must not be made, and the run goes on with that as its result.
    RejectAndContinue {
        /// Why; `None` = no reason given.
        reason: Option<String>,
    },
    /// It must not be made, and the run stops.
    RejectAndStop {
        /// Why; `None` = no reason given.
        reason: Option<String>,
    },
}

impl Decision {
    fn status(&self) -> InterventionStatus {
        match self {
            Self::Approve => InterventionStatus::Approved,
            _ => InterventionStatus::Rejected,
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Approve => None,
            Self::RejectAndContinue { reason } | Self::RejectAndStop { reason } => {
                reason.as_deref()
            }
        }
    }

    /// What the model gets to read of a rejection. It is ours, so no control is asked about it.
    fn receipt(&self) -> Option<Publication> {
        let text = match (self, self.reason()) {
            (Self::Approve, _) => return None,
            (_, Some(reason)) => format!("User reject this tool calling with reason: {reason}"),
            (_, None) => "User reject this tool calling without reason".to_owned(),
        };
        let result = ToolRunResult {
            content: text,
            ..ToolRunResult::default()
        };
        Some(Publication::allowed(result, StateChange::Merge))
    }
}

/// A decision about one call.
#[derive(Clone)]
pub struct Resolution {
    /// The row of the call.
    pub tool_message_id: String,
    /// The decision.
    pub decision: Decision,
    /// What the human answered in place of the tool; `None` = the tool runs. Private until it is
    /// reviewed.
    pub answer: Option<ToolRunResult>,
}

impl fmt::Debug for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolution")
            .field("tool_message_id", &self.tool_message_id)
            .field("decision", &self.decision)
            .field("answer", &self.answer.as_ref().map(|_| "private"))
            .finish()
    }
}

/// All that was decided at once.
#[derive(Debug, Clone)]
pub struct Approval {
    /// Names this decision: a repeat with the same id and content changes nothing.
    pub request_id: String,
    /// The decisions.
    pub resolutions: Vec<Resolution>,
}

/// Whether a claim changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// The rows were pending and are claimed now.
    Applied,
    /// The same request had claimed them.
    Idempotent,
}

/// Why a decision was not taken. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum ApprovalError {
    /// One row is decided twice.
    #[error("Human approval batch contains duplicate tool messages")]
    Duplicates,
    /// There is no such row.
    #[error("Plugin not found: {0}")]
    NotFound(String),
    /// Another request, or another decision, came first.
    #[error("Human approval already resolved: {0}")]
    AlreadyResolved(String),
    /// Some rows are claimed by this request, and some are not claimed.
    #[error("Human approval batch contains a partial idempotent claim")]
    PartialClaim,
    /// Too many rows.
    #[error("a decision is about at most {BATCH_MAX} calls")]
    TooMany,
    /// Controls could not be asked.
    #[error(transparent)]
    Review(#[from] ReviewError),
    /// The run was cancelled before the answer was reviewed.
    #[error("cancelled before the answer was reviewed")]
    Cancelled,
    /// The rows cannot be read or written.
    #[error("tool messages cannot be read or written")]
    Rows(#[source] PortError),
}

/// A decision that is claimed. Its answers are private.
pub struct Claim {
    runtime: AgentRuntime,
    approval: Approval,
    resolved: Resolved,
    /// As the rows were before.
    before: Vec<ToolRow>,
}

impl AgentRuntime {
    /// Claims the rows of a decision: all of them, or none. Nothing is published, but receipts of
    /// rejections. Safe to repeat with the same request id.
    pub async fn claim_approval(&self, approval: Approval) -> Result<Claim, ApprovalError> {
        if approval.resolutions.len() > BATCH_MAX {
            return Err(ApprovalError::TooMany);
        }
        rules::check_different(&approval.resolutions)?;
        let receipts: Vec<_> = approval
            .resolutions
            .iter()
            .map(|resolution| resolution.decision.receipt())
            .collect();
        let (resolved, before, _) = self.resolve(&approval, &receipts).await?;
        Ok(Claim {
            runtime: self.clone(),
            approval,
            resolved,
            before,
        })
    }

    /// One transaction; whether it changed anything, and the rows before and after.
    async fn resolve(
        &self,
        approval: &Approval,
        publications: &[Option<Publication>],
    ) -> Result<(Resolved, Vec<ToolRow>, Vec<ToolRow>), ApprovalError> {
        let ids: Vec<_> = approval
            .resolutions
            .iter()
            .map(|resolution| resolution.tool_message_id.clone())
            .collect();
        let mut ended = None;
        let outcome = &mut ended;
        let change = self.parts().messages.change(
            &ids,
            Box::new(move |rows| {
                let before: Vec<_> = rows.iter().flatten().cloned().collect();
                let resolved = rules::resolve(
                    rows,
                    &approval.request_id,
                    &approval.resolutions,
                    publications,
                );
                let write = match &resolved {
                    Ok(_) => Write::Commit,
                    Err(_) => Write::Abandon,
                };
                let after = rows.iter().flatten().cloned().collect();
                *outcome = Some(resolved.map(|resolved| (resolved, before, after)));
                write
            }),
        );
        change.await.map_err(ApprovalError::Rows)?;
        ended.unwrap_or_else(|| Err(ApprovalError::Rows("no transaction was made".into())))
    }
}

impl Claim {
    /// Whether this claim changed anything.
    pub fn resolved(&self) -> Resolved {
        self.resolved
    }

    /// Whether the run stops instead of going on: with reason `human_rejected`, interrupted.
    pub fn is_stop(&self) -> bool {
        let mut all = self.approval.resolutions.iter();
        all.any(|it| matches!(it.decision, Decision::RejectAndStop { .. }))
    }

    /// Puts back what the rows had, where they are still claimed by this request: the continuation
    /// could not be started. Safe to repeat.
    ///
    /// # Errors
    /// The rows cannot be written.
    pub async fn restore(&self) -> Result<(), ApprovalError> {
        if self.resolved == Resolved::Idempotent {
            // Somebody else's claim, whose continuation may have started.
            return Ok(());
        }
        let ids: Vec<_> = self.before.iter().map(|row| row.id.clone()).collect();
        let request_id = Some(self.approval.request_id.as_str());
        let change = self.runtime.parts().messages.change(
            &ids,
            Box::new(move |rows| {
                for row in rows.iter_mut().flatten() {
                    let claimed = row.intervention.as_ref();
                    let by = claimed.and_then(|it| it.resolution_request_id.as_deref());
                    let before = self.before.iter().find(|before| before.id == row.id);
                    if let Some(before) = before.filter(|_| by == request_id) {
                        row.clone_from(before);
                    }
                }
                Write::Commit
            }),
        );
        change.await.map_err(ApprovalError::Rows)
    }
}

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
        let cancel: &CancellationToken = &self.cancel;
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

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("request_id", &self.approval.request_id)
            .field("resolved", &self.resolved)
            .finish_non_exhaustive()
    }
}
