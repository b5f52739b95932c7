//! The one duration grammar: HTTP headers, settings and flags all read it here.
//!
//! A duration is a sequence of `<number><unit>` such as `1d10h30m` or `1.5s`, or a bare number of
//! seconds such as `30` or `0.5`. Units are `ms s m h d`. There is no sign, no exponent and no
//! inner space, and nothing beyond [`DURATION_MAX`], so that no sum with a time overflows.

use std::fmt;
use std::time::Duration;

/// The longest duration that is read: 2^63 - 1 nanoseconds, about 292 years, as in Go.
pub const DURATION_MAX: Duration = Duration::from_nanos(NANOS_MAX);

/// The longest text that is read, in bytes. All units with all their digits fit easily.
pub const TEXT_BYTES_MAX: usize = 64;

const NANOS_MAX: u64 = i64::MAX.unsigned_abs();
const NANOS_PER_MS: u64 = 1_000_000;
const NANOS_PER_S: u64 = 1_000 * NANOS_PER_MS;

/// Digits after the point that count; later ones are below a nanosecond of any unit.
const FRACTION_DIGITS_MAX: usize = 18;

/// Unit and its length in nanoseconds, longest first.
const UNITS: [(&str, u64); 5] = [
    ("d", 86_400 * NANOS_PER_S),
    ("h", 3_600 * NANOS_PER_S),
    ("m", 60 * NANOS_PER_S),
    ("s", NANOS_PER_S),
    ("ms", NANOS_PER_MS),
];

/// Units that only Go writes: micro is spelled with U+0075, U+00B5 or U+03BC.
const FINE_UNITS: [(&str, u64); 4] = [
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ns", 1),
];

/// Why a text is not a duration. The text itself is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Nothing but white space.
    #[error("a duration is empty")]
    Empty,
    /// More than [`TEXT_BYTES_MAX`] bytes.
    #[error("a duration is longer than {TEXT_BYTES_MAX} characters")]
    TooLong,
    /// It starts with a minus sign.
    #[error("a duration is negative")]
    Negative,
    /// A number is missing or malformed.
    #[error("a duration is not a sequence of numbers and units such as 1h30m or 1.5s")]
    Number,
    /// A unit is unknown, or missing although there are several parts.
    #[error("a duration has an unknown or missing unit (known: ms, s, m, h, d)")]
    Unit,
    /// More than [`DURATION_MAX`].
    #[error("a duration is longer than 292 years")]
    Overflow,
}

/// Reads a duration with the units `ms s m h d`. Space around it is ignored. Digits below a
/// nanosecond are cut off.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    parse_units(text, &[])
}

/// Reads a duration as Go prints it: the units of [`parse`] and also `us`, `µs` and `ns`.
pub fn parse_go(text: &str) -> Result<Duration, DurationError> {
    parse_units(text, &FINE_UNITS)
}

/// Shows a duration so that [`parse`] reads the same one: `1h30m3s`, `1.5s`, `250ms`, `0s`.
pub fn display(duration: Duration) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        let nanos = u64::from(duration.subsec_nanos());
        if duration.as_secs() == 0 && nanos > 0 {
            return write!(f, "{}ms", decimal(nanos, NANOS_PER_MS));
        }
        let mut rest_s = duration.as_secs();
        for (unit, unit_s) in [("d", 86_400), ("h", 3_600), ("m", 60)] {
            if rest_s >= unit_s {
                write!(f, "{}{unit}", rest_s / unit_s)?;
                rest_s %= unit_s;
            }
        }
        if rest_s > 0 || nanos > 0 || duration.is_zero() {
            write!(f, "{}s", decimal(rest_s * NANOS_PER_S + nanos, NANOS_PER_S))?;
        }
        Ok(())
    })
}

/// `nanos / unit` in decimal, without trailing zeros.
fn decimal(nanos: u64, unit: u64) -> String {
    let (whole, fraction) = (nanos / unit, nanos % unit);
    if fraction == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let fraction = format!("{fraction:0width$}");
    format!("{whole}.{}", fraction.trim_end_matches('0'))
}

fn parse_units(text: &str, fine_units: &[(&str, u64)]) -> Result<Duration, DurationError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(DurationError::TooLong);
    }
    if text.starts_with('-') {
        return Err(DurationError::Negative);
    }
    let mut total = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !is_of_number(c));
        let (unit, after) = split_where(after, is_of_number);
        if number.is_empty() {
            return Err(DurationError::Number);
        }
        let is_bare_number = number == text;
        let unit = if is_bare_number { "s" } else { unit };
        let (_, nanos) = UNITS
            .iter()
            .chain(fine_units)
            .find(|(name, _)| *name == unit)
            .ok_or(DurationError::Unit)?;
        total = scale(number, *nanos)?
            .checked_add(total)
            .filter(|total| *total <= NANOS_MAX.into())
            .ok_or(DurationError::Overflow)?;
        rest = after;
    }
    let total = u64::try_from(total).map_err(|_| DurationError::Overflow)?;
    Ok(Duration::from_nanos(total))
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// Splits before the first character for which `stops` holds.
fn split_where(text: &str, stops: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(stops).unwrap_or(text.len()))
}

