//! Header templates: a text in which each `${NAME}` stands for an environment variable.
//!
//! There is no escape. `$NAME` is literal, `${}` and an unterminated `${` are errors, and so is a
//! value that brings a new `${` with it.

use bytes::Bytes;
use http::HeaderName;

use super::{HEADER_VALUE_BYTES_MAX, HeaderError, header_value, trim_blanks};
use crate::environment::Environment;
use crate::error_class::ErrorClass;

/// Most variables one template may allow.
const ALLOWED_MAX: usize = 100;

/// What is wrong with a template, whatever the environment holds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A `${` without its `}`, or one that came out of a value.
    #[error("unterminated ${{")]
    Unterminated,
    /// A name in the allow-list is no variable name, or the list is too long.
    #[error("the allow-list takes at most {ALLOWED_MAX} names of [A-Za-z_][A-Za-z0-9_]*")]
    AllowList,
    /// The text uses a variable that is not in the allow-list.
    #[error("a variable is used that is not in the allow-list")]
    NotAllowed,
    /// Hookstash's own settings are never sent.
    #[error("variable {0} is never sent")]
    Protected(String),
}

/// Why headers could not be made for an attempt. Names the header and the variable, never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// An allowed variable is not set here.
    #[error("header {header} needs variable {variable}, which is not set")]
    Missing {
        /// The header.
        header: HeaderName,
        /// The variable.
        variable: String,
    },
    /// The filled value is not a legal header value, or the template is not one.
    #[error(transparent)]
    Header(#[from] HeaderError),
}

impl ResolveError {
    /// The class recorded for the attempt.
    pub fn class(&self) -> ErrorClass {
        ErrorClass::Configuration
    }
}

/// Whether `name` can be a variable: `[A-Za-z_][A-Za-z0-9_]*`.
pub fn is_variable_name(name: &str) -> bool {
    let is_start = |first: u8| first.is_ascii_alphabetic() || first == b'_';
    name.bytes().next().is_some_and(is_start)
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Checks everything that does not depend on the environment.
pub(super) fn check(name: &HeaderName, text: &str, allowed: &[String]) -> Result<(), HeaderError> {
    let refused = |error| Err(HeaderError::Template(name.clone(), error));
    if allowed.len() > ALLOWED_MAX || !allowed.iter().all(|name| is_variable_name(name)) {
        return refused(TemplateError::AllowList);
    }
    if text.len() > HEADER_VALUE_BYTES_MAX {
        return Err(HeaderError::ValueTooLong(name.clone()));
    }
    let empty = |_: &str| Ok::<_, HeaderError>(String::new());
    fill(name, text, allowed, empty).map(|_| ())
}

/// The value of the template now.
pub(super) fn resolve(
    name: &HeaderName,
    text: &str,
    allowed: &[String],
    env: &dyn Environment,
) -> Result<Bytes, ResolveError> {
    fill(name, text, allowed, |variable| {
        env.get(variable).ok_or_else(|| ResolveError::Missing {
            header: name.clone(),
            variable: variable.to_owned(),
        })
    })
}

/// Replaces every `${NAME}` by what `value_of` says and checks the result.
fn fill<E: From<HeaderError>>(
    name: &HeaderName,
    text: &str,
    allowed: &[String],
    value_of: impl Fn(&str) -> Result<String, E>,
) -> Result<Bytes, E> {
    let refused = |error| HeaderError::Template(name.clone(), error);
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (variable, after) = after
            .split_once('}')
            .ok_or_else(|| refused(TemplateError::Unterminated))?;
        if !allowed.iter().any(|known| known == variable) {
            return Err(refused(TemplateError::NotAllowed).into());
        }
        if is_protected(variable) {
            return Err(refused(TemplateError::Protected(variable.to_owned())).into());
        }
        filled.push_str(before);
        filled.push_str(&value_of(variable)?);
        if filled.len() > 2 * HEADER_VALUE_BYTES_MAX {
            return Err(HeaderError::ValueTooLong(name.clone()).into());
        }
        rest = after;
    }
    filled.push_str(rest);
    if filled.contains("${") {
        return Err(refused(TemplateError::Unterminated).into());
    }
    let value = latin_1(&filled).ok_or_else(|| HeaderError::Value(name.clone()))?;
    let value = Bytes::from(value);
    let value = value.slice_ref(trim_blanks(&value));
    header_value(name, &value)?;
    Ok(value)
}

/// Variables that hold our own secrets.
fn is_protected(variable: &str) -> bool {
    variable.starts_with("HOOKSTASH_") || variable.starts_with("QSTASH_") || variable == "REDIS_URL"
}

/// One byte per character; `None` when one lies above U+00FF.
fn latin_1(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|char| u8::try_from(char).ok()).collect()
}
