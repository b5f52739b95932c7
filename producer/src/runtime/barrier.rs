//! Whether everything that a run waits for is there.

use super::AgentRuntime;
use super::error::CompleteError;
use super::ports::{PortError, Write};
use super::row::ToolRow;

/// Why it is not known whether a run can go on.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// The record of the run cannot be read.
    #[error("the record of a waiting run cannot be read")]
    Record(#[source] PortError),
    /// A result cannot be read or shown.
    #[error(transparent)]
    Complete(#[from] CompleteError),
    /// The rows cannot be read.
    #[error("the rows that a run waits for cannot be read")]
    Rows(#[source] PortError),
    /// The run cannot be told to go on.
    #[error("a run cannot be told to go on")]
    Resume(#[source] PortError),
}

impl AgentRuntime {
    /// Fills the rows whose results have come, and lets the operation go on when nothing is
    /// missing; whether this call did. Safe to repeat, from any process: of many one resumes.
    pub async fn check_barrier(&self, operation_id: &str) -> Result<bool, BarrierError> {
        let parts = self.parts();
        let record = parts.operations.load(operation_id).await;
        let Some(record) = record.map_err(BarrierError::Record)? else {
            return Ok(false);
        };
        if record.waiting_for.is_empty() {
            return Ok(false);
        }
        for row in self.rows(&record.waiting_for).await? {
            if !self.is_there(operation_id, &row).await? {
                return Ok(false);
            }
        }
        let resumed = parts.runs.resume(operation_id).await;
        resumed.map_err(BarrierError::Resume)
    }

    /// Whether a row has its result. That of a group has it once all members have theirs.
    async fn is_there(&self, operation_id: &str, row: &ToolRow) -> Result<bool, BarrierError> {
        if row.is_fulfilled() || self.collect(operation_id, &row.id).await?.is_some() {
            return Ok(true);
        }
        self.check_group(operation_id, row).await
    }

    /// The rows with these ids that exist: one that was removed is not waited for.
    pub(super) async fn rows(&self, ids: &[String]) -> Result<Vec<ToolRow>, BarrierError> {
        let mut found = Vec::new();
        let rows = &mut found;
        let read = self.parts().messages.change(
            ids,
            Box::new(move |all| {
                rows.clear();
                rows.extend(all.iter().flatten().cloned());
                Write::Abandon
            }),
        );
        read.await.map_err(BarrierError::Rows)?;
        Ok(found)
    }
}
