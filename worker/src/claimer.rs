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
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Exchange, Exchanged, Fair, Lease, Settled, Settlement};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::contact::{Contact, gap_max};
use crate::fairness::fair;
use crate::intake::take_in;
use crate::patience::Patience;
use crate::slots::Reserved;
use crate::waiter::Waiter;
use crate::worker::{Desk, Phase, Worker};

/// Most bytes of envelopes and bodies that one exchange may lease.
const LEASE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Settlements kept for a store that does not answer, for each slot; above that leasing stops.
const UNANSWERED_PER_SLOT: usize = 2;

/// The exchange loop of one shard.
pub(crate) struct Claimer {
    worker: Arc<Worker>,
    shard: Shard,
    bell: Arc<Notify>,
    contact: Contact,
    waiter: Waiter,
    patience: Patience,
    /// Taken from the outbox and not answered yet.
    batch: Vec<Settlement>,
    /// A token came, a due time has passed, or it is time to look.
    is_due: bool,
    /// The last exchange left work.
    has_more: bool,
    look_at: Instant,
    /// Longest time without an exchange: shorter than the silence that breaks the contact.
    look_pause: Duration,
    /// Whether the store is known to have as many shards as this process thinks.
    is_agreed: bool,
}

impl Claimer {
    /// `None` for a shard that this deployment does not have.
    pub(crate) fn new(worker: Arc<Worker>, shard: Shard) -> Option<Self> {
        Some(Self {
            bell: Arc::clone(&worker.desk(shard)?.outbox.bell),
            contact: Contact::new(worker.store.lease()),
            waiter: Waiter::new(worker.store.clone(), shard),
            patience: Patience::new(),
            batch: Vec::new(),
            is_due: true,
            has_more: false,
            look_at: now(),
            look_pause: gap_max(worker.store.lease()) * 4 / 5,
            is_agreed: false,
            worker,
            shard,
        })
    }

    /// Runs until the worker is closed; then sends what is left once more and ends.
    pub(crate) async fn run(mut self) {
        while self.has_reason().await {
            self.exchange().await;
        }
        self.fill();
        if !self.batch.is_empty() {
            let last = self.send(0).await;
            if let Err(error) = last {
                let count = self.batch.len();
                tracing::error!(shard = %self.shard, count, %error, "settle: not answered at the end");
            }
        }
    }

    /// Waits for a reason to exchange; `false` when the worker is closed.
    async fn has_reason(&mut self) -> bool {
        let worker = Arc::clone(&self.worker);
        let mut phases = worker.phase.subscribe();
        loop {
            self.fill();
            let phase = *phases.borrow_and_update();
            let is_running = phase == Phase::Running;
            if phase == Phase::Closed {
                return false;
            }
            let is_free = is_running && worker.slots.free() > 0;
            if !self.batch.is_empty() || (is_running && self.is_due) || (self.has_more && is_free) {
                return true;
            }
            if is_running && !is_free {
                worker.slots.tell_when_free(&self.bell);
            }
            tokio::select! {
                () = self.bell.notified() => {}
                _ = phases.changed() => {}
                () = tokio::time::sleep_until(self.look_at), if is_running => self.is_due = true,
                token = self.waiter.token(is_free) => self.took_token(token).await,
            }
        }
    }

    /// Uses a token, or puts it back for another worker.
    async fn took_token(&mut self, token: Result<bool, HostError>) {
        let can_use = self.worker.phase() == Phase::Running && self.worker.slots.free() > 0;
        match token {
            Ok(true) if can_use => self.is_due = true,
            Ok(true) => {
                if let Err(error) = self.worker.store.wake(self.shard).await {
                    tracing::debug!(shard = %self.shard, %error, "a wake-up token was lost");
                }
            }
            Ok(false) => {}
            // The waiter paces itself; whether the store serves is for an exchange to say.
            Err(error) => {
                tracing::debug!(shard = %self.shard, %error, "waiting failed");
                self.is_due = true;
            }
        }
    }

    async fn exchange(&mut self) {
        if !self.is_agreed {
            match self.agree().await {
                Ok(is_agreed) => self.is_agreed = is_agreed,
                Err(error) => return self.failed(&error, "agree").await,
            }
        }
        match self.send(self.want()).await {
            Ok(()) => self.patience.reset(),
            Err(error @ HostError::Fault(_)) if !self.batch.is_empty() => {
                tracing::warn!(shard = %self.shard, %error, "exchange: looking for its cause");
                self.send_alone().await;
            }
            Err(error) => self.failed(&error, "exchange").await,
        }
    }

    /// Whether the store was started with as many shards as this process has. If not, nothing is
    /// leased: half of its lanes would be missed.
    async fn agree(&mut self) -> Result<bool, HostError> {
        let ours = self.worker.store.shards().count();
        let theirs = self.worker.store.agree_on_shards(ours).await?;
        if theirs != ours {
            tracing::error!(
                ours,
                theirs,
                "the store has another number of shards: leasing nothing"
            );
        }
        Ok(theirs == ours)
    }

    /// How many messages to lease now.
    fn want(&self) -> usize {
        let unanswered_max = self
            .worker
            .slots
            .total()
            .saturating_mul(UNANSWERED_PER_SLOT);
        let is_leasing = self.is_agreed
            && self.worker.phase() == Phase::Running
            && self.worker.unanswered() < unanswered_max;
        if is_leasing {
            self.worker.settings.batch
        } else {
            0
        }
    }

