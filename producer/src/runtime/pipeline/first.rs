//! The first result wins, whoever brings it: this attempt, an earlier one whose placeholder is
//! still open, or another process that makes the same call.
//!
//! Row and placeholder lie in two databases, so whoever writes looks at both again afterwards:
//!
//! - A result goes into a row after the row's placeholder was withdrawn, and then the placeholder
//!   is withdrawn once more, because somebody may have opened it in between. If that one has its
//!   result already, it takes the place of ours, of which nobody was told yet.
//! - A placeholder is opened only for a row that has no result, and is withdrawn again if the row
//!   has one afterwards.

use hookstash_shared::store::Withdrawn;

use super::way::{Made, Way};
use super::{CallOutcome, PipelineError};
use crate::runtime::cancel::abort;
use crate::runtime::error::CompleteError;
use crate::runtime::ports::Write;
use crate::runtime::publication::Publication;
use crate::runtime::row::{NewToolRow, ToolRow};

/// What became of writing a result.
pub(super) enum Written {
    /// The row shows it.
    Ours(ToolRow),
    /// The row shows another one, which came first.
    Other(ToolRow),
    /// The call was stopped: the row takes none.
    Stopped(ToolRow),
}

impl Way<'_> {
    /// The outcome, if this call can be given no result here any more. `None`: it has none, and
    /// no placeholder of it is open. `made` is what was spent on it here.
    pub(super) async fn overtaken(
        &mut self,
        made: Made,
    ) -> Result<Option<CallOutcome>, PipelineError> {
        let messages = &self.operation.runtime.parts().messages;
        let (message, call) = (&self.call.assistant_message_id, &self.call.tool_call_id);
        let found = messages.find(message, call).await;
        let found = found.map_err(PipelineError::Rows)?;
        if let (Some(known), None) = (&self.row, &found) {
            return Err(gone(known));
        }
        self.row = found;
        let Some(row) = &self.row else {
            return Ok(None);
        };
        let call = self.call.clone();
        if let Some(first) = self.close(row).await? {
            return Ok(Some(self.operation.replay(call, &first, made).await));
        }
        Ok(row
            .is_stopped()
            .then(|| CallOutcome::interrupted(call, Some(row))))
    }

    /// The run was cancelled: nothing is published, and nothing can be any more.
    pub(super) async fn interrupt(self) -> Result<CallOutcome, PipelineError> {
        if let Some(row) = &self.row {
            self.close(row).await?;
        }
        Ok(CallOutcome::interrupted(self.call, self.row.as_ref()))
    }

    /// Cancelled before anything was launched, or while its placeholder waits.
    pub(super) async fn abort(self) -> Result<CallOutcome, PipelineError> {
        let messages = &self.operation.runtime.parts().messages;
        let Some(row) = &self.row else {
            let mut row = NewToolRow {
                call: self.call.clone(),
                ..NewToolRow::default()
            };
            abort(&mut row);
            let row = messages.insert(row).await.map_err(PipelineError::Rows)?;
            // Another process has begun the same call.
            if row.takes_result() {
                self.operation.stop(&row).await?;
            }
            return Ok(CallOutcome::interrupted(self.call, Some(&row)));
        };
        self.operation.stop(row).await?;
        Ok(CallOutcome::interrupted(self.call, Some(row)))
    }

    /// Puts a result into the call's row, or into a new one, if it is the first.
    pub(super) async fn write(
        &mut self,
        publication: &Publication,
    ) -> Result<Written, PipelineError> {
        let messages = &self.operation.runtime.parts().messages;
        let row = if let Some(row) = &self.row {
            row.clone()
        } else {
            let mut row = NewToolRow {
                call: self.call.clone(),
                ..NewToolRow::default()
            };
            publication.apply(&mut row);
            let row = messages.insert(row).await.map_err(PipelineError::Rows)?;
            if publication.is_shown_by(&row) {
                return Ok(Written::Ours(row));
            }
            // Another process has begun the same call.
            if let Some(first) = self.close(&row).await? {
                return Ok(Written::Other(first));
            }
            row
        };
        let ids = [row.id.clone()];
        let mut found = None;
        let seen = &mut found;
        let change = messages.change(
            &ids,
            Box::new(move |rows| {
                *seen = None;
                let [Some(row)] = rows else {
                    return Write::Abandon;
                };
                let before = row.clone();
                let is_free = row.takes_result();
                if is_free {
                    publication.apply(row);
                }
                *seen = Some((before, row.clone()));
                if is_free {
                    Write::Commit
                } else {
                    Write::Abandon
                }
            }),
        );
        change.await.map_err(PipelineError::Rows)?;
        let (before, now) = found.ok_or_else(|| gone(&row))?;
        if publication.is_shown_by(&now) {
            return self.confirm(publication, before, now).await;
        }
        Ok(if now.is_final {
            Written::Other(now)
        } else {
            Written::Stopped(now)
        })
    }

    /// Our result is in the row that was like `before`. Nobody was told of it yet.
    async fn confirm(
        &self,
        publication: &Publication,
        before: ToolRow,
        now: ToolRow,
    ) -> Result<Written, PipelineError> {
        let runtime = &self.operation.runtime;
        let withdrawn = runtime.withdraw(self.operation.id(), &now).await?;
        if withdrawn == Withdrawn::Gone {
            return Ok(Written::Ours(now));
        }
        let over = Some((publication, &before));
        let row = runtime.collect_over(self.operation.id(), &now.id, over);
        let row = row.await.map_err(PipelineError::Collect)?;
        Ok(row.map_or(Written::Ours(now), Written::Other))
    }

    /// Withdraws the placeholder of `row`. The row as it is with its result, if it has one.
    async fn close(&self, row: &ToolRow) -> Result<Option<ToolRow>, PipelineError> {
        let runtime = &self.operation.runtime;
        let withdrawn = runtime.withdraw(self.operation.id(), row).await?;
        if row.is_final {
            return Ok(Some(row.clone()));
        }
        if withdrawn == Withdrawn::Gone {
            return Ok(None);
        }
        let collected = self.collect(row).await?;
        // There is a result, but what belongs to it has just expired.
        let unknown = || PipelineError::Collect(CompleteError::Unknown);
        collected.ok_or_else(unknown).map(Some)
    }

    /// The row with the result that came from elsewhere; `None` while there is none.
    pub(super) async fn collect(&self, row: &ToolRow) -> Result<Option<ToolRow>, PipelineError> {
        let runtime = &self.operation.runtime;
        let collected = runtime.collect(self.operation.id(), &row.id).await;
        collected.map_err(PipelineError::Collect)
    }
}

fn gone(row: &ToolRow) -> PipelineError {
    PipelineError::Rows(format!("tool message {} is not there", row.id).into())
}
