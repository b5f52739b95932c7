//! The store thread: runs claimers, heart and sweeper, keeps the delivery threads alive, and ends
//! the worker in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::claimer::Claimer;
use crate::heart::beat;
use crate::patience::Patience;
use crate::runtime::Crew;
use crate::shared::{Phase, Shared};
use crate::sweeper::sweep;
use crate::{Drained, StartError};

/// How often a draining worker looks whether it is done.
const DRAIN_LOOK: Duration = Duration::from_millis(10);
/// How long dropped calls may take to unwind.
const UNWIND_MAX: Duration = Duration::from_secs(1);
/// How long the last settlements and the farewell may take.
const CLOSE_MAX: Duration = Duration::from_secs(3);

/// Runs the worker until it has ended, and says how.
pub(crate) async fn supervise(
    crew: Crew,
    ended: mpsc::UnboundedReceiver<usize>,
    drained: watch::Sender<Option<Drained>>,
) {
    let shared = Arc::clone(&crew.shared);
    let mut parts = JoinSet::new();
    for shard in shared.store.shards().iter() {
        if let Some(claimer) = Claimer::new(Arc::clone(&shared), shard) {
            parts.spawn(claimer.run());
        }
    }
    parts.spawn(beat(Arc::clone(&shared)));
    let sweeper = tokio::spawn(sweep(Arc::clone(&shared)));
    let keeper = tokio::spawn(keep_threads(crew, ended));

    shared.reached(Phase::Draining).await;
    let end = drain(&shared).await;
    shared.advance(Phase::Closed);
    shared.dispatch.close_all();
    keeper.abort();
    sweeper.abort();
    let parted = async { while parts.join_next().await.is_some() {} };
    if tokio::time::timeout(CLOSE_MAX, parted).await.is_err() {
        tracing::warn!("the store did not answer at the end; leases end by themselves");
    }
    drained.send_replace(Some(end));
}

/// Lets running calls end; past the deadline drops them and hands their leases back.
async fn drain(shared: &Shared) -> Drained {
    let unstarted = shared.in_flight.take_unstarted();
    tracing::info!(
        running = shared.in_flight.len(),
        unstarted = unstarted.len(),
        "drain"
    );
    shared.release(unstarted).await;
    let is_done = || shared.slots.is_idle() && shared.unanswered() == 0;
    while !is_done() {
        tokio::select! {
            () = tokio::time::sleep(DRAIN_LOOK) => {}
            () = shared.reached(Phase::Stopping) => break,
        }
    }
    if is_done() {
        return Drained::Finished;
    }
    let held = shared.in_flight.stop();
    let dropped = held.len();
    tracing::warn!(dropped, "stop: running calls are dropped");
    let unwound = async {
        while !shared.slots.is_idle() {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    };
    // What ended just now is still settled; what did not unwind is handed back all the same.
    let _ = tokio::time::timeout(UNWIND_MAX, unwound).await;
    let _ = tokio::time::timeout(CLOSE_MAX, shared.release(held)).await;
    Drained::Cut { dropped }
}

/// Starts delivery threads again that have ended, after their leases were handed back.
async fn keep_threads(crew: Crew, mut ended: mpsc::UnboundedReceiver<usize>) {
    let mut patience = Patience::new();
    while let Some(thread) = ended.recv().await {
        let shared = &crew.shared;
        if shared.phase() == Phase::Closed {
            return;
        }
        shared.dispatch.close(thread);
        let held = shared.in_flight.take_thread(thread);
        tracing::error!(
            thread,
            leases = held.len(),
            "a delivery thread ended and is started again"
        );
        shared.release(held).await;
        tokio::time::sleep(patience.next_pause()).await;
        let report = move |ready: Result<(), StartError>| {
            if let Err(error) = ready {
                tracing::error!(thread, %error, "a delivery thread cannot be started");
            }
        };
        if let Err(error) = crew.start(thread, report) {
            tracing::error!(thread, %error, "a delivery thread cannot be started");
            let _ = crew.ended.send(thread);
        } else {
            patience.reset();
        }
    }
}
