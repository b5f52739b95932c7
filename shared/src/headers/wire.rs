//! How headers stand in stored JSON: one object each, `n` for the name and one of `v` (text), `b`
//! (bytes in base64, when they are not UTF-8) or `t` (template) with `env` (its allow-list).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::{HeaderError, HeaderSource, Headers};

/// One stored header.
#[derive(Serialize, Deserialize)]
pub(super) struct WireHeader {
    n: String,
    #[serde(flatten)]
    source: WireSource,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum WireSource {
    Text { v: String },
    Bytes { b: String },
    Template { t: String, env: Vec<String> },
}

/// Why stored headers cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    #[error("stored header {0:?} is not base64")]
    Base64(String),
    #[error(transparent)]
    Header(#[from] HeaderError),
}

impl From<Headers> for Vec<WireHeader> {
    fn from(headers: Headers) -> Self {
        let wire = |(name, source): (http::HeaderName, HeaderSource)| WireHeader {
            n: name.as_str().to_owned(),
            source: match source {
                HeaderSource::Literal(value) => match String::from_utf8(value.to_vec()) {
                    Ok(v) => WireSource::Text { v },
                    Err(_) => WireSource::Bytes {
                        b: BASE64.encode(&value),
                    },
                },
                HeaderSource::Template {
                    text,
                    allowed_env_vars,
                } => WireSource::Template {
                    t: text,
                    env: allowed_env_vars,
                },
            },
        };
        headers.0.into_iter().map(wire).collect()
    }
}

impl TryFrom<Vec<WireHeader>> for Headers {
    type Error = WireError;

    fn try_from(wire: Vec<WireHeader>) -> Result<Self, Self::Error> {
        let mut headers = Self::default();
        for WireHeader { n, source } in wire {
            let source = match source {
                WireSource::Text { v } => HeaderSource::Literal(v.into()),
                WireSource::Bytes { b } => match BASE64.decode(b) {
                    Ok(bytes) => HeaderSource::Literal(bytes.into()),
                    Err(_) => return Err(WireError::Base64(n)),
                },
                WireSource::Template { t, env } => HeaderSource::Template {
                    text: t,
                    allowed_env_vars: env,
                },
            };
            headers.append(n.as_bytes(), source)?;
        }
        Ok(headers)
    }
}
