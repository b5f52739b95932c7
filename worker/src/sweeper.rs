//! The sweeper: walks the records at a low rate and clears away what nobody needs.
//!
//! Everything it does is repair or housekeeping; a deployment without it still delivers. It looks
//! at one page at a time, with a pause after each, and rests between two walks, so an idle worker
//! stays idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::message::Shard;
use hookstash_shared::store::AuditWalk;
use hookstash_shared::store::host::HostError;

use crate::phase::Phase;
use crate::worker::Worker;

/// Pause after a page that is not the last.
const PAGE_PAUSE: Duration = Duration::from_millis(250);
/// Messages of deleted queues that one call cancels.
const TRASH_PAGE: u32 = 256;
/// A flow-control key that nobody used for so long loses its settings.
const FLOW_KEY_UNUSED: Duration = Duration::from_hours(7 * 24);
/// Flow-control keys are looked at in one walk of so many.
const FLOW_KEY_WALKS: u64 = 60;

/// Sweeps until the worker drains. Errors are logged; the next walk tries again.
pub(crate) async fn sweep(worker: Arc<Worker>) {
    tokio::select! {
        biased;
        () = worker.phases.reached(Phase::Draining) => {}
        () = sweep_for_ever(&worker) => {}
    }
}

async fn sweep_for_ever(worker: &Worker) {
    let mut differences: BTreeMap<Shard, BTreeMap<String, i64>> = BTreeMap::new();
    for walk in 0_u64.. {
        tokio::time::sleep(worker.settings.sweep_pause).await;
        for shard in worker.store.shards().iter() {
            let previous = differences.entry(shard).or_default();
            let swept = sweep_shard(worker, shard, walk, previous).await;
            if let Err(error) = swept {
                tracing::warn!(%shard, %error, "sweep failed");
            }
        }
    }
}

async fn sweep_shard(
    worker: &Worker,
    shard: Shard,
    walk: u64,
    differences: &mut BTreeMap<String, i64>,
) -> Result<(), HostError> {
    let store = &worker.store;
    while store.sweep_trash(shard, TRASH_PAGE).await? > 0 {
        tokio::time::sleep(PAGE_PAUSE).await;
    }
    store.trim_events(shard, worker.clock.now_ms()).await?;
    let seen = audit(worker, shard, differences).await?;
    if walk.is_multiple_of(FLOW_KEY_WALKS) {
        let mut cursor = 0;
        loop {
            let page = store
                .forget_flow_keys(shard, cursor, FLOW_KEY_UNUSED, &seen)
                .await?;
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
            tokio::time::sleep(PAGE_PAUSE).await;
        }
    }
    Ok(())
}

/// One walk over all records of `shard`, then the counts of its lanes.
async fn audit(
    worker: &Worker,
    shard: Shard,
    differences: &mut BTreeMap<String, i64>,
) -> Result<AuditWalk, HostError> {
    let (mut seen, mut cursor) = (AuditWalk::default(), 0);
    let (mut repaired, mut unreadable) = (0, 0);
    loop {
        let page = worker.store.audit(shard, cursor, &mut seen).await?;
        repaired += page.audited.repaired;
        unreadable += page.audited.unreadable;
        cursor = page.cursor;
        if cursor == 0 {
            break;
        }
        tokio::time::sleep(PAGE_PAUSE).await;
    }
    let recounted = worker.store.recount(shard, &seen, differences).await?;
    if repaired + unreadable + recounted > 0 {
        tracing::warn!(%shard, repaired, unreadable, recounted, "half states repaired");
    }
    Ok(seen)
}
