//! Headers that a message carries to its destination: literal bytes, or templates that the sender
//! fills from its own environment at every attempt, so that no secret is stored.
//!
//! Checked when the message is accepted, so that a message which could never be sent is refused
//! while its publisher still listens.

pub mod canonical;
mod reserved;
mod template;
mod wire;

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

pub use reserved::{is_forbidden_in_hooks, is_reserved};
pub use template::{ResolveError, TemplateError, is_variable_name};

use crate::environment::Environment;
use wire::WireHeader;

/// Most headers of one message.
pub const HEADERS_MAX: usize = 100;
/// Longest header name in bytes.
pub const HEADER_NAME_BYTES_MAX: usize = 256;
/// Longest header value or template in bytes: the limit of common HTTP servers.
pub const HEADER_VALUE_BYTES_MAX: usize = 8 * 1024;
/// Most bytes of all names, values, templates and allow-lists together.
pub const HEADERS_BYTES_MAX: usize = 64 * 1024;

/// Where a header's value comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum HeaderSource {
    /// These bytes, sent as they are: visible ASCII, blanks and tabs inside, bytes above 127.
    Literal(Bytes),
    /// A text in which each `${NAME}` stands for a variable of the sender's environment.
    /// `$NAME` without braces is literal.
    Template {
        /// The text. Its characters up to U+00FF are sent as one byte each; others are refused.
        text: String,
        /// The only variables the text may use.
        allowed_env_vars: Vec<String>,
    },
}

impl HeaderSource {
    /// A literal value.
    pub fn literal(value: impl AsRef<[u8]>) -> Self {
        Self::Literal(Bytes::copy_from_slice(value.as_ref()))
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Literal(value) => value.len(),
            Self::Template {
                text,
                allowed_env_vars,
            } => text.len() + allowed_env_vars.iter().map(String::len).sum::<usize>(),
        }
    }
}

/// Shows the kind, never the value.
impl fmt::Debug for HeaderSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(value) => write!(f, "Literal({} bytes)", value.len()),
            Self::Template { text, .. } => write!(f, "Template({} bytes)", text.len()),
        }
    }
}

/// Why a header is refused. Every message names the header and none shows its value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The name is no token (RFC 9110, section 5.6.2) or longer than [`HEADER_NAME_BYTES_MAX`].
    #[error("invalid header name {0:?}: expected 1 to {HEADER_NAME_BYTES_MAX} token characters")]
    Name(String),
    /// The name belongs to the delivery itself.
    #[error("header {0} is set by the delivery and cannot be given")]
    Reserved(HeaderName),
    /// The value holds a line break, another control character, or a character above U+00FF.
    #[error("invalid value of header {0}: it holds a character that HTTP does not allow")]
    Value(HeaderName),
    /// The value is longer than [`HEADER_VALUE_BYTES_MAX`].
    #[error("value of header {0} is longer than {HEADER_VALUE_BYTES_MAX} bytes")]
    ValueTooLong(HeaderName),
    /// The message has more than [`HEADERS_MAX`] headers; this one is the first above.
    #[error("header {0} is one too many: a message has at most {HEADERS_MAX} headers")]
    TooMany(HeaderName),
    /// The headers together pass [`HEADERS_BYTES_MAX`] with this one.
    #[error("header {0} makes the headers larger than {HEADERS_BYTES_MAX} bytes")]
    TooLarge(HeaderName),
    /// A template is written wrongly.
    #[error("invalid template of header {0}: {1}")]
    Template(HeaderName, TemplateError),
}

/// An ordered list of checked headers. Names are lower case and may repeat.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<WireHeader>", into = "Vec<WireHeader>")]
pub struct Headers(Vec<(HeaderName, HeaderSource)>);

impl Headers {
    /// Adds a header after those already there, keeping others of the same name. Blanks around a
    /// literal value are removed.
    pub fn append(&mut self, name: &[u8], source: HeaderSource) -> Result<(), HeaderError> {
        let (name, source) = check(name, source)?;
        if self.0.len() >= HEADERS_MAX {
            return Err(HeaderError::TooMany(name));
        }
        let bytes = name.as_str().len() + source.bytes() + self.bytes();
        if bytes > HEADERS_BYTES_MAX {
            return Err(HeaderError::TooLarge(name));
        }
        self.0.push((name, source));
        Ok(())
    }

    /// Adds a header in place of all others of its name. Nothing changes when it is refused for
    /// itself.
    pub fn set(&mut self, name: &[u8], source: HeaderSource) -> Result<(), HeaderError> {
        let (checked, source) = check(name, source)?;
        self.0.retain(|(other, _)| *other != checked);
        self.append(name, source)
    }

