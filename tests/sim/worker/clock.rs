//! The clock of one machine over tokio's paused one: it moves only when every task is idle, and its
//! wall time can be stepped.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use hookstash_shared::clock::Clock;
use tokio::time::Instant;

/// Wall time when a run begins.
pub const START_MS: u64 = 1_800_000_000_000;

#[derive(Debug)]
pub struct SimClock {
    start: Instant,
    step_ms: AtomicI64,
}

impl SimClock {
    /// Begins now; needs a runtime.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            step_ms: AtomicI64::new(0),
        }
    }

    /// Steps the wall time; the monotonic time goes on as before.
    pub fn step(&self, ms: i64) {
        self.step_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now_ms(&self) -> u64 {
        let ms = u64::try_from(self.monotonic().as_millis()).expect("a short run");
        (START_MS + ms).saturating_add_signed(self.step_ms.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}
