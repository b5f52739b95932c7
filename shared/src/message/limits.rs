//! What an installation allows, and when a message is due.

use std::time::Duration;

use super::refusal::NewMessageError;

/// What an installation allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Largest body in bytes.
    pub body_bytes_max: usize,
    /// Deadline of an attempt when the caller does not say.
    pub timeout_default: Duration,
    /// Longest deadline of an attempt.
    pub timeout_max: Duration,
    /// Longest time from acceptance to the first attempt.
    pub delay_max: Duration,
}

impl Limits {
    /// No limits, for what was accepted before.
    pub(super) const BOUNDLESS: Self = Self {
        body_bytes_max: usize::MAX,
        timeout_default: Duration::MAX,
        timeout_max: Duration::MAX,
        delay_max: Duration::MAX,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 10 * 1024 * 1024,
            timeout_default: Duration::from_mins(15),
            timeout_max: Duration::from_hours(2),
            delay_max: Duration::from_hours(366 * 24),
        }
    }
}

/// When the first attempt is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum When {
    /// At once.
    #[default]
    Now,
    /// After this time, by the store's clock.
    After(Duration),
    /// At this time, in milliseconds since the epoch. The past is now.
    At(u64),
}

/// When the message is due, and the same as a time for those who ask later.
pub(super) fn due(
    when: When,
    now_ms: u64,
    limits: &Limits,
) -> Result<(When, Option<u64>), NewMessageError> {
    let max = limits.delay_max;
    match when {
        When::After(delay) if delay > max => Err(NewMessageError::Delay(max)),
        When::After(delay) if millis(delay) > 0 => {
            Ok((when, Some(now_ms.saturating_add(millis(delay)))))
        }
        When::At(at) if at > now_ms.saturating_add(millis(max)) => {
            Err(NewMessageError::NotBefore(max))
        }
        When::At(at) if at > now_ms => Ok((when, Some(at))),
        When::Now | When::After(_) | When::At(_) => Ok((When::Now, None)),
    }
}

/// Whole milliseconds of a duration.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
