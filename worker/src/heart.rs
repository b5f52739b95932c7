//! The heart: keeps the leases of running calls, and says that this worker lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use hookstash_shared::message::Shard;
use tokio::time::MissedTickBehavior;

use crate::worker::{Phase, Worker};

/// A worker counts as live for so many beats after its last one.
const LIFE_BEATS: u32 = 3;

/// Beats every `renew` until the worker is closed, then says that it leaves.
pub(crate) async fn beat(worker: Arc<Worker>) {
    let mut beats = tokio::time::interval(worker.settings.renew);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beats.tick() => {}
            () = worker.reached(Phase::Closed) => break,
        }
        join_all(
            worker
                .store
                .shards()
                .iter()
                .map(|shard| beat_shard(&worker, shard)),
        )
        .await;
        let overdue = worker.in_flight.take_overdue();
        if !overdue.is_empty() {
            tracing::warn!(
                count = overdue.len(),
                "leases whose calls did not start are handed back"
            );
            worker.release(overdue).await;
        }
    }
    let life = life(&worker);
    let leave = |shard| worker.store.heartbeat(shard, &worker.name, 0, life);
    join_all(worker.store.shards().iter().map(leave)).await;
}

async fn beat_shard(worker: &Worker, shard: Shard) {
    if let Err(error) = worker.renew(shard).await {
        tracing::warn!(%shard, %error, "renew failed");
        return;
    }
    let slots = if worker.phase() == Phase::Running {
        worker.slots.total() as u64
    } else {
        0
    };
    match worker
        .store
        .heartbeat(shard, &worker.name, slots, life(worker))
        .await
    {
        Ok(live) => {
            if let Some(desk) = worker.desk(shard) {
                desk.live_slots.store(live, Ordering::Relaxed);
            }
        }
        Err(error) => tracing::debug!(%shard, %error, "heartbeat failed"),
    }
}

fn life(worker: &Worker) -> Duration {
    worker.settings.renew * LIFE_BEATS
}
