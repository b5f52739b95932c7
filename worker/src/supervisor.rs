//! The store thread: runs claimers, heart, scheduler and sweeper, keeps the delivery threads alive, and ends
//! the worker in order.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, spawn_local};

use crate::Drained;
use crate::claimer::Claimer;
use crate::crew::Crew;
use crate::heart::beat;
use crate::phase::Phase;
use crate::scheduler::schedule;
use crate::sweeper::sweep;
use crate::worker::Worker;

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
    let worker = Arc::clone(&crew.worker);
    let mut parts = JoinSet::new();
    for shard in worker.store.shards().iter() {
        if let Some(claimer) = Claimer::new(Arc::clone(&worker), shard) {
            parts.spawn_local(claimer.run());
        }
        parts.spawn_local(beat(Arc::clone(&worker), shard));
        parts.spawn_local(schedule(Arc::clone(&worker), shard));
    }
    let sweeper = spawn_local(sweep(Arc::clone(&worker)));
    let keeper = spawn_local(keep_threads(crew, ended));

    tokio::select! {
        biased;
        () = worker.phases.reached(Phase::Draining) => {}
        part = parts.join_next() => {
            // Only a defect ends a part: better a worker that is started anew than a silent half.
            tracing::error!(?part, "a part of the worker ended: stopping");
            worker.phases.advance(Phase::Stopping);
        }
    }
    let end = drain(&worker).await;
    worker.phases.advance(Phase::Closed);
    worker.dispatch.close_all();
    keeper.abort();
    sweeper.abort();
    let parted = async { while parts.join_next().await.is_some() {} };
    if tokio::time::timeout(CLOSE_MAX, parted).await.is_err() {
        tracing::warn!("the store did not answer at the end; leases end by themselves");
    }
    drained.send_replace(Some(end));
}

/// Lets running calls end; past the deadline drops them and hands their leases back.
async fn drain(worker: &Worker) -> Drained {
    let unstarted = worker.in_flight.take_unstarted();
    tracing::info!(
        running = worker.in_flight.len(),
        unstarted = unstarted.len(),
        "drain"
    );
    worker.release(unstarted).await;
    let is_done = || worker.slots.is_idle() && worker.unanswered() == 0;
    while !is_done() {
        tokio::select! {
            biased;
            () = worker.phases.reached(Phase::Stopping) => break,
            () = tokio::time::sleep(DRAIN_LOOK) => {}
        }
    }
    if is_done() {
        return Drained::Finished;
    }
    let held = worker.in_flight.stop();
    let dropped = held.len();
    tracing::warn!(dropped, "stop: running calls are dropped");
    let unwound = async {
        while !worker.slots.is_idle() {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    };
    // What ended just now is still settled; what did not unwind is handed back all the same.
    let _ = tokio::time::timeout(UNWIND_MAX, unwound).await;
    let _ = tokio::time::timeout(CLOSE_MAX, worker.release(held)).await;
    Drained::Cut { dropped }
}

/// Starts delivery threads again that have ended, after their leases were handed back.
async fn keep_threads(crew: Crew, mut ended: mpsc::UnboundedReceiver<usize>) {
    let mut patience = crew.worker.patience();
    while let Some(thread) = ended.recv().await {
        let worker = &crew.worker;
        if worker.phase() == Phase::Closed {
            return;
        }
        worker.dispatch.close(thread);
        let held = worker.in_flight.take_thread(thread);
        tracing::error!(
            thread,
            leases = held.len(),
            "a delivery thread ended and is started again"
        );
        worker.release(held).await;
        tokio::time::sleep(patience.next_pause()).await;
        if crew.start_again(thread) {
            patience.reset();
        }
    }
}