/// `number * nanos`, where `number` is `digits` or `digits.digits`.
fn scale(number: &str, nanos: u64) -> Result<u128, DurationError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return Err(DurationError::Number);
    }
    let nanos = u128::from(nanos);
    let fraction = fraction.get(..FRACTION_DIGITS_MAX).unwrap_or(fraction);
    let divisor = fraction.bytes().fold(1_u128, |divisor, _| divisor * 10);
    let part = fraction
        .parse::<u128>()
        .map_err(|_| DurationError::Number)?
        * nanos
        / divisor;
    // All digits: the only way to fail is to be too large.
    let whole: u128 = whole.parse().map_err(|_| DurationError::Overflow)?;
    whole
        .checked_mul(nanos)
        .and_then(|whole| whole.checked_add(part))
        .ok_or(DurationError::Overflow)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn d01_durations_mean_what_they_say() {
        let day = 86_400_000;
        for (text, expected) in [
            ("0", ms(0)),
            ("0s", ms(0)),
            ("30", ms(30_000)),
            ("0.5", ms(500)),
            ("1.5s", ms(1_500)),
            ("250ms", ms(250)),
            ("0.5ms", Duration::from_micros(500)),
            ("10m5s", ms(605_000)),
            ("1h30m3s", ms(5_403_000)),
            ("1d10h30m", ms(34 * 3_600_000 + 1_800_000)),
            ("1.5d", ms(day * 3 / 2)),
            ("24d", ms(24 * day)),
            ("25d", ms(25 * day)),
            ("50d", ms(50 * day)),
            ("400d", ms(400 * day)),
            (" 2s ", ms(2_000)),
            ("1s1h", ms(3_601_000)),
            ("0.0000000000000000000000001s", ms(0)),
            ("9223372036.854775807s", DURATION_MAX),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn d01_what_is_no_duration_is_refused() {
        use DurationError as E;
        for (text, expected) in [
            ("", E::Empty),
            (" \t", E::Empty),
            ("-1", E::Negative),
            ("-1s", E::Negative),
            ("9223372036854775807s", E::Overflow),
            ("9223372036.854775808s", E::Overflow),
            ("9223372036854775807", E::Overflow),
            (
                "99999999999999999999999999999999999999999999999d",
                E::Overflow,
            ),
            ("106752d", E::Overflow),
            ("106751d1d", E::Overflow),
            ("s", E::Number),
            ("+1s", E::Number),
            (".5s", E::Number),
            ("1.s", E::Number),
            ("1..5s", E::Number),
            ("5.", E::Number),
            ("1.2.3s", E::Number),
            (".", E::Number),
            ("1x", E::Unit),
            ("1S", E::Unit),
            ("1h30", E::Unit),
            ("1h 30m", E::Unit),
            ("1e3s", E::Unit),
            ("1-s", E::Unit),
            ("NaN", E::Number),
            ("5us", E::Unit),
            ("1\u{661}s", E::Unit),
        ] {
            assert_eq!(parse(text), Err(expected), "{text}");
        }
        assert_eq!(parse(&"1s".repeat(33)), Err(E::TooLong));
    }

    #[test]
    fn k26_a_timeout_in_seconds_may_be_a_fraction_but_never_negative_or_not_a_number() {
        assert_eq!(parse("0.5"), Ok(ms(500)));
        assert_eq!(parse("2147483.647"), Ok(ms(i32::MAX as u64)));
        assert_eq!(parse("2147483.648"), Ok(ms(1 << 31)));
        for text in ["-1", "NaN", "nan", "inf", "Infinity", "null", "\"30\""] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn go_durations_know_finer_units() {
        for (text, nanos) in [
            ("6m5s", 365_000_000_000),
            ("5us", 5_000),
            ("5\u{b5}s", 5_000),
            ("5\u{3bc}s", 5_000),
            ("1.5us", 1_500),
            ("7ns", 7),
            ("1h15m30.918273645s", 4_530_918_273_645),
        ] {
            assert_eq!(parse_go(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn a_duration_is_shown_as_people_write_it() {
        for (duration, expected) in [
            (ms(0), "0s"),
            (ms(250), "250ms"),
            (Duration::from_nanos(1), "0.000001ms"),
            (ms(1_500), "1.5s"),
            (ms(1_050), "1.05s"),
            (ms(10_000), "10s"),
            (ms(60_000), "1m"),
            (ms(5_403_000), "1h30m3s"),
            (ms(60_500), "1m0.5s"),
            (ms(86_400_000 * 3), "3d"),
        ] {
            assert_eq!(display(duration).to_string(), expected);
        }
        assert!(!display(Duration::MAX).to_string().is_empty());
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_back(nanos in 0..=NANOS_MAX, shift in 0_u32..63) {
            let duration = Duration::from_nanos(nanos >> shift);
            prop_assert_eq!(parse(&display(duration).to_string()), Ok(duration));
        }

        #[test]
        fn no_text_panics_or_exceeds_the_maximum(text in "[-0-9.smhdunµ ]{0,70}|.{0,70}") {
            for read in [parse(&text), parse_go(&text)] {
                prop_assert!(read.is_err() || read.is_ok_and(|read| read <= DURATION_MAX));
            }
        }
    }
}
