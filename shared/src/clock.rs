//! Time as an argument: everything that needs the time is handed a [`Clock`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Source of time. Cheap to ask, safe to share between threads.
pub trait Clock: Send + Sync + 'static {
    /// Wall clock: milliseconds since the Unix epoch. May step in either direction.
    fn now_ms(&self) -> u64;

    /// Time since some fixed point of this process. Never steps back.
    fn monotonic(&self) -> Duration;

    /// Wall clock in whole seconds since the Unix epoch.
    fn now_s(&self) -> u64 {
        self.now_ms() / 1000
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock whose monotonic time starts now.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    fn now_ms(&self) -> u64 {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that moves only when told to: for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    wall_ms: AtomicU64,
    monotonic_ms: AtomicU64,
}

impl ManualClock {
    /// A clock that shows `wall_ms` and has run for no time.
    pub fn at(wall_ms: u64) -> Self {
        Self {
            wall_ms: AtomicU64::new(wall_ms),
            monotonic_ms: AtomicU64::new(0),
        }
    }

    /// Lets time pass: wall and monotonic time move together.
    pub fn advance(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.wall_ms.fetch_add(ms, Ordering::SeqCst);
        self.monotonic_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Steps the wall clock by `ms` (negative is back); monotonic time does not move.
    pub fn step_wall(&self, ms: i64) {
        let wall = self.wall_ms.load(Ordering::SeqCst);
        self.wall_ms
            .store(wall.saturating_add_signed(ms), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_ms(&self) -> u64 {
        self.wall_ms.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.monotonic_ms.load(Ordering::SeqCst))
    }
}
