//! When an exchange also does the upkeep of its shard: takes back expired leases, forgets what has
//! ended. At every exchange it would cost more than the exchange itself.

use std::time::Duration;

use tokio::time::Instant;

/// At most so long apart while there are exchanges at all.
const PAUSE: Duration = Duration::from_millis(20);
/// After so many settlements it is time at any rate, so that no upkeep is large.
const SETTLED_MAX: u32 = 128;
/// What an upkeep looks at besides as much as was settled since the last one.
const LOOKS: u32 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Upkeep {
    next_at: Instant,
    settled: u32,
    is_behind: bool,
}

impl Upkeep {
    /// Due at once.
    pub(crate) fn new() -> Self {
        Self {
            next_at: Instant::now(),
            settled: 0,
            is_behind: false,
        }
    }

    /// How much an exchange with so many settlements looks at now; 0 when it is not time.
    pub(crate) fn share(&self, settlements: usize) -> u32 {
        let settled = self.settled_with(settlements);
        let is_due = self.is_behind || settled >= SETTLED_MAX || Instant::now() >= self.next_at;
        if is_due { LOOKS + settled } else { 0 }
    }

    /// The exchange with this `share` was answered. Says whether the upkeep goes on at once.
    pub(crate) fn done(&mut self, share: u32, settlements: usize, is_behind: bool) -> bool {
        if share == 0 {
            self.settled = self.settled_with(settlements);
        } else {
            *self = Self::new();
            self.next_at += PAUSE;
            self.is_behind = is_behind;
        }
        self.is_behind
    }

    /// When it is time again.
    pub(crate) fn next_at(&self) -> Instant {
        self.next_at
    }

    fn settled_with(&self, settlements: usize) -> u32 {
        let more = u32::try_from(settlements).unwrap_or(SETTLED_MAX);
        self.settled.saturating_add(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_upkeep_is_due_after_a_pause_or_enough_settlements() {
        let mut upkeep = Upkeep::new();
        assert_eq!(upkeep.share(3), LOOKS + 3, "at once");
        assert!(!upkeep.done(LOOKS + 3, 3, false));
        assert_eq!(upkeep.share(100), 0);
        assert!(!upkeep.done(0, 100, false));
        assert_eq!(upkeep.share(27), 0);
        assert_eq!(upkeep.share(28), LOOKS + SETTLED_MAX);
        tokio::time::advance(PAUSE).await;
        assert_eq!(upkeep.share(0), LOOKS + 100, "all that was settled since");
    }

    #[tokio::test(start_paused = true)]
    async fn an_upkeep_that_is_behind_goes_on_at_once() {
        let mut upkeep = Upkeep::new();
        assert!(upkeep.done(upkeep.share(0), 0, true));
        assert_eq!(upkeep.share(0), LOOKS);
        assert!(!upkeep.done(LOOKS, 0, false));
        assert_eq!(upkeep.share(0), 0);
    }
}
