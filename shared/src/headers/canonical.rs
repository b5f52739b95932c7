//! Headers as clients expect them in JSON: names in one case (`Content-Type`), values as text.

/// `name` with an upper-case letter at its beginning and after every hyphen.
pub fn canonical(name: &str) -> String {
    let mut starts_word = true;
    name.chars()
        .map(|c| {
            let shown = if starts_word {
                c.to_ascii_uppercase()
            } else {
                c.to_ascii_lowercase()
            };
            starts_word = c == '-';
            shown
        })
        .collect()
}

/// The text of a header's value. Bytes that are not UTF-8 are shown as Latin-1, as HTTP reads them.
pub fn value_text(value: &[u8]) -> String {
    match std::str::from_utf8(value) {
        Ok(text) => text.to_owned(),
        Err(_) => value.iter().map(|byte| char::from(*byte)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_text_whatever_their_bytes() {
        assert_eq!(value_text("ü".as_bytes()), "ü");
        assert_eq!(value_text(b"caf\xe9"), "café");
    }

    #[test]
    fn names_are_shown_in_mime_case() {
        for (name, shown) in [
            ("content-type", "Content-Type"),
            ("TEST-header", "Test-Header"),
            ("etag", "Etag"),
            ("x--y-", "X--Y-"),
        ] {
            assert_eq!(canonical(name), shown);
        }
    }
}
