//! The heart: keeps the leases of running calls, and says that this worker lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use hookstash_shared::message::Shard;
use tokio::time::MissedTickBehavior;

use crate::shared::{Phase, Shared};

/// A worker counts as live for so many beats after its last one.
const LIFE_BEATS: u32 = 3;

/// Beats every `renew` until the worker is closed, then says that it leaves.
pub(crate) async fn beat(shared: Arc<Shared>) {
    let mut beats = tokio::time::interval(shared.settings.renew);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = beats.tick() => {}
            () = shared.reached(Phase::Closed) => break,
        }
        join_all(
            shared
                .store
                .shards()
                .iter()
                .map(|shard| beat_shard(&shared, shard)),
        )
        .await;
        let overdue = shared.in_flight.take_overdue();
        if !overdue.is_empty() {
            tracing::warn!(
                count = overdue.len(),
                "leases whose calls did not start are handed back"
            );
            shared.release(overdue).await;
        }
    }
    let life = life(&shared);
    let leave = |shard| shared.store.heartbeat(shard, &shared.name, 0, life);
    join_all(shared.store.shards().iter().map(leave)).await;
}

async fn beat_shard(shared: &Shared, shard: Shard) {
    if let Err(error) = shared.renew(shard).await {
        tracing::warn!(%shard, %error, "renew failed");
        return;
    }
    let slots = if shared.phase() == Phase::Running {
        shared.slots.total() as u64
    } else {
        0
    };
    match shared
        .store
        .heartbeat(shard, &shared.name, slots, life(shared))
        .await
    {
        Ok(live) => {
            if let Some(desk) = shared.desk(shard) {
                desk.live_slots.store(live, Ordering::Relaxed);
            }
        }
        Err(error) => tracing::debug!(%shard, %error, "heartbeat failed"),
    }
}

fn life(shared: &Shared) -> Duration {
    shared.settings.renew * LIFE_BEATS
}