    /// As many of a response's headers as the limits allow, in their order.
    pub fn kept_from(response: &HeaderMap) -> Self {
        let mut kept = Self::default();
        for (name, value) in response {
            if kept
                .append(name.as_str().as_bytes(), HeaderSource::literal(value))
                .is_err()
            {
                tracing::debug!(%name, "a response header is not kept: limits");
            }
        }
        kept
    }

    /// The headers in order.
    pub fn iter(&self) -> impl Iterator<Item = (&HeaderName, &HeaderSource)> {
        self.0.iter().map(|(name, source)| (name, source))
    }

    /// The headers by canonical name, each with the values that `show` makes of it, in order. A
    /// template is shown as its text, never filled.
    pub fn grouped(
        &self,
        show: impl Fn(&HeaderName, &[u8]) -> String,
    ) -> serde_json::Map<String, serde_json::Value> {
        let mut grouped: serde_json::Map<String, serde_json::Value> = serde_json::Map::new();
        for (name, source) in self.iter() {
            let value = match source {
                HeaderSource::Literal(value) => value.as_ref(),
                HeaderSource::Template { text, .. } => text.as_bytes(),
            };
            let values = grouped
                .entry(canonical::canonical(name.as_str()))
                .or_insert_with(|| serde_json::Value::Array(Vec::new()));
            if let serde_json::Value::Array(values) = values {
                values.push(show(name, value).into());
            }
        }
        grouped
    }

    /// The first header of this name.
    pub fn get(&self, name: &HeaderName) -> Option<&HeaderSource> {
        self.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, source)| source)
    }

    /// Whether there is no header.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many headers there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The headers to send now: templates are filled from `env`, and the results are checked like
    /// literals. The values are marked sensitive, so that they are not printed.
    pub fn resolve(&self, env: &dyn Environment) -> Result<HeaderMap, ResolveError> {
        let mut resolved = HeaderMap::with_capacity(self.len());
        let mut bytes = 0;
        for (name, source) in self.iter() {
            let value = match source {
                HeaderSource::Literal(value) => value.clone(),
                HeaderSource::Template {
                    text,
                    allowed_env_vars,
                } => template::resolve(name, text, allowed_env_vars, env)?,
            };
            let mut value = header_value(name, &value)?;
            value.set_sensitive(true);
            bytes += name.as_str().len() + value.len();
            if bytes > HEADERS_BYTES_MAX {
                return Err(HeaderError::TooLarge(name.clone()).into());
            }
            resolved.append(name, value);
        }
        Ok(resolved)
    }

    fn bytes(&self) -> usize {
        self.iter()
            .map(|(name, source)| name.as_str().len() + source.bytes())
            .sum()
    }
}

/// Shows names, never values.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// One header by itself: its name, and its value without surrounding blanks.
fn check(name: &[u8], source: HeaderSource) -> Result<(HeaderName, HeaderSource), HeaderError> {
    let name = header_name(name)?;
    let source = match source {
        HeaderSource::Literal(value) => {
            let value = value.slice_ref(trim_blanks(&value));
            header_value(&name, &value)?;
            HeaderSource::Literal(value)
        }
        HeaderSource::Template {
            text,
            allowed_env_vars,
        } => {
            template::check(&name, &text, &allowed_env_vars)?;
            HeaderSource::Template {
                text,
                allowed_env_vars,
            }
        }
    };
    Ok((name, source))
}

/// Reads a header name: a token of at most [`HEADER_NAME_BYTES_MAX`] bytes.
fn header_name(name: &[u8]) -> Result<HeaderName, HeaderError> {
    const SHOWN_CHARS: usize = 64;
    let refused = || {
        let shown = String::from_utf8_lossy(name)
            .chars()
            .take(SHOWN_CHARS)
            .collect();
        HeaderError::Name(shown)
    };
    if name.len() > HEADER_NAME_BYTES_MAX {
        return Err(refused());
    }
    HeaderName::from_bytes(name).map_err(|_| refused())
}

/// Reads a header value without surrounding blanks.
fn header_value(name: &HeaderName, value: &[u8]) -> Result<HeaderValue, HeaderError> {
    if value.len() > HEADER_VALUE_BYTES_MAX {
        return Err(HeaderError::ValueTooLong(name.clone()));
    }
    HeaderValue::from_bytes(value).map_err(|_| HeaderError::Value(name.clone()))
}

/// `value` without blanks and tabs at its ends.
fn trim_blanks(value: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().take_while(|byte| is_blank(byte)).count();
    let rest = value.get(start..).unwrap_or_default();
    let end = rest.iter().rev().take_while(|byte| is_blank(byte)).count();
    rest.get(..rest.len().saturating_sub(end))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