    /// One exchange with the settlements in hand and up to `want` new leases.
    async fn send(&mut self, want: usize) -> Result<(), HostError> {
        let worker = Arc::clone(&self.worker);
        let free = worker.slots.free();
        let room = worker.slots.reserve(want, LEASE_BYTES_MAX);
        let asked_at = worker.clock.monotonic();
        let exchange = Exchange {
            settlements: &self.batch,
            want: u32::try_from(room.count()).unwrap_or(u32::MAX),
            nonce: u32::try_from(worker.random.below(1 << 32)).unwrap_or(0),
            fair: self.fair(free),
            may_recover: self.contact.may_recover(asked_at),
            byte_budget: room.bytes(),
        };
        let answer = worker.store.exchange(self.shard, &exchange).await;
        self.set_in_touch(answer.is_ok() && self.is_agreed);
        let answer = answer?;
        self.contact
            .replied(worker.clock.monotonic(), answer.now_ms);
        self.settled(self.batch.len());
        self.batch.clear();
        self.plan(&answer, room.count());
        log(self.shard, &answer);
        self.take_in(answer.leases, room, asked_at);
        Ok(())
    }

    /// Sends each settlement alone, to find the one that the store refuses: that one is dropped.
    /// If the store refuses an exchange without any, they are not the cause and all are kept.
    async fn send_alone(&mut self) {
        let kept = std::mem::take(&mut self.batch);
        if let Err(error) = self.send(0).await {
            self.batch = kept;
            return self.failed(&error, "exchange").await;
        }
        let mut rest = kept.into_iter();
        while let Some(settlement) = rest.next() {
            let id = settlement.id;
            self.batch.push(settlement);
            match self.send(0).await {
                Ok(()) => {}
                Err(error @ HostError::Fault(_)) => {
                    tracing::error!(%id, %error, "settle: refused and dropped");
                    self.settled(1);
                    self.batch.clear();
                }
                Err(error) => {
                    self.batch.extend(rest);
                    return self.failed(&error, "exchange").await;
                }
            }
        }
    }

    /// When to look again.
    fn plan(&mut self, answer: &Exchanged, wanted: usize) {
        self.is_due = false;
        self.has_more = answer.more;
        let counters = &answer.counters;
        let has_moved = !answer.leases.is_empty() || counters.promoted + counters.recovered > 0;
        let pause = match answer.next_due_ms {
            None => self.look_pause,
            Some(due_ms) if due_ms > answer.now_ms => {
                // One more, because the host counts whole milliseconds.
                Duration::from_millis(due_ms - answer.now_ms + 1).min(self.look_pause)
            }
            Some(_) if has_moved && wanted > 0 => Duration::ZERO,
            // Due, but not to be touched yet: a lease that this process may not judge.
            Some(_) => (self.worker.store.lease() / 15).min(self.look_pause),
        };
        self.look_at = now() + pause;
    }

    fn take_in(&self, leases: Vec<Lease>, mut room: Reserved, asked_at: Duration) {
        if !leases.is_empty() {
            room.keep(leases.len());
            let worker = Arc::clone(&self.worker);
            tokio::spawn(take_in(worker, self.shard, leases, room, asked_at));
        }
    }

    fn fair(&self, free: usize) -> Fair {
        let live = self
            .desk()
            .map_or(0, |desk| desk.live_slots.load(Ordering::Relaxed));
        let (free, total) = (free as u64, self.worker.slots.total() as u64);
        fair(live, free, total, self.worker.store.shards().count())
    }

    /// Logs and waits a little longer each time; the end of the worker cuts the wait short.
    async fn failed(&mut self, error: &HostError, what: &'static str) {
        self.contact.lost();
        self.is_agreed = false;
        self.set_in_touch(false);
        let pause = self.patience.next_pause();
        let (shard, pause_ms) = (self.shard, pause.as_millis());
        tracing::warn!(%shard, what, %error, pause_ms, "the store does not serve; going on later");
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.worker.reached(Phase::Closed) => {}
        }
        self.is_due = true;
    }

    fn fill(&mut self) {
        if let Some(desk) = self.worker.desk(self.shard) {
            desk.outbox
                .fill(&mut self.batch, self.worker.settings.batch);
        }
    }

    fn settled(&self, count: usize) {
        if let Some(desk) = self.desk() {
            desk.outbox.answered(count);
        }
    }

    fn set_in_touch(&self, is_in_touch: bool) {
        if let Some(desk) = self.desk() {
            desk.is_in_touch.store(is_in_touch, Ordering::Relaxed);
        }
    }

    fn desk(&self) -> Option<&Desk> {
        self.worker.desk(self.shard)
    }
}

fn now() -> Instant {
    Instant::now()
}

fn log(shard: Shard, answer: &Exchanged) {
    let counters = answer.counters;
    let leased = answer.leases.len();
    tracing::trace!(%shard, leased, settled = answer.settled.len(), more = answer.more, "exchange");
    let stale = answer
        .settled
        .iter()
        .filter(|settled| **settled == Settled::Stale);
    let stale = stale.count();
    if stale > 0 {
        tracing::info!(%shard, count = stale, "settle: stale, nothing was changed");
    }
    if counters.recovered > 0 {
        tracing::warn!(%shard, count = counters.recovered, "recover");
    }
    if counters.buried > 0 {
        tracing::error!(%shard, count = counters.buried, "messages without an envelope are dead now");
    }
    if counters.unreadable > 0 {
        tracing::error!(%shard, count = counters.unreadable, "records cannot be read");
    }
}
