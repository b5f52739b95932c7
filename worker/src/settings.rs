//! What an operator may set of a worker.

use std::time::Duration;

use hookstash_shared::descriptors::inbound;
use hookstash_shared::http::RESPONSE_KEEP_BYTES;

/// Slots when nobody says otherwise: they are cheap, a waiting call costs a socket.
const SLOTS: usize = 512;
const RENEW: Duration = Duration::from_secs(5);
const BATCH: usize = 64;
const DRAIN: Duration = Duration::from_secs(25);
const BODY_BUDGET_BYTES: u64 = 256 * 1024 * 1024;
const TIMEOUT_MAX: Duration = Duration::from_hours(2);
const SWEEP_PAUSE: Duration = Duration::from_mins(1);

/// Settings of one worker process. The lease time belongs to the store.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerSettings {
    /// Most calls at one time, at least 1. Lowered at the start when the process may not open
    /// enough files.
    pub slots: usize,
    /// Delivery threads, at least 1.
    pub threads: usize,
    /// How often leases are renewed and the worker says that it lives: a third of the lease time,
    /// so that two renewals may be lost.
    pub renew: Duration,
    /// Most settlements and most new leases of one exchange, at least 1.
    pub batch: usize,
    /// How long running calls may go on after the first signal to end: what callers of
    /// [`crate::RunningWorker::drain`] pass.
    pub drain: Duration,
    /// Most bytes of envelopes and bodies held at one time; a single larger message still goes.
    pub body_budget_bytes: u64,
    /// Longest total deadline of an attempt, whatever its message says.
    pub timeout_max: Duration,
    /// Most bytes of a response's body that are kept with a dead letter and told by callbacks.
    pub response_keep_bytes: usize,
    /// Proportion of the default backoff that is random, 0 to 1.
    pub jitter: f64,
    /// Pause between two walks of the sweeper.
    pub sweep_pause: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            slots: SLOTS,
            threads,
            renew: RENEW,
            batch: BATCH,
            drain: DRAIN,
            body_budget_bytes: BODY_BUDGET_BYTES,
            timeout_max: TIMEOUT_MAX,
            response_keep_bytes: RESPONSE_KEEP_BYTES,
            jitter: 0.0,
            sweep_pause: SWEEP_PAUSE,
        }
    }
}

impl WorkerSettings {
    /// The same with every number in its range and no more slots than `descriptors` open files
    /// can carry, with a warning. `None` = no limit is known.
    #[must_use]
    pub(crate) fn fitted(mut self, descriptors: Option<usize>) -> Self {
        self.slots = self.slots.max(1);
        self.batch = self.batch.max(1);
        if let Some(limit) = descriptors {
            let carried = slots_for(limit);
            if carried < self.slots {
                tracing::warn!(
                    asked = self.slots,
                    slots = carried,
                    limit,
                    "slots lowered: the limit of open files (ulimit -n) cannot carry more"
                );
                self.slots = carried;
            }
        }
        self.threads = self.threads.clamp(1, self.slots);
        self
    }

    /// Most calls of one delivery thread at a time.
    pub(crate) fn share(&self) -> usize {
        self.slots.div_ceil(self.threads)
    }
}

impl WorkerSettings {
    /// How many unused connections the HTTP client of each delivery thread may keep: what
    /// `descriptors` open files leave beside calls and everything else. `None` = no limit is known.
    pub fn idle_connections(&self, descriptors: Option<usize>) -> usize {
        let room = descriptors.map_or(IDLE_MAX, |limit| {
            let slots = self.slots.min(slots_for(limit));
            let others = OTHER_FILES + inbound(limit) + slots;
            limit.saturating_sub(others).min(IDLE_MAX)
        });
        room / self.threads.max(1)
    }
}

/// Most unused connections that are kept, however many files may be open.
const IDLE_MAX: usize = 4096;
/// Files that are open for other reasons: standard streams, connections to the store, listeners.
const OTHER_FILES: usize = 128;

/// How many slots `limit` open files can carry: two slots need three files, because unused
/// connections are kept for a while.
pub fn slots_for(limit: usize) -> usize {
    let others = OTHER_FILES + inbound(limit);
    (limit.saturating_sub(others) / 3 * 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_limit_carries_the_default_slots_and_a_small_one_lowers_them() {
        let settings = WorkerSettings {
            threads: 600,
            ..WorkerSettings::default()
        };
        assert_eq!(settings.clone().fitted(None).slots, 512);
        assert_eq!(settings.clone().fitted(Some(1024)).slots, 512);
        let small = settings.fitted(Some(256));
        assert_eq!((small.slots, small.threads), (64, 64));
        let none = WorkerSettings {
            slots: 0,
            threads: 0,
            ..WorkerSettings::default()
        };
        let none = none.fitted(Some(0));
        assert_eq!((none.slots, none.threads), (1, 1));
    }
    #[test]
    fn h17_unused_connections_take_what_the_calls_leave_of_the_open_files() {
        let settings = WorkerSettings {
            threads: 2,
            ..WorkerSettings::default()
        };
        assert_eq!(settings.idle_connections(Some(1024)), 128);
        assert_eq!(settings.idle_connections(Some(1 << 20)), IDLE_MAX / 2);
        assert_eq!(settings.idle_connections(None), IDLE_MAX / 2);
        assert_eq!(settings.idle_connections(Some(256)), 16);
        let fitted = settings.fitted(Some(256));
        assert_eq!(fitted.idle_connections(Some(256)), 16);
    }
}
