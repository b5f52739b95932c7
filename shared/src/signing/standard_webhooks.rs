//! The Standard Webhooks signature: HMAC-SHA-256 over `id.timestamp.payload`.
//!
//! The same id on every attempt lets a receiver recognise a repeat; the timestamp is that of the
//! attempt.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::mac::{MacKey, TAG_BYTES};

/// The header with the message id, the same on every attempt.
pub const HEADER_ID: &str = "webhook-id";

/// The header with the time of the attempt, in seconds since the Unix epoch.
pub const HEADER_TIMESTAMP: &str = "webhook-timestamp";

/// The header with the signatures, separated by spaces.
pub const HEADER_SIGNATURE: &str = "webhook-signature";

/// How far the timestamp may be from the receiver's clock, in seconds, before any tolerance.
pub const AGE_MAX_S: u64 = 300;

/// Marks a signature of the symmetric kind.
pub(super) const VERSION_PREFIX: &str = "v1,";

/// The value of [`HEADER_SIGNATURE`].
pub(super) fn sign(key: &MacKey, id: &str, timestamp: &str, body: &[u8]) -> String {
    let mut signature = String::from(VERSION_PREFIX);
    STANDARD.encode_string(tag(key, id, timestamp, body), &mut signature);
    signature
}

/// The bytes of a signature. `timestamp` is taken as it is written in its header.
pub(super) fn tag(key: &MacKey, id: &str, timestamp: &str, body: &[u8]) -> [u8; TAG_BYTES] {
    key.tag(&[id.as_bytes(), b".", timestamp.as_bytes(), b".", body])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(body: &[u8]) -> String {
        let key: Vec<u8> = (0..24).collect();
        sign(&MacKey::new(&key), "msg_1", "1700000000", body)
    }

    #[test]
    fn s13_an_empty_payload_is_signed() {
        assert_eq!(
            signature(b""),
            "v1,1mgOj6TVhp3BSMcTTSkIcSqwMImLcuoATUkCX45722Q="
        );
    }

    #[test]
    fn s01_the_signature_is_over_the_bytes_and_not_the_text() {
        let raw = "{\"m\":\"café 😀\"}".as_bytes();
        assert_eq!(
            signature(raw),
            "v1,d3yOZdlDMbOqs15b6+825yh5weegN9eeEqX2k8O10KY="
        );
        let escaped = br#"{"m":"caf\u00e9 \ud83d\ude00"}"#;
        assert_eq!(
            signature(escaped),
            "v1,f5Vu84dMOO06QB+QdpajSAxrotfJrR74YtII6prOwdw="
        );
    }
}
