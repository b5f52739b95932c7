//! The whole keyspace in a form that tests can read and compare.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::keyspace::{Entry, Keyspace, Value};
use super::number::format_float;

/// Every key with what it holds.
pub type Dump = BTreeMap<Bytes, DumpedKey>;

/// What one key holds, and until when (wall-clock milliseconds; absent is for ever).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpedKey {
    /// The wall-clock millisecond after which the key is gone.
    pub expires_at_ms: Option<u64>,
    /// The value.
    pub contents: Contents,
}

/// A value of one of Redis's types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// A string.
    Text(Bytes),
    /// A list, head first.
    List(Vec<Bytes>),
    /// A hash.
    Hash(BTreeMap<Bytes, Bytes>),
    /// A set.
    Set(BTreeSet<Bytes>),
    /// Members with scores as Redis writes them, in ascending order.
    SortedSet(Vec<(Bytes, String)>),
    /// Entries by id, each a flat list of fields and values; and the last id given.
    Stream(Vec<(String, Vec<Bytes>)>, String),
}

/// Every key of `keyspace`, also one whose time has passed and that nothing has touched since.
pub(super) fn dump(keyspace: &Keyspace) -> Dump {
    let entries = keyspace.entries().iter();
    entries
        .map(|(key, entry)| (key.clone(), dumped(entry)))
        .collect()
}

fn dumped(entry: &Entry) -> DumpedKey {
    DumpedKey {
        expires_at_ms: entry.expires_at_ms,
        contents: contents(&entry.value),
    }
}

fn contents(value: &Value) -> Contents {
    match value {
        Value::Text(text) => Contents::Text(text.clone()),
        Value::List(list) => Contents::List(list.iter().cloned().collect()),
        Value::Hash(hash) => {
            let pairs = hash
                .iter()
                .map(|(field, value)| (field.clone(), value.clone()));
            Contents::Hash(pairs.collect())
        }
        Value::Set(set) => Contents::Set(set.iter().map(|(member, ())| member.clone()).collect()),
        Value::SortedSet(set) => {
            let ranked = set
                .iter()
                .map(|(member, score)| (member.clone(), format_float(score)));
            Contents::SortedSet(ranked.collect())
        }
        Value::Stream(stream) => {
            let entries = stream
                .entries
                .iter()
                .map(|(id, fields)| (id.to_string(), fields.clone()));
            Contents::Stream(entries.collect(), stream.last.to_string())
        }
    }
}
