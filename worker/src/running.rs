//! Starting a worker, and the handle to a running one.

use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::clock::Clock;
use hookstash_shared::environment::Environment;
use hookstash_shared::http::HttpClientError;
use hookstash_shared::random::Random;
use hookstash_shared::signing::Signer;
use hookstash_shared::store::Store;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;

use crate::call::Call;
use crate::crew::{Crew, Place};
use crate::phase::Phase;
use crate::report::Observer;
use crate::settings::WorkerSettings;
use crate::supervisor::supervise;
use crate::worker::Worker;

/// Builds the HTTP client of one delivery thread. Called on that thread, within its runtime, once
/// for each start of it; clients share nothing.
pub type BuildHttpClient = Arc<dyn Fn() -> Result<Arc<dyn Call>, HttpClientError> + Send + Sync>;

/// What a worker is made of.
#[derive(Clone)]
pub struct WorkerParts {
    /// Where messages come from. Its connections are made on the worker's own thread when the host
    /// has none yet.
    pub store: Store,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Nonces and jitter.
    pub random: Arc<dyn Random>,
    /// Where header templates are resolved, at every attempt.
    pub environment: Arc<dyn Environment>,
    /// The HTTP client of each delivery thread.
    pub build_http: BuildHttpClient,
    /// Signs deliveries; asked at every attempt, so that a rotation is seen at once. `None`:
    /// unsigned, or refused where a message says so.
    pub signer: watch::Receiver<Option<Signer>>,
    /// Is told of every attempt.
    pub observer: Option<Observer>,
    /// Settings.
    pub settings: WorkerSettings,
}

/// A worker could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gives no thread or no runtime.
    #[error("starting a thread failed")]
    Thread(#[source] std::io::Error),
    /// The HTTP client cannot be built.
    #[error("building the HTTP client of a delivery thread failed")]
    Http(#[source] HttpClientError),
    /// A delivery thread ended before it was ready.
    #[error("a delivery thread ended while it was started")]
    Ended,
}

/// How a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every call had ended and was settled.
    Finished,
    /// Calls were dropped, and their leases handed back.
    Cut {
        /// How many leases.
        dropped: usize,
    },
}

/// What a worker uses of its room. In rest all is free and nothing is unanswered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Slots that nothing holds, of [`WorkerSettings::slots`].
    pub slots_free: usize,
    /// Bytes that nothing holds, of [`WorkerSettings::body_budget_bytes`]; below 0 while a single
    /// message is larger than what was left.
    pub body_bytes_free: i64,
    /// Settlements that the store has not answered.
    pub unanswered: usize,
}

/// A running worker. Dropping it drops its running calls and hands their leases back, without
/// waiting for that.
pub struct RunningWorker {
    worker: Arc<Worker>,
    drained: watch::Receiver<Option<Drained>>,
}

/// Starts the threads of a worker and returns when they are ready. The store may be away: the
/// worker goes on trying.
pub fn start(parts: WorkerParts) -> Result<RunningWorker, StartError> {
    let (crew, ended) = Crew::new(parts, Place::Threads);
    let worker = Arc::clone(&crew.worker);
    start_threads(crew, ended).inspect_err(|_| worker.dispatch.close_all())
}

fn start_threads(
    crew: Crew,
    ended: mpsc::UnboundedReceiver<usize>,
) -> Result<RunningWorker, StartError> {
    let (is_ready, ready) = std::sync::mpsc::channel();
    let threads = 0..crew.worker.settings.threads;
    for thread in threads.clone() {
        let is_ready = is_ready.clone();
        // Nobody listens any more when another thread has failed.
        crew.start(thread, move |result| drop(is_ready.send(result)))?;
    }
    drop(is_ready);
    for _ in threads {
        ready.recv().unwrap_or(Err(StartError::Ended))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::Thread)?;
    let (running, supervised) = supervised(crew, ended);
    std::thread::Builder::new()
        .name("hookstash-store".to_owned())
        .spawn(move || LocalSet::new().block_on(&runtime, supervised))
        .map_err(StartError::Thread)?;
    Ok(running)
}

/// The handle to a worker, and what runs it.
pub(crate) fn supervised(
    crew: Crew,
    ended: mpsc::UnboundedReceiver<usize>,
) -> (RunningWorker, impl Future<Output = ()> + Send + 'static) {
    let (tell, drained) = watch::channel(None);
    let worker = Arc::clone(&crew.worker);
    (
        RunningWorker { worker, drained },
        supervise(crew, ended, tell),
    )
}

impl RunningWorker {
    /// Ends the worker gracefully: nothing is leased any more, leases whose calls have not started
    /// are handed back at once, running calls go on and are settled. What still runs after
    /// `deadline` (counted from this call) is dropped as by [`Self::stop_now`]. Returns when the
    /// worker has ended; a second caller gets the same answer.
    pub async fn drain(&self, deadline: Duration) -> Drained {
        self.worker.phases.advance(Phase::Draining);
        if let Ok(drained) = tokio::time::timeout(deadline, self.ended()).await {
            return drained;
        }
        self.stop_now().await
    }

    /// Ends the worker at once: running calls are dropped and their leases handed back as started.
    /// Returns when that is done, after a few seconds at most.
    pub async fn stop_now(&self) -> Drained {
        self.worker.phases.advance(Phase::Stopping);
        self.ended().await
    }

    /// Whether the last exchange with every shard succeeded and every delivery thread runs.
    pub fn is_healthy(&self) -> bool {
        self.is_in_touch() && self.worker.dispatch.running() == self.worker.settings.threads
    }

    /// Whether the last exchange with every shard succeeded, with the expected number of shards.
    /// `false` until the first one.
    pub fn is_in_touch(&self) -> bool {
        self.worker.is_in_touch()
    }

    /// How many messages are held.
    pub fn in_flight(&self) -> usize {
        self.worker.in_flight.len()
    }

    /// What is used and free now.
    pub fn load(&self) -> Load {
        Load {
            slots_free: self.worker.slots.unused(),
            body_bytes_free: self.worker.slots.bytes_unused(),
            unanswered: self.worker.unanswered(),
        }
    }

    /// The settings in force: slots may be fewer than asked for.
    pub fn settings(&self) -> &WorkerSettings {
        &self.worker.settings
    }

    /// Returns when the worker has ended, for whatever reason. One that ends although nobody asked
    /// it to has a defect; its process should be started again.
    pub async fn ended(&self) -> Drained {
        let mut drained = self.drained.clone();
        // The sender goes away without a word only when the store thread panicked.
        let lost = Drained::Cut {
            dropped: self.worker.in_flight.len(),
        };
        drained
            .wait_for(Option::is_some)
            .await
            .map_or(lost, |end| end.unwrap_or(lost))
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.worker.phases.advance(Phase::Stopping);
    }
}
