//! Rows as projections of final results: filled after the claim, and again by whoever looks.

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::AgentRuntime;
use super::completions::{Completed, Source};
use super::error::CompleteError;
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
        self.project(tool_message_id, publication, owner.as_deref())
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
        let found = self.0.completions.result(operation_id, tool_message_id);
        let Some((publication, owner)) = found.await? else {
            return Ok(None);
        };
        let row = self.project(tool_message_id, &publication, owner.as_deref());
        row.await.map(Some)
    }

    /// Writes a final result into its row, if that is still empty, and the `owner`'s.
    async fn project(
        &self,
        tool_message_id: &str,
        publication: &Publication,
        owner: Option<&str>,
    ) -> Result<ToolRow, CompleteError> {
        let ids = [tool_message_id.to_owned()];
        let mut written = None;
        let filled = &mut written;
        let change = self.parts().messages.change(
            &ids,
            Box::new(move |rows| {
                let [Some(row)] = rows else {
                    return Write::Abandon;
                };
                if owner.is_some() && row.call.user_id.as_deref() != owner {
                    return Write::Abandon;
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
                let [Some(row)] = rows else {
                    return Write::Abandon;
                };
                if !row.is_final {
                    row.state.get_or_insert_default().extend(state.clone());
                }
                *changed = Some(row.clone());
                Write::Commit
            }),
        );
        change.await?;
        written.ok_or_else(|| format!("tool message {} is not there", row.id).into())
    }
}
