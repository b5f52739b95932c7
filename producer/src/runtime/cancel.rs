//! What an operation waits for, when nothing can come of it any more.
//!
//! First no process may open a placeholder of it any more. Then those that are open are closed, and
//! their rows settled as aborted: a result that comes late finds none and changes nothing, and the
//! calls are not made again. A result that came first stays.

use hookstash_shared::store::Withdrawn;

use super::operation::Operation;
use super::pipeline::PipelineError;
use super::ports::Write;
use super::row::{InterventionStatus, ToolRow};

/// Most times that the store is asked for more open placeholders of one operation, which it hands
/// out by 64.
const ROUNDS_MAX: usize = 64;

/// Why what an operation waits for was not taken back, or not all of it. Repeat it: until then, a
/// late result may still be taken.
#[derive(Debug, thiserror::Error)]
#[error("what the operation waits for cannot be taken back")]
pub struct CancelError(#[from] PipelineError);

impl Operation {
    /// Stops what runs of it in this process, at once: no late answer starts or publishes anything.
    /// Then takes back what it waits for, wherever that was opened. A late completion of it answers
    /// "unknown placeholder", and the late end of a sub-agent is received and changes nothing.
    ///
    /// Its hooks stay until [`Operation::end`] with [`RunReason::Interrupted`], which takes back too.
    /// Safe to repeat, also by another process.
    ///
    /// [`RunReason::Interrupted`]: super::RunReason::Interrupted
    ///
    /// # Errors
    /// Some of it was not taken back. What ran here is stopped all the same.
    pub fn cancel(&self) -> impl Future<Output = Result<(), CancelError>> {
        self.cancel.cancel();
        async { Ok(self.take_back().await?) }
    }

    /// Withdraws the placeholders that have no result, and settles their rows.
    pub(super) async fn take_back(&self) -> Result<(), PipelineError> {
        let completions = &self.runtime.0.completions;
        // A store that is full refuses this, and can take back the more.
        let stopped = completions.stop(self.id()).await;
        for _ in 0..ROUNDS_MAX {
            let open = completions.open_ones(self.id()).await?;
            if open.is_empty() {
                self.forget_waiting().await?;
                return Ok(stopped?);
            }
            for tool_message_id in open {
                self.settle(&tool_message_id).await?;
            }
        }
        Err(PipelineError::TooMany)
    }

    /// Whoever stopped between a placeholder and its row has left the row here.
    async fn forget_waiting(&self) -> Result<(), PipelineError> {
        let operations = &self.runtime.parts().operations;
        let record = operations.load(self.id()).await;
        let Some(mut record) = record.map_err(PipelineError::Record)? else {
            return Ok(());
        };
        if record.waiting_for.is_empty() {
            return Ok(());
        }
        let rows = self.runtime.rows(&record.waiting_for).await;
        let rows = rows.map_err(|error| PipelineError::Rows(error.into()))?;
        for row in rows.iter().filter(|row| row.takes_result()) {
            self.stop(row).await?;
        }
        record.waiting_for.clear();
        let saved = operations.save(self.id(), &record).await;
        saved.map_err(PipelineError::Record)
    }

    /// Closes the placeholder of a row and, if it is a group's, those of its members, and settles
    /// the rows. What has its result keeps it. Safe to repeat.
    pub(super) async fn stop(&self, row: &ToolRow) -> Result<(), PipelineError> {
        if !row.is_final {
            let members = self.runtime.members(row).await;
            for member in members.map_err(PipelineError::Rows)? {
                self.settle(&member.id).await?;
            }
        }
        self.settle(&row.id).await
    }

    /// The operation knows of the placeholder until the row is written, so that a repeat after a
    /// failure in between finds it; and it is withdrawn again, because it may have been opened in
    /// between.
    async fn settle(&self, tool_message_id: &str) -> Result<(), PipelineError> {
        let (runtime, id) = (&self.runtime, self.id());
        let completions = &runtime.0.completions;
        if completions.close(id, tool_message_id).await? == Withdrawn::Gone {
            self.abort_row(tool_message_id).await?;
        }
        if completions.withdraw(id, tool_message_id).await? == Withdrawn::Gone {
            return Ok(());
        }
        let shown = runtime.collect(id, tool_message_id).await;
        match shown.map_err(PipelineError::Collect)? {
            Some(_) => Ok(()),
            // What belongs to its result has just expired.
            None => self.abort_row(tool_message_id).await,
        }
    }

    /// Settles a row that has no result: its call is not made any more.
    async fn abort_row(&self, tool_message_id: &str) -> Result<(), PipelineError> {
        let ids = [tool_message_id.to_owned()];
        let change = self.runtime.parts().messages.change(
            &ids,
            Box::new(|rows| match rows {
                [Some(row)] if row.takes_result() => {
                    abort(row);
                    Write::Commit
                }
                _ => Write::Abandon,
            }),
        );
        change.await.map_err(PipelineError::Rows)
    }
}

pub(super) fn abort(row: &mut ToolRow) {
    row.intervention.get_or_insert_default().status = InterventionStatus::Aborted;
}
