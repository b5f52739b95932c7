//! The Standard Webhooks secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretSlice};

/// Setting of the secret.
pub const SETTING: &str = "HOOKSTASH_WEBHOOK_SECRET";

/// The shortest secret, in bytes after decoding.
pub const SECRET_BYTES_MIN: usize = 24;

/// The longest secret, in bytes after decoding.
pub const SECRET_BYTES_MAX: usize = 64;

const PREFIX: &str = "whsec_";

/// A secret of 24 to 64 bytes.
///
/// The one rule for its spelling: `whsec_`, then standard base64 (with `+` and `/`, padded with
/// `=`), nothing before and nothing after. Receivers' libraries read exactly that, so a spelling
/// that only we would understand is refused.
#[derive(Debug, Clone)]
pub struct WebhookSecret(SecretSlice<u8>);

/// Why a text is no secret. Names the setting, never its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WebhookSecretError {
    /// Nothing but white space.
    #[error("{SETTING} is blank: {RULE}, or leave it unset")]
    Blank,
    /// It does not start with `whsec_`.
    #[error("{SETTING} does not start with whsec_: {RULE}")]
    Prefix,
    /// A version such as `v1,` stands before the secret.
    #[error("{SETTING} has a version such as v1, in front, which belongs to signatures: {RULE}")]
    Version,
    /// What follows `whsec_` is not padded standard base64.
    #[error("{SETTING} is not standard base64 after whsec_: {RULE}")]
    Encoding,
    /// Too few or too many bytes.
    #[error("{SETTING} has the wrong length: {RULE}")]
    Length,
}

const RULE: &str = "set it to whsec_ followed by the base64 of 24 to 64 random bytes";

impl WebhookSecret {
    /// Reads a secret as its rule says.
    pub fn parse(text: &str) -> Result<Self, WebhookSecretError> {
        if text.trim().is_empty() {
            return Err(WebhookSecretError::Blank);
        }
        let Some(encoded) = text.strip_prefix(PREFIX) else {
            return Err(match text.split_once(',') {
                Some((_, rest)) if rest.starts_with(PREFIX) => WebhookSecretError::Version,
                _ => WebhookSecretError::Prefix,
            });
        };
        let secret: SecretSlice<u8> = STANDARD
            .decode(encoded)
            .map_err(|_| WebhookSecretError::Encoding)?
            .into();
        match secret.expose_secret().len() {
            SECRET_BYTES_MIN..=SECRET_BYTES_MAX => Ok(Self(secret)),
            _ => Err(WebhookSecretError::Length),
        }
    }

    pub(super) fn expose(&self) -> &[u8] {
        self.0.expose_secret()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(bytes: usize) -> String {
        format!("whsec_{}", STANDARD.encode(vec![0xfb; bytes]))
    }

    #[test]
    fn s07_each_malformed_spelling_is_refused_by_the_name_of_the_setting() {
        use WebhookSecretError as E;
        let good = spelled(24);
        let padded = spelled(32);
        for (text, expected) in [
            (String::new(), E::Blank),
            ("  \n".into(), E::Blank),
            (format!("v1,{good}"), E::Version),
            (format!("v1a,{good}"), E::Version),
            ("whsec_".into(), E::Length),
            ("whsec_!!!".into(), E::Encoding),
            ("correct horse battery staple".into(), E::Prefix),
            (STANDARD.encode([7; 24]), E::Prefix),
            ("WHSEC_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH".into(), E::Prefix),
            (good.replace('+', "-").replace('/', "_"), E::Encoding),
            (padded.trim_end_matches('=').into(), E::Encoding),
            (format!(" {good}"), E::Prefix),
            (format!("{good}\n"), E::Encoding),
            (spelled(8), E::Length),
            (spelled(23), E::Length),
            (spelled(65), E::Length),
        ] {
            let error = WebhookSecret::parse(&text).unwrap_err();
            assert_eq!(error, expected, "{text}");
            let message = error.to_string();
            assert!(
                message.starts_with("HOOKSTASH_WEBHOOK_SECRET "),
                "{message}"
            );
            let value = text.rsplit('_').next().unwrap_or_default();
            assert!(value.len() < 4 || !message.contains(value), "{message}");
        }
    }

    #[test]
    fn secrets_of_24_to_64_bytes_are_read_and_never_shown() {
        for bytes in SECRET_BYTES_MIN..=SECRET_BYTES_MAX {
            let secret = WebhookSecret::parse(&spelled(bytes)).unwrap();
            assert_eq!(secret.expose(), vec![0xfb; bytes]);
            assert!(format!("{secret:?}").contains("REDACTED"));
            assert!(!format!("{secret:?}").contains("251"));
        }
    }
}
