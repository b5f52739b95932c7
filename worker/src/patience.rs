//! Patience with a store that does not serve: pauses that grow, with jitter.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Deliveries go on within 5 s of the store's return, however long it was away; a try costs a store
/// that is down nothing.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Growing pauses until [`Patience::reset`].
pub(crate) struct Patience {
    pauses: ExponentialBackoff,
    seed: u64,
    is_fresh: bool,
}

impl Patience {
    /// Patience whose jitter comes from `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let pauses = ExponentialBuilder::default()
            .with_jitter()
            .with_jitter_seed(seed)
            .with_min_delay(PAUSE_MIN)
            .with_max_delay(PAUSE_MAX)
            .without_max_times();
        Self {
            pauses: pauses.build(),
            seed,
            is_fresh: true,
        }
    }

    /// The next pause, at most [`PAUSE_MAX`].
    pub(crate) fn next_pause(&mut self) -> Duration {
        self.is_fresh = false;
        self.pauses.next().unwrap_or(PAUSE_MAX).min(PAUSE_MAX)
    }

    /// The store serves again.
    pub(crate) fn reset(&mut self) {
        if !self.is_fresh {
            *self = Self::new(self.seed);
        }
    }
}
