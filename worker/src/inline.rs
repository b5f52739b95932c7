//! A whole worker as tasks of the caller's thread, for simulation.
//!
//! Everything is what [`crate::start`] runs, but for two things: the store thread's tasks and the
//! delivery threads are tasks of the caller's `LocalSet`, so that who polls it decides when the
//! worker runs and who drops it kills the worker at its awaits; and apalis, which reads the
//! machine's clock, is left out: its layers stand around the same service without it.

use std::sync::Arc;

use apalis::layers::catch_panic::CatchPanicLayer;
use apalis_core::error::AbortError;
use apalis_core::task::Task;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tower::{Layer, Service};

use crate::crew::{Crew, Place};
use crate::deliver::Deliver;
use crate::job::Job;
use crate::running::{self, RunningWorker, WorkerParts};
use crate::settle::SettleLayer;
use crate::worker::Worker;

/// Starts a worker on the `LocalSet` that polls the caller. A delivery thread whose HTTP client
/// cannot be built is started again, as after any other end of one.
///
/// # Panics
/// Outside a `LocalSet`.
pub fn start(parts: WorkerParts) -> RunningWorker {
    let (crew, ended) = Crew::new(parts, Place::Inline);
    for thread in 0..crew.worker.settings.threads {
        crew.start_again(thread);
    }
    let (running, supervised) = running::supervised(crew, ended);
    spawn_local(supervised);
    running
}

/// One delivery thread: delivers what is `taken`, its share of the slots at a time, until there is
/// no more.
pub(crate) async fn run(
    worker: &Arc<Worker>,
    mut taken: mpsc::UnboundedReceiver<Arc<Job>>,
    deliver: Deliver,
) {
    let share = worker.settings.share();
    let catch_panic = CatchPanicLayer::<_, AbortError>::new();
    let mut service = SettleLayer(Arc::clone(worker)).layer(catch_panic.layer(deliver));
    let mut deliveries = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !deliveries.is_empty() {
        tokio::select! {
            biased;
            Some(_settled) = deliveries.next() => {}
            job = taken.recv(), if is_open && deliveries.len() < share => match job {
                Some(job) => deliveries.push(service.call(Task::new(job))),
                None => is_open = false,
            },
        }
    }
}
