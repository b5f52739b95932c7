//! Numbers as Redis reads and writes them.

use bytes::Bytes;

/// The integer `text` spells in its one canonical form: no sign `+`, no space, no leading zero.
pub(super) fn parse_int(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] => return (digits.len() == text.len()).then_some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {}
        _ => return None,
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The unsigned integer `text` spells, as a cursor does.
pub(super) fn parse_unsigned(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The float `text` spells; never NaN, and infinite only when it says so.
pub(super) fn parse_float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let value: f64 = text.parse().ok()?;
    let says_infinite = text.contains(['i', 'I']);
    (!value.is_nan() && (value.is_finite() || says_infinite)).then_some(value)
}

/// An integer as a bulk string.
pub(super) fn int_bytes(value: i64) -> Bytes {
    Bytes::from(value.to_string())
}

/// `%.17g`, with `inf` and `-inf`.
pub(super) fn format_float(value: f64) -> String {
    const EXACT: f64 = 1e15;
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    if value.abs() < EXACT && value.fract() == 0.0 {
        return format!("{value:.0}");
    }
    format_digits(value)
}

/// Seventeen significant digits without trailing zeros, with an exponent where C uses one.
fn format_digits(value: f64) -> String {
    const DIGITS: i32 = 17;
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..DIGITS).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!(
            "{}e{sign}{:02}",
            without_zeros(mantissa),
            exponent.unsigned_abs()
        );
    }
    let decimals = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_canonical_spelling_is_an_integer() {
        for (text, want) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("-0", None),
            ("01", None),
            ("+1", None),
            (" 1", None),
            ("", None),
            ("-", None),
            ("1.0", None),
        ] {
            assert_eq!(parse_int(text.as_bytes()), want, "{text:?}");
        }
    }

    #[test]
    fn floats_are_written_as_c_writes_them() {
        for (value, want) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (0.1, "0.10000000000000001"),
            (1e17, "1e+17"),
            (1e16, "10000000000000000"),
            (1.5e300, "1.5000000000000001e+300"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(format_float(value), want);
        }
    }

    #[test]
    fn an_overflowing_float_is_refused_but_inf_is_read() {
        assert_eq!(parse_float(b"1e999"), None);
        assert_eq!(parse_float(b"nan"), None);
        assert_eq!(parse_float(b"+inf"), Some(f64::INFINITY));
        assert_eq!(parse_float(b"-inf"), Some(f64::NEG_INFINITY));
    }
}
