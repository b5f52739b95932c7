//! The signing keys at rest: AES-256-GCM under the installation's secret key.
//!
//! `1:` + base64 of a random nonce and the ciphertext. The place where the record is stored is
//! authenticated with it, so that a record of another installation does not open here.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret as _, SecretBox};
use serde::{Deserialize, Serialize};

use super::keys::SigningKeys;
use crate::random::Random;

const VERSION: &str = "1:";

/// Seals and opens signing keys.
pub struct KeySeal {
    key: LessSafeKey,
    place: String,
}

/// A record does not open, or keys cannot be sealed. Says nothing about what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Sealed with another secret key or for another place, or changed, or no record at all.
    #[error("the stored signing keys do not open with this secret key")]
    Unopenable,
    /// The cipher refused.
    #[error("the signing keys cannot be encrypted")]
    Unsealable,
}

/// Signing keys as they are stored.
#[derive(Debug, Clone)]
pub struct StoredKeys {
    /// The keys.
    pub keys: SigningKeys,
    /// How often they were rotated since they were made.
    pub rotations: u64,
    /// When they were made, in milliseconds since the epoch; 0 = not known.
    pub made_ms: u64,
}

impl StoredKeys {
    /// Whether these are to be used where `other` is stored: a store that went back in time has
    /// fewer rotations, and one that came back empty may have got keys that no receiver knows.
    pub fn outranks(&self, other: &Self) -> bool {
        (self.rotations, other.made_ms) > (other.rotations, self.made_ms)
    }

    /// The same after a rotation.
    #[must_use]
    pub fn rotated(&self, random: &dyn Random) -> Self {
        Self {
            keys: self.keys.rotated(random),
            rotations: self.rotations.saturating_add(1),
            made_ms: self.made_ms,
        }
    }
}

/// Records of an earlier version have no more than the keys.
#[derive(Serialize, Deserialize)]
struct Plain<'a> {
    current: &'a str,
    next: &'a str,
    #[serde(default)]
    rotations: u64,
    #[serde(default)]
    made_ms: u64,
}

impl KeySeal {
    /// Seals with `secret` for a record stored at `place`.
    pub fn new(secret: &SecretBox<[u8; 32]>, place: &str) -> Result<Self, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, secret.expose_secret());
        Ok(Self {
            key: LessSafeKey::new(key.map_err(|_| SealError::Unsealable)?),
            place: place.to_owned(),
        })
    }

    /// The record to store. Every call draws a new nonce.
    pub fn seal(&self, stored: &StoredKeys, random: &dyn Random) -> Result<String, SealError> {
        let plain = Plain {
            current: stored.keys.current().expose_secret(),
            next: stored.keys.next().expose_secret(),
            rotations: stored.rotations,
            made_ms: stored.made_ms,
        };
        let mut bytes =
            Zeroizing::new(serde_json::to_vec(&plain).map_err(|_| SealError::Unsealable)?);
        let mut nonce = [0; NONCE_LEN];
        for chunk in nonce.chunks_mut(8) {
            let drawn = random.next_u64().to_le_bytes();
            chunk
                .iter_mut()
                .zip(drawn)
                .for_each(|(byte, drawn)| *byte = drawn);
        }
        let tag = self
            .key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(self.place.as_bytes()),
                &mut bytes,
            )
            .map_err(|_| SealError::Unsealable)?;
        let sealed = [&nonce, bytes.as_slice(), tag.as_ref()].concat();
        Ok(format!("{VERSION}{}", STANDARD.encode(sealed)))
    }

    /// The keys of a record.
    pub fn open(&self, record: &[u8]) -> Result<StoredKeys, SealError> {
        self.try_open(record).ok_or(SealError::Unopenable)
    }

    fn try_open(&self, record: &[u8]) -> Option<StoredKeys> {
        let sealed = record.strip_prefix(VERSION.as_bytes())?;
        let mut bytes = Zeroizing::new(STANDARD.decode(sealed).ok()?);
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let aad = Aad::from(self.place.as_bytes());
        let plain = self.key.open_in_place(nonce, aad, sealed).ok()?;
        let plain: Plain<'_> = serde_json::from_slice(plain).ok()?;
        let keys = SigningKeys::from_settings(Some(plain.current), Some(plain.next));
        Some(StoredKeys {
            keys: keys.ok()??,
            rotations: plain.rotations,
            made_ms: plain.made_ms,
        })
    }
}

/// Shows no key.
impl fmt::Debug for KeySeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySeal")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    fn seal(key: u8, place: &str) -> KeySeal {
        KeySeal::new(&SecretBox::new(Box::new([key; 32])), place).unwrap()
    }

    fn stored(random: &dyn Random) -> StoredKeys {
        StoredKeys {
            keys: SigningKeys::generate(random),
            rotations: 3,
            made_ms: 5,
        }
    }

    #[test]
    fn keys_come_back_and_no_two_records_are_alike() {
        let random = SeededRandom::new(1);
        let stored = stored(&random);
        let ours = seal(7, "hs:meta keys");
        let [one, two] = [(); 2].map(|()| ours.seal(&stored, &random).unwrap());
        assert_ne!(one, two);
        for record in [one, two] {
            let opened = ours.open(record.as_bytes()).unwrap();
            assert_eq!((opened.rotations, opened.made_ms), (3, 5));
            for (opened, key) in [
                (opened.keys.current(), stored.keys.current()),
                (opened.keys.next(), stored.keys.next()),
            ] {
                assert_eq!(opened.expose_secret(), key.expose_secret());
                assert!(!record.contains(key.expose_secret()));
            }
        }
    }

    #[test]
    fn more_rotations_outrank_fewer_and_then_older_keys_newer_ones() {
        let made = stored(&SeededRandom::new(1));
        let rotated = made.rotated(&SeededRandom::new(2));
        let later = StoredKeys {
            made_ms: 6,
            ..made.clone()
        };
        for (high, low) in [(&rotated, &made), (&made, &later), (&rotated, &later)] {
            assert!(high.outranks(low) && !low.outranks(high));
        }
        assert!(!made.outranks(&made.clone()));
    }

    #[test]
    fn another_key_or_place_or_a_changed_record_opens_nothing() {
        let random = SeededRandom::new(1);
        let ours = seal(7, "hs:meta keys");
        let record = ours.seal(&stored(&random), &random).unwrap();
        assert!(seal(8, "hs:meta keys").open(record.as_bytes()).is_err());
        assert!(seal(7, "other:meta keys").open(record.as_bytes()).is_err());
        for index in 0..record.len() {
            let mut changed = record.clone().into_bytes();
            changed[index] = if changed[index] == b'A' { b'B' } else { b'A' };
            assert_eq!(
                ours.open(&changed).unwrap_err(),
                SealError::Unopenable,
                "{index}"
            );
        }
        for short in ["", "1:", "1:AAAA", "2:"] {
            assert_eq!(
                ours.open(short.as_bytes()).unwrap_err(),
                SealError::Unopenable
            );
        }
    }
}
