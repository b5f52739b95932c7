//! The store: every change of more than one key is one Lua script, run on one of two hosts.
//!
//! [`Store`] has one method for each script, named alike. What a key holds is in [`keys`]; what a
//! script does is at the head of its file under `lua/`; which host runs it is behind [`host::Host`].

mod args;
mod audit;
mod batches;
mod checkup;
mod completions;
mod dead_letters;
mod deaths;
mod events;
mod exchange;
mod heartbeat;
mod inspect;
mod key_ring;
mod lane_state;
mod lanes;
mod meta;
mod operations;
mod order;
mod publish;
mod queues;
mod record;
mod recover;
mod scan;
mod schedule_definitions;
mod schedules;
mod tick;
mod url_groups;

pub mod embedded;
pub mod faulty;
pub mod host;
pub mod keys;
pub mod redis_host;
pub mod script;
pub mod scripts;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;

pub use audit::{AuditPage, AuditWalk, Audited};
pub use completions::{Completion, CompletionKey, Opening, Placeholder, Withdrawn};
pub use dead_letters::{DeadLetter, DlqCursor, Redrive, RedriveChange, Redriven};
pub use deaths::{DeathRange, Deaths};
pub use events::{EventPosition, EventRange, EventWalk, StoredEvent};
pub use exchange::{
    Child, Counters, Exchange, Exchanged, Fair, Held, LOST_MAX, Lease, LeaseToken, Outcome,
    Renewed, Settled, Settlement,
};
pub use inspect::{Cancelled, StoredMessage};
pub use key_ring::RingChange;
pub use lane_state::{FlowLanes, LaneState, Window};
pub use lanes::{FlowKeyPage, LaneChange};
pub use order::Order;
pub use publish::{Accepted, Enqueue, EnqueueGroup, LaneLimits, host_name};
pub use queues::{Queue, QueuePage};
pub use record::Record;
pub use scan::LiveMessages;
pub use schedule_definitions::Definition;
pub use schedules::{
    PutSchedule, Resumed, SCHEDULES_MAX, Schedule, SchedulePage, SchedulePut, StoredSchedule,
};
pub use tick::{DuePage, Tick, TickMember, Ticked};
pub use url_groups::{StoredUrlGroup, UrlEndpoint, UrlGroup, UrlGroupChange, UrlGroupPage};

use args::Args;
use host::{Host, HostError, Reply, Step};
use keys::Keys;
use script::Script;

use crate::message::{Shard, Shards};

/// How long things are kept, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// A deduplication id answers with its first message for this long.
    pub dedup_window_ms: u64,
    /// A delivered message stays readable for this long.
    pub delivered_grace_ms: u64,
    /// A dead letter is kept for this long.
    pub dead_letter_ms: u64,
    /// A deferred completion's result is kept for this long.
    pub completion_ms: u64,
    /// An entry of the event log is kept for this long.
    pub events_ms: u64,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY_MS: u64 = 86_400_000;
        Self {
            dedup_window_ms: 600_000,
            delivered_grace_ms: 60_000,
            dead_letter_ms: 30 * DAY_MS,
            completion_ms: 30 * DAY_MS,
            events_ms: 7 * DAY_MS,
        }
    }
}

/// The store of one deployment. Cheap to clone and safe to share; every method may be called
/// concurrently with every other, from any number of processes.
#[derive(Clone)]
pub struct Store {
    host: Arc<dyn Host>,
    keys: Keys,
    shards: Shards,
    lease_ms: u64,
    retention: Retention,
    /// When the store was first used, as this deployment's meta key had it last.
    born: Arc<Mutex<Option<Bytes>>>,
}

impl Store {
    /// A store under `prefix` on `host`. `shards` must be the number the deployment was started
    /// with; `lease` is how long a worker holds a message without renewing.
    pub fn new(
        host: Arc<dyn Host>,
        prefix: &str,
        shards: Shards,
        lease: Duration,
        retention: Retention,
    ) -> Self {
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        Self {
            host,
            keys: Keys::new(prefix),
            shards,
            lease_ms,
            retention,
            born: Arc::default(),
        }
    }

    /// The same store through another host, which has connections of its own.
    #[must_use]
    pub fn through(&self, host: Arc<dyn Host>) -> Self {
        Self {
            host,
            ..self.clone()
        }
    }

    /// The same store with another number of shards.
    #[must_use]
    pub fn with_shards(&self, shards: Shards) -> Self {
        Self {
            shards,
            ..self.clone()
        }
    }

    /// All shards of this deployment.
    pub fn shards(&self) -> Shards {
        self.shards
    }

    /// How long a lease lasts.
    pub fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms)
    }

    /// Key names, for tools that look at the store from outside.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Waits up to `timeout` for a wake-up token of `shard`; `true` when one came.
    pub async fn wait(&self, shard: Shard, timeout: Duration) -> Result<bool, HostError> {
        self.host
            .wait(self.keys.of_shard(shard, "w"), timeout)
            .await
    }

    /// Puts a wake-up token back that this process could not use.
    pub async fn wake(&self, shard: Shard) -> Result<(), HostError> {
        let key = self.keys.of_shard(shard, "w");
        let length = self.run_one(args::command([b"LLEN", &key])).await?;
        if length == Reply::Int(0) {
            self.run_one(args::command([b"RPUSH", &key, b"1"])).await?;
        }
        Ok(())
    }

    fn script(&self, shard: Shard, script: &'static Script, args: Args) -> Step {
        Step::Script {
            script,
            keys: vec![self.keys.of_shard(shard, "nil")],
            args: args.finish(),
        }
    }

    async fn run_script(
        &self,
        shard: Shard,
        script: &'static Script,
        args: Args,
    ) -> Result<Reply, HostError> {
        self.run_one(self.script(shard, script, args)).await
    }

    async fn run_one(&self, step: Step) -> Result<Reply, HostError> {
        let unanswered = || Err(HostError::Lost("the host gave no reply".to_owned()));
        self.host
            .run(vec![step])
            .await
            .into_iter()
            .next()
            .unwrap_or_else(unanswered)
    }

    async fn get(&self, key: Bytes) -> Result<Option<Bytes>, HostError> {
        match self
            .run_one(Step::Command(vec![Bytes::from_static(b"GET"), key]))
            .await?
        {
            Reply::Bytes(bytes) => Ok(Some(bytes)),
            _ => Ok(None),
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("keys", &self.keys)
            .field("shards", &self.shards)
            .finish_non_exhaustive()
    }
}
