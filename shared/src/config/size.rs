//! The one grammar of sizes: a whole number of bytes, or of `B`, `KiB`, `MiB` or `GiB`.

const UNITS: [(&str, u64); 4] = [
    ("GiB", 1024 * 1024 * 1024),
    ("MiB", 1024 * 1024),
    ("KiB", 1024),
    ("B", 1),
];

/// Bytes that `text` stands for; `None` when it is no size or too large for 64 bits.
pub(super) fn parse(text: &str) -> Option<u64> {
    let digits_end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let factor = match unit {
        "" => 1,
        _ => UNITS.iter().find(|(name, _)| *name == unit)?.1,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// `bytes` in the largest unit that divides it.
pub(super) fn format(bytes: u64) -> String {
    UNITS
        .iter()
        .find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor))
        .map_or_else(
            || format!("{bytes}B"),
            |(unit, factor)| format!("{}{unit}", bytes / factor),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [("0", 0), ("512", 512), ("512B", 512), ("64KiB", 65_536)] {
            assert_eq!(parse(text), Some(bytes), "{text}");
        }
        assert_eq!(parse("10MiB"), Some(10_485_760));
        for text in [
            "",
            "KiB",
            "1kb",
            "1MB",
            "1.5MiB",
            "-1",
            "+1",
            "1 MiB",
            "99999999999GiB",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        for bytes in [0, 1, 512, 1024, 1025, 65_536, 10_485_760, 1 << 40] {
            assert_eq!(parse(&format(bytes)), Some(bytes));
        }
    }
}
