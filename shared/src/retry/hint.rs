//! What the answer to a failed attempt says about the next one.

use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue};

use super::DELAY_MAX;
use crate::duration;

/// Headers that carry a hint; the first one present counts, even when it makes no sense.
const HINT_HEADERS: [&str; 4] = [
    "retry-after",
    "x-ratelimit-reset",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
];

/// The delay the destination asks for; zero is "at once", also for a date that has passed.
///
/// A value is a number of seconds, a date as in RFC 9110 section 5.6.7, or a duration as Go writes
/// it. `None` when no header is present, when its value is none of these, or when it asks for more
/// than [`DELAY_MAX`] (so a point in Unix time, as some send, is never taken for a delay).
pub fn delay(headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    HINT_HEADERS
        .iter()
        .find_map(|name| headers.get(*name))
        .and_then(|value| read(value, now_ms))
        .filter(|delay| *delay <= DELAY_MAX)
}

fn read(value: &HeaderValue, now_ms: u64) -> Option<Duration> {
    let text = std::str::from_utf8(value.as_bytes()).ok()?;
    duration::parse_go(text).ok().or_else(|| {
        let date = httpdate::parse_http_date(text.trim()).ok()?;
        let since_epoch = date.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(since_epoch.saturating_sub(Duration::from_millis(now_ms)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT.
    const NOW_MS: u64 = 784_111_777_000;

    fn hint(headers: &[(&str, &str)]) -> Option<Duration> {
        let headers = headers
            .iter()
            .map(|(name, value)| {
                let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
                (
                    http::HeaderName::from_bytes(name.as_bytes()).unwrap(),
                    value,
                )
            })
            .collect();
        delay(&headers, NOW_MS)
    }

    #[test]
    fn r01_every_hint_header_and_every_form_is_understood() {
        for name in [
            "Retry-After",
            "X-RateLimit-Reset",
            "x-ratelimit-reset-requests",
        ] {
            for (value, expected_ms) in [
                ("3", 3_000),
                ("0", 0),
                ("1.5", 1_500),
                (" 7 ", 7_000),
                ("6m5s", 365_000),
                ("20ms", 20),
                ("1h", 3_600_000),
                ("86400", 86_400_000),
                ("24h0m0s", 86_400_000),
                ("Sun, 06 Nov 1994 08:49:47 GMT", 10_000),
                ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
                ("Sun, 06 Nov 1994 08:49:27 GMT", 0),
                ("Mon, 07 Nov 1994 08:49:37 GMT", 86_400_000),
            ] {
                let expected = Some(Duration::from_millis(expected_ms));
                assert_eq!(hint(&[(name, value)]), expected, "{name}: {value}");
            }
        }
        for micro in ["us", "\u{b5}s", "\u{3bc}s"] {
            let value = format!("12{micro}");
            let expected = Some(Duration::from_micros(12));
            assert_eq!(
                hint(&[("x-ratelimit-reset-tokens", &value)]),
                expected,
                "{value}"
            );
        }
    }

    #[test]
    fn what_makes_no_sense_or_asks_for_more_than_a_day_is_ignored() {
        for value in [
            "",
            "soon",
            "-1",
            "86401",
            "25h",
            "1784111777",
            "99999999999999999999999999",
            "Mon, 07 Nov 1994 08:49:38 GMT",
            "Mon, 07 Nov 1994",
        ] {
            assert_eq!(hint(&[("retry-after", value)]), None, "{value}");
        }
        assert_eq!(hint(&[]), None);
        assert_eq!(hint(&[("ratelimit-reset", "3")]), None);
    }

    #[test]
    fn the_first_header_present_counts() {
        let three = Some(Duration::from_secs(3));
        assert_eq!(
            hint(&[("x-ratelimit-reset", "9"), ("retry-after", "3")]),
            three
        );
        assert_eq!(hint(&[("retry-after", "3"), ("retry-after", "9")]), three);
        assert_eq!(
            hint(&[
                ("x-ratelimit-reset-tokens", "9"),
                ("x-ratelimit-reset-requests", "3")
            ]),
            three
        );
        assert_eq!(
            hint(&[("retry-after", "soon"), ("x-ratelimit-reset", "9")]),
            None
        );
    }

    proptest! {
        #[test]
        fn no_hint_panics_or_passes_a_day(value in "[ -~]{0,40}|[0-9.]{1,30}[a-z]{0,2}", now_ms in any::<u64>()) {
            let mut headers = HeaderMap::new();
            headers.insert("retry-after", value.parse().unwrap());
            prop_assert!(delay(&headers, now_ms).is_none_or(|delay| delay <= DELAY_MAX));
        }
    }
}
