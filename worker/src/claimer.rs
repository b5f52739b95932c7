//! The claimer: the exchange loop of one shard.
//!
//! It settles and leases in one call, and calls again as soon as there is a reason: settlements
//! that gathered meanwhile, a wake-up token, work that was left, a due time. So one exchange is
//! under way at a time, its latency is nil when idle and its batches grow under load. Without a
//! reason it sends nothing but a look every 4 s, which repairs a wake-up token that was lost and
//! keeps the contact that recovery asks for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hookstash_shared::message::Shard;
use hookstash_shared::store::Settlement;
use hookstash_shared::store::host::HostError;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::contact::{Contact, gap_max};
use crate::outbox::Waiting;
use crate::patience::Patience;
use crate::phase::Phase;
use crate::upkeep::Upkeep;
use crate::waiter::Waiter;
use crate::worker::{Desk, Worker};

/// So long a settlement that nothing waits for may wait for company: an exchange for each of them
/// alone would cost the store more than everything else about a delivery.
const COMPANY: Duration = Duration::from_millis(2);

/// The exchange loop of one shard.
pub(crate) struct Claimer {
    pub(crate) worker: Arc<Worker>,
    pub(crate) shard: Shard,
    bell: Arc<Notify>,
    pub(crate) contact: Contact,
    waiter: Waiter,
    pub(crate) patience: Patience,
    /// Taken from the outbox and not answered yet.
    pub(crate) batch: Vec<Settlement>,
    /// A token came, a due time has passed, or it is time to look.
    pub(crate) is_due: bool,
    /// The last exchange left work.
    pub(crate) has_more: bool,
    pub(crate) look_at: Instant,
    /// Longest time without an exchange: shorter than the silence that breaks the contact.
    pub(crate) look_pause: Duration,
    pub(crate) upkeep: Upkeep,
    /// When the settlements that wait for company have waited enough.
    settle_at: Option<Instant>,
    /// What the worker did when this was last asked.
    phase: Phase,
    /// Whether the store is known to have as many shards as this process thinks.
    pub(crate) is_agreed: bool,
}

impl Claimer {
    /// `None` for a shard that this deployment does not have.
    pub(crate) fn new(worker: Arc<Worker>, shard: Shard) -> Option<Self> {
        Some(Self {
            bell: Arc::clone(&worker.desk(shard)?.outbox.bell),
            contact: Contact::new(worker.store.lease()),
            waiter: Waiter::new(worker.store.clone(), shard, worker.patience()),
            patience: worker.patience(),
            batch: Vec::new(),
            is_due: true,
            has_more: false,
            look_at: Instant::now(),
            upkeep: Upkeep::new(),
            settle_at: None,
            phase: Phase::Running,
            look_pause: gap_max(worker.store.lease()) * 4 / 5,
            is_agreed: false,
            worker,
            shard,
        })
    }

    /// Runs until the worker is closed; then sends all that is left once more and ends.
    pub(crate) async fn run(mut self) {
        while self.has_reason().await {
            self.exchange().await;
            // A host in this process answers without a pause, and others have work to do here too.
            tokio::task::yield_now().await;
        }
        loop {
            self.fill();
            if self.batch.is_empty() {
                return;
            }
            if let Err(error) = self.send(0).await {
                let count = self.desk().map_or(0, |desk| desk.outbox.len());
                tracing::error!(shard = %self.shard, count, %error, "settle: not answered at the end");
                return;
            }
        }
    }

    /// Waits for a reason to exchange; `false` when the worker is closed.
    async fn has_reason(&mut self) -> bool {
        let worker = Arc::clone(&self.worker);
        loop {
            let phase = worker.phase();
            let is_running = phase == Phase::Running;
            if phase == Phase::Closed {
                return false;
            }
            if std::mem::replace(&mut self.phase, phase) == Phase::Running && !is_running {
                // Only this worker may know what is due next.
                self.wake_another().await;
            }
            let is_free = worker.slots.free() > 0;
            let can_lease = is_free && self.want() > 0;
            let is_due = is_running && self.is_due;
            let must_settle = self.must_settle(is_running && is_free);
            if must_settle || is_due || (self.has_more && can_lease) {
                return true;
            }
            if is_running && !is_free {
                worker.slots.tell_when_free(&self.bell);
            }
            // In order, so that a simulated run can be repeated; none can keep the others waiting,
            // because each ends the wait that the next one begins anew.
            tokio::select! {
                biased;
                () = self.bell.notified() => {}
                () = worker.phases.left(phase) => {}
                () = tokio::time::sleep_until(self.look_at), if is_running => self.is_due = true,
                () = at(self.settle_at) => {}
                token = self.waiter.token(can_lease) => self.took_token(token).await,
            }
        }
    }

    /// Whether settlements wait that must not, or have waited long enough.
    fn must_settle(&mut self, can_wait: bool) -> bool {
        let waiting = self
            .desk()
            .map_or(Waiting::No, |desk| desk.outbox.waiting());
        if waiting != Waiting::Patiently {
            self.settle_at = None;
        }
        if !self.batch.is_empty() {
            return true;
        }
        match waiting {
            Waiting::No => false,
            Waiting::Urgently => true,
            Waiting::Patiently => {
                let now = Instant::now();
                let at = *self.settle_at.get_or_insert(now + COMPANY);
                !can_wait || now >= at
            }
        }
    }

    /// Uses a token, or puts it back for another worker.
    async fn took_token(&mut self, token: Result<bool, HostError>) {
        let can_use = self.worker.slots.free() > 0 && self.want() > 0;
        match token {
            Ok(true) if can_use => self.is_due = true,
            Ok(true) => self.wake_another().await,
            Ok(false) => {}
            // The waiter paces itself; whether the store serves is for an exchange to say. The
            // connection broke or led elsewhere: it may be another store that comes back.
            Err(error) => {
                tracing::debug!(shard = %self.shard, %error, "waiting failed");
                self.is_agreed = false;
                self.is_due = true;
            }
        }
    }

    async fn wake_another(&self) {
        if let Err(error) = self.worker.store.wake(self.shard).await {
            tracing::debug!(shard = %self.shard, %error, "a wake-up token was lost");
        }
    }

    /// How many messages to lease now.
    pub(crate) fn want(&self) -> usize {
        let is_leasing = self.is_agreed
            && self.worker.phase() == Phase::Running
            && self.worker.unanswered() < self.worker.unanswered_max();
        if is_leasing {
            self.worker.settings.batch
        } else {
            0
        }
    }

    /// Takes what waits in the outbox, as much as one exchange carries.
    pub(crate) fn fill(&mut self) {
        self.settle_at = None;
        if let Some(desk) = self.worker.desk(self.shard) {
            desk.outbox
                .fill(&mut self.batch, self.worker.settings.batch);
        }
    }

    pub(crate) fn settled(&self, count: usize) {
        if let Some(desk) = self.desk() {
            self.worker.answered(desk, count);
        }
    }

    pub(crate) fn set_in_touch(&self, is_in_touch: bool) {
        if let Some(desk) = self.desk() {
            desk.is_in_touch.store(is_in_touch, Ordering::Relaxed);
        }
    }

    pub(crate) fn desk(&self) -> Option<&Desk> {
        self.worker.desk(self.shard)
    }
}

/// Waits until then; for ever without a time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
