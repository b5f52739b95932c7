//! Verifies deliveries, for receivers written in Rust, for the command line and for tests.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use subtle::ConstantTimeEq;

use super::keys::SigningKeys;
use super::mac::MacKey;
use super::webhook_secret::WebhookSecret;
use super::{jwt, standard_webhooks};

/// The longest signature header that is looked at, in bytes: room for a destination of 24 KiB.
pub const SIGNATURE_BYTES_MAX: usize = 32 * 1024;

/// How many signatures of one Standard Webhooks header are looked at.
pub const WEBHOOK_SIGNATURES_MAX: usize = 16;

/// Verifies both kinds of signature. Built once; safe to share.
#[derive(Debug, Clone)]
pub struct Receiver {
    keys: Option<[MacKey; 2]>,
    webhook: Option<MacKey>,
    tolerance_s: u64,
}

/// What a verified `QStash` signature says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Claims {
    /// Who signed: always `Upstash`.
    pub iss: String,
    /// The destination as it was published.
    pub sub: String,
    /// End of validity, in seconds since the Unix epoch.
    pub exp: u64,
    /// Start of validity, in seconds since the Unix epoch.
    pub nbf: u64,
    /// When it was signed, in seconds since the Unix epoch; not checked.
    pub iat: Option<u64>,
    /// Id of the signature; not checked.
    pub jti: Option<String>,
    /// Base64url of the SHA-256 of the body.
    pub body: String,
}

/// Why a delivery is not what it claims to be. One cause: the first that would have to be fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The receiver was built without what this kind of signature needs.
    #[error("no key is configured for this kind of signature")]
    NotConfigured,
    /// The signature or the named part of it cannot be read.
    #[error("{0} is malformed")]
    Malformed(&'static str),
    /// The header asks for another algorithm or an extension.
    #[error("the signature is not plain HS256")]
    Algorithm,
    /// No configured key made it: wrong keys, keys rotated twice, or a changed signature.
    #[error("the signature was made with neither the current nor the next signing key")]
    Key,
    /// The secret did not make it: wrong secret, or id, timestamp or body changed.
    #[error("no signature matches the secret, id, timestamp and body")]
    Secret,
    /// Signed by someone else.
    #[error("the issuer of the signature is not Upstash")]
    Issuer,
    /// Too old, by this many seconds after tolerance.
    #[error("the signature expired {0} s ago: the delivery is late or the clock is ahead")]
    Expired(u64),
    /// Not valid for this many seconds more after tolerance.
    #[error("the signature is valid only in {0} s: the clock is behind")]
    NotYetValid(u64),
    /// `sub` is not the URL that was asked for.
    #[error("the signature is for another URL: compare with the URL exactly as it was published")]
    Url,
    /// The body's hash is another.
    #[error("the body is not the one that was signed: verify the raw bytes as received")]
    Body,
}

#[derive(Deserialize)]
struct JoseHeader {
    alg: String,
    /// RFC 7515 section 4.1.11: an extension that is not understood must be refused.
    crit: Option<IgnoredAny>,
}

impl Receiver {
    /// Verifies `QStash` signatures when there are `keys` and Standard Webhooks when there is a
    /// `secret`. `tolerance` is how far the sender's clock may be off, in whole seconds.
    pub fn new(
        keys: Option<&SigningKeys>,
        secret: Option<&WebhookSecret>,
        tolerance: Duration,
    ) -> Self {
        let key = |key: &secrecy::SecretString| MacKey::new(key.expose_secret().as_bytes());
        Self {
            keys: keys.map(|keys| [key(keys.current()), key(keys.next())]),
            webhook: secret.map(|secret| MacKey::new(secret.expose())),
            tolerance_s: tolerance.as_secs(),
        }
    }

