//! The embedded host: a subset of Redis in this process, running the same scripts.
//!
//! Everything is in memory and one step runs at a time, as in Redis: commands and scripts are
//! atomic, pipelines are not, and a script that fails midway keeps what it had applied. Replies
//! and errors are Redis's; what differs is said where it does (a trim with `~` is exact, a page
//! of a scan never repeats an element, `ZCOUNT` and ranks walk).
//!
//! With a directory it also keeps a log there (`log`), from which it starts again.

mod commands;
mod database;
mod dict;
mod dump;
mod engine;
mod glob;
mod keyspace;
mod log;
mod lua;
mod lua_values;
mod number;
mod refusal;
mod sorted_set;
mod stream;
#[cfg(test)]
mod tests;
mod waiters;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use self::engine::{Engine, Ticket};
use self::log::{Log, Options};
use super::host::{Host, HostError, Step, StepResult};
use crate::clock::Clock;

pub use self::database::Effects;
pub use self::dump::{Contents, Dump, DumpedKey};
pub use self::keyspace::Keyspace;
pub use self::log::{DataSync, OpenError};

/// The embedded host could not be built.
#[derive(Debug, thiserror::Error)]
#[error("starting the embedded script engine failed")]
pub struct StartError(#[from] mlua::Error);

/// A host in this process. Without a log its state is lost on exit.
pub struct EmbeddedHost {
    engine: Mutex<Engine>,
    log: Option<Arc<Log>>,
}

impl fmt::Debug for EmbeddedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EmbeddedHost")
            .field(&*self.lock().database())
            .finish()
    }
}

impl EmbeddedHost {
    /// An empty store that tells time by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        let engine = Mutex::new(Engine::new(clock)?);
        Ok(Self { engine, log: None })
    }

    /// The store that the directory `path` keeps, an empty one in a new directory. Reads and writes
    /// files for as long as its data need, on the caller's thread. The directory belongs to the
    /// host until it is dropped, which writes and syncs what is left.
    ///
    /// Every call is answered only when the log is as safe as `sync` asks, with all that the call
    /// has seen. One that cannot be made safe is [`HostError::Lost`]; from then on everything is
    /// refused, until a failed write succeeds, or for ever after a failed sync.
    pub fn open(path: &Path, sync: DataSync, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let (keyspace, log) = Log::open(path, Options::new(sync), &clock)?;
        Self::resume(keyspace, log, clock)
    }

    fn resume(keyspace: Keyspace, log: Log, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let log = Arc::new(log);
        let engine = Engine::new(clock)?;
        engine.database().resume(keyspace, Arc::clone(&log));
        Ok(Self {
            engine: Mutex::new(engine),
            log: Some(log),
        })
    }

    /// Waits until everything so far is on the disk. Without a log there is nothing to wait for.
    pub async fn synced(&self) -> Result<(), HostError> {
        match &self.log {
            Some(log) => log.synced().await,
            None => Ok(()),
        }
    }

    /// Makes the store behave as one that is out of memory, or as one that no longer is.
    pub fn set_full(&self, full: bool) {
        self.lock().database().full = full;
    }

    /// The names of all keys, in no meaningful order.
    pub fn keys(&self) -> Vec<Bytes> {
        let engine = self.lock();
        let database = engine.database();
        let entries = database.keyspace.entries().iter();
        entries.map(|(key, _)| key.clone()).collect()
    }

    /// Everything, in a form that can be read and compared.
    pub fn dump(&self) -> Dump {
        dump::dump(&self.lock().database().keyspace)
    }

    /// A copy of everything, to go back to later.
    pub fn snapshot(&self) -> Keyspace {
        self.lock().database().keyspace.clone()
    }

    /// Goes back to an earlier state, as a failover to a replica that lags behind does. A log does
    /// not get to know of it.
    pub fn restore(&self, keyspace: Keyspace) {
        self.lock().database().keyspace = keyspace;
    }

    /// What every step since the last call changed, one group per step, as commands that leave an
    /// equal store when applied to an empty one. The first call starts the recording and returns
    /// nothing.
    pub fn take_effects(&self) -> Vec<Effects> {
        self.lock().database().take_effects()
    }

    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_now(&self, steps: &[Step]) -> Vec<StepResult> {
        let mut engine = self.lock();
        steps.iter().map(|step| engine.step(step)).collect()
    }

    /// Runs `steps` when `log` takes more: their results, and the end of all that they have seen.
    async fn run_logged(&self, log: &Log, steps: &[Step]) -> Result<Ran, HostError> {
        loop {
            {
                // Under the lock, so that no more than one call comes on top of a full buffer.
                let mut engine = self.lock();
                if log.admits()? {
                    let results = steps.iter().map(|step| engine.step(step)).collect();
                    if log.wants_snapshot() {
                        log.compact(engine.database().keyspace.clone());
                    }
                    return Ok((results, log.end()));
                }
            }
            log.room().await;
        }
    }
}

/// Results, and up to where the log must be safe for them.
type Ran = (Vec<StepResult>, u64);

/// The same error for each of `steps`.
fn all_fail(steps: &[Step], error: &HostError) -> Vec<StepResult> {
    steps.iter().map(|_| Err(error.clone())).collect()
}

impl Host for EmbeddedHost {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        Box::pin(async move {
            let Some(log) = &self.log else {
                return self.run_now(&steps);
            };
            match self.run_logged(log, &steps).await {
                // What a read has seen may be another's step that is not safe yet.
                Ok((results, end)) => match log.kept(end).await {
                    Ok(()) => results,
                    Err(error) => all_fail(&steps, &error),
                },
                Err(error) => all_fail(&steps, &error),
            }
        })
    }

    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        Box::pin(async move {
            if let Some(log) = &self.log {
                log.admits()?;
            }
            let Some(ticket) = self.lock().take_or_join(&key)? else {
                return Ok(true);
            };
            let mut wait = Wait {
                host: self,
                key,
                ticket,
            };
            let arrived = tokio::time::timeout(timeout, &mut wait.ticket.1).await;
            Ok(matches!(arrived, Ok(Ok(_))))
        })
    }
}

/// A place in the queue for a list's tokens, given up when dropped.
struct Wait<'a> {
    host: &'a EmbeddedHost,
    key: Bytes,
    ticket: Ticket,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.host.lock().leave(&self.key, &mut self.ticket);
    }
}
