//! The name of a message, which also tells its shard and its time of creation.
//!
//! `msg_` + 2 characters of shard + 10 characters of time + 16 characters of randomness, all in
//! Crockford's base 32 in lower case: 32 characters. Within one shard
//! ids sort by the time they were made; across shards they sort by shard first.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// Digits of Crockford's base 32: no `i`, `l`, `o` or `u`.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const PREFIX: &[u8; 4] = b"msg_";
const BYTES: usize = 32;
const SHARD: std::ops::Range<usize> = 4..6;
const TIME: std::ops::Range<usize> = 6..16;
/// Two shard digits of base 32 name this many shards.
const SHARDS_MAX: u16 = 1024;

/// How many shards a store has: `1..=1024`. Fixed for the life of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards(u16);

impl Shards {
    /// A store of one shard.
    pub const ONE: Self = Self(1);

    /// `count` shards.
    pub fn new(count: u16) -> Result<Self, ShardError> {
        if (1..=SHARDS_MAX).contains(&count) {
            Ok(Self(count))
        } else {
            Err(ShardError(count.into()))
        }
    }

    /// The number of shards.
    pub fn count(self) -> u16 {
        self.0
    }

    /// Every shard, in order.
    pub fn iter(self) -> impl Iterator<Item = Shard> {
        (0..self.0).map(Shard)
    }

    /// The shard that `hash` falls into: `hash` modulo the number of shards.
    pub fn pick(self, hash: u64) -> Shard {
        let index = hash % u64::from(self.0);
        Shard(u16::try_from(index).unwrap_or_default())
    }
}

/// The number of a shard, `0..=1023`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Shard(u16);

impl Shard {
    /// Shard `index`; an error above 1023.
    pub fn new(index: u16) -> Result<Self, ShardError> {
        if index < SHARDS_MAX {
            Ok(Self(index))
        } else {
            Err(ShardError(index.into()))
        }
    }

    /// The number, as it stands between the braces of a key.
    pub fn index(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number that is no shard, or no count of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is out of range: a store has 1 to 1024 shards, numbered from 0")]
pub struct ShardError(u64);

/// The name of a message: 32 characters of `[a-z0-9_]`, starting with `msg_`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MessageId([u8; BYTES]);

impl MessageId {
    /// A new id in `shard`, made at `now_ms` (milliseconds since the epoch, good until the year
    /// 37648), unique by 80 random bits.
    pub fn new(shard: Shard, now_ms: u64, random: &dyn Random) -> Self {
        let mut id = [0; BYTES];
        let (head, tail) = id.split_at_mut(TIME.end);
        let (high, low) = tail.split_at_mut(BYTES.saturating_sub(TIME.end) / 2);
        if let Some(prefix) = head.get_mut(..PREFIX.len()) {
            prefix.copy_from_slice(PREFIX);
        }
        if let Some(digits) = head.get_mut(SHARD) {
            write_digits(digits, shard.0.into());
        }
        if let Some(digits) = head.get_mut(TIME) {
            write_digits(digits, now_ms);
        }
        write_digits(high, random.next_u64());
        write_digits(low, random.next_u64());
        Self(id)
    }

    /// The shard that holds the message.
    pub fn shard(&self) -> Shard {
        let number = self.0.get(SHARD).map_or(0, read_digits);
        Shard(u16::try_from(number).unwrap_or_default())
    }

    /// When the id was made, in milliseconds since the epoch by its maker's clock.
    pub fn created_ms(&self) -> u64 {
        self.0.get(TIME).map_or(0, read_digits)
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// A name of its own: `prefix` and 26 random digits of Crockford's base 32 (130 bits).
pub fn random_name(prefix: &str, random: &dyn Random) -> String {
    let mut digits = [0; 26];
    for part in digits.chunks_mut(9) {
        write_digits(part, random.next_u64());
    }
    let digits = std::str::from_utf8(&digits).unwrap_or_default();
    format!("{prefix}{digits}")
}

/// Writes the low bits of `number`, most significant digit first.
fn write_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        let index = usize::try_from(number & 31).unwrap_or_default();
        *digit = ALPHABET.get(index).copied().unwrap_or(b'0');
        number >>= 5;
    }
}

/// The number that valid `digits` stand for.
fn read_digits(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, digit| {
        let value = ALPHABET.iter().position(|known| known == digit);
        (number << 5) | value.map_or(0, |value| value as u64)
    })
}

/// Why a text is no message id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a message id: expected msg_ and 28 characters of 0-9 and a-z without i, l, o and u")]
pub struct MessageIdError;

impl FromStr for MessageId {
    type Err = MessageIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let id: [u8; BYTES] = text.as_bytes().try_into().map_err(|_| MessageIdError)?;
        let digits = id.strip_prefix(PREFIX).ok_or(MessageIdError)?;
        if digits.iter().all(|digit| ALPHABET.contains(digit)) {
            Ok(Self(id))
        } else {
            Err(MessageIdError)
        }
    }
}

