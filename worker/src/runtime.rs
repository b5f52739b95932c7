//! A delivery thread: a current-thread runtime with its own apalis monitor and worker, HTTP client
//! and resolver.
//!
//! Layers of a worker, outermost first: settle (the backend's own), catch-panic, the thread's share
//! of the slots. A thread ends when its channel is closed and its calls have ended. One that ends
//! for another reason tells the store thread, which hands its leases back and starts it again.

use std::sync::{Arc, Mutex, PoisonError};

use apalis::layers::WorkerBuilderExt;
use apalis_core::monitor::Monitor;
use apalis_core::worker::builder::WorkerBuilder;
use tokio::sync::mpsc;

use crate::StartError;
use crate::backend::Jobs;
use crate::crew::Crew;
use crate::deliver::Deliver;
use crate::job::Job;
use crate::settle::SettleLayer;
use crate::worker::Worker;

/// Delivers what is `taken` until there is no more. `ready` is told once it takes jobs, or why not.
pub(crate) fn run(
    crew: &Crew,
    thread: usize,
    taken: mpsc::UnboundedReceiver<Arc<Job>>,
    ready: impl FnOnce(Result<(), StartError>),
) {
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return ready(Err(StartError::Thread(error))),
    };
    runtime.block_on(async {
        if let Some(deliver) = crew.deliver(ready) {
            work(&crew.worker, thread, taken, deliver).await;
        }
    });
}

async fn work(
    worker: &Arc<Worker>,
    thread: usize,
    taken: mpsc::UnboundedReceiver<Arc<Job>>,
    deliver: Deliver,
) {
    let name = format!("{}-{thread}", worker.name);
    let share = worker.settings.share();
    let settle = SettleLayer(Arc::clone(worker));
    // The monitor builds its worker once: nothing asks it to restart one.
    let jobs = Mutex::new(Some(Jobs::new(taken, settle.clone())));
    let build = move |_restarts| {
        let jobs = jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let closed = || Jobs::new(mpsc::unbounded_channel().1, settle.clone());
        WorkerBuilder::new(name.clone())
            .backend(jobs.unwrap_or_else(closed))
            .catch_panic()
            .concurrency(share)
            .build(deliver.clone())
    };
    if let Err(error) = Monitor::new().register(build).run().await {
        tracing::error!(thread, %error, "a delivery thread ended with an error");
    }
}
