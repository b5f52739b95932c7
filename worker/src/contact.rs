//! When a process may take back the leases of others.
//!
//! After an outage every lease looks expired, though its holder is alive and about to renew it. So
//! a process judges leases only after one whole lease time of unbroken contact with the shard, in
//! which the host's clock moved like its own.

use std::time::Duration;

/// Longest silence between two replies that still counts as contact, with any lease time.
const GAP_MAX: Duration = Duration::from_secs(5);
/// How far the host's time may move differently from ours before we start over.
const DRIFT_MAX_MS: i64 = 2_000;

/// The longest silence that still counts as contact: short enough that no lease that is renewed
/// every third of `lease` can end within it.
pub fn gap_max(lease: Duration) -> Duration {
    GAP_MAX.min(lease / 3)
}

/// Contact of one process with one shard.
#[derive(Debug)]
pub struct Contact {
    lease: Duration,
    gap_max: Duration,
    since: Option<Duration>,
    last: Duration,
    offset_ms: i64,
}

impl Contact {
    /// No contact yet. `lease` is how long a lease lasts.
    pub fn new(lease: Duration) -> Self {
        Self {
            lease,
            gap_max: gap_max(lease),
            since: None,
            last: Duration::ZERO,
            offset_ms: 0,
        }
    }

    /// A reply came at `monotonic` (our clock) and carried the host's time.
    pub fn replied(&mut self, monotonic: Duration, host_now_ms: u64) {
        let ours_ms = i64::try_from(monotonic.as_millis()).unwrap_or(i64::MAX);
        let offset_ms = i64::try_from(host_now_ms)
            .unwrap_or(i64::MAX)
            .saturating_sub(ours_ms);
        let is_unbroken = self.since.is_some()
            && monotonic.saturating_sub(self.last) <= self.gap_max
            && offset_ms.abs_diff(self.offset_ms) <= DRIFT_MAX_MS.unsigned_abs();
        if !is_unbroken {
            self.since = Some(monotonic);
            self.offset_ms = offset_ms;
        }
        self.last = monotonic;
    }

    /// Contact was lost: a connection broke, or the host was not the same afterwards.
    pub fn lost(&mut self) {
        self.since = None;
    }

    /// Whether expired leases may be recovered at `monotonic`.
    pub fn may_recover(&self, monotonic: Duration) -> bool {
        self.since
            .is_some_and(|since| monotonic.saturating_sub(since) >= self.lease)
            && monotonic.saturating_sub(self.last) <= self.gap_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(15);

    fn in_touch(until_s: u64) -> Contact {
        let mut contact = Contact::new(LEASE);
        for second in 0..=until_s {
            contact.replied(Duration::from_secs(second), 1_000_000 + second * 1000);
        }
        contact
    }

    #[test]
    fn one_lease_time_of_contact_is_needed() {
        assert!(!in_touch(14).may_recover(Duration::from_secs(14)));
        assert!(in_touch(15).may_recover(Duration::from_secs(15)));
    }

    #[test]
    fn a_silence_starts_the_time_over() {
        let mut contact = in_touch(20);
        assert!(!contact.may_recover(Duration::from_secs(26)));
        contact.replied(Duration::from_secs(26), 1_026_000);
        assert!(!contact.may_recover(Duration::from_secs(27)));
    }

    #[test]
    fn a_short_lease_allows_only_a_short_silence() {
        let second = Duration::from_secs(1);
        let mut contact = Contact::new(3 * second);
        for now in 0..=4 {
            contact.replied(now * second, 1_000_000 + 1000 * u64::from(now));
        }
        assert!(contact.may_recover(4 * second));
        assert!(!contact.may_recover(5 * second + second / 10));
        assert_eq!(gap_max(LEASE), Duration::from_secs(5));
        assert_eq!(gap_max(4 * LEASE), Duration::from_secs(5));
    }

    #[test]
    fn a_step_of_the_hosts_clock_starts_the_time_over() {
        let mut contact = in_touch(20);
        contact.replied(Duration::from_secs(21), 1_081_000);
        assert!(!contact.may_recover(Duration::from_secs(21)));
    }
}
