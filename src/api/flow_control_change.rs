//! What an operator asks of a flow-control key: the action at the end of the path, and its query.

use std::borrow::Cow;
use std::time::Duration;

use hookstash_shared::store::{LaneChange, LaneState};

use super::error::ApiError;

/// The period of a rate that names none.
const PERIOD_DEFAULT: Duration = Duration::from_secs(1);
/// Longest period, in seconds.
const PERIOD_S_MAX: u32 = 7 * 24 * 60 * 60;

/// A request that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Pause,
    Resume,
    ResetRate,
    Pin {
        parallelism: Option<u32>,
        rate: Option<u32>,
        period: Option<Duration>,
    },
    Unpin {
        parallelism: bool,
        rate: bool,
    },
}

type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// Reads an action with its query; `None` when there is no such action.
pub(super) fn read<'a>(
    action: &str,
    pairs: impl Iterator<Item = Pair<'a>>,
) -> Result<Option<Change>, ApiError> {
    let simple = match action {
        "pin" => return read_pin(pairs).map(Some),
        "unpin" => return read_unpin(pairs).map(Some),
        "pause" => Change::Pause,
        "resume" => Change::Resume,
        // The older name.
        "resetRate" | "reset" => Change::ResetRate,
        _ => return Ok(None),
    };
    match { pairs }.next() {
        Some((key, _)) => Err(unknown(&key, action)),
        None => Ok(Some(simple)),
    }
}

fn read_pin<'a>(pairs: impl Iterator<Item = Pair<'a>>) -> Result<Change, ApiError> {
    let (mut parallelism, mut rate, mut period) = (None, None, None);
    for (key, value) in pairs {
        let place = match &*key {
            "parallelism" => &mut parallelism,
            "rate" => &mut rate,
            "period" => &mut period,
            _ => return Err(unknown(&key, "pin")),
        };
        if place.replace(count(&key, &value)?).is_some() {
            return Err(ApiError::invalid(&key, "it is given more than once"));
        }
    }
    if parallelism.or(rate).or(period).is_none() {
        return Err(ApiError::invalid(
            "pin",
            "say what: parallelism, rate or period",
        ));
    }
    if period.is_some_and(|seconds| seconds > PERIOD_S_MAX) {
        return Err(ApiError::invalid(
            "period",
            "expected at most 604800 seconds, 7 days",
        ));
    }
    let period = period.map(|seconds| Duration::from_secs(seconds.into()));
    Ok(Change::Pin {
        parallelism,
        rate,
        period,
    })
}

fn read_unpin<'a>(pairs: impl Iterator<Item = Pair<'a>>) -> Result<Change, ApiError> {
    let (mut parallelism, mut rate) = (None, None);
    for (key, value) in pairs {
        let place = match &*key {
            "parallelism" => &mut parallelism,
            "rate" => &mut rate,
            _ => return Err(unknown(&key, "unpin")),
        };
        let is_wanted = match &*value.to_ascii_lowercase() {
            "true" => true,
            "false" => false,
            _ => return Err(ApiError::invalid(&key, "expected true or false")),
        };
        if place.replace(is_wanted).is_some() {
            return Err(ApiError::invalid(&key, "it is given more than once"));
        }
    }
    if parallelism.or(rate).is_none() {
        let why = "say what: parallelism=true or rate=true";
        return Err(ApiError::invalid("unpin", why));
    }
    Ok(Change::Unpin {
        parallelism: parallelism.unwrap_or(false),
        rate: rate.unwrap_or(false),
    })
}

fn unknown(key: &str, action: &str) -> ApiError {
    ApiError::invalid(action, format!("{key:?} is no parameter of it"))
}

fn count(key: &str, value: &str) -> Result<u32, ApiError> {
    let is_digits = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(count) if is_digits && count > 0 => Ok(count),
        _ => Err(ApiError::invalid(
            key,
            "expected a whole number of at least 1",
        )),
    }
}

impl Change {
    /// What it means for the key that is `state` now.
    pub(super) fn of(self, state: &LaneState) -> Result<LaneChange, ApiError> {
        let unchanged = LaneChange::default();
        Ok(match self {
            Self::Pause => LaneChange {
                paused: Some(true),
                ..unchanged
            },
            Self::Resume => LaneChange {
                paused: Some(false),
                ..unchanged
            },
            Self::ResetRate => LaneChange {
                restart_window: true,
                ..unchanged
            },
            Self::Unpin { parallelism, rate } => LaneChange {
                pinned_cap: parallelism.then_some(false),
                pinned_rate: rate.then_some(false),
                ..unchanged
            },
            Self::Pin {
                parallelism,
                rate,
                period,
            } => {
                let is_of_rate = rate.or(period.map(|_| 0)).is_some();
                if is_of_rate && rate.is_none() && state.limits.rate == 0 {
                    let why = "the key has no rate: give one with it";
                    return Err(ApiError::invalid("period", why));
                }
                // A rate without a period keeps the one that the key has.
                let is_first_rate = rate.is_some() && state.limits.period_ms == 0;
                LaneChange {
                    cap: parallelism,
                    pinned_cap: parallelism.map(|_| true),
                    rate,
                    period: period.or(is_first_rate.then_some(PERIOD_DEFAULT)),
                    pinned_rate: is_of_rate.then_some(true),
                    restart_window: is_of_rate,
                    ..unchanged
                }
            }
        })
    }
}
