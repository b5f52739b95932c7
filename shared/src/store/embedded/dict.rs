//! A map in the order of a fixed hash of its keys.
//!
//! The order makes a scan cursor a plain number, the next hash to visit, that stays right
//! whatever is inserted or removed between two pages, with nothing remembered on our side.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

use bytes::Bytes;

/// Keys to values. Two dicts with the same entries are equal and iterate in the same order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Dict<V> {
    entries: BTreeMap<HashedKey, V>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct HashedKey {
    hash: u64,
    key: Bytes,
}

impl HashedKey {
    fn of(key: &Bytes) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(key);
        // One bit less, so that the cursor after the last hash is a number too.
        let hash = hasher.finish() >> 1;
        let key = key.clone();
        Self { hash, key }
    }
}

impl<V> Default for Dict<V> {
    fn default() -> Self {
        let entries = BTreeMap::new();
        Self { entries }
    }
}

impl<V> Dict<V> {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn get(&self, key: &Bytes) -> Option<&V> {
        self.entries.get(&HashedKey::of(key))
    }

    pub(super) fn get_mut(&mut self, key: &Bytes) -> Option<&mut V> {
        self.entries.get_mut(&HashedKey::of(key))
    }

    pub(super) fn contains(&self, key: &Bytes) -> bool {
        self.entries.contains_key(&HashedKey::of(key))
    }

    /// The value that was there before.
    pub(super) fn insert(&mut self, key: &Bytes, value: V) -> Option<V> {
        self.entries.insert(HashedKey::of(key), value)
    }

    /// The value of `key`, put there by `make` when absent.
    pub(super) fn get_or_insert_with(&mut self, key: &Bytes, make: impl FnOnce() -> V) -> &mut V {
        self.entries.entry(HashedKey::of(key)).or_insert_with(make)
    }

    pub(super) fn remove(&mut self, key: &Bytes) -> Option<V> {
        self.entries.remove(&HashedKey::of(key))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Bytes, &V)> {
        self.entries
            .iter()
            .map(|(hashed, value)| (&hashed.key, value))
    }

    /// At least `count` entries from `cursor` on (keys of one hash stay together) and the cursor
    /// of the next page, 0 after the last.
    pub(super) fn page(&self, cursor: u64, count: usize) -> (u64, Vec<(&Bytes, &V)>) {
        let from = HashedKey {
            hash: cursor,
            key: Bytes::new(),
        };
        let mut page = Vec::new();
        let mut last = 0;
        for (hashed, value) in self.entries.range(from..) {
            if page.len() >= count && hashed.hash != last {
                return (hashed.hash, page);
            }
            last = hashed.hash;
            page.push((&hashed.key, value));
        }
        (0, page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_returns_everything_that_stays_while_the_rest_changes() {
        let key = |n: u32| Bytes::from(n.to_string());
        let mut dict = Dict::default();
        for n in 0..100 {
            dict.insert(&key(n), ());
        }
        let (mut cursor, mut seen, mut round) = (0, Vec::new(), 100);
        loop {
            let (next, page) = dict.page(cursor, 7);
            seen.extend(page.into_iter().map(|(key, ())| key.clone()));
            dict.remove(&key(round - 100));
            dict.insert(&key(round), ());
            round += 1;
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        for n in 50..100 {
            assert!(seen.contains(&key(n)), "{n} was there all the time");
        }
    }
}
