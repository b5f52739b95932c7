//! The one boolean grammar: HTTP headers, settings and flags all read it here.

/// Why a text is not a boolean. The text itself is not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BooleanError {
    /// Nothing but white space: an unset value must be left out instead.
    #[error("a boolean is empty (write true, 1, yes, on, false, 0, no or off)")]
    Empty,
    /// Any other text.
    #[error("a boolean is none of true, 1, yes, on, false, 0, no, off")]
    Unknown,
}

/// Reads `true 1 yes on` and `false 0 no off`, in any case and with space around them.
pub fn parse(text: &str) -> Result<bool, BooleanError> {
    let text = text.trim();
    let is_one_of = |words: [&str; 4]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
    if text.is_empty() {
        Err(BooleanError::Empty)
    } else if is_one_of(["true", "1", "yes", "on"]) {
        Ok(true)
    } else if is_one_of(["false", "0", "no", "off"]) {
        Ok(false)
    } else {
        Err(BooleanError::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g06_true_and_false_are_read_as_such_in_every_spelling() {
        for text in ["true", "True", "TRUE", "1", "yes", "Yes", "on", " on\t"] {
            assert_eq!(parse(text), Ok(true), "{text}");
        }
        for text in ["false", "False", "0", "no", "NO", "off", " Off "] {
            assert_eq!(parse(text), Ok(false), "{text}");
        }
    }

    #[test]
    fn g06_an_empty_or_unknown_word_is_refused_and_not_taken_as_true() {
        for text in ["", "  ", "\t"] {
            assert_eq!(parse(text), Err(BooleanError::Empty), "{text:?}");
        }
        for text in ["t", "y", "2", "01", "truе", "true false", "null", "-1"] {
            assert_eq!(parse(text), Err(BooleanError::Unknown), "{text:?}");
        }
    }
}
