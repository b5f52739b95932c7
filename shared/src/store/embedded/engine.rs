//! What is behind the host's lock: database, scripts and waiters.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::database::Database;
use super::lua::ScriptEngine;
use super::waiters::Waiters;
use crate::clock::Clock;
use crate::store::host::{HostError, Reply, Step, StepResult};

/// Runs one step at a time.
pub(super) struct Engine {
    database: Arc<Mutex<Database>>,
    scripts: ScriptEngine,
    waiters: Waiters,
}

/// A waiter's number and where its token arrives.
pub(super) type Ticket = (u64, oneshot::Receiver<Bytes>);

impl Engine {
    pub(super) fn new(clock: Arc<dyn Clock>) -> mlua::Result<Self> {
        let database = Arc::new(Mutex::new(Database::new(clock)));
        Ok(Self {
            scripts: ScriptEngine::new(database.clone())?,
            database,
            waiters: Waiters::default(),
        })
    }

    /// The database. Never held over a call into a script, which locks it for each command.
    pub(super) fn database(&self) -> MutexGuard<'_, Database> {
        self.database.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one step, then serves whoever waits for what it pushed.
    pub(super) fn step(&mut self, step: &Step) -> StepResult {
        self.database().begin();
        let result = match step {
            Step::Command(words) => {
                let answer = self.database().command(words);
                answer.map_err(|refusal| host_error(refusal.to_string()))
            }
            Step::Script { script, keys, args } => {
                let outcome = self.scripts.run(script, keys, args);
                outcome.map_err(|text| host_error(format!("{text} script: {}", script.name())))
            }
        };
        self.database().end();
        self.serve();
        result
    }

    /// Takes a token of the list `key` at once, or joins those who wait for one.
    pub(super) fn take_or_join(&mut self, key: &Bytes) -> Result<Option<Ticket>, HostError> {
        let taken = self.pop(key)?;
        Ok(taken.is_none().then(|| self.waiters.join(key)))
    }

    /// Ends a wait. A token that was handed over but not `taken` goes back to the head of its
    /// list, so that a waiter that gave up costs nobody a wake-up.
    pub(super) fn leave(&mut self, key: &Bytes, ticket: &mut Ticket) {
        let (id, arrives) = ticket;
        arrives.close();
        match arrives.try_recv() {
            Ok(token) => self.give_back(key, token),
            Err(_) => self.waiters.leave(key, *id),
        }
    }

    fn give_back(&mut self, key: &Bytes, token: Bytes) {
        let lpush = Bytes::from_static(b"LPUSH");
        // A list that has become something else meanwhile has no use for the token.
        let _refused = self.own_command(&[lpush, key.clone(), token]);
        self.serve();
    }

    fn serve(&mut self) {
        for key in self.waiters.keys() {
            // A key of another type serves nobody.
            while let Ok(Some(token)) = self.pop(&key) {
                if let Err(token) = self.waiters.hand_over(&key, token) {
                    self.give_back(&key, token);
                    break;
                }
            }
        }
    }

    fn pop(&self, key: &Bytes) -> Result<Option<Bytes>, HostError> {
        match self.own_command(&[Bytes::from_static(b"LPOP"), key.clone()])? {
            Reply::Bytes(token) => Ok(Some(token)),
            _ => Ok(None),
        }
    }

    /// A step of our own: a full store takes it too.
    fn own_command(&self, words: &[Bytes]) -> StepResult {
        let mut database = self.database();
        database.begin();
        let answer = database.command_always(words);
        database.end();
        answer.map_err(|refusal| host_error(refusal.to_string()))
    }
}

/// The class of an error text.
fn host_error(text: String) -> HostError {
    if text.starts_with("OOM ") || text.contains("OOM command not allowed") {
        HostError::Full(text)
    } else {
        HostError::Fault(text)
    }
}
