//! A connection that is made anew, its server looked up again, whenever it was lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::connect::{Live, RedisOptions, open};
use super::errors::ConnectError;
use super::sentinel;
use super::url::server_name;

/// First pause between two attempts; doubled up to [`PAUSE_MAX`], plus up to as much again by
/// chance, so that processes do not come back in step.
const PAUSE_MIN: Duration = Duration::from_millis(25);
/// Longest pause between two attempts, before chance.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A connection that lived this long was good: the next one is made without a pause.
const GOOD_AFTER: Duration = Duration::from_secs(5);

/// How the server is found at each attempt.
#[derive(Debug, Clone)]
pub(super) enum Place {
    /// By its name, resolved anew.
    Fixed(ConnectionInfo),
    /// By asking sentinels for the master.
    Sentinel {
        /// The sentinels, with the login of the master.
        sentinels: Vec<ConnectionInfo>,
        /// What they are asked with.
        login: RedisConnectionInfo,
        /// The name they monitor the master under.
        master: String,
    },
}

/// One healing connection. Callers share it; one attempt at a time is made for all of them.
pub(super) struct Link {
    place: Place,
    options: RedisOptions,
    response_timeout: Option<Duration>,
    attempts: AtomicU64,
    state: Mutex<State>,
}

struct State {
    live: Option<Live>,
    opened: Instant,
    not_before: Instant,
    pauses: ExponentialBackoff,
    failure: Option<ConnectError>,
}

impl Link {
    /// A link that connects when first used. `response_timeout` bounds each pipeline.
    pub(super) fn new(
        place: Place,
        options: RedisOptions,
        response_timeout: Option<Duration>,
    ) -> Self {
        let now = Instant::now();
        Self {
            place,
            options,
            response_timeout,
            attempts: AtomicU64::new(0),
            state: Mutex::new(State {
                live: None,
                opened: now,
                not_before: now,
                pauses: pauses(),
                failure: None,
            }),
        }
    }

    /// The connection; made now, after a pause when attempts follow each other fast. Callers that
    /// waited while an attempt failed share its failure, so that none waits for a second one.
    pub(super) async fn get(&self) -> Result<Live, ConnectError> {
        let seen = self.attempts.load(Ordering::Acquire);
        let mut state = self.state.lock().await;
        if let Some(live) = state.live.as_ref().filter(|live| live.is_alive()) {
            return Ok(live.clone());
        }
        state.lose();
        if let Some(failure) = &state.failure
            && self.attempts.load(Ordering::Acquire) != seen
        {
            return Err(failure.clone());
        }
        tokio::time::sleep_until(state.not_before).await;
        let opened = self.open().await;
        self.attempts.fetch_add(1, Ordering::AcqRel);
        match opened {
            Ok(live) => {
                tracing::debug!(server = %self.name(), "connected to redis");
                state.opened = Instant::now();
                state.failure = None;
                state.live = Some(live.clone());
                Ok(live)
            }
            Err(failure) => {
                state.pause();
                state.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// Drops `live`, so that the next use connects anew; nothing when that has happened already.
    pub(super) async fn forget(&self, live: &Live) {
        let mut state = self.state.lock().await;
        if state.live.as_ref().is_some_and(|held| held.is_same(live)) {
            state.lose();
        }
    }

    /// How logs name the server.
    pub(super) fn name(&self) -> String {
        match &self.place {
            Place::Fixed(server) => server_name(server),
            Place::Sentinel { master, .. } => format!("the master {master}"),
        }
    }

    /// The host of a fixed place, as an address; empty for another.
    pub(super) fn host(&self) -> &str {
        match &self.place {
            Place::Fixed(server) => match server.addr() {
                ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
                _ => "",
            },
            Place::Sentinel { .. } => "",
        }
    }

    async fn open(&self) -> Result<Live, ConnectError> {
        match &self.place {
            Place::Fixed(server) => open(server, &self.options, self.response_timeout).await,
            Place::Sentinel {
                sentinels,
                login,
                master,
            } => {
                let server = sentinel::master(sentinels, login, master, &self.options).await?;
                open(&server, &self.options, self.response_timeout).await
            }
        }
    }
}

impl State {
    /// Forgets the connection; the next one is made at once only if this one was good for a while.
    fn lose(&mut self) {
        if self.live.take().is_none() {
            return;
        }
        if self.opened.elapsed() >= GOOD_AFTER {
            self.pauses = pauses();
        } else {
            self.pause();
        }
    }

    fn pause(&mut self) {
        self.not_before = Instant::now() + self.pauses.next().unwrap_or(PAUSE_MAX);
    }
}

fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(PAUSE_MIN)
        .with_max_delay(PAUSE_MAX)
        .with_jitter()
        .without_max_times()
        .build()
}
