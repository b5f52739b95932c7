//! Running the roles of a process together, from the listener to the last settlement.
//!
//! 1. The listener opens: `/healthz` answers, `/readyz` says what is missing.
//! 2. The store is opened; a server goes on trying until it can be.
//! 3. Front door and worker run.
//! 4. The first SIGTERM or SIGINT drains: no request is accepted and no message leased any more,
//!    running ones get their time. A second one, or the end of that time, drops running deliveries
//!    and hands their messages back.

use std::net::SocketAddr;
use std::time::Duration;

use hookstash_shared::config::ConfigError;
use hookstash_shared::store::Store;
use hookstash_worker::{Drained, Observer, RunningWorker, StartError};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Readiness};
use crate::app::{App, OpenError, Stores};
use crate::front::{Door, ListenError, listen};
use crate::probes;

/// Pause between two attempts to open the store.
const OPEN_PAUSE: Duration = Duration::from_secs(1);
/// How often the worker is asked how it is.
const HEALTH_PAUSE: Duration = Duration::from_millis(500);

/// What this process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Accepts messages.
    Api,
    /// Delivers messages.
    Worker,
    /// Both.
    Both,
}

/// What a store that cannot be reached at the start means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// The start fails.
    None,
    /// The process waits for it, and is not ready.
    Endless,
}

/// How to run.
pub struct Plan {
    /// What this process does.
    pub role: Role,
    /// Where to listen; `None` = nowhere.
    pub listen: Option<SocketAddr>,
    /// What a store that cannot be reached at the start means.
    pub patience: Patience,
    /// Is told of every attempt of the worker.
    pub observer: Option<Observer>,
}

/// Why a process did not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A setting is missing.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The listener could not be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The worker could not be started.
    #[error("start the worker")]
    Worker(#[from] StartError),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Everything that ran had come to its end.
    Finished,
    /// Deliveries were dropped and their messages handed back.
    Cut,
}

/// When to end. Clones are one.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    stop: CancellationToken,
}

impl Shutdown {
    /// One that SIGTERM and SIGINT bring about; needs a runtime.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Self::default();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let tokens = shutdown.clone();
        tokio::spawn(async move {
            for token in [tokens.drain, tokens.stop] {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                token.cancel();
            }
        });
        Ok(shutdown)
    }

    /// Lets what runs come to its end.
    pub fn drain(&self) {
        self.drain.cancel();
    }
}

/// A process whose roles run.
pub struct Running {
    readiness: Readiness,
    shutdown: Shutdown,
    address: Option<SocketAddr>,
    door: Option<JoinHandle<()>>,
    worker: Option<RunningWorker>,
    drain: Duration,
}

/// Starts the roles; `None` when the shutdown came first.
pub async fn start(
    app: &App,
    plan: Plan,
    shutdown: &Shutdown,
) -> Result<Option<Running>, RunError> {
    let readiness = Readiness::new();
    readiness.block("store", "it has not been reached yet");
    let door = Door::default();
    let mut running = Running {
        readiness: readiness.clone(),
        shutdown: shutdown.clone(),
        address: None,
        door: None,
        worker: None,
        drain: app.settings().drain,
    };
    if let Some(address) = plan.listen {
        let listener = listen(address).await?;
        running.address = listener.local_addr().ok();
        running.door = Some(serve(listener, &door, &readiness, shutdown));
    }
    let Some(stores) = open(app, plan.patience, shutdown).await? else {
        return Ok(None);
    };
    readiness.clear("store");
    note_disagreement(&stores, &readiness);
    follow_keys(app, stores.api.clone(), shutdown);
    if plan.role != Role::Api {
        running.worker = Some(work(app, stores.worker.clone(), plan.observer, &readiness)?);
    }
    if plan.role != Role::Worker {
        let token = app.settings().require_token()?.clone();
        door.open(api::router(app.api_state(stores, token, readiness)));
    }
    Ok(Some(running))
}

