//! When a failed attempt is repeated: pure rules that are handed the time and a random number.
//!
//! [`judge`] decides; the delay comes from the destination's [`hint`], else from the message's
//! [`expression`], else from the default [`backoff`].

pub mod backoff;
pub mod expression;
pub mod hint;
pub mod judge;

use std::time::Duration;

/// The longest delay before a retry, whoever asks for it: one day.
pub const DELAY_MAX: Duration = Duration::from_hours(24);
