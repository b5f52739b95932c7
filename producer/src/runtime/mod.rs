//! The seam between an agent runtime and its hooks: results become visible after their verdicts,
//! and the first final result wins.
//!
//! A runtime implements a few small ports ([`Tool`], [`MessageStore`], [`Runs`] and, where it has
//! them, [`Archive`] and [`EventStream`]) and gets the exact order of events, verdicts and writes:
//!
//! ```text
//! runtime.start(new)                  hooks are durable, then the operation exists
//! operation.before_step / after_step  awaited; a failing hook never fails the step
//! operation.run_tools(lanes)          permission -> controls -> observers and mocks -> tool (with
//!                                     its repeats) -> controls -> archive -> notification -> row
//! operation.compact(…)                beforeCompact, then afterCompact or onCompactError
//! run.call_agent / run.call_group     a tool that starts others; their ends fill its placeholder
//! runtime.complete(…)                 a result from elsewhere: controls, claim, row, barrier
//! runtime.claim_approval(…)           a human's decision, claimed once
//! operation.cancel()                  what runs stops; what it waits for is taken back
//! operation.end(run)                  onComplete, then onError
//! ```
//!
//! What has not been reviewed exists only in the memory of whoever holds it. A deferred result is
//! arbitrated by its placeholder in the store alone; a row is its projection, which every later
//! look repairs.

mod announce;
mod approvals;
mod barrier;
mod bridges;
mod cancel;
mod compaction;
mod completions;
mod error;
mod group;
mod operation;
mod pipeline;
mod ports;
mod projection;
mod publication;
mod record;
mod review;
mod row;
mod run_end;
mod steps;
mod stored_operations;
mod sub_agents;
mod truncate;
mod watchdog;

use std::sync::Arc;

use hookstash_shared::clock::Clock;
use hookstash_shared::store::Store;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::hooks::HookDispatcher;

pub use approvals::{Approval, ApprovalError, Claim, Decision, Resolution, Resolved};
pub use barrier::BarrierError;
pub use bridges::{
    AGENT_CALLBACK_PATH, AgentCallback, CallbackError, CallbackReceipt, GroupMode,
    MEMBER_CALLBACK_PATH, MemberCallback,
};
pub use cancel::CancelError;
pub use compaction::{Compacted, Compaction};
pub use completions::{Completed, Completions};
pub use error::{CompleteError, RecoverError, ReviewError};
pub use group::GroupCall;
pub use operation::{EndError, NewOperation, Operation, ResumeError, StartError};
pub use pipeline::{
    ATTEMPTS_MAX, CallEnd, CallOutcome, Deferred, Lane, Permission, PipelineError, RunState,
    ToolRequest, ToolRun, ToolsOutcome,
};
pub use ports::{
    Answer, Archive, Change, EventStream, MessageStore, OperationStore, PortError, PortResult,
    RunStatus, Runs, StartAgent, StartedAgent, StreamEvent, Tool, ToolEnd, Write,
};
pub use publication::{Publication, StateChange};
pub use record::OperationRecord;
pub use row::{Intervention, InterventionStatus, NewToolRow, ToolRow};
pub use run_end::{RunReason, error_text};
pub use steps::StepTracker;
pub use stored_operations::StoredOperations;
pub use sub_agents::AgentCall;
pub use watchdog::RECHECKS;

/// What a runtime is made of.
pub struct RuntimeParts {
    /// Runs hooks.
    pub hooks: HookDispatcher,
    /// Arbitrates deferred results.
    pub store: Store,
    /// Keeps what an operation leaves for other processes, usually [`StoredOperations`].
    pub operations: Arc<dyn OperationStore>,
    /// Keeps tool messages.
    pub messages: Arc<dyn MessageStore>,
    /// Starts, resumes and knows the runtime's runs.
    pub runs: Arc<dyn Runs>,
    /// Shortens large results; `None` = they are stored whole.
    pub archive: Option<Arc<dyn Archive>>,
    /// Tells whoever watches a run; `None` = nobody does.
    pub stream: Option<Arc<dyn EventStream>>,
    /// Measures how long tools take.
    pub clock: Arc<dyn Clock>,
}

/// The seam of one process. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct AgentRuntime(Arc<Inner>);

struct Inner {
    parts: RuntimeParts,
    completions: Completions,
    /// Ends what this process watches.
    watching: CancellationToken,
    _watching: DropGuard,
}

impl AgentRuntime {
    /// The seam over these parts.
    pub fn new(parts: RuntimeParts) -> Self {
        let watching = CancellationToken::new();
        let completions = Completions::new(
            parts.hooks.clone(),
            parts.store.clone(),
            Arc::clone(&parts.operations),
        );
        Self(Arc::new(Inner {
            parts,
            completions,
            watching: watching.clone(),
            _watching: watching.drop_guard(),
        }))
    }

    /// The dispatcher that runs its hooks.
    pub fn hooks(&self) -> &HookDispatcher {
        &self.0.parts.hooks
    }

    fn parts(&self) -> &RuntimeParts {
        &self.0.parts
    }
}

impl std::fmt::Debug for AgentRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentRuntime").finish_non_exhaustive()
    }
}