    /// Verifies the value of `upstash-signature` against the raw `body`, and against `url` when
    /// one is given. The current key is tried first, then the next one.
    pub fn verify_qstash(
        &self,
        signature: &str,
        body: &[u8],
        url: Option<&str>,
        now_s: u64,
    ) -> Result<Claims, VerifyError> {
        let claims = self.authentic_claims(signature)?;
        let (earliest, latest) = self.window(claims.nbf, claims.exp);
        if claims.iss != jwt::ISSUER {
            Err(VerifyError::Issuer)
        } else if now_s >= latest {
            Err(VerifyError::Expired(now_s - latest))
        } else if now_s < earliest {
            Err(VerifyError::NotYetValid(earliest - now_s))
        } else if url.is_some_and(|url| url != claims.sub) {
            Err(VerifyError::Url)
        } else if !is_same_hash(&claims.body, &jwt::body_hash(body)) {
            Err(VerifyError::Body)
        } else {
            Ok(claims)
        }
    }

    /// Verifies the values of `webhook-id`, `webhook-timestamp` and `webhook-signature` against the
    /// raw `body`. One matching signature is enough, so a sender may rotate its secret.
    pub fn verify_webhook(
        &self,
        id: &str,
        timestamp: &str,
        signatures: &str,
        body: &[u8],
        now_s: u64,
    ) -> Result<(), VerifyError> {
        let key = self.webhook.as_ref().ok_or(VerifyError::NotConfigured)?;
        if signatures.len() > SIGNATURE_BYTES_MAX {
            return Err(VerifyError::Malformed(standard_webhooks::HEADER_SIGNATURE));
        }
        let signed_s: u64 = timestamp
            .parse()
            .map_err(|_| VerifyError::Malformed(standard_webhooks::HEADER_TIMESTAMP))?;
        let tag = standard_webhooks::tag(key, id, timestamp, body);
        let is_signed = signatures
            .split_ascii_whitespace()
            .filter_map(|one| one.strip_prefix(standard_webhooks::VERSION_PREFIX))
            .take(WEBHOOK_SIGNATURES_MAX)
            .filter_map(|encoded| STANDARD.decode(encoded).ok())
            .any(|given| given.ct_eq(&tag).into());
        if !is_signed {
            return Err(VerifyError::Secret);
        }
        let age_max = standard_webhooks::AGE_MAX_S;
        let (from, to) = (
            signed_s.saturating_sub(age_max),
            signed_s.saturating_add(age_max),
        );
        let (earliest, latest) = self.window(from, to);
        if now_s > latest {
            Err(VerifyError::Expired(now_s - latest))
        } else if now_s < earliest {
            Err(VerifyError::NotYetValid(earliest - now_s))
        } else {
            Ok(())
        }
    }

    /// The claims of a token that one of our keys signed, whatever they say.
    fn authentic_claims(&self, token: &str) -> Result<Claims, VerifyError> {
        let keys = self.keys.as_ref().ok_or(VerifyError::NotConfigured)?;
        if token.len() > SIGNATURE_BYTES_MAX {
            return Err(VerifyError::Malformed("the signature"));
        }
        let (signed, tag) = token
            .rsplit_once('.')
            .ok_or(VerifyError::Malformed("the signature"))?;
        let (header, claims) = signed
            .split_once('.')
            .ok_or(VerifyError::Malformed("the signature"))?;
        let header: JoseHeader = read(header, "the header of the signature")?;
        if header.alg != "HS256" || header.crit.is_some() {
            return Err(VerifyError::Algorithm);
        }
        let tag = URL_SAFE_NO_PAD
            .decode(tag)
            .map_err(|_| VerifyError::Malformed("the signature"))?;
        let is_ours = |key: &MacKey| key.tag(&[signed.as_bytes()]).ct_eq(&tag).into();
        if !keys.iter().any(is_ours) {
            return Err(VerifyError::Key);
        }
        read(claims, "a claim of the signature")
    }

