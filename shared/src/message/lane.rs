//! Lanes: the lists in which messages wait, named so that the name tells the kind.
//!
//! `q:<queue>`, `f:<flow-control key>`, `h:<destination host>`. A name never holds `|`, a blank or
//! a control byte, so it can stand inside keys and packed records.

use std::fmt;
use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::{Deserialize, Serialize};

/// Longest queue name, flow-control key or host in bytes, before encoding.
const NAME_BYTES_MAX: usize = 256;

const ENCODED_IN_FLOW_KEYS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-');
const ENCODED_IN_HOSTS: &AsciiSet = &ENCODED_IN_FLOW_KEYS.remove(b':').remove(b'[').remove(b']');

/// What a lane orders or limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaneKind {
    /// A FIFO queue.
    Queue,
    /// A flow-control key.
    Flow,
    /// Everything else, by destination host.
    Host,
}

/// The name of a lane. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Lane(Arc<str>);

/// Why a name makes no lane.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// A queue name holds other characters than `[A-Za-z0-9._-]`, none, or too many.
    #[error("invalid queue name: expected 1 to {NAME_BYTES_MAX} characters of [A-Za-z0-9._-]")]
    Queue,
    /// A flow-control key is empty or too long.
    #[error("invalid flow control key: expected 1 to {NAME_BYTES_MAX} bytes")]
    Flow,
    /// A host is empty or too long.
    #[error("invalid host: expected 1 to {NAME_BYTES_MAX} bytes")]
    Host,
    /// A stored text is no lane name.
    #[error("invalid lane name")]
    Name,
}

impl Lane {
    /// The lane of the queue `name`.
    pub fn queue(name: &str) -> Result<Self, LaneError> {
        if is_plain_name(name) {
            Ok(Self(format!("q:{name}").into()))
        } else {
            Err(LaneError::Queue)
        }
    }

    /// The lane of a flow-control key, which may hold any bytes.
    pub fn flow(key: &[u8]) -> Result<Self, LaneError> {
        if is_short(key) {
            let name = percent_encode(key, ENCODED_IN_FLOW_KEYS);
            Ok(Self(format!("f:{name}").into()))
        } else {
            Err(LaneError::Flow)
        }
    }

    /// The lane of a destination host, with its port if that matters.
    pub fn host(host: &str) -> Result<Self, LaneError> {
        if is_short(host.as_bytes()) {
            let name = percent_encode(host.as_bytes(), ENCODED_IN_HOSTS);
            Ok(Self(format!("h:{name}").into()))
        } else {
            Err(LaneError::Host)
        }
    }

    /// Reads a name that [`Self::as_str`] gave.
    pub fn parse(text: &str) -> Result<Self, LaneError> {
        let (kind, name) = text.split_once(':').ok_or(LaneError::Name)?;
        let lane = match kind {
            "q" => Self::queue(name),
            "f" => Self::flow(&percent_decode_str(name).collect::<Vec<u8>>()),
            "h" => match percent_decode_str(name).decode_utf8() {
                Ok(host) => Self::host(&host),
                Err(_) => Err(LaneError::Name),
            },
            _ => Err(LaneError::Name),
        }?;
        if lane.as_str() == text {
            Ok(lane)
        } else {
            Err(LaneError::Name)
        }
    }

    /// What the lane orders or limits.
    pub fn kind(&self) -> LaneKind {
        match self.0.as_bytes().first() {
            Some(b'q') => LaneKind::Queue,
            Some(b'f') => LaneKind::Flow,
            _ => LaneKind::Host,
        }
    }

    /// The whole name, as used in keys.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The queue name, flow-control key or host it was made from.
    pub fn plain_name(&self) -> Vec<u8> {
        let name = self.0.split_once(':').map_or("", |(_, name)| name);
        percent_decode_str(name).collect()
    }
}

/// Whether `name` can be that of a queue, a URL group or a schedule: 1 to 256 characters of `[A-Za-z0-9._-]`.
pub fn is_plain_name(name: &str) -> bool {
    is_short(name.as_bytes()) && name.bytes().all(is_plain)
}

fn is_short(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

impl TryFrom<String> for Lane {
    type Error = LaneError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<Lane> for String {
    fn from(lane: Lane) -> Self {
        lane.as_str().to_owned()
    }
}

impl AsRef<str> for Lane {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_tell_the_kind() {
        let queue = Lane::queue("orders.eu-1_x").unwrap();
        assert_eq!(
            (queue.as_str(), queue.kind()),
            ("q:orders.eu-1_x", LaneKind::Queue)
        );
        let flow = Lane::flow("a b/c|ü".as_bytes()).unwrap();
        assert_eq!(
            (flow.as_str(), flow.kind()),
            ("f:a%20b%2Fc%7C%C3%BC", LaneKind::Flow)
        );
        let host = Lane::host("[::1]:80").unwrap();
        assert_eq!((host.as_str(), host.kind()), ("h:[::1]:80", LaneKind::Host));
    }

    #[test]
    fn queue_names_outside_the_alphabet_are_refused_by_name() {
        for name in [
            "",
            "a b",
            "a/b",
            "a|b",
            "é",
            "a\n",
            "%41",
            "a:b",
            &"x".repeat(257),
        ] {
            let error = Lane::queue(name).unwrap_err().to_string();
            assert!(error.starts_with("invalid queue name"), "{error}");
        }
        assert!(Lane::queue(&"x".repeat(256)).is_ok());
        assert_eq!(Lane::flow(b""), Err(LaneError::Flow));
        assert_eq!(Lane::flow(&[b'x'; 257]), Err(LaneError::Flow));
    }

    #[test]
    fn only_names_in_their_one_spelling_are_read_back() {
        for text in [
            "", "q", "q:", "z:a", "q:a b", "f:a b", "f:%41", "f:%2f", "h:a|b", "h:%FF",
        ] {
            assert!(Lane::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_flow_key_makes_a_clean_name_and_comes_back(
            key in proptest::collection::vec(any::<u8>(), 1..=256)
        ) {
            let lane = Lane::flow(&key).unwrap();
            prop_assert!(lane.as_str().bytes().all(|b| b.is_ascii_graphic() && b != b'|'));
            prop_assert_eq!(lane.plain_name(), key);
            prop_assert_eq!(Lane::parse(lane.as_str()).unwrap(), lane);
        }

        #[test]
        fn reading_any_text_never_panics(text in ".*") {
            if let Ok(lane) = Lane::parse(&text) {
                prop_assert_eq!(lane.as_str(), text);
            }
        }
    }
}
