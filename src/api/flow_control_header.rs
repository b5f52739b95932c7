//! `Upstash-Flow-Control-Key` and `-Value`: under which key a message waits, and what the key allows,
//! such as `parallelism=3, rate=5, period=1m`.

use std::time::Duration;

use hookstash_shared::duration;
use hookstash_shared::message::NewMessageBuilder;

use super::error::ApiError;
use super::publish_headers::{Options, text};

pub(super) const KEY: &str = "upstash-flow-control-key";
pub(super) const VALUE: &str = "upstash-flow-control-value";
const VALUE_NAME: &str = "Upstash-Flow-Control-Value";

/// What a flow-control key allows; absent = not given.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FlowControl {
    pub(super) parallelism: Option<u32>,
    pub(super) rate: Option<u32>,
    pub(super) period: Option<Duration>,
}

/// Gives the message the key and the limits of the options, if they name any.
pub(super) fn apply(
    message: NewMessageBuilder,
    options: &Options,
) -> Result<NewMessageBuilder, ApiError> {
    match (options.get(KEY), options.get(VALUE)) {
        (None, None) => Ok(message),
        (Some(keys), Some(values)) => {
            let limits = FlowControl::parse(text(VALUE, values)?)?;
            let key = text(KEY, keys)?.as_bytes();
            message
                .flow_control(key, limits.parallelism, limits.rate, limits.period)
                .map_err(|error| ApiError::Invalid(error.to_string()))
        }
        _ => Err(ApiError::Invalid(
            "Upstash-Flow-Control-Key and Upstash-Flow-Control-Value are given together".to_owned(),
        )),
    }
}

impl FlowControl {
    /// Reads `name=value` pairs between commas, in any order.
    pub(super) fn parse(value: &str) -> Result<Self, ApiError> {
        let refused = |why: &str| ApiError::invalid(VALUE_NAME, why);
        let mut limits = Self::default();
        for pair in value.split(',') {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| refused("expected parallelism=N, rate=N, period=DURATION"))?;
            let value = value.trim();
            let is_repeated = match name.trim() {
                "parallelism" => limits.parallelism.replace(count(value)?).is_some(),
                "rate" => limits.rate.replace(count(value)?).is_some(),
                "period" => {
                    let period = duration::parse(value);
                    let period = period.map_err(|error| refused(&error.to_string()))?;
                    limits.period.replace(period).is_some()
                }
                _ => return Err(refused("expected parallelism, rate and period only")),
            };
            if is_repeated {
                return Err(refused("a limit is given more than once"));
            }
        }
        Ok(limits)
    }
}

fn count(value: &str) -> Result<u32, ApiError> {
    let is_digits = value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(count) if is_digits && count > 0 => Ok(count),
        _ => Err(ApiError::invalid(
            VALUE_NAME,
            "expected a whole number of at least 1",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_in_any_order() {
        let read = |text| FlowControl::parse(text).map_err(|error| error.to_string());
        let minute = Duration::from_mins(1);
        for (text, parallelism, rate, period) in [
            (
                "parallelism=3, rate=5, period=1m",
                Some(3),
                Some(5),
                Some(minute),
            ),
            ("period=60,rate=5", None, Some(5), Some(minute)),
            (" parallelism = 7 ", Some(7), None, None),
        ] {
            let expected = FlowControl {
                parallelism,
                rate,
                period,
            };
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "3",
            "rate=",
            "rate=0",
            "rate=-1",
            "rate=+1",
            "rate=1.5",
            "rate=5,rate=6",
            "burst=1",
            "period=soon",
            "rate=4294967296",
            "rate=1,,period=1s",
        ] {
            let error = read(text).unwrap_err();
            assert!(
                error.starts_with("invalid Upstash-Flow-Control-Value: "),
                "{text}: {error}"
            );
        }
    }
}
