//! The embedded host: a subset of Redis in this process, running the same scripts.
//!
//! Everything is in memory and one step runs at a time, as in Redis: commands and scripts are
//! atomic, pipelines are not, and a script that fails midway keeps what it had applied. Replies
//! and errors are Redis's; what differs is said where it does (a trim with `~` is exact, a page
//! of a scan never repeats an element, `ZCOUNT` and ranks walk).

mod commands;
mod database;
mod dict;
mod dump;
mod engine;
mod glob;
mod keyspace;
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use self::engine::{Engine, Ticket};
use super::host::{Host, HostError, Step, StepResult};
use crate::clock::Clock;

pub use self::database::Effects;
pub use self::dump::{Contents, Dump, DumpedKey};
pub use self::keyspace::Keyspace;

/// The embedded host could not be built.
#[derive(Debug, thiserror::Error)]
#[error("starting the embedded script engine failed")]
pub struct StartError(#[from] mlua::Error);

/// A host in this process. Its state is lost on exit.
pub struct EmbeddedHost {
    engine: Mutex<Engine>,
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
        Ok(Self { engine })
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

    /// Goes back to an earlier state, as a failover to a replica that lags behind does.
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
}

impl Host for EmbeddedHost {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        Box::pin(async move {
            let mut engine = self.lock();
            steps.iter().map(|step| engine.step(step)).collect()
        })
    }

    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        Box::pin(async move {
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
