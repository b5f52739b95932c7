//! Colours, where a person looks.

use std::io::IsTerminal as _;

use hookstash_shared::environment::Environment;

/// Paints, or leaves text as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    is_on: bool,
}

impl Paint {
    /// For standard output: colours on a terminal, unless `NO_COLOR` is set.
    pub(super) fn for_stdout(environment: &dyn Environment) -> Self {
        let is_unwanted = environment
            .get("NO_COLOR")
            .is_some_and(|value| !value.is_empty());
        Self {
            is_on: std::io::stdout().is_terminal() && !is_unwanted,
        }
    }

    pub(super) fn good(self, text: &str) -> String {
        self.with("32", text)
    }

    pub(super) fn bad(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(super) fn waiting(self, text: &str) -> String {
        self.with("33", text)
    }

    pub(super) fn strong(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(super) fn faint(self, text: &str) -> String {
        self.with("2", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.is_on {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Text of others without what a terminal would obey: control characters are escaped.
pub(super) fn harmless(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && !is_invisible(c);
    text.chars()
        .fold(String::with_capacity(text.len()), |mut shown, c| {
            if is_plain(c) {
                shown.push(c);
            } else {
                shown.extend(c.escape_default());
            }
            shown
        })
}

/// Characters that reorder or hide the text around them.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_obeys_nothing_in_a_text_of_others() {
        assert_eq!(
            harmless("a\x1b[31m\r\nb\u{202e}c ü 漢"),
            "a\\u{1b}[31m\\r\\nb\\u{202e}c ü 漢"
        );
    }
}
