//! Rows as projections of final results: filled after the claim, and again by whoever looks.

use hookstash_shared::store::Withdrawn;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::AgentRuntime;
use super::completions::{Completed, Source};
use super::error::CompleteError;
use super::pipeline::PipelineError;
use super::ports::{PortError, Write};
use super::publication::Publication;
use super::row::ToolRow;
use crate::hooks::ToolRunResult;

impl AgentRuntime {
    /// Completes a deferred result: its controls are asked, it is claimed and stored in one step,
    /// its row is filled, and a parent that waited for nothing else goes on. The first result
    /// wins; everyone gets it.
    ///
    /// # Errors
    /// Nothing has become visible that was not reviewed. Repeat the call until it succeeds: a
    /// result that is final already is only shown then.
    pub async fn complete(
        &self,
        operation_id: &str,
        tool_message_id: &str,
        result: ToolRunResult,
    ) -> Result<Completed, CompleteError> {
        let source = Source::Tool;
        let completed = self
            .fill(operation_id, tool_message_id, result, source)
            .await?;
        // What is missed here is found by the watchdog of the parent.
        if let Err(error) = self.check_barrier(operation_id).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                operation_id,
                error,
                "whether a run can go on was not found out"
            );
        }
        Ok(completed)
    }

    /// Completes a result and fills its row.
    pub(super) async fn fill(
        &self,
        operation_id: &str,
        tool_message_id: &str,
        result: ToolRunResult,
        source: Source,
    ) -> Result<Completed, CompleteError> {
        let never = CancellationToken::new();
        let (completed, owner) = self
            .0
            .completions
            .settle(operation_id, tool_message_id, result, source, &never)
            .await?;
        let publication = &completed.publication;
        self.project(tool_message_id, publication, owner.as_deref(), None)
            .await?;
        Ok(completed)
    }

    /// Fills the row of a result that came while nobody looked; the row, `None` while there is no
    /// result. Safe to repeat.
    ///
    /// # Errors
    /// The store or the row failed.
    pub async fn collect(
        &self,
        operation_id: &str,
        tool_message_id: &str,
    ) -> Result<Option<ToolRow>, CompleteError> {
        self.collect_over(operation_id, tool_message_id, None).await
    }

    /// The same. `over` is a result that lost against the one in the store, and the row as it was
    /// before: if the row shows it, it goes.
    pub(super) async fn collect_over(
        &self,
        operation_id: &str,
        tool_message_id: &str,
        over: Option<(&Publication, &ToolRow)>,
    ) -> Result<Option<ToolRow>, CompleteError> {
        let found = self.0.completions.result(operation_id, tool_message_id);
        let Some((publication, owner)) = found.await? else {
            return Ok(None);
        };
        let row = self.project(tool_message_id, &publication, owner.as_deref(), over);
        row.await.map(Some)
    }

    /// Withdraws the placeholder of a row, and, while the row has no result, those of its members
    /// if it is a group's. What has its result keeps it. Safe to repeat.
    pub(super) async fn withdraw(
        &self,
        operation_id: &str,
        row: &ToolRow,
    ) -> Result<Withdrawn, PipelineError> {
        let completions = &self.0.completions;
        if !row.is_final {
            let members = self.members(row).await.map_err(PipelineError::Rows)?;
            for member in members {
                completions.withdraw(operation_id, &member.id).await?;
            }
        }
        Ok(completions.withdraw(operation_id, &row.id).await?)
    }

    /// Writes a final result into its row, if that is still empty, and the `owner`'s.
    async fn project(
        &self,
        tool_message_id: &str,
        publication: &Publication,
        owner: Option<&str>,
        over: Option<(&Publication, &ToolRow)>,
    ) -> Result<ToolRow, CompleteError> {
        let ids = [tool_message_id.to_owned()];
        let mut written = None;
        let filled = &mut written;
        let change = self.parts().messages.change(
            &ids,
            Box::new(move |rows| {
                *filled = None;
                let [Some(row)] = rows else {
                    return Write::Abandon;
                };
                if owner.is_some() && row.call.user_id.as_deref() != owner {
                    return Write::Abandon;
                }
                if let Some((lost, before)) = over
                    && lost.is_shown_by(row)
                {
                    row.clone_from(before);
                }
                let is_empty = !row.is_final;
                if is_empty {
                    publication.apply(row);
                }
                *filled = Some(row.clone());
                if is_empty {
                    Write::Commit
                } else {
                    Write::Abandon
                }
            }),
        );
        change.await.map_err(CompleteError::Row)?;
        written.ok_or_else(|| CompleteError::NoRow(tool_message_id.to_owned()))
    }

    /// Uses a row that a call has already, with more in its state.
    ///
    /// # Errors
    /// It has its result, or the call was stopped: nothing can be waited for.
    pub(super) async fn reuse(
        &self,
        row: &ToolRow,
        state: &Map<String, Value>,
    ) -> Result<ToolRow, PortError> {
        let ids = [row.id.clone()];
        let mut written = None;
        let changed = &mut written;
        let change = self.parts().messages.change(
            &ids,
            Box::new(move |rows| {
                *changed = None;
                let [Some(row)] = rows else {
                    return Write::Abandon;
                };
                if !row.takes_result() {
                    return Write::Abandon;
                }
                row.state.get_or_insert_default().extend(state.clone());
                *changed = Some(row.clone());
                Write::Commit
            }),
        );
        change.await?;
        written.ok_or_else(|| takes_none(&row.id))
    }
}

/// Nothing can be waited for any more.
pub(super) fn takes_none(tool_message_id: &str) -> PortError {
    format!("tool message {tool_message_id} takes no result any more").into()
}
