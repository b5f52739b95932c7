//! How far the end of a worker has come.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// How far the end of a worker has come. Only ever goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Leases and delivers.
    Running,
    /// Leases nothing; running calls go on.
    Draining,
    /// Running calls are dropped.
    Stopping,
    /// Nothing is running any more.
    Closed,
}

/// The phase of one worker, and who waits for it to change: told in the order in which they began
/// to wait, so that a simulated end always runs alike (a `watch` channel tells in random order).
#[derive(Debug)]
pub(crate) struct Phases {
    now: Mutex<Phase>,
    changed: Notify,
}

impl Phases {
    /// Running.
    pub(crate) fn new() -> Self {
        Self {
            now: Mutex::new(Phase::Running),
            changed: Notify::new(),
        }
    }

    /// The phase now.
    pub(crate) fn now(&self) -> Phase {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes forward to `phase`; never back.
    pub(crate) fn advance(&self, phase: Phase) {
        {
            let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
            if *now >= phase {
                return;
            }
            *now = phase;
        }
        self.changed.notify_waiters();
    }

    /// Waits until the phase is `phase` or a later one.
    pub(crate) async fn reached(&self, phase: Phase) {
        loop {
            // Made before the look: it is told of every change from here on.
            let changed = self.changed.notified();
            if self.now() >= phase {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the phase is a later one than `phase`.
    pub(crate) async fn left(&self, phase: Phase) {
        loop {
            let changed = self.changed.notified();
            if self.now() > phase {
                return;
            }
            changed.await;
        }
    }
}