impl TryFrom<String> for MessageId {
    type Error = MessageIdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> Self {
        id.as_str().to_owned()
    }
}

impl AsRef<str> for MessageId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::SeededRandom;

    #[test]
    fn an_id_tells_its_shard_and_its_time() {
        let random = SeededRandom::new(7);
        let id = MessageId::new(Shard::new(1023).unwrap(), 1_800_000_000_123, &random);
        assert_eq!(id.as_str().len(), 32);
        assert!(id.as_str().starts_with("msg_zz"));
        assert_eq!(id.shard().index(), 1023);
        assert_eq!(id.created_ms(), 1_800_000_000_123);
        assert_eq!(id.as_str().parse::<MessageId>().unwrap(), id);
    }

    #[test]
    fn ids_of_a_shard_sort_by_time() {
        let random = SeededRandom::new(1);
        let ids: Vec<_> = (0..200)
            .map(|n| MessageId::new(Shard::default(), 1_700_000_000_000 + n * 977, &random))
            .collect();
        assert!(ids.is_sorted());
        let texts: Vec<_> = ids.iter().map(ToString::to_string).collect();
        assert!(texts.is_sorted());
    }

    #[test]
    fn ids_of_one_moment_differ() {
        let random = SeededRandom::new(1);
        let ids: std::collections::HashSet<_> = (0..10_000)
            .map(|_| MessageId::new(Shard::default(), 5, &random))
            .collect();
        assert_eq!(ids.len(), 10_000);
    }

    #[test]
    fn foreign_texts_are_no_ids() {
        let good = MessageId::new(Shard::default(), 5, &SeededRandom::new(1)).to_string();
        for bad in [
            String::new(),
            "msg_".into(),
            good.to_uppercase(),
            good.replace("msg_", "msg-"),
            format!("{good}0"),
            format!("{}u", &good[..31]),
            format!("{} ", &good[..31]),
        ] {
            assert!(bad.parse::<MessageId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn json_holds_the_text_and_refuses_others() {
        let id = MessageId::new(Shard::new(3).unwrap(), 5, &SeededRandom::new(1));
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, format!("\"{id}\""));
        assert_eq!(serde_json::from_str::<MessageId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<MessageId>("\"msg_x\"").is_err());
    }

    #[test]
    fn counts_of_shards_have_bounds() {
        assert!(Shards::new(0).is_err());
        assert!(Shards::new(1025).is_err());
        assert!(Shard::new(1024).is_err());
        assert_eq!(Shards::new(3).unwrap().iter().count(), 3);
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_accepts_only_what_it_prints(text in ".{0,40}") {
            if let Ok(id) = text.parse::<MessageId>() {
                prop_assert_eq!(id.as_str(), text);
            }
        }

        #[test]
        fn a_picked_shard_exists(count in 1u16..=1024, hash: u64) {
            let shards = Shards::new(count).unwrap();
            prop_assert!(shards.pick(hash).index() < count);
        }
    }
}
