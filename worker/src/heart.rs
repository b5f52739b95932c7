//! The heart: keeps the leases of running calls, and says that this worker lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hookstash_shared::message::Shard;
use tokio::time::MissedTickBehavior;

use crate::phase::Phase;
use crate::worker::Worker;

/// A worker counts as live for so many beats after its last one.
const LIFE_BEATS: u32 = 3;

/// Beats for `shard` every `renew` until the worker is closed, then says that it leaves. One heart
/// a shard, so that one that does not answer holds up no other.
pub(crate) async fn beat(worker: Arc<Worker>, shard: Shard) {
    let mut beats = tokio::time::interval(worker.settings.renew);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = beats.tick() => beat_once(&worker, shard).await,
            () = worker.phases.reached(Phase::Closed) => break,
        }
    }
    let (name, life) = (&worker.name, life(&worker));
    if let Err(error) = worker.store.heartbeat(shard, name, 0, life).await {
        tracing::debug!(%shard, %error, "the last heartbeat failed");
    }
}

async fn beat_once(worker: &Worker, shard: Shard) {
    if let Err(error) = worker.renew(shard).await {
        tracing::warn!(%shard, %error, "renew failed");
        return;
    }
    let overdue = worker.in_flight.take_overdue(shard);
    if !overdue.is_empty() {
        let count = overdue.len();
        tracing::warn!(%shard, count, "leases whose calls did not start are handed back");
        worker.release(overdue).await;
    }
    let slots = match worker.phase() {
        Phase::Running => worker.slots.total() as u64,
        _ => 0,
    };
    let live = worker
        .store
        .heartbeat(shard, &worker.name, slots, life(worker))
        .await;
    match (live, worker.desk(shard)) {
        (Ok(live), Some(desk)) => desk.live_slots.store(live, Ordering::Relaxed),
        (Ok(_), None) => {}
        (Err(error), _) => tracing::debug!(%shard, %error, "heartbeat failed"),
    }
}

fn life(worker: &Worker) -> Duration {
    worker.settings.renew * LIFE_BEATS
}
