//! The small words of a message: method, fallback, retry delay, flow limits, redaction.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::headers::HEADER_NAME_BYTES_MAX;
use crate::retry::expression::{Expression, ExpressionError};

/// The HTTP method of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// `GET`
    Get,
    /// `POST`, the default.
    #[default]
    Post,
    /// `PUT`
    Put,
    /// `PATCH`
    Patch,
    /// `DELETE`
    Delete,
}

/// A method that deliveries do not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid Upstash-Method: expected GET, POST, PUT, PATCH or DELETE")]
pub struct UnknownMethod;

impl Method {
    /// The method as sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

impl FromStr for Method {
    type Err = UnknownMethod;

    /// Reads a method in any case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        [Self::Get, Self::Post, Self::Put, Self::Patch, Self::Delete]
            .into_iter()
            .find(|method| text.eq_ignore_ascii_case(method.as_str()))
            .ok_or(UnknownMethod)
    }
}

impl From<Method> for http::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Get => Self::GET,
            Method::Post => Self::POST,
            Method::Put => Self::PUT,
            Method::Patch => Self::PATCH,
            Method::Delete => Self::DELETE,
        }
    }
}

/// What to do when a message cannot be sent as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fallback {
    /// Send it directly, unsigned: the default.
    #[default]
    Fetch,
    /// Do not send it.
    None,
}

/// A retry-delay expression as a message carries it: stored as its text, checked when read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RetryDelay(Expression);

impl Eq for RetryDelay {}

impl RetryDelay {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        Expression::parse(text).map(Self)
    }

    /// The expression, to be evaluated.
    pub fn expression(&self) -> &Expression {
        &self.0
    }

    /// The expression as published.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl TryFrom<String> for RetryDelay {
    type Error = ExpressionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<RetryDelay> for String {
    fn from(delay: RetryDelay) -> Self {
        delay.as_str().to_owned()
    }
}

/// What a flow-control key allows. At least one of `parallelism` and `rate` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowLimits {
    /// Most calls in flight; absent = no cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    /// Most calls started per period; absent = no rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// The period of `rate` in milliseconds, `1..=7 days`.
    pub period_ms: u64,
}

/// One of the destinations of a URL group, as a message to it names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEndpoint {
    /// The group.
    pub group: String,
    /// The endpoint's name; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A part of a message that views show only as a hash. Written `body`, `header` (or `headers`), or
/// `header[Name]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum RedactField {
    /// The body.
    Body,
    /// Every header.
    Headers,
    /// The header of this name, in lower case.
    Header(String),
}

/// A text that names nothing that can be redacted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid Upstash-Redact-Fields: expected body, header or header[Name]")]
pub struct UnknownField;

impl FromStr for RedactField {
    type Err = UnknownField;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = |prefix| text.strip_prefix(prefix)?.strip_suffix(']');
        match text {
            "body" => Ok(Self::Body),
            "header" | "headers" => Ok(Self::Headers),
            _ => named("header[")
                .or_else(|| named("headers["))
                .filter(|name| name.len() <= HEADER_NAME_BYTES_MAX)
                .filter(|name| http::HeaderName::from_bytes(name.as_bytes()).is_ok())
                .map(|name| Self::Header(name.to_ascii_lowercase()))
                .ok_or(UnknownField),
        }
    }
}

impl TryFrom<String> for RedactField {
    type Error = UnknownField;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<RedactField> for String {
    fn from(field: RedactField) -> Self {
        field.to_string()
    }
}

impl fmt::Display for RedactField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => f.write_str("body"),
            Self::Headers => f.write_str("header"),
            Self::Header(name) => write!(f, "header[{name}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_read_in_any_case_and_no_other_is_taken() {
        assert_eq!("get".parse(), Ok(Method::Get));
        assert_eq!("DELETE".parse(), Ok(Method::Delete));
        for other in ["", "HEAD", "CONNECT", "POST "] {
            assert!(other.parse::<Method>().is_err(), "{other}");
        }
    }

    #[test]
    fn both_spellings_of_redacted_headers_are_read() {
        assert_eq!("body".parse(), Ok(RedactField::Body));
        assert_eq!("header".parse(), Ok(RedactField::Headers));
        assert_eq!("headers".parse(), Ok(RedactField::Headers));
        let named = Ok(RedactField::Header("x-key".into()));
        assert_eq!("header[X-Key]".parse(), named);
        assert_eq!("headers[x-key]".parse(), named);
        for other in ["", "bodyy", "header[]", "header[a b]", "header[a"] {
            assert!(other.parse::<RedactField>().is_err(), "{other}");
        }
    }
}
