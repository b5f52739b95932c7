//! Signs deliveries.

use secrecy::ExposeSecret;

use super::keys::SigningKeys;
use super::mac::MacKey;
use super::webhook_secret::WebhookSecret;
use super::{jwt, standard_webhooks};
use crate::random::Random;

/// Makes the signature headers of an attempt. Built once from keys that were checked; cheap to
/// clone and to share.
#[derive(Debug, Clone)]
pub struct Signer {
    current: MacKey,
    webhook: Option<MacKey>,
}

impl Signer {
    /// Signs with the current key, and with `secret` too when there is one.
    pub fn new(keys: &SigningKeys, secret: Option<&WebhookSecret>) -> Self {
        Self {
            current: MacKey::new(keys.current().expose_secret().as_bytes()),
            webhook: secret.map(|secret| MacKey::new(secret.expose())),
        }
    }

    /// The headers of one attempt, names in lower case: `upstash-signature`, and `webhook-id`,
    /// `webhook-timestamp` and `webhook-signature` when a secret is configured. Every attempt is
    /// signed anew.
    ///
    /// `destination` is the text that was published and `body` exactly the bytes that are sent; no
    /// body is an empty one. `message_id` must be visible ASCII without `.`, as ours are.
    pub fn sign(
        &self,
        destination: &str,
        message_id: &str,
        body: &[u8],
        now_s: u64,
        random: &dyn Random,
    ) -> Vec<(&'static str, String)> {
        let token = jwt::sign(&self.current, destination, body, now_s, random);
        let mut headers = vec![(jwt::HEADER_SIGNATURE, token)];
        if let Some(key) = &self.webhook {
            let timestamp = now_s.to_string();
            let signature = standard_webhooks::sign(key, message_id, &timestamp, body);
            headers.extend([
                (standard_webhooks::HEADER_ID, message_id.to_owned()),
                (standard_webhooks::HEADER_TIMESTAMP, timestamp),
                (standard_webhooks::HEADER_SIGNATURE, signature),
            ]);
        }
        headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    fn names(signer: &Signer) -> Vec<&'static str> {
        let headers = signer.sign("https://h", "msg_1", b"", 1, &SeededRandom::new(1));
        headers.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn s05_every_attempt_carries_the_same_header_names() {
        let keys = SigningKeys::development();
        let secret = WebhookSecret::parse("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX").unwrap();
        assert_eq!(names(&Signer::new(&keys, None)), ["upstash-signature"]);
        let both = Signer::new(&keys, Some(&secret));
        let expected = [
            "upstash-signature",
            "webhook-id",
            "webhook-timestamp",
            "webhook-signature",
        ];
        for _ in 0..3 {
            assert_eq!(names(&both), expected);
        }
    }

    #[test]
    fn each_attempt_has_a_token_of_its_own() {
        let signer = Signer::new(&SigningKeys::development(), None);
        let random = SeededRandom::new(1);
        let sign = || signer.sign("https://h", "msg_1", b"", 1, &random);
        assert_ne!(sign(), sign());
    }

    #[test]
    fn a_signer_shows_no_key() {
        let shown = format!("{:?}", Signer::new(&SigningKeys::development(), None));
        assert!(
            shown.contains("REDACTED") && !shown.contains("sig_"),
            "{shown}"
        );
    }
}
