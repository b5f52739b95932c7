//! The way of a tool call: every call, of whatever tool, takes this one.
//!
//! Permission, controls before, observers and mocks, the tool with its repeats, controls after,
//! archive, notification, row, stream. A call whose row has its result is not made again: a
//! replay after a crash ends in the same state.

mod attempts;
mod call;
mod deferral;
mod first;
mod outcome;
mod way;

use std::sync::Arc;

use futures::{StreamExt as _, stream};

pub use deferral::{Deferred, ToolRun};
pub use outcome::{CallEnd, CallOutcome, RunState, ToolsOutcome};

pub(super) use deferral::Deferral;

use super::error::{CompleteError, RecoverError, ReviewError};
use super::operation::Operation;
use super::ports::{PortError, Tool};
use crate::hooks::{BeforeHumanIntervention, PendingTool, ToolCall};

/// How often a tool is run at most, with its repeats.
pub const ATTEMPTS_MAX: u32 = 3;
/// Lanes that run at one time.
const LANES_AT_ONCE: usize = 32;

/// Whether a call may be made at all, before any hook is asked. A row that a human has approved
/// grants what needed approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Permission {
    /// It may.
    #[default]
    Granted,
    /// A human decides.
    NeedsApproval,
    /// The tool is not on the list of this run.
    NotAllowed,
}

/// A call to make.
#[derive(Clone)]
pub struct ToolRequest {
    /// The call, with everything that is known about it.
    pub call: ToolCall,
    /// What runs it.
    pub tool: Arc<dyn Tool>,
    /// Whether it may be made.
    pub permission: Permission,
}

/// Calls that are made one after the other.
pub type Lane = Vec<ToolRequest>;

/// Why calls did not come to their end. What had ended stays; the same calls can be made again.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// Controls could not be asked.
    #[error(transparent)]
    Review(#[from] ReviewError),
    /// Rows cannot be read or written, or one that was there is gone.
    #[error("a tool message cannot be read or written")]
    Rows(#[source] PortError),
    /// A placeholder cannot be opened or withdrawn.
    #[error("a placeholder cannot be opened or withdrawn")]
    Placeholder(#[from] hookstash_shared::store::host::HostError),
    /// A cancel took back very many placeholders, and not all. Repeat it: it goes on from there.
    #[error("more placeholders are open than one cancel takes back; repeat it")]
    TooMany,
    /// What came of an earlier try cannot be read.
    #[error("the result of an earlier try cannot be read")]
    Collect(#[source] CompleteError),
    /// The operation's record cannot be stored.
    #[error("the record of the operation cannot be stored")]
    Record(#[source] PortError),
}

impl From<RecoverError> for PipelineError {
    fn from(error: RecoverError) -> Self {
        Self::Review(error.into())
    }
}

impl Operation {
    /// Makes calls: lanes beside each other, the calls of a lane one after the other. A call that
    /// is denied stops no other.
    ///
    /// # Errors
    /// The first failure, after all lanes have come to their end. Make the same calls again: those
    /// that had ended are not repeated.
    pub async fn run_tools(&self, lanes: Vec<Lane>) -> Result<ToolsOutcome, PipelineError> {
        let numbered = lanes.into_iter().enumerate();
        let running = numbered.map(|(number, lane)| async move {
            let ended = self.run_lane(lane).await;
            (number, ended)
        });
        // A lane that takes long keeps one place, and not those of lanes that have ended after it.
        let running = stream::iter(running).buffer_unordered(LANES_AT_ONCE);
        let mut ended: Vec<_> = running.collect().await;
        ended.sort_unstable_by_key(|(number, _)| *number);
        let ended = ended.into_iter().map(|(_, ended)| ended);
        let lanes = ended.collect::<Result<Vec<_>, _>>()?;
        let outcome = ToolsOutcome::of(lanes.into_iter().flatten().collect(), self.is_cancelled());
        self.remember_waiting(&outcome).await?;
        // After the record is written, so that whoever cancels meanwhile is not overlooked.
        if self.is_cancelled() {
            self.take_back().await?;
            return Ok(outcome.interrupted());
        }
        self.announce_pending(&outcome);
        Ok(outcome)
    }

    async fn run_lane(&self, lane: Lane) -> Result<Vec<CallOutcome>, PipelineError> {
        let mut outcomes = Vec::with_capacity(lane.len());
        for request in lane {
            outcomes.push(Box::pin(self.run_call(request)).await?);
        }
        Ok(outcomes)
    }

    /// Whoever completes a result in another process finds out from the record whether it was the
    /// last one.
    async fn remember_waiting(&self, outcome: &ToolsOutcome) -> Result<(), PipelineError> {
        let deferred = outcome
            .calls
            .iter()
            .filter(|call| call.end == CallEnd::Deferred);
        let waiting_for: Vec<String> = deferred.map(|call| call.tool_message_id.clone()).collect();
        if waiting_for.is_empty() {
            return Ok(());
        }
        let mut record = self.runtime.record(self.id()).await?;
        record.waiting_for = waiting_for;
        let operations = &self.runtime.parts().operations;
        let saved = operations.save(self.id(), &record).await;
        saved.map_err(PipelineError::Record)
    }

    fn announce_pending(&self, outcome: &ToolsOutcome) {
        let pending = outcome
            .calls
            .iter()
            .filter(|call| call.end == CallEnd::WaitingForHuman);
        let pending_tools: Vec<PendingTool> = pending
            .map(|call| PendingTool {
                api_name: call.call.api_name.clone(),
                identifier: call.call.identifier.clone(),
            })
            .collect();
        let Some(first) = outcome.calls.first().filter(|_| !pending_tools.is_empty()) else {
            return;
        };
        let event = BeforeHumanIntervention {
            operation_id: self.id().to_owned(),
            step_index: first.call.step_index,
            pending_tools,
            user_id: self.user_id().map(str::to_owned),
        };
        self.runtime.announce(event, self.hooks());
    }
}
