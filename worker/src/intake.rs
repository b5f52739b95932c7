//! Intake: reading the envelopes of new leases and handing them to the delivery threads.

use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::message::Shard;
use hookstash_shared::store::{Held, Lease};

use crate::job::Stored;
use crate::phase::Phase;
use crate::slots::Reserved;
use crate::worker::Worker;

/// How often the envelopes are asked for; with the pauses between, far less than a lease time.
const TRIES_MAX: usize = 4;

/// Takes in `leases`, asked for at `asked_at`. What cannot be delivered here is handed back.
pub(crate) async fn take_in(
    worker: Arc<Worker>,
    shard: Shard,
    leases: Vec<Lease>,
    mut room: Reserved,
    asked_at: Duration,
) {
    tracing::debug!(%shard, count = leases.len(), "lease");
    let mut rejected: Vec<Held> = Vec::new();
    match envelopes(&worker, shard, &leases).await {
        Some(envelopes) if worker.phase() == Phase::Running => {
            for (lease, stored) in leases.into_iter().zip(envelopes) {
                let room = room.take_one(stored.bytes());
                let sent = worker
                    .dispatch
                    .send(&worker.in_flight, (lease, stored, room), asked_at);
                rejected.extend(sent.err());
            }
        }
        _ => rejected.extend(leases.iter().map(unstarted)),
    }
    if worker.phase() != Phase::Running {
        // Draining began meanwhile and may have looked before these were in flight.
        rejected.extend(worker.in_flight.take_unstarted());
    }
    if !rejected.is_empty() {
        worker.release(rejected).await;
    }
    // Held until now, so that nobody takes the worker for idle while leases are on their way.
    drop(room);
}

async fn envelopes(worker: &Worker, shard: Shard, leases: &[Lease]) -> Option<Vec<Stored>> {
    let mut patience = worker.patience();
    for _ in 0..TRIES_MAX {
        match worker.store.envelopes(shard, leases).await {
            Ok(found) => {
                let stored = |(envelope, shared)| Stored { envelope, shared };
                return Some(found.into_iter().map(stored).collect());
            }
            Err(error) => {
                tracing::warn!(%shard, count = leases.len(), %error, "reading envelopes failed");
                tokio::time::sleep(patience.next_pause()).await;
            }
        }
    }
    None
}

fn unstarted(lease: &Lease) -> Held {
    Held {
        id: lease.id,
        token: lease.token,
        started: false,
    }
}
