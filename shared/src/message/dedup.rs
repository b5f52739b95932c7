//! Deduplication ids: given by the caller, or made from the content.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::headers::{HeaderSource, Headers};

/// Longest deduplication id in bytes.
pub const DEDUP_ID_BYTES_MAX: usize = 1024;

/// A deduplication id: 1 to 1024 bytes without `:`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DedupId(Arc<str>);

/// Why a text is no deduplication id. The first message is part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DedupError {
    /// It holds a `:`.
    #[error("DeduplicationId cannot contain ':'")]
    Colon,
    /// It is empty or longer than [`DEDUP_ID_BYTES_MAX`].
    #[error("DeduplicationId must have 1 to {DEDUP_ID_BYTES_MAX} bytes")]
    Length,
}

impl DedupId {
    /// Checks an id given by a caller.
    pub fn parse(text: &str) -> Result<Self, DedupError> {
        if text.contains(':') {
            Err(DedupError::Colon)
        } else if (1..=DEDUP_ID_BYTES_MAX).contains(&text.len()) {
            Ok(Self(text.into()))
        } else {
            Err(DedupError::Length)
        }
    }

    /// The id of a content: SHA-256, in hexadecimal, of destination (a URL or a URL group), body and headers (which
    /// include `Content-Type`). The order of headers of different names does not matter.
    pub fn of_content(destination: &str, headers: &Headers, body: &[u8]) -> Self {
        let mut hash = Sha256::new();
        // Each part is preceded by its length, so that no two contents run together alike.
        let mut add = |part: &[u8]| {
            hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(part);
        };
        add(destination.as_bytes());
        add(body);
        let mut sorted: Vec<_> = headers.iter().collect();
        sorted.sort_by_key(|(name, _)| name.as_str());
        for (name, source) in sorted {
            add(name.as_str().as_bytes());
            match source {
                HeaderSource::Literal(value) => add(value),
                HeaderSource::Template { text, .. } => add(text.as_bytes()),
            }
        }
        Self(hex(&hash.finalize()).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

impl TryFrom<String> for DedupId {
    type Error = DedupError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<DedupId> for String {
    fn from(id: DedupId) -> Self {
        id.as_str().to_owned()
    }
}

impl fmt::Debug for DedupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Destination;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in pairs {
            headers
                .append(name.as_bytes(), HeaderSource::literal(value))
                .unwrap();
        }
        headers
    }

    #[test]
    fn a_colon_gets_the_exact_text() {
        let error = DedupId::parse("a:b").unwrap_err();
        assert_eq!(error.to_string(), "DeduplicationId cannot contain ':'");
    }

    #[test]
    fn lengths_have_bounds() {
        assert_eq!(DedupId::parse(""), Err(DedupError::Length));
        assert!(DedupId::parse(&"x".repeat(1024)).is_ok());
        assert_eq!(DedupId::parse(&"x".repeat(1025)), Err(DedupError::Length));
    }

    #[test]
    fn the_id_of_a_content_changes_with_every_part_of_it() {
        let to = |url| Destination::parse(url).unwrap();
        let base = (
            to("http://h/a"),
            headers(&[("content-type", "a"), ("x", "1")]),
            b"body",
        );
        let id = DedupId::of_content(base.0.as_str(), &base.1, base.2);
        assert_eq!(id.as_str().len(), 64);
        let reordered = headers(&[("x", "1"), ("content-type", "a")]);
        assert_eq!(id, DedupId::of_content(base.0.as_str(), &reordered, base.2));
        for other in [
            DedupId::of_content(to("http://h/b").as_str(), &base.1, base.2),
            DedupId::of_content(base.0.as_str(), &base.1, b"other"),
            DedupId::of_content(
                base.0.as_str(),
                &headers(&[("content-type", "b"), ("x", "1")]),
                base.2,
            ),
            DedupId::of_content(
                base.0.as_str(),
                &headers(&[("content-type", "a"), ("x", "2")]),
                base.2,
            ),
            DedupId::of_content(base.0.as_str(), &headers(&[("content-type", "a")]), base.2),
        ] {
            assert_ne!(id, other);
        }
    }
}