    /// A range of seconds, widened by the tolerance on both sides.
    fn window(&self, from_s: u64, to_s: u64) -> (u64, u64) {
        (
            from_s.saturating_sub(self.tolerance_s),
            to_s.saturating_add(self.tolerance_s),
        )
    }
}

fn read<T: DeserializeOwned>(part: &str, name: &'static str) -> Result<T, VerifyError> {
    URL_SAFE_NO_PAD
        .decode(part)
        .ok()
        .and_then(|json| serde_json::from_slice(&json).ok())
        .ok_or(VerifyError::Malformed(name))
}

/// Compares in constant time; padding does not count.
fn is_same_hash(left: &str, right: &str) -> bool {
    let bytes = |text: &'_ str| text.trim_end_matches('=').to_owned().into_bytes();
    bytes(left).ct_eq(&bytes(right)).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;
    use crate::signing::Signer;
    use serde_json::{Value, json};

    const NOW: u64 = 1_700_000_000;
    const URL: &str = "https://h/p?x=1";
    const BODY: &[u8] = b"{\"a\":1}";
    const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX";

    fn receiver(tolerance_s: u64) -> Receiver {
        let secret = WebhookSecret::parse(SECRET).unwrap();
        let tolerance = Duration::from_secs(tolerance_s);
        Receiver::new(Some(&SigningKeys::development()), Some(&secret), tolerance)
    }

    fn signed(keys: &SigningKeys) -> Vec<String> {
        let secret = WebhookSecret::parse(SECRET).unwrap();
        Signer::new(keys, Some(&secret))
            .sign(URL, "msg_1", BODY, NOW, &SeededRandom::new(1))
            .into_iter()
            .map(|(_, value)| value)
            .collect()
    }

    /// A token with claims and header of the test's choice.
    fn forged(key: &str, header: &Value, changes: &[(&str, Value)]) -> String {
        let mut claims = json!({
            "iss": "Upstash", "sub": URL, "exp": NOW + 300, "nbf": 0, "iat": NOW, "jti": "jwt_1",
            "body": jwt::body_hash(BODY),
        });
        for (name, value) in changes {
            let claims = claims.as_object_mut().unwrap();
            claims.shift_remove(*name);
            if !value.is_null() {
                claims.insert((*name).to_owned(), value.clone());
            }
        }
        let encode = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let signed = format!("{}.{}", encode(header), encode(&claims));
        let tag = MacKey::new(key.as_bytes()).tag(&[signed.as_bytes()]);
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    fn verify_claims(changes: &[(&str, Value)], tolerance_s: u64) -> Result<Claims, VerifyError> {
        let keys = SigningKeys::development();
        let header = json!({"alg": "HS256", "typ": "JWT"});
        let token = forged(keys.current().expose_secret(), &header, changes);
        receiver(tolerance_s).verify_qstash(&token, BODY, Some(URL), NOW)
    }

    #[test]
    fn a_delivery_verifies_with_the_current_and_with_the_next_key() {
        let keys = SigningKeys::development();
        let rotated = keys.rotated(&SeededRandom::new(1));
        let rotated_twice = rotated.rotated(&SeededRandom::new(2));
        let verify = |keys| {
            let signed = signed(keys);
            receiver(0).verify_qstash(&signed[0], BODY, Some(URL), NOW)
        };
        assert_eq!(verify(&keys).unwrap().sub, URL);
        assert!(verify(&rotated).is_ok());
        assert_eq!(verify(&rotated_twice), Err(VerifyError::Key));
    }

    #[test]
    fn the_cause_is_told_even_when_the_current_key_signed() {
        let verify = |body: &[u8], url, now_s| {
            let signed = signed(&SigningKeys::development());
            receiver(0)
                .verify_qstash(&signed[0], body, url, now_s)
                .map(|_| ())
        };
        assert_eq!(verify(BODY, None, NOW), Ok(()));
        assert_eq!(
            verify(b"{\"a\": 1}", Some(URL), NOW),
            Err(VerifyError::Body)
        );
        assert_eq!(verify(b"", Some(URL), NOW), Err(VerifyError::Body));
        assert_eq!(verify(BODY, Some(URL), NOW + 299), Ok(()));
        assert_eq!(
            verify(BODY, Some(URL), NOW + 300),
            Err(VerifyError::Expired(0))
        );
        assert_eq!(
            verify(BODY, Some(URL), NOW + 312),
            Err(VerifyError::Expired(12))
        );
        assert_eq!(verify(BODY, Some(URL), 0), Ok(()), "nbf is 0");
    }

    #[test]
    fn s12_the_url_is_compared_byte_for_byte() {
        let signed = signed(&SigningKeys::development());
        for url in [
            "https://h/p?x=1/",
            "https://H/p?x=1",
            "https://h:443/p?x=1",
            "https://h/p",
            "",
        ] {
            let result = receiver(0).verify_qstash(&signed[0], BODY, Some(url), NOW);
            assert_eq!(result, Err(VerifyError::Url), "{url}");
        }
    }

    #[test]
    fn claims_are_accepted_and_refused_as_the_official_receivers_do() {
        use VerifyError as E;
        let unpadded = jwt::body_hash(BODY).trim_end_matches('=').to_owned();
        let standard_alphabet = jwt::body_hash(BODY).replace('-', "+").replace('_', "/");
        assert_ne!(standard_alphabet, jwt::body_hash(BODY));
        let claim = E::Malformed("a claim of the signature");
        for (name, value, expected) in [
            ("body", json!(unpadded), None),
            ("body", json!(standard_alphabet), Some(E::Body)),
            ("body", json!(""), Some(E::Body)),
            ("body", Value::Null, Some(claim)),
            ("iat", Value::Null, None),
            ("jti", Value::Null, None),
            ("aud", json!(""), None),
            ("nbf", Value::Null, Some(claim)),
            ("exp", Value::Null, Some(claim)),
            ("exp", json!("1700000300"), Some(claim)),
            ("sub", Value::Null, Some(claim)),
            ("sub", json!("https://h/p?x=1/"), Some(E::Url)),
            ("iss", json!("upstash"), Some(E::Issuer)),
            ("nbf", json!(NOW), None),
            ("nbf", json!(NOW + 5), Some(E::NotYetValid(5))),
            ("exp", json!(NOW), Some(E::Expired(0))),
        ] {
            let got = verify_claims(&[(name, value.clone())], 0).err();
            assert_eq!(got, expected, "{name} = {value}");
        }
    }

    #[test]
    fn the_tolerance_widens_both_ends() {
        for (nbf, exp, is_ok) in [
            (10, 300, true),
            (11, 300, false),
            (0, -9, true),
            (0, -10, false),
        ] {
            let times = [
                ("nbf", json!(NOW + nbf)),
                ("exp", json!(NOW.saturating_add_signed(exp))),
            ];
            assert_eq!(verify_claims(&times, 10).is_ok(), is_ok, "{nbf} {exp}");
        }
    }

    #[test]
    fn only_plain_hs256_with_one_of_the_two_keys_is_believed() {
        use VerifyError as E;
        let keys = SigningKeys::development();
        let key = keys.current().expose_secret();
        let plain = json!({"alg": "HS256", "typ": "JWT"});
        let header = E::Malformed("the header of the signature");
        for (token, expected) in [
            (forged(key, &json!({"alg": "HS256"}), &[]), None),
            (
                forged(key, &json!({"alg": "none"}), &[]),
                Some(E::Algorithm),
            ),
            (
                forged(key, &json!({"alg": "HS512"}), &[]),
                Some(E::Algorithm),
            ),
            (
                forged(key, &json!({"alg": "hs256"}), &[]),
                Some(E::Algorithm),
            ),
            (
                forged(key, &json!({"alg": "HS256", "crit": ["b64"]}), &[]),
                Some(E::Algorithm),
            ),
            (forged(key, &json!({"typ": "JWT"}), &[]), Some(header)),
            (forged("", &plain, &[]), Some(E::Key)),
            (
                forged("sig_0123456789abcdefghijABCDEFGH", &plain, &[]),
                Some(E::Key),
            ),
            (forged(key, &plain, &[]) + "A", Some(E::Key)),
            (
                forged(key, &plain, &[]) + "AA",
                Some(E::Malformed("the signature")),
            ),
            (
                forged(key, &plain, &[]) + "=",
                Some(E::Malformed("the signature")),
            ),
            (
                forged(key, &plain, &[]).replacen('.', ".AA.", 1),
                Some(E::Key),
            ),
            (
                forged(key, &plain, &[])
                    .rsplit_once('.')
                    .unwrap()
                    .0
                    .to_owned()
                    + ".",
                Some(E::Key),
            ),
            (String::new(), Some(E::Malformed("the signature"))),
            ("a".into(), Some(E::Malformed("the signature"))),
            ("a.b".into(), Some(E::Malformed("the signature"))),
            ("..".into(), Some(header)),
            ("é.é.é".into(), Some(header)),
            (
                ".".repeat(SIGNATURE_BYTES_MAX + 1),
                Some(E::Malformed("the signature")),
            ),
        ] {
            let got = receiver(0).verify_qstash(&token, BODY, None, NOW).err();
            assert_eq!(got, expected, "{}", token.get(..60).unwrap_or(&token));
        }
    }

    #[test]
    fn standard_webhooks_headers_verify_and_their_parts_are_bound() {
        use VerifyError as E;
        let headers = signed(&SigningKeys::development());
        let (id, time, signature) = (&*headers[1], &*headers[2], &*headers[3]);
        let several = format!("v1a,AAAA v1,AAAA v1,!! {signature} v2,x");
        let many = "v1,AAAA ".repeat(WEBHOOK_SIGNATURES_MAX) + signature;
        let bare = signature.trim_start_matches("v1,");
        for (id, time, signature, body, now_s, expected) in [
            (id, time, signature, BODY, NOW, Ok(())),
            (id, time, &*several, BODY, NOW, Ok(())),
            (id, time, signature, BODY, NOW + 300, Ok(())),
            (id, time, signature, BODY, NOW - 300, Ok(())),
            (id, time, signature, BODY, NOW + 301, Err(E::Expired(1))),
            (id, time, signature, BODY, NOW - 301, Err(E::NotYetValid(1))),
            ("msg_2", time, signature, BODY, NOW, Err(E::Secret)),
            (id, "1700000001", signature, BODY, NOW, Err(E::Secret)),
            (id, time, signature, b"", NOW, Err(E::Secret)),
            (id, time, bare, BODY, NOW, Err(E::Secret)),
            (id, time, &*many, BODY, NOW, Err(E::Secret)),
            (id, time, "", BODY, NOW, Err(E::Secret)),
            (
                id,
                "now",
                signature,
                BODY,
                NOW,
                Err(E::Malformed("webhook-timestamp")),
            ),
        ] {
            let got = receiver(0).verify_webhook(id, time, signature, body, now_s);
            assert_eq!(got, expected, "{id} {time} {signature} {now_s}");
        }
    }

    #[test]
    fn s10_without_keys_nothing_verifies() {
        let none = Receiver::new(None, None, Duration::ZERO);
        let headers = signed(&SigningKeys::development());
        let qstash = none.verify_qstash(&headers[0], BODY, None, NOW);
        assert_eq!(qstash, Err(VerifyError::NotConfigured));
        let webhook = none.verify_webhook(&headers[1], &headers[2], &headers[3], BODY, NOW);
        assert_eq!(webhook, Err(VerifyError::NotConfigured));
    }
}
