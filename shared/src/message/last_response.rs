//! Why a dead letter died: the last answer, or the error that stood in its place.
//!
//! `HR1:` + header length + JSON header + the response's body, cut at a limit.

use std::fmt;

use bytes::Bytes;
use http::HeaderMap;
use serde::{Deserialize, Serialize};

use super::envelope::EnvelopeError;
use super::framing;
use crate::error_class::ErrorClass;
use crate::headers::Headers;

/// Most bytes of a response's body that are kept.
pub const RESPONSE_BODY_BYTES_MAX: usize = 64 * 1024;
const ERROR_BYTES_MAX: usize = 1024;
const VERSION: [u8; 4] = *b"HR1:";

/// The last answer that a message got.
#[derive(Clone, PartialEq, Eq)]
pub struct LastResponse {
    header: ResponseHeader,
    body: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ResponseHeader {
    #[serde(default, skip_serializing_if = "framing::is_default")]
    status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<ErrorClass>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    #[serde(default, skip_serializing_if = "framing::is_default")]
    truncated: bool,
}

impl LastResponse {
    /// A failure without an answer.
    pub fn without_answer(class: ErrorClass, error: &str) -> Self {
        Self {
            header: ResponseHeader {
                status: 0,
                class: Some(class),
                error: cut(error),
                headers: Headers::default(),
                truncated: false,
            },
            body: Bytes::new(),
        }
    }

    /// An answer with its headers and the beginning of its body. `more` says that the body was
    /// longer than `body`. At most [`RESPONSE_BODY_BYTES_MAX`] bytes are kept.
    pub fn answer(status: u16, headers: &HeaderMap, body: &Bytes, more: bool) -> Self {
        let kept = body.len().min(RESPONSE_BODY_BYTES_MAX);
        Self {
            header: ResponseHeader {
                status,
                class: None,
                error: String::new(),
                headers: Headers::kept_from(headers),
                truncated: more || kept < body.len(),
            },
            body: body.slice(..kept),
        }
    }

    /// The same with the class and the text of an error, cut at 1 KiB.
    #[must_use]
    pub fn with_error(mut self, class: ErrorClass, error: &str) -> Self {
        self.header.class = Some(class);
        self.header.error = cut(error);
        self
    }

    /// The status, 0 when there was no answer.
    pub fn status(&self) -> u16 {
        self.header.status
    }

    /// The class of the failure; `None` when it was not recorded.
    pub fn class(&self) -> Option<ErrorClass> {
        self.header.class
    }

    /// The text of the error; empty when there was none.
    pub fn error(&self) -> &str {
        &self.header.error
    }

    /// The answer's headers, as many as the limits allow.
    pub fn headers(&self) -> &Headers {
        &self.header.headers
    }

    /// The beginning of the answer's body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Whether the body was longer.
    pub fn is_truncated(&self) -> bool {
        self.header.truncated
    }

    /// The bytes to store under `r:<id>`.
    pub fn encode(&self) -> Result<Bytes, EnvelopeError> {
        Ok(framing::write(VERSION, &self.header, &self.body)?)
    }

    /// Reads what [`Self::encode`] wrote. Anything else is an error, never a panic.
    pub fn decode(value: &Bytes) -> Result<Self, EnvelopeError> {
        let (header, body) = framing::read(VERSION, value)?;
        Ok(Self { header, body })
    }
}

/// The beginning of `text`, cut between characters.
fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(ERROR_BYTES_MAX);
    text.get(..end).unwrap_or_default().to_owned()
}

/// Shows the size of the body, not the body.
impl fmt::Debug for LastResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastResponse")
            .field("header", &self.header)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_answer_comes_back_cut_at_the_limit() {
        let mut headers = HeaderMap::new();
        headers.append(header::SET_COOKIE, HeaderValue::from_static("a"));
        headers.append(
            header::SET_COOKIE,
            HeaderValue::from_bytes(b"\xff").unwrap(),
        );
        let body = Bytes::from(vec![7; RESPONSE_BODY_BYTES_MAX + 1]);
        let last = LastResponse::answer(500, &headers, &body, false)
            .with_error(ErrorClass::Status, "status 500");
        let read = LastResponse::decode(&last.encode().unwrap()).unwrap();
        assert_eq!(read, last);
        assert_eq!(
            (read.status(), read.class()),
            (500, Some(ErrorClass::Status))
        );
        assert_eq!(read.body().len(), RESPONSE_BODY_BYTES_MAX);
        assert!(read.is_truncated());
        assert_eq!(read.headers().len(), 2);
    }

    #[test]
    fn a_failure_without_answer_has_status_0_and_a_bounded_text() {
        let last = LastResponse::without_answer(ErrorClass::Timeout, &"é".repeat(9_999));
        let read = LastResponse::decode(&last.encode().unwrap()).unwrap();
        assert_eq!((read.status(), read.error().len()), (0, 1024));
        assert!(!read.is_truncated());
    }

    #[test]
    fn a_response_with_too_many_headers_keeps_the_first_ones() {
        let mut headers = HeaderMap::new();
        for _ in 0..500 {
            headers.append(header::VIA, HeaderValue::from_static("x"));
        }
        let last = LastResponse::answer(200, &headers, &Bytes::new(), true);
        assert_eq!(last.headers().len(), crate::headers::HEADERS_MAX);
        assert!(last.is_truncated());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let framed = [b"HR1:0000000a", bytes.as_slice()].concat();
            let _ = LastResponse::decode(&Bytes::from(bytes));
            let _ = LastResponse::decode(&Bytes::from(framed));
        }
    }
}
