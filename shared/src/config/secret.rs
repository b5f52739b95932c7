//! Secrets: what a value must not be.

use secrecy::SecretString;

/// Why a text is not taken as a secret. The text is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum SecretError {
    #[error("is blank: give it a value or leave it unset")]
    Blank,
    #[error("still holds a placeholder: give it a value of your own")]
    Placeholder,
    #[error("has a blank or a control character in or around it, or one beyond ASCII")]
    Character,
}

/// Texts that example files leave for their reader to replace.
const PLACEHOLDERS: [&str; 9] = [
    "change-me",
    "change_me",
    "changeme",
    "replace-me",
    "replace_me",
    "replaceme",
    "insert-",
    "placeholder",
    "example",
];
const PLACEHOLDER_STARTS: [&str; 4] = ["your-", "your_", "<", "${"];
const PLACEHOLDER_WORDS: [&str; 5] = ["secret", "token", "password", "todo", "xxx"];

/// Takes `text` as a secret, exactly as it is.
pub(super) fn parse(text: &str) -> Result<SecretString, SecretError> {
    let lower = text.trim().to_ascii_lowercase();
    if lower.is_empty() {
        Err(SecretError::Blank)
    } else if is_placeholder(&lower) {
        Err(SecretError::Placeholder)
    } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Err(SecretError::Character)
    } else {
        Ok(text.into())
    }
}

fn is_placeholder(lower: &str) -> bool {
    PLACEHOLDERS.iter().any(|text| lower.contains(text))
        || PLACEHOLDER_STARTS
            .iter()
            .any(|text| lower.starts_with(text))
        || PLACEHOLDER_WORDS.contains(&lower)
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn s10_blank_secrets_are_refused() {
        for text in ["", " ", "\t\n"] {
            assert_eq!(parse(text).unwrap_err(), SecretError::Blank);
        }
    }

    #[test]
    fn placeholders_left_in_are_refused() {
        for text in [
            "<insert-token>",
            "<your token>",
            "change-me",
            "ChangeMe123",
            "please_change_me",
            "your-token-here",
            "${QSTASH_TOKEN}",
            "SECRET",
            "insert-your-key",
        ] {
            assert_eq!(parse(text).unwrap_err(), SecretError::Placeholder, "{text}");
        }
    }

    #[test]
    fn real_values_are_taken_exactly() {
        for text in [
            "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=",
            "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "a/b+c=,#\"",
        ] {
            assert_eq!(parse(text).unwrap().expose_secret(), text);
        }
        for text in ["a b", "a1\n", " a1", "schlüssel"] {
            assert_eq!(parse(text).unwrap_err(), SecretError::Character, "{text}");
        }
    }
}
