//! Delivery threads: each a current-thread runtime with its own apalis monitor and worker, HTTP
//! client and resolver.
//!
//! Layers of a worker, outermost first: settle (the backend's own), catch-panic, the thread's share
//! of the slots. A thread ends when its channel is closed and its calls have ended. One that ends
//! for another reason tells the store thread, which hands its leases back and starts it again.

use std::sync::{Arc, Mutex, PoisonError};

use apalis::layers::WorkerBuilderExt;
use apalis_core::monitor::Monitor;
use apalis_core::worker::builder::WorkerBuilder;
use tokio::sync::mpsc;

use crate::backend::Jobs;
use crate::deliver::Deliver;
use crate::job::Job;
use crate::settle::SettleLayer;
use crate::worker::Worker;
use crate::{BuildHttpClient, StartError};

/// What a delivery thread is started with.
#[derive(Clone)]
pub(crate) struct Crew {
    pub(crate) worker: Arc<Worker>,
    pub(crate) build_http: BuildHttpClient,
    /// Is told the number of a thread when it ends.
    pub(crate) ended: mpsc::UnboundedSender<usize>,
}

/// Tells that a thread has ended, also when it panicked.
struct TellEnd {
    thread: usize,
    ended: mpsc::UnboundedSender<usize>,
}

impl Drop for TellEnd {
    fn drop(&mut self) {
        // Nobody listens any more when the whole worker has ended.
        let _ = self.ended.send(self.thread);
    }
}

impl Crew {
    /// Starts delivery thread number `thread`. `ready` is told once it takes jobs, or why not.
    pub(crate) fn start(
        &self,
        thread: usize,
        ready: impl FnOnce(Result<(), StartError>) + Send + 'static,
    ) -> Result<(), StartError> {
        let taken = self.worker.dispatch.open(thread);
        let crew = self.clone();
        let spawned = std::thread::Builder::new()
            .name(format!("hookstash-delivery-{thread}"))
            .spawn(move || {
                let _tell = TellEnd {
                    thread,
                    ended: crew.ended.clone(),
                };
                crew.run(thread, taken, ready);
            });
        spawned.map(drop).map_err(StartError::Thread)
    }

    fn run(
        &self,
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
            match (self.build_http)() {
                Ok(http) => {
                    ready(Ok(()));
                    let deliver = Deliver::new(http, Arc::clone(&self.worker));
                    self.deliver(thread, taken, deliver).await;
                }
                Err(error) => ready(Err(StartError::Http(error))),
            }
        });
    }

    async fn deliver(
        &self,
        thread: usize,
        taken: mpsc::UnboundedReceiver<Arc<Job>>,
        deliver: Deliver,
    ) {
        let name = format!("{}-{thread}", self.worker.name);
        let settings = &self.worker.settings;
        let share = settings.slots.div_ceil(settings.threads);
        let settle = SettleLayer(Arc::clone(&self.worker));
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
}
