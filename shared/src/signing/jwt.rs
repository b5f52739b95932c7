//! The `QStash` signature: a compact JWT (RFC 7519, HS256) over destination and body.
//!
//! Header exactly `{"alg":"HS256","typ":"JWT"}`; claims `iss sub exp nbf iat jti body`, in this
//! order. `nbf` is 0, so a receiver whose clock is behind does not refuse. `sub` is the destination
//! byte for byte as it was published, because receivers compare it as text.

use base64::Engine;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::keys::push_alphanumerics;
use super::mac::MacKey;
use crate::random::Random;

/// The header that carries the signature, in lower case.
pub const HEADER_SIGNATURE: &str = "upstash-signature";

/// `iss` of every signature.
pub const ISSUER: &str = "Upstash";

/// How long a signature is valid, in seconds.
pub const VALID_S: u64 = 300;

/// Base64url of the JOSE header.
const JOSE_HEADER: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9";

/// Random characters of `jti`, about 131 bits.
const JTI_RANDOM_CHARS: usize = 22;

/// A signature of `body` for `destination`, valid from now on for [`VALID_S`].
pub(super) fn sign(
    key: &MacKey,
    destination: &str,
    body: &[u8],
    now_s: u64,
    random: &dyn Random,
) -> String {
    let mut jti = String::from("jwt_");
    push_alphanumerics(&mut jti, JTI_RANDOM_CHARS, random);
    let claims = json!({
        "iss": ISSUER,
        "sub": destination,
        "exp": now_s.saturating_add(VALID_S),
        "nbf": 0,
        "iat": now_s,
        "jti": jti,
        "body": body_hash(body),
    });
    let mut token = format!("{JOSE_HEADER}.");
    URL_SAFE_NO_PAD.encode_string(claims.to_string(), &mut token);
    let tag = key.tag(&[token.as_bytes()]);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(tag, &mut token);
    token
}

/// The `body` claim: padded base64url of the SHA-256 of the bytes. An empty body has one, too.
pub(super) fn body_hash(body: &[u8]) -> String {
    URL_SAFE.encode(Sha256::digest(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    fn signed(destination: &str, body: &[u8]) -> (String, String) {
        let key = MacKey::new(b"sig_0123456789abcdefghijABCDEFGH");
        let token = sign(
            &key,
            destination,
            body,
            1_700_000_000,
            &SeededRandom::new(1),
        );
        let claims = token.split('.').nth(1).unwrap();
        let claims = String::from_utf8(URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        (token, claims)
    }

    #[test]
    fn s14_the_token_is_compact_and_its_parts_are_unpadded() {
        assert_eq!(
            URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#),
            JOSE_HEADER
        );
        let (token, _) = signed("https://h/p", b"{}");
        let parts: Vec<&str> = token.split('.').collect();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts.first(), Some(&JOSE_HEADER));
        let is_base64url = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        assert!(
            parts.iter().all(|part| part.bytes().all(is_base64url)),
            "{token}"
        );
    }

    #[test]
    fn s14_the_claims_are_these_in_this_order_with_numeric_dates() {
        let (_, claims) = signed("https://h/p?x=1", b"");
        let jti = claims.split("jwt_").nth(1).unwrap().get(..22).unwrap();
        assert!(jti.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let expected = format!(
            "{{\"iss\":\"Upstash\",\"sub\":\"https://h/p?x=1\",\"exp\":1700000300,\"nbf\":0,\
             \"iat\":1700000000,\"jti\":\"jwt_{jti}\",\
             \"body\":\"47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=\"}}"
        );
        assert_eq!(claims, expected);
    }

    #[test]
    fn s12_the_subject_is_the_destination_byte_for_byte() {
        for destination in [
            "https://h/p",
            "https://h/p?x=1&y=%20",
            "https://H/p",
            "https://h:443/p",
            "https://h/p/",
            "https://h/ü",
            "https://h/\"\\\u{1}\u{2028}😀",
        ] {
            let (_, claims) = signed(destination, b"x");
            let claims: serde_json::Value = serde_json::from_str(&claims).unwrap();
            assert_eq!(claims.get("sub").unwrap(), destination);
        }
    }

    #[test]
    fn s13_an_empty_body_has_a_hash() {
        assert_eq!(
            body_hash(b""),
            "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU="
        );
    }

    #[test]
    fn s01_two_spellings_of_one_text_have_two_hashes() {
        let raw = "{\"m\":\"café 😀\"}".as_bytes();
        assert_eq!(
            body_hash(raw),
            "1oiYAsYKg_HNBb2LLs5OG0YBx34uKw5PSNS20CobZC8="
        );
        let escaped = br#"{"m":"caf\u00e9 \ud83d\ude00"}"#;
        assert_eq!(
            body_hash(escaped),
            "1LtLctX1aqluMZ-IxEAIGidt2DNWLIN0fCh7xRzQMT4="
        );
    }

    #[test]
    fn no_time_overflows() {
        let key = MacKey::new(b"k");
        assert!(!sign(&key, "", b"", u64::MAX, &SeededRandom::new(1)).is_empty());
    }
}
