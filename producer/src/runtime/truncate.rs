//! Cutting texts as JavaScript counts them, in UTF-16 units, without splitting a pair.

/// The longest beginning of `text` that has at most `units` UTF-16 units.
pub(crate) fn head(text: &str, units: usize) -> &str {
    let mut left = units;
    let end = text.char_indices().find_map(|(index, character)| {
        let fits = left.checked_sub(character.len_utf16());
        left = fits.unwrap_or(left);
        fits.is_none().then_some(index)
    });
    text.get(..end.unwrap_or(text.len())).unwrap_or(text)
}

/// The same, with `...` behind it when something was cut.
pub(crate) fn head_with_dots(text: &str, units: usize) -> String {
    let head = head(text, units);
    let dots = if head.len() < text.len() { "..." } else { "" };
    format!("{head}{dots}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_counted_and_pairs_are_kept_whole() {
        for (text, units, expected) in [
            ("", 5, ""),
            ("abc", 0, ""),
            ("abc", 2, "ab"),
            ("abc", 3, "abc"),
            ("äö", 1, "ä"),
            ("🚀x", 1, ""),
            ("🚀x", 2, "🚀"),
            ("a🚀x", 2, "a"),
            ("a🚀x", 3, "a🚀"),
            ("🚀🚀", 3, "🚀"),
        ] {
            assert_eq!(head(text, units), expected, "{text} {units}");
        }
        assert_eq!(head_with_dots("abcd", 3), "abc...");
        assert_eq!(head_with_dots("abc", 3), "abc");
    }
}
