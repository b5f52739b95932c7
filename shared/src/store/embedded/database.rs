//! The keyspace with its clock and its memory limit: runs commands and gathers their effects.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::commands::{Access, Call, Effect, Spec, find};
use super::keyspace::Keyspace;
use super::log::Log;
use super::refusal::Refusal;
use crate::clock::Clock;
use crate::store::host::Reply;

/// What one step changed: commands that depend on no clock, to be applied together.
pub type Effects = Vec<Vec<Bytes>>;

/// One database. Everything that changes it passes through [`Database::note`].
pub(super) struct Database {
    pub(super) keyspace: Keyspace,
    clock: Arc<dyn Clock>,
    /// The time of the current step; a script sees only this one.
    now_ms: u64,
    /// Whether commands that may need memory are refused.
    pub(super) full: bool,
    /// Whether the current script is past its first write: from there on nothing is refused.
    wrote: bool,
    effects: Effects,
    journal: Option<Vec<Effects>>,
    log: Option<Arc<Log>>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("keys", &self.keyspace.len())
            .field("full", &self.full)
            .finish_non_exhaustive()
    }
}

impl Database {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            keyspace: Keyspace::default(),
            clock,
            now_ms: 0,
            full: false,
            wrote: false,
            effects: Effects::new(),
            journal: None,
            log: None,
        }
    }

    /// Goes on from `keyspace`, and writes the effects of every later step to `log`.
    pub(super) fn resume(&mut self, keyspace: Keyspace, log: Arc<Log>) {
        self.keyspace = keyspace;
        self.log = Some(log);
    }

    /// Starts a step: reads the clock once and removes the keys whose time has passed. Each key
    /// is removed once, so this costs what setting its expiry cost.
    pub(super) fn begin(&mut self) {
        self.now_ms = self.clock.now_ms();
        self.wrote = false;
        while let Some(key) = self.keyspace.expire_one(self.now_ms) {
            self.note(vec![vec![Bytes::from_static(b"DEL"), key]]);
        }
    }

    /// Ends a step: its effects are kept together.
    pub(super) fn end(&mut self) {
        let effects = std::mem::take(&mut self.effects);
        if effects.is_empty() {
            return;
        }
        if let Some(log) = &self.log {
            log.append(&effects);
        }
        if let Some(journal) = &mut self.journal {
            journal.push(effects);
        }
    }

    /// Runs a client's command.
    pub(super) fn command(&mut self, words: &[Bytes]) -> Result<Reply, Refusal> {
        self.run(words, self.full)
    }

    /// Runs a command that a full store takes too.
    pub(super) fn command_always(&mut self, words: &[Bytes]) -> Result<Reply, Refusal> {
        self.run(words, false)
    }

    fn run(&mut self, words: &[Bytes], full: bool) -> Result<Reply, Refusal> {
        let name = words.first().ok_or(Refusal::Syntax)?;
        let spec = find(name).ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Refusal::err(&format!("unknown command '{name}'"))
        })?;
        if !spec.takes(words.len()) {
            return Err(Refusal::Arity(spec.name));
        }
        if full && spec.access == Access::Grow {
            return Err(Refusal::Full);
        }
        self.apply(spec, words)
    }

    /// Runs a command of the current script. A full store refuses a growing command only until
    /// the script's first write, so that no script stops in its middle.
    pub(super) fn command_of_script(&mut self, words: &[Bytes]) -> Result<Reply, Refusal> {
        let name = words.first().map_or(&[][..], |name| name);
        let spec =
            find(name).ok_or_else(|| Refusal::err("Unknown Redis command called from script"))?;
        if !spec.takes(words.len()) {
            return Err(Refusal::err(
                "Wrong number of args calling Redis command from script",
            ));
        }
        if self.full && !self.wrote && spec.access == Access::Grow {
            return Err(Refusal::Full);
        }
        self.wrote |= spec.access != Access::Read;
        self.apply(spec, words)
    }

    fn apply(&mut self, spec: &Spec, words: &[Bytes]) -> Result<Reply, Refusal> {
        let keeps_effects = self.keeps_effects();
        let mut call = Call::new(spec, &mut self.keyspace, self.now_ms, words);
        let answer = spec.run(&mut call);
        match call.effect {
            Effect::Nothing => {}
            Effect::AsGiven if !keeps_effects => {}
            Effect::AsGiven => self.note(vec![words.to_vec()]),
            Effect::Rewritten(commands) => self.note(commands),
        }
        answer
    }

    /// The one place every change passes, in order.
    fn note(&mut self, commands: Effects) {
        if self.keeps_effects() {
            self.effects.extend(commands);
        }
    }

    fn keeps_effects(&self) -> bool {
        self.journal.is_some() || self.log.is_some()
    }

    /// Keeps the effects of every later step, and returns those kept since the last call.
    pub(super) fn take_effects(&mut self) -> Vec<Effects> {
        self.journal.replace(Vec::new()).unwrap_or_default()
    }
}
