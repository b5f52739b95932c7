//! A human decides: the decision is claimed once, an answer stays private until it is reviewed, and
//! what is published first stays.
//!
//! 1. [`AgentRuntime::claim_approval`] claims all rows of a batch or none.
//! 2. The runtime begins its continuation; when that fails, [`Claim::restore`].
//! 3. [`Operation::continue_after`] reviews the answers, publishes them, and tells hooks, before
//!    the runtime loads the history that the continuation will see.

mod answer;
mod decision;
mod rules;

use std::fmt;

pub use decision::{Approval, ApprovalError, Decision, Resolution, Resolved};

use super::AgentRuntime;
use super::ports::Write;
use super::publication::Publication;
use super::row::ToolRow;
use decision::BATCH_MAX;

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
    /// could not be started. An approved call that has its result by now keeps it. Safe to repeat.
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
                    let is_ours = by == request_id && !self.is_published(row);
                    let before = self.before.iter().find(|before| before.id == row.id);
                    if let Some(before) = before.filter(|_| is_ours) {
                        row.clone_from(before);
                    }
                }
                Write::Commit
            }),
        );
        change.await.map_err(ApprovalError::Rows)
    }

    /// Whether the row shows the result of an approved call. The receipt of a rejection came with
    /// the claim, and goes with it.
    fn is_published(&self, row: &ToolRow) -> bool {
        let mut all = self.approval.resolutions.iter();
        let resolution = all.find(|it| it.tool_message_id == row.id);
        row.is_final && resolution.is_some_and(|it| it.decision == Decision::Approve)
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