/// A process that was told another number of shards than the store has is not ready.
fn note_disagreement(stores: &Stores, readiness: &Readiness) {
    if !stores.is_disagreed {
        return;
    }
    tracing::error!(
        told = stores.worker.shards().count(),
        is = stores.api.shards().count(),
        "HOOKSTASH_SHARDS is not the number of shards that the store was made with: this process \
         delivers nothing"
    );
    readiness.block("shards", "HOOKSTASH_SHARDS is not the store's own number");
}

impl Running {
    /// Where it listens; `None` = nowhere.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Runs until the shutdown, and drains.
    pub async fn until_ended(mut self) -> Ended {
        let drain = self.shutdown.drain.clone();
        while tokio::time::timeout(HEALTH_PAUSE, drain.cancelled())
            .await
            .is_err()
        {
            self.note_health();
        }
        self.readiness.block("process", "it is shutting down");
        tracing::info!(
            drain_ms = self.drain.as_millis(),
            "draining: a second signal ends it at once"
        );
        let door = self.door.take();
        let stop = self.shutdown.stop.clone();
        let closing = async {
            let Some(mut door) = door else { return };
            tokio::select! {
                _ = &mut door => {}
                () = stop.cancelled() => door.abort(),
            }
        };
        let (ended, ()) = futures::future::join(self.end_worker(), closing).await;
        tracing::info!(?ended, "ended");
        ended
    }

    async fn end_worker(&self) -> Ended {
        let Some(worker) = &self.worker else {
            return Ended::Finished;
        };
        let drained = tokio::select! {
            drained = worker.drain(self.drain) => drained,
            () = self.shutdown.stop.cancelled() => worker.stop_now().await,
        };
        match drained {
            Drained::Finished => Ended::Finished,
            Drained::Cut { dropped } => {
                tracing::warn!(dropped, "running deliveries were dropped and handed back");
                Ended::Cut
            }
        }
    }

    fn note_health(&self) {
        match &self.worker {
            Some(worker) if worker.is_healthy() => self.readiness.clear("worker"),
            Some(_) => self
                .readiness
                .block("worker", "it is not in touch with the store"),
            None => {}
        }
    }
}

/// Serves in the background until the shutdown.
fn serve(
    listener: TcpListener,
    door: &Door,
    readiness: &Readiness,
    shutdown: &Shutdown,
) -> JoinHandle<()> {
    let router = door.router(probes::router(readiness.clone()));
    tokio::spawn(api::serve(
        listener,
        router,
        shutdown.drain.clone().cancelled_owned(),
    ))
}

/// Opens the store; `None` when the shutdown came first.
async fn open(
    app: &App,
    patience: Patience,
    shutdown: &Shutdown,
) -> Result<Option<Stores>, OpenError> {
    loop {
        let opened = tokio::select! {
            opened = app.open() => opened,
            () = shutdown.drain.cancelled() => return Ok(None),
        };
        match opened {
            Ok(stores) => return Ok(Some(stores)),
            Err(error) if patience == Patience::Endless && error.may_pass() => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the store cannot be opened; trying again");
            }
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = tokio::time::sleep(OPEN_PAUSE) => {}
            () = shutdown.drain.cancelled() => return Ok(None),
        }
    }
}

/// Takes over every rotation of the signing keys until the end of this process.
fn follow_keys(app: &App, store: Store, shutdown: &Shutdown) {
    let (keys, stop) = (app.keys().clone(), shutdown.stop.clone());
    tokio::spawn(async move { stop.run_until_cancelled(keys.follow(&store)).await });
}

fn work(
    app: &App,
    store: Store,
    observer: Option<Observer>,
    readiness: &Readiness,
) -> Result<RunningWorker, StartError> {
    if !app.is_signing() {
        tracing::warn!(
            "no signing keys are set: deliveries are not signed, and messages that must be are \
             dead letters"
        );
    }
    readiness.block("worker", "it has not been in touch with the store yet");
    hookstash_worker::start(app.worker_parts(store, observer))
}
