//! One exchange of a claimer: what it asks, what it does with the answer, and what when there is
//! none.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hookstash_shared::message::Shard;
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Exchange, Exchanged, Fair, Lease, Settled};
use tokio::time::Instant;

use crate::claimer::Claimer;
use crate::fairness::fair;
use crate::intake::take_in;
use crate::phase::Phase;
use crate::slots::Reserved;

/// Most bytes of envelopes and bodies that one exchange may lease.
const LEASE_BYTES_MAX: u64 = 16 * 1024 * 1024;

impl Claimer {
    /// Exchanges once, and waits when the store does not serve.
    pub(crate) async fn exchange(&mut self) {
        if !self.is_agreed {
            match self.agree().await {
                Ok(is_agreed) => self.is_agreed = is_agreed,
                // Settling, promoting and recovering need no agreement, and empty a full store.
                Err(error) => tracing::warn!(shard = %self.shard, %error, "agree"),
            }
        }
        self.fill();
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

    /// One exchange with the settlements in hand and up to `want` new leases.
    pub(crate) async fn send(&mut self, want: usize) -> Result<(), HostError> {
        let worker = Arc::clone(&self.worker);
        let free = worker.slots.free();
        let room = worker.slots.reserve(want, LEASE_BYTES_MAX);
        let asked_at = worker.clock.monotonic();
        let upkeep = self.upkeep.share(self.batch.len());
        let exchange = Exchange {
            settlements: &self.batch,
            want: u32::try_from(room.count()).unwrap_or(u32::MAX),
            nonce: u32::try_from(worker.random.below(1 << 32)).unwrap_or(0),
            fair: self.fair(free),
            upkeep,
            may_recover: self.contact.may_recover(asked_at),
            byte_budget: room.bytes(),
        };
        let answer = worker.store.exchange(self.shard, &exchange).await;
        self.set_in_touch(answer.is_ok() && self.is_agreed);
        let answer = answer?;
        self.contact
            .replied(worker.clock.monotonic(), answer.now_ms);
        self.settled(self.batch.len());
        let is_behind = self.upkeep.done(upkeep, self.batch.len(), answer.is_behind);
        self.batch.clear();
        self.plan(&answer, room.count(), upkeep > 0);
        self.is_due |= is_behind;
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
    fn plan(&mut self, answer: &Exchanged, wanted: usize, was_upkeep: bool) {
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
            // It may be a lease.
            Some(_) if !was_upkeep => self.upkeep.next_at().duration_since(Instant::now()),
            // Due, but not to be touched yet: a lease that this process may not judge.
            Some(_) => (self.worker.store.lease() / 15).min(self.look_pause),
        };
        self.look_at = Instant::now() + pause;
    }

    fn take_in(&self, leases: Vec<Lease>, mut room: Reserved, asked_at: Duration) {
        if !leases.is_empty() {
            room.keep(leases.len());
            let worker = Arc::clone(&self.worker);
            tokio::task::spawn_local(take_in(worker, self.shard, leases, room, asked_at));
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
            biased;
            () = tokio::time::sleep(pause) => {}
            () = self.worker.phases.reached(Phase::Closed) => {}
        }
        self.is_due = true;
    }
}

fn log(shard: Shard, answer: &Exchanged) {
    let counters = answer.counters;
    let leased = answer.leases.len();
    tracing::trace!(%shard, leased, settled = answer.settled.len(), more = answer.more, "exchange");
    let is_stale = |settled: &&Settled| **settled == Settled::Stale;
    let stale = answer.settled.iter().filter(is_stale).count();
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
