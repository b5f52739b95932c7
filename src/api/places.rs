//! Places for results that are reviewed at one time, shared out among operations.
//!
//! An operation may take one while it holds fewer than are free. So one whose policy hangs gets half
//! of them, a second one half of what is left, and the others still find some.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// The places of one front door.
pub(super) struct Places {
    max: usize,
    /// How many each operation holds; those without any are not in it.
    held: Mutex<BTreeMap<String, usize>>,
}

/// A place, until it is dropped.
pub(super) struct Place<'a> {
    places: &'a Places,
    operation: String,
}

/// Why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// All are taken.
    All,
    /// The operation has its share.
    Share,
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        Self {
            max,
            held: Mutex::default(),
        }
    }

    /// A place for a result of `operation`.
    pub(super) fn take(&self, operation: &str) -> Result<Place<'_>, Taken> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.max.saturating_sub(held.values().sum());
        let own = held.get(operation).copied().unwrap_or_default();
        match (free, own < free) {
            (0, _) => return Err(Taken::All),
            (_, false) => return Err(Taken::Share),
            (_, true) => {}
        }
        let operation = operation.to_owned();
        held.insert(operation.clone(), own + 1);
        Ok(Place {
            places: self,
            operation,
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let held = self.places.held.lock();
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        let left = held.get(&self.operation).map_or(0, |own| own - 1);
        if left == 0 {
            held.remove(&self.operation);
        } else {
            held.insert(std::mem::take(&mut self.operation), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as many as there are for `operation`; how many, and why no more.
    fn fill<'a>(
        places: &'a Places,
        operation: &str,
        all: &mut Vec<Place<'a>>,
    ) -> (usize, Option<Taken>) {
        let before = all.len();
        let why = loop {
            match places.take(operation) {
                Ok(place) => all.push(place),
                Err(why) => break why,
            }
        };
        (all.len() - before, Some(why))
    }

    #[test]
    fn each_operation_gets_half_of_what_is_left_until_none_is() {
        let places = Places::new(32);
        let mut all = Vec::new();
        for (operation, expected, why) in [
            ("a", 16, Taken::Share),
            ("a", 0, Taken::Share),
            ("b", 8, Taken::Share),
            ("c", 4, Taken::Share),
            ("d", 2, Taken::Share),
            ("e", 1, Taken::Share),
            ("f", 1, Taken::All),
            ("g", 0, Taken::All),
        ] {
            let filled = fill(&places, operation, &mut all);
            assert_eq!(filled, (expected, Some(why)), "{operation}");
        }
        all.clear();
        assert!(places.held.lock().unwrap().is_empty(), "nothing is left");
        assert_eq!(fill(&places, "g", &mut all).0, 16);
    }
}
