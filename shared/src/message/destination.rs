//! Where a message goes: the URL exactly as it was published.
//!
//! The receiver compares the signature's `sub` claim with its own URL byte by byte, so nothing is
//! normalised: no case, no default port, no percent-encoding, no trailing slash.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use url::Url;

use super::lane::Lane;
use crate::telemetry::MaskedUrl;

/// The longest destination in bytes: what common HTTP servers take as a request line.
pub const DESTINATION_BYTES_MAX: usize = 8 * 1024;

/// A valid `http` or `https` URL with a host. Cheap to clone. Its `Debug` hides user name,
/// password and query.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Destination {
    text: Arc<str>,
    host: Lane,
}

/// Why a text is no destination. The messages are part of the protocol: clients match on them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// It does not start with `http://` or `https://`.
    #[error("invalid destination url: endpoint has invalid scheme, add http:// or https://")]
    Scheme,
    /// It is longer than [`DESTINATION_BYTES_MAX`].
    #[error("invalid destination url: longer than {DESTINATION_BYTES_MAX} bytes")]
    TooLong,
    /// It starts or ends with a blank or holds a control character.
    #[error("invalid destination url: control characters and surrounding blanks are not allowed")]
    Control,
    /// It does not parse as a URL with a host.
    #[error("invalid destination url: {0}")]
    Syntax(String),
}

impl Destination {
    /// Checks `text` and keeps it byte for byte. A fragment is cut off: it is never sent, and the
    /// receiver never sees it.
    pub fn parse(text: &str) -> Result<Self, DestinationError> {
        let text = text.split_once('#').map_or(text, |(before, _)| before);
        if !has_http_scheme(text) {
            return Err(DestinationError::Scheme);
        }
        if text.len() > DESTINATION_BYTES_MAX {
            return Err(DestinationError::TooLong);
        }
        if text.chars().any(char::is_control) || text.trim().len() != text.len() {
            return Err(DestinationError::Control);
        }
        let url = Url::parse(text).map_err(|error| DestinationError::Syntax(error.to_string()))?;
        let name = url.host_str().unwrap_or_default().to_ascii_lowercase();
        let host = match url.port() {
            Some(port) => format!("{name}:{port}"),
            None => name,
        };
        let host =
            Lane::host(&host).map_err(|error| DestinationError::Syntax(error.to_string()))?;
        Ok(Self {
            text: text.into(),
            host,
        })
    }

    /// The URL as published.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The lane of the destination's host: lower-case host, with the port unless it is the
    /// scheme's own.
    pub fn host_lane(&self) -> &Lane {
        &self.host
    }
}

fn has_http_scheme(text: &str) -> bool {
    ["http://", "https://"].iter().any(|scheme| {
        text.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    })
}

impl PartialEq for Destination {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Destination {}

impl TryFrom<String> for Destination {
    type Error = DestinationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Destination> for String {
    fn from(destination: Destination) -> Self {
        destination.as_str().to_owned()
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&MaskedUrl(&self.text), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s12_the_url_is_kept_byte_for_byte() {
        for text in [
            "https://h/p",
            "https://h/p?x=1&y=%20",
            "https://H/p",
            "https://h:443/p",
            "https://h/p/",
            "https://h",
            "https://h/ü",
            "http://h//a/../b?",
            "HTTPS://h/p",
            "http://[::1]:9/x",
        ] {
            assert_eq!(Destination::parse(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn other_schemes_get_the_exact_text() {
        for text in [
            "",
            "h/p",
            "ftp://h/",
            "https:/h",
            "httpss://h",
            "javascript:x",
            "my-group",
        ] {
            assert_eq!(
                Destination::parse(text).unwrap_err().to_string(),
                "invalid destination url: endpoint has invalid scheme, add http:// or https://",
                "{text}"
            );
        }
    }

    #[test]
    fn broken_urls_are_refused_with_a_reason() {
        for text in [
            "http://",
            "http://?x",
            "http://h:99999/",
            "http://a b/",
            "http://h/\n",
            "http://h/ ",
            "http://h/\u{7f}",
            "http://[::1/",
            "http:///",
        ] {
            let error = Destination::parse(text);
            let error = error.expect_err(text).to_string();
            assert!(error.starts_with("invalid destination url: "), "{error}");
        }
        let long = format!("http://h/{}", "x".repeat(DESTINATION_BYTES_MAX));
        assert_eq!(Destination::parse(&long), Err(DestinationError::TooLong));
    }

    #[test]
    fn a_fragment_is_cut_off() {
        let destination = Destination::parse("http://h/p?a=1#frag").unwrap();
        assert_eq!(destination.as_str(), "http://h/p?a=1");
    }

    #[test]
    fn the_host_lane_ignores_what_does_not_change_the_host() {
        for (text, lane) in [
            ("https://Example.COM/p", "h:example.com"),
            ("https://example.com:443/", "h:example.com"),
            ("http://example.com:443/", "h:example.com:443"),
            ("http://u:p@example.com/", "h:example.com"),
            ("http://[::1]:9/x", "h:[::1]:9"),
            ("http://bücher.example/", "h:xn--bcher-kva.example"),
        ] {
            let destination = Destination::parse(text).unwrap();
            assert_eq!(destination.host_lane().as_str(), lane);
        }
    }

    #[test]
    fn debug_hides_credentials() {
        let destination = Destination::parse("https://user:SECRET@h/p?token=SECRET").unwrap();
        assert!(!format!("{destination:?}").contains("SECRET"));
    }
}
