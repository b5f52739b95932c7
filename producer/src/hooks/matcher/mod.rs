//! Which tool calls a hook is for: a regular expression in JavaScript's dialect, searched for in
//! `identifier/apiName`.
//!
//! `regress` judges the syntax and never matches, because its time can grow exponentially. A valid
//! pattern is read again here and written anew for engines whose time is bounded, so that every
//! construct means what it means in JavaScript, down to matching UTF-16 code units; what cannot be
//! rewritten is refused by name. Without look-around and back-references `regex` matches in linear
//! time; otherwise `fancy-regex` does, with a limit on backtracking.

mod emit;
mod escape;
mod groups;
mod parse;
mod set;
mod units;

use std::fmt;

use units::Units;

/// Longest pattern in characters.
pub const PATTERN_CHARS_MAX: usize = 1_000;
/// Longest `identifier/apiName` in bytes.
pub const SUBJECT_BYTES_MAX: usize = 4 * 1024;
/// Steps of backtracking before a match is given up.
const BACKTRACK_MAX: usize = 100_000;
/// Largest compiled pattern in bytes: an operation may have a thousand of them.
const COMPILED_BYTES_MAX: usize = 256 * 1024;

/// Why a pattern is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A matcher is a text.
    #[error("a matcher is a string")]
    NotAString,
    /// It is longer than [`PATTERN_CHARS_MAX`].
    #[error("it is longer than {PATTERN_CHARS_MAX} characters")]
    TooLong,
    /// It does not parse as a regular expression of JavaScript.
    #[error("{0}")]
    Syntax(String),
    /// It is valid in JavaScript, but cannot be matched here in bounded time with the same meaning.
    #[error("{what} at character {position} is not supported")]
    Unsupported {
        /// The construct.
        what: &'static str,
        /// Where it is, counted from 0 in UTF-16 code units.
        position: usize,
    },
    /// Compiled, it would need too much memory.
    #[error("it is too large when compiled")]
    TooLarge,
}

/// A match was given up: neither "matches" nor "does not".
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MatchError {
    #[error("the tool's name is longer than {SUBJECT_BYTES_MAX} bytes")]
    SubjectTooLong,
    #[error("the matcher needs too many steps")]
    TooManySteps,
}

/// Compiled once, when its hook is registered. Clones share what was compiled.
#[derive(Clone)]
pub(crate) enum Matcher {
    /// Absent, empty, or `*`.
    Everything,
    Linear(regex::Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

impl Matcher {
    /// # Errors
    /// See [`PatternError`].
    pub(crate) fn parse(pattern: &str) -> Result<Self, PatternError> {
        if pattern.is_empty() || pattern == "*" {
            return Ok(Self::Everything);
        }
        // A character has at most four bytes: a huge text is not even counted.
        if pattern.len() > 4 * PATTERN_CHARS_MAX || pattern.chars().count() > PATTERN_CHARS_MAX {
            return Err(PatternError::TooLong);
        }
        let units: Vec<u16> = pattern.encode_utf16().collect();
        groups::check_nesting(&units)?;
        judge(pattern)?;
        let node = parse::parse(&units)?;
        let node = groups::resolve(node)?;
        if node.needs_backtracking() {
            fancy_regex::RegexBuilder::new(&emit::for_backtracking(&node))
                .backtrack_limit(BACKTRACK_MAX)
                .delegate_size_limit(COMPILED_BYTES_MAX)
                .delegate_dfa_size_limit(COMPILED_BYTES_MAX)
                .max_prog_size(COMPILED_BYTES_MAX / 64)
                .build()
                .map(|regex| Self::Backtracking(Box::new(regex)))
                .map_err(|error| uncompiled(&error))
        } else {
            regex::RegexBuilder::new(&emit::for_linear(&node))
                .size_limit(COMPILED_BYTES_MAX)
                .dfa_size_limit(COMPILED_BYTES_MAX)
                .build()
                .map(Self::Linear)
                .map_err(|_| PatternError::TooLarge)
        }
    }

    /// Whether `tool`, an identifier and a function, matches. An event without one matches only
    /// [`Matcher::Everything`].
    ///
    /// # Errors
    /// A limit was hit, and it is unknown.
    pub(crate) fn matches(&self, tool: Option<(&str, &str)>) -> Result<bool, MatchError> {
        if matches!(self, Self::Everything) {
            return Ok(true);
        }
        let Some((identifier, api_name)) = tool else {
            return Ok(false);
        };
        if identifier.len() + 1 + api_name.len() > SUBJECT_BYTES_MAX {
            return Err(MatchError::SubjectTooLong);
        }
        let subject = format!("{identifier}/{api_name}");
        let subject = Units::of(&subject);
        match self {
            Self::Everything => Ok(true),
            Self::Linear(regex) => Ok(regex.is_match(subject.as_str())),
            Self::Backtracking(regex) => regex
                .is_match(subject.as_str())
                .map_err(|_| MatchError::TooManySteps),
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Everything => "Everything",
            Self::Linear(_) => "Linear",
            Self::Backtracking(_) => "Backtracking",
        })
    }
}

fn uncompiled(error: &fancy_regex::Error) -> PatternError {
    use fancy_regex::{CompileError, Error};
    let what = "the combination of look-around and back-references";
    match error {
        Error::CompileError(error) => match &**error {
            CompileError::InnerError(_)
            | CompileError::DfaBuildError(..)
            | CompileError::PatternTooComplex => PatternError::TooLarge,
            _ => PatternError::Unsupported { what, position: 0 },
        },
        _ => PatternError::Unsupported { what, position: 0 },
    }
}

/// Whether JavaScript takes the pattern, without flags.
fn judge(pattern: &str) -> Result<(), PatternError> {
    let flags = regress::Flags {
        no_opt: true,
        ..regress::Flags::default()
    };
    match regress::Regex::with_flags(pattern, flags) {
        Ok(_) => Ok(()),
        Err(error) => Err(PatternError::Syntax(error.text)),
    }
}

#[cfg(test)]
mod tests;
