//! What the receiver of a callback is told.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hookstash_shared::message::{CallbackSpec, Destination};
use hookstash_shared::signing::{self, SigningKeys};
use serde_json::Value;

use super::receiver::Received;

/// What a program signs with, so that [`told`] can verify it.
pub(crate) const DEVELOPMENT_KEYS: [(&str, &str); 2] = [
    (
        "QSTASH_CURRENT_SIGNING_KEY",
        "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r",
    ),
    (
        "QSTASH_NEXT_SIGNING_KEY",
        "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs",
    ),
];

/// A callback to `url` that takes everything from its message.
pub(crate) fn callback(url: &str) -> CallbackSpec {
    CallbackSpec::to(Destination::parse(url).expect("a destination"))
}

/// What `request` tells, after a look at its signature for `url` and its form.
pub(crate) fn told(request: &Received, url: &str) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = since.expect("after 1970").as_secs();
    let keys = SigningKeys::development();
    let verifier = signing::Receiver::new(Some(&keys), None, Duration::from_secs(5));
    let signature = request.header("upstash-signature").expect("a signature");
    verifier
        .verify_qstash(signature, &request.body, Some(url), now_s)
        .expect("a good signature for the callback's own URL and these bytes");
    assert_eq!(request.header("content-type"), Some("application/json"));
    serde_json::from_slice(&request.body).expect("JSON")
}

/// The bytes of a field; none when it is left out.
pub(crate) fn bytes(told: &Value, key: &str) -> Vec<u8> {
    let text = told
        .get(key)
        .map_or("", |value| value.as_str().expect("text"));
    BASE64.decode(text).expect("standard base64 with padding")
}

/// What is told of each, by the number of the attempt.
pub(crate) fn attempts(all: &[Value]) -> Vec<(u64, u64)> {
    let number = |told: &Value, key: &str| told[key].as_u64().expect("a number");
    let mut attempts: Vec<_> = all
        .iter()
        .map(|told| (number(told, "retried"), number(told, "status")))
        .collect();
    attempts.sort_unstable();
    attempts
}
