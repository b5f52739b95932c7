//! The commands, a file per type, and the table that finds them.

#![expect(
    clippy::unnecessary_wraps,
    reason = "every command has the signature the table asks for"
)]

mod expiry;
mod hashes;
mod keys;
mod lists;
mod scan;
mod server;
mod sets;
mod stream_trim;
mod streams;
mod strings;
mod zset_ranges;
mod zsets;

use std::collections::HashMap;
use std::sync::LazyLock;

use bytes::Bytes;

use super::keyspace::Keyspace;
use super::number::parse_int;
use super::refusal::Refusal;
use crate::store::host::Reply;

/// What a command answers.
pub(super) type Answer = Result<Reply, Refusal>;

/// What a command does to the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// Writes, and is served by a full store too.
    Write,
    /// Writes what may need more memory: refused by a full store.
    Grow,
}

/// One command: its name in lower case, how many words it takes, and what runs it.
pub(super) struct Spec {
    pub(super) name: &'static str,
    /// Words including the name; negative is "at least".
    arity: i8,
    pub(super) access: Access,
    run: fn(&mut Call<'_>) -> Answer,
}

impl Spec {
    const fn new(
        name: &'static str,
        arity: i8,
        access: Access,
        run: fn(&mut Call<'_>) -> Answer,
    ) -> Self {
        Self {
            name,
            arity,
            access,
            run,
        }
    }

    pub(super) fn takes(&self, words: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 {
            words >= arity
        } else {
            words == arity
        }
    }

    /// Runs the command; its effect is left in `call`. A refused command has changed nothing.
    pub(super) fn run(&self, call: &mut Call<'_>) -> Answer {
        (self.run)(call)
    }
}

/// What a command changed, as the commands that would change the same on a replica.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Nothing,
    /// The command as given.
    AsGiven,
    /// Commands that depend on no clock.
    Rewritten(Vec<Vec<Bytes>>),
}

/// One command in flight.
pub(super) struct Call<'a> {
    pub(super) keyspace: &'a mut Keyspace,
    /// Wall clock; stands still during a script.
    pub(super) now_ms: u64,
    /// The name and its arguments.
    pub(super) words: &'a [Bytes],
    pub(super) effect: Effect,
    name: &'static str,
}

impl<'a> Call<'a> {
    pub(super) fn new(
        spec: &Spec,
        keyspace: &'a mut Keyspace,
        now_ms: u64,
        words: &'a [Bytes],
    ) -> Self {
        Self {
            keyspace,
            now_ms,
            words,
            effect: Effect::Nothing,
            name: spec.name,
        }
    }

    /// Notes that the command as given changed something.
    fn changed(&mut self) {
        self.effect = Effect::AsGiven;
    }

    /// The refusal of a wrong number of arguments.
    fn arity(&self) -> Answer {
        Err(Refusal::Arity(self.name))
    }

    /// The first word after the name. The table's arity guarantees it.
    fn key(&self) -> Result<&'a Bytes, Refusal> {
        self.words.get(1).ok_or(Refusal::Arity(self.name))
    }
}

static TABLE: LazyLock<HashMap<&'static str, &'static Spec>> = LazyLock::new(|| {
    [
        expiry::COMMANDS,
        hashes::COMMANDS,
        keys::COMMANDS,
        lists::COMMANDS,
        scan::COMMANDS,
        server::COMMANDS,
        sets::COMMANDS,
        streams::COMMANDS,
        strings::COMMANDS,
        zset_ranges::COMMANDS,
        zsets::COMMANDS,
    ]
    .into_iter()
    .flatten()
    .map(|spec| (spec.name, spec))
    .collect()
});

/// The command of that name, in any case.
pub(super) fn find(name: &[u8]) -> Option<&'static Spec> {
    const LONGEST: usize = 24;
    let mut buffer = [0; LONGEST];
    let lower = buffer.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    TABLE.get(std::str::from_utf8(lower).ok()?).copied()
}

fn ok() -> Reply {
    Reply::Status("OK".to_owned())
}

fn count(len: usize) -> Reply {
    Reply::Int(i64::try_from(len).unwrap_or(i64::MAX))
}

fn bulk(value: Option<&Bytes>) -> Reply {
    value.map_or(Reply::Nil, |bytes| Reply::Bytes(bytes.clone()))
}

fn int(text: &[u8]) -> Result<i64, Refusal> {
    parse_int(text).ok_or(Refusal::NotAnInteger)
}

/// A count that must not be negative.
fn positive(text: &[u8]) -> Result<usize, Refusal> {
    let number = parse_int(text).and_then(|number| usize::try_from(number).ok());
    number.ok_or(Refusal::NotPositive)
}

fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// Start and end (exclusive) of what `start..=stop` selects of `len` elements, where negative
/// indexes count from the end. Start equals end when that is nothing.
fn index_range(start: i64, stop: i64, len: usize) -> (usize, usize) {
    let resolve = |index: i64| -> i64 {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        if index < 0 {
            index.saturating_add(len)
        } else {
            index
        }
    };
    let start = usize::try_from(resolve(start)).unwrap_or(0);
    let end = usize::try_from(resolve(stop).saturating_add(1)).unwrap_or(0);
    let end = end.min(len);
    (start.min(end), end)
}
