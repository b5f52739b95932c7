//! The rules of a human's decision, over rows that the database holds under lock.

use std::collections::BTreeSet;

use super::{ApprovalError, Decision, Resolution, Resolved};
use crate::runtime::publication::Publication;
use crate::runtime::row::{Intervention, InterventionStatus, ToolRow};

/// Claims the rows of `resolutions`, in their order, for `request_id`. With `publications`, one for
/// each resolution, their results are published too, where a row has none.
///
/// # Errors
/// Nothing has been changed that may be written.
pub(super) fn resolve(
    rows: &mut [Option<ToolRow>],
    request_id: &str,
    resolutions: &[Resolution],
    publications: &[Option<Publication>],
) -> Result<Resolved, ApprovalError> {
    let mut is_claimed = BTreeSet::new();
    for (row, resolution) in rows.iter().zip(resolutions) {
        let id = &resolution.tool_message_id;
        let row = row
            .as_ref()
            .ok_or_else(|| ApprovalError::NotFound(id.clone()))?;
        is_claimed.insert(is_claimed_by(row, request_id, &resolution.decision)?);
    }
    let resolved = match (is_claimed.contains(&false), is_claimed.contains(&true)) {
        (true, true) => return Err(ApprovalError::PartialClaim),
        (_, true) => Resolved::Idempotent,
        _ => Resolved::Applied,
    };
    let none = None;
    let publications = publications.iter().chain(std::iter::repeat(&none));
    let all = rows.iter_mut().flatten().zip(resolutions).zip(publications);
    for ((row, resolution), publication) in all {
        claim(row, request_id, &resolution.decision);
        if let Some(publication) = publication
            && !row.is_final
        {
            publication.apply(row);
        }
    }
    Ok(resolved)
}

/// # Errors
/// The ids of one batch are not different.
pub(super) fn check_different(resolutions: &[Resolution]) -> Result<(), ApprovalError> {
    let ids: BTreeSet<_> = resolutions.iter().map(|it| &it.tool_message_id).collect();
    if ids.len() == resolutions.len() {
        Ok(())
    } else {
        Err(ApprovalError::Duplicates)
    }
}

/// Whether the same request has decided the same before.
fn is_claimed_by(
    row: &ToolRow,
    request_id: &str,
    decision: &Decision,
) -> Result<bool, ApprovalError> {
    let resolved = || ApprovalError::AlreadyResolved(row.id.clone());
    let intervention = row.intervention.as_ref().ok_or_else(resolved)?;
    if intervention.status == InterventionStatus::Pending {
        return Ok(false);
    }
    let is_same = intervention.resolution_request_id.as_deref() == Some(request_id);
    // A control may have rejected what the human approved: that decision is still the same.
    let is_denied = row.is_final && decision.status() == InterventionStatus::Approved;
    let is_equal = intervention.status == decision.status()
        && intervention.rejected_reason.as_deref() == decision.reason();
    if is_same && (is_equal || is_denied) {
        Ok(true)
    } else {
        Err(resolved())
    }
}

fn claim(row: &mut ToolRow, request_id: &str, decision: &Decision) {
    if row.is_final {
        return;
    }
    let had = row.intervention.take().unwrap_or_default();
    row.intervention = Some(Intervention {
        status: decision.status(),
        rejected_reason: decision.reason().map(str::to_owned),
        resolution_request_id: Some(request_id.to_owned()),
        ..had
    });
}
