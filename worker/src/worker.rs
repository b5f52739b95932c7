//! What all parts of one worker share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hookstash_shared::clock::Clock;
use hookstash_shared::descriptors::soft_limit;
use hookstash_shared::environment::Environment;
use hookstash_shared::message::Shard;
use hookstash_shared::random::Random;
use hookstash_shared::signing::Signer;
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Held, Settlement, Store};
use tokio::sync::watch;

use crate::WorkerParts;
use crate::attempt::Judging;
use crate::dispatch::Dispatch;
use crate::in_flight::{InFlight, Interrupt};
use crate::job::Job;
use crate::outbox::Outbox;
use crate::patience::Patience;
use crate::phase::{Phase, Phases};
use crate::report::Observer;
use crate::settings::WorkerSettings;
use crate::slots::Slots;

/// Settlements kept for a store that does not answer, for each slot; above that leasing stops.
const UNANSWERED_PER_SLOT: usize = 2;
/// Most leases of one renew or release.
const HELD_BATCH: usize = 256;

/// One worker's parts.
pub(crate) struct Worker {
    pub(crate) store: Store,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) signer: watch::Receiver<Option<Signer>>,
    pub(crate) observer: Option<Observer>,
    pub(crate) settings: WorkerSettings,
    /// This process among the workers; new at every start.
    pub(crate) name: String,
    pub(crate) slots: Arc<Slots>,
    pub(crate) in_flight: InFlight,
    pub(crate) dispatch: Dispatch,
    pub(crate) phases: Phases,
    /// One for each shard, in order.
    desks: Vec<Desk>,
}

/// What is kept for one shard.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    pub(crate) outbox: Outbox,
    /// Slots of all live workers.
    pub(crate) live_slots: AtomicU64,
    /// Whether the last exchange succeeded.
    pub(crate) is_in_touch: AtomicBool,
}

impl Worker {
    /// Puts the parts of a worker together.
    pub(crate) fn new(parts: WorkerParts) -> Self {
        let WorkerParts {
            store,
            clock,
            random,
            environment,
            signer,
            observer,
            ..
        } = parts;
        let settings = parts.settings.fitted(soft_limit());
        Self {
            name: format!("{:016x}", random.next_u64()),
            slots: Slots::new(settings.slots, settings.body_budget_bytes),
            in_flight: InFlight::new(Arc::clone(&clock), store.lease(), settings.renew),
            dispatch: Dispatch::new(settings.threads, settings.share()),
            desks: store.shards().iter().map(|_| Desk::default()).collect(),
            store,
            clock,
            random,
            environment,
            signer,
            observer,
            settings,
            phases: Phases::new(),
        }
    }

    /// What is kept for `shard`; `None` for a shard that this deployment does not have.
    pub(crate) fn desk(&self, shard: Shard) -> Option<&Desk> {
        self.desks.get(usize::from(shard.index()))
    }

    /// How far the end of this worker has come.
    pub(crate) fn phase(&self) -> Phase {
        self.phases.now()
    }

    /// Patience with a store that does not serve.
    pub(crate) fn patience(&self) -> Patience {
        Patience::new(self.random.next_u64())
    }

    /// Hands a settlement to the claimer of its shard. One that `can_wait` may wait for company.
    pub(crate) fn push(&self, settlement: Settlement, can_wait: bool) {
        if let Some(desk) = self.desk(settlement.id.shard()) {
            desk.outbox.push(settlement, can_wait);
        }
    }

    /// The store has answered `count` settlements of `desk`. Tells all claimers when that lets them
    /// lease again.
    pub(crate) fn answered(&self, desk: &Desk, count: usize) {
        let could_lease = self.unanswered() < self.unanswered_max();
        desk.outbox.answered(count);
        if !could_lease && self.unanswered() < self.unanswered_max() {
            self.desks
                .iter()
                .for_each(|desk| desk.outbox.bell.notify_one());
        }
    }

    /// With so many settlements unanswered nothing more is leased.
    pub(crate) fn unanswered_max(&self) -> usize {
        self.slots.total().saturating_mul(UNANSWERED_PER_SLOT)
    }

    /// Settlements that the store has not answered.
    pub(crate) fn unanswered(&self) -> usize {
        self.desks.iter().map(|desk| desk.outbox.len()).sum()
    }

    /// Whether the last exchange with every shard succeeded.
    pub(crate) fn is_in_touch(&self) -> bool {
        self.desks
            .iter()
            .all(|desk| desk.is_in_touch.load(Ordering::Relaxed))
    }

    /// What judging an attempt of `job` that `took` so long needs.
    pub(crate) fn judging(&self, job: &Job, took: Duration) -> Judging {
        Judging {
            failed: job.lease.failed,
            jitter: self.settings.jitter,
            now_ms: self.clock.now_ms(),
            random: self.random.next_u64(),
            took,
        }
    }

    /// Hands leases back, each to its shard. What cannot be handed back comes back by itself when
    /// its lease ends.
    pub(crate) async fn release(&self, mut held: Vec<Held>) {
        held.sort_by_key(|held| held.id);
        for of_shard in held.chunk_by(|a, b| a.id.shard() == b.id.shard()) {
            for batch in of_shard.chunks(HELD_BATCH) {
                let Some(shard) = batch.first().map(|held| held.id.shard()) else {
                    continue;
                };
                let count = batch.len();
                match self.store.release(shard, batch).await {
                    Ok(released) => tracing::info!(%shard, count, released, "release"),
                    Err(error) => tracing::warn!(%shard, count, %error, "release failed"),
                }
            }
        }
    }

    /// Renews the leases of `shard` and ends the calls of those that were lost or cancelled.
    pub(crate) async fn renew(&self, shard: Shard) -> Result<(), HostError> {
        for batch in self.in_flight.renewable(shard).chunks(HELD_BATCH) {
            let renewed = self.store.renew(shard, batch).await?;
            for held in batch {
                if renewed.lost.contains(&held.id) {
                    self.in_flight.interrupt(held, Interrupt::Lost);
                } else if renewed.cancelled.contains(&held.id) {
                    self.in_flight.interrupt(held, Interrupt::Cancelled);
                }
            }
        }
        Ok(())
    }
}
