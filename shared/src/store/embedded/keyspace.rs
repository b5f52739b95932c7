//! Keys, their typed values and their expiry.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;

use super::dict::Dict;
use super::refusal::Refusal;
use super::sorted_set::SortedSet;
use super::stream::Stream;

/// All keys of one database. A clone is a snapshot: it shares the bytes, not the structure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Keyspace {
    entries: Dict<Entry>,
    /// When keys with an expiry end, soonest first.
    deadlines: BTreeSet<(u64, Bytes)>,
}

/// One key's value and the wall-clock millisecond after which it is gone.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) value: Value,
    pub(super) expires_at_ms: Option<u64>,
}

/// A value of one of Redis's types.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Text(Bytes),
    List(VecDeque<Bytes>),
    Hash(Dict<Bytes>),
    Set(Dict<()>),
    SortedSet(SortedSet),
    Stream(Stream),
}

impl Value {
    /// The name `TYPE` answers.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
            Self::SortedSet(_) => "zset",
            Self::Stream(_) => "stream",
        }
    }

    /// Whether Redis removes the key of this value: a collection without elements.
    fn is_spent(&self) -> bool {
        match self {
            Self::Text(_) | Self::Stream(_) => false,
            Self::List(list) => list.is_empty(),
            Self::Hash(hash) => hash.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::SortedSet(set) => set.is_empty(),
        }
    }
}

/// A Rust type that is one of the [`Value`]s.
pub(super) trait Kind: Default {
    fn wrap(self) -> Value;
    fn of(value: &Value) -> Option<&Self>;
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
}

macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl Kind for $type {
            fn wrap(self) -> Value {
                Value::$variant(self)
            }
            fn of(value: &Value) -> Option<&Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                match value {
                    Value::$variant(inner) => Some(inner),
                    _ => None,
                }
            }
        }
    };
}

kind!(Bytes, Text);
kind!(VecDeque<Bytes>, List);
kind!(Dict<Bytes>, Hash);
kind!(Dict<()>, Set);
kind!(SortedSet, SortedSet);
kind!(Stream, Stream);

impl Keyspace {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entries(&self) -> &Dict<Entry> {
        &self.entries
    }

    pub(super) fn entry(&self, key: &Bytes) -> Option<&Entry> {
        self.entries.get(key)
    }

    pub(super) fn contains(&self, key: &Bytes) -> bool {
        self.entries.contains(key)
    }

    /// The value of `key`; absent is `None`, another type is refused.
    pub(super) fn get<T: Kind>(&self, key: &Bytes) -> Result<Option<&T>, Refusal> {
        let Some(entry) = self.entries.get(key) else {
            return Ok(None);
        };
        T::of(&entry.value).map(Some).ok_or(Refusal::WrongType)
    }

    /// Like [`Keyspace::get`], for changing. Follow with [`Keyspace::drop_if_spent`] after
    /// removing elements.
    pub(super) fn get_mut<T: Kind>(&mut self, key: &Bytes) -> Result<Option<&mut T>, Refusal> {
        let Some(entry) = self.entries.get_mut(key) else {
            return Ok(None);
        };
        T::of_mut(&mut entry.value)
            .map(Some)
            .ok_or(Refusal::WrongType)
    }

    /// The value of `key`, made empty and without expiry when absent.
    pub(super) fn get_or_create<T: Kind>(&mut self, key: &Bytes) -> Result<&mut T, Refusal> {
        let entry = self.entries.get_or_insert_with(key, || Entry {
            value: T::default().wrap(),
            expires_at_ms: None,
        });
        T::of_mut(&mut entry.value).ok_or(Refusal::WrongType)
    }

    /// Puts `entry` at `key` in place of whatever was there.
    pub(super) fn put(&mut self, key: &Bytes, entry: Entry) {
        self.remove(key);
        if let Some(at_ms) = entry.expires_at_ms {
            self.deadlines.insert((at_ms, key.clone()));
        }
        self.entries.insert(key, entry);
    }

    pub(super) fn remove(&mut self, key: &Bytes) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        if let Some(at_ms) = entry.expires_at_ms {
            self.deadlines.remove(&(at_ms, key.clone()));
        }
        Some(entry)
    }

    /// Removes `key` when its collection has no elements left.
    pub(super) fn drop_if_spent(&mut self, key: &Bytes) {
        if self.entry(key).is_some_and(|entry| entry.value.is_spent()) {
            self.remove(key);
        }
    }

    /// Sets or clears the expiry of `key`; `false` when there is no such key.
    pub(super) fn set_expiry(&mut self, key: &Bytes, at_ms: Option<u64>) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        let before = std::mem::replace(&mut entry.expires_at_ms, at_ms);
        if let Some(at_ms) = before {
            self.deadlines.remove(&(at_ms, key.clone()));
        }
        if let Some(at_ms) = at_ms {
            self.deadlines.insert((at_ms, key.clone()));
        }
        true
    }

    /// Removes one key whose time has passed and names it.
    pub(super) fn expire_one(&mut self, now_ms: u64) -> Option<Bytes> {
        if self.deadlines.first()?.0 >= now_ms {
            return None;
        }
        let (_, key) = self.deadlines.pop_first()?;
        self.entries.remove(&key);
        Some(key)
    }
}
