//! How many unused connections one client keeps, over all hosts.
//!
//! The pool bounds them for each host only, so a process that calls many hosts would run out of
//! open files. These are the pool's books: what a call leaves behind, what the next one to the same
//! origin takes out, what has grown too old. A call that could leave one too many has its
//! connection closed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The books of one client. Safe to share.
#[derive(Debug)]
pub(super) struct Idle {
    max: usize,
    age_max: Duration,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    /// When each unused connection was left, by origin; the latest is used first.
    left: HashMap<String, Vec<Instant>>,
    /// How many there are.
    total: usize,
    /// Calls under way that may leave one.
    promised: usize,
}

/// A call under way that may leave its connection behind.
#[derive(Debug)]
pub(super) struct Keeping {
    idle: Arc<Idle>,
    origin: String,
}

impl Idle {
    /// At most `max` unused connections, each for `age_max`.
    pub(super) fn new(max: usize, age_max: Duration) -> Self {
        Self {
            max,
            age_max,
            books: Mutex::default(),
        }
    }

    /// A call to `origin` begins. `None`: its connection must be closed afterwards.
    pub(super) fn begin(self: &Arc<Self>, origin: String) -> Option<Keeping> {
        let mut books = self.lock();
        books.take(&origin);
        if books.total + books.promised >= self.max {
            books.forget_old(self.age_max);
        }
        if books.total + books.promised >= self.max {
            return None;
        }
        books.promised += 1;
        drop(books);
        let idle = Arc::clone(self);
        Some(Keeping { idle, origin })
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn take(&mut self, origin: &str) {
        let Some(left) = self.left.get_mut(origin) else {
            return;
        };
        self.total -= usize::from(left.pop().is_some());
        if left.is_empty() {
            self.left.remove(origin);
        }
    }

    /// O(connections kept), and only once there are as many as may be.
    fn forget_old(&mut self, age_max: Duration) {
        let now = Instant::now();
        self.left.retain(|_, left| {
            left.retain(|at| now.duration_since(*at) < age_max);
            !left.is_empty()
        });
        self.total = self.left.values().map(Vec::len).sum();
    }
}

impl Keeping {
    /// The call has ended well, and its connection is in the pool.
    pub(super) fn keep(self) {
        let mut books = self.idle.lock();
        books.total += 1;
        let left = books.left.entry(self.origin.clone()).or_default();
        left.push(Instant::now());
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.idle.lock().promised -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE_MAX: Duration = Duration::from_secs(15);

    fn call(idle: &Arc<Idle>, origin: &str) -> bool {
        let keeping = idle.begin(origin.to_owned());
        keeping.map(Keeping::keep).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn h17_connections_to_many_hosts_are_bounded_and_a_known_host_uses_its_own() {
        let idle = Arc::new(Idle::new(2, AGE_MAX));
        assert!(call(&idle, "a") && call(&idle, "b"));
        assert!(!call(&idle, "c"), "two are kept already");
        assert!(call(&idle, "a"), "uses the one it left");
        tokio::time::advance(AGE_MAX).await;
        assert!(
            call(&idle, "c") && call(&idle, "d"),
            "the old ones are gone"
        );
        assert_eq!(idle.lock().total, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_under_way_count_until_they_end() {
        let idle = Arc::new(Idle::new(1, AGE_MAX));
        let under_way = idle.begin("a".to_owned());
        assert!(under_way.is_some());
        assert!(idle.begin("a".to_owned()).is_none());
        // It fails, or its answer is cut off: nothing is left behind.
        drop(under_way);
        assert_eq!(idle.lock().total, 0);
        assert!(call(&idle, "a"));
    }
}
