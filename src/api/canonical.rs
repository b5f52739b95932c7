//! Header names as clients expect them in JSON: `Content-Type`, whatever case they came in.

/// `name` with an upper-case letter at its beginning and after every hyphen.
pub(super) fn canonical(name: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
