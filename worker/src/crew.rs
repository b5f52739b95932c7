//! The crew: the delivery threads of one worker, wherever they run.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::spawn_local;

use crate::deliver::Deliver;
use crate::worker::Worker;
use crate::{BuildHttpClient, StartError, WorkerParts, inline, runtime};

/// Where delivery threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Each on a thread and a runtime of its own, as an apalis worker.
    Threads,
    /// All as tasks beside the store thread's, on the caller's `LocalSet`.
    Inline,
}

/// What delivery threads are started with.
#[derive(Clone)]
pub(crate) struct Crew {
    pub(crate) worker: Arc<Worker>,
    build_http: BuildHttpClient,
    place: Place,
    /// Is told the number of a thread when it ends.
    ended: mpsc::UnboundedSender<usize>,
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
    /// The crew of a new worker, none of its threads running, and where their ends are told.
    pub(crate) fn new(parts: WorkerParts, place: Place) -> (Self, mpsc::UnboundedReceiver<usize>) {
        let (end, ended) = mpsc::unbounded_channel();
        let crew = Self {
            build_http: Arc::clone(&parts.build_http),
            worker: Arc::new(Worker::new(parts)),
            place,
            ended: end,
        };
        (crew, ended)
    }

    /// Starts delivery thread number `thread`. `ready` is told once it takes jobs, or why not.
    pub(crate) fn start(
        &self,
        thread: usize,
        ready: impl FnOnce(Result<(), StartError>) + Send + 'static,
    ) -> Result<(), StartError> {
        let taken = self.worker.dispatch.open(thread);
        let tell = TellEnd {
            thread,
            ended: self.ended.clone(),
        };
        let crew = self.clone();
        match self.place {
            Place::Threads => {
                let spawned = std::thread::Builder::new()
                    .name(format!("hookstash-delivery-{thread}"))
                    .spawn(move || {
                        let _tell = tell;
                        runtime::run(&crew, thread, taken, ready);
                    });
                spawned.map(drop).map_err(StartError::Thread)
            }
            Place::Inline => {
                spawn_local(async move {
                    let _tell = tell;
                    if let Some(deliver) = crew.deliver(ready) {
                        inline::run(&crew.worker, taken, deliver).await;
                    }
                });
                Ok(())
            }
        }
    }

    /// Starts a delivery thread for which nobody waits; `false` when that failed, and its end is
    /// told.
    pub(crate) fn start_again(&self, thread: usize) -> bool {
        let failed = move |error: StartError| {
            tracing::error!(thread, %error, "a delivery thread cannot be started");
        };
        let started = self.start(thread, move |ready| {
            if let Err(error) = ready {
                failed(error);
            }
        });
        let is_started = started.is_ok();
        if let Err(error) = started {
            failed(error);
            // Whoever asks for this listens as long as the worker runs.
            let _ = self.ended.send(thread);
        }
        is_started
    }

    /// The service of one thread; `None` when its HTTP client cannot be built. `ready` is told.
    pub(crate) fn deliver(&self, ready: impl FnOnce(Result<(), StartError>)) -> Option<Deliver> {
        match (self.build_http)() {
            Ok(http) => {
                ready(Ok(()));
                Some(Deliver::new(http, Arc::clone(&self.worker)))
            }
            Err(error) => {
                ready(Err(StartError::Http(error)));
                None
            }
        }
    }
}
