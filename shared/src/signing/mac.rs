//! HMAC-SHA-256 with the key's schedule computed once.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Length of a tag in bytes.
pub(super) const TAG_BYTES: usize = 32;

/// A keyed state that is cloned for every message. Its key is never empty: the callers hold keys
/// that were checked.
#[derive(Clone)]
pub(super) struct MacKey(Hmac<Sha256>);

impl MacKey {
    #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
    pub(super) fn new(key: &[u8]) -> Self {
        Self(Hmac::new_from_slice(key).expect("a key of any length"))
    }

    /// The tag of `parts`, joined.
    pub(super) fn tag(&self, parts: &[&[u8]]) -> [u8; TAG_BYTES] {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey([REDACTED])")
    }
}
