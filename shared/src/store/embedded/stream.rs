//! An append-only list of entries with ids.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;

use super::number::parse_unsigned;

/// A stream. It stays when its last entry goes, and so does the last id.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stream {
    pub(super) entries: BTreeMap<StreamId, Vec<Bytes>>,
    /// No later entry may have an id that is not greater.
    pub(super) last: StreamId,
}

/// `milliseconds-sequence`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamId {
    pub(super) ms: u64,
    pub(super) seq: u64,
}

impl StreamId {
    pub(super) const MAX: Self = Self {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// Reads `ms-seq`, or `ms` alone with `seq` as its sequence.
    pub(super) fn parse(text: &[u8], seq: u64) -> Option<Self> {
        match text.iter().position(|byte| *byte == b'-') {
            None => parse_unsigned(text).map(|ms| Self { ms, seq }),
            Some(dash) => {
                let ms = parse_unsigned(text.get(..dash)?)?;
                let seq = parse_unsigned(text.get(dash + 1..)?)?;
                Some(Self { ms, seq })
            }
        }
    }

    /// The smallest greater id.
    pub(super) fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => self.ms.checked_add(1).map(|ms| Self { ms, seq: 0 }),
        }
    }

    /// The greatest smaller id.
    pub(super) fn previous(self) -> Option<Self> {
        if let Some(seq) = self.seq.checked_sub(1) {
            return Some(Self { seq, ..self });
        }
        let ms = self.ms.checked_sub(1)?;
        Some(Self { ms, seq: u64::MAX })
    }

    pub(super) fn to_bytes(self) -> Bytes {
        Bytes::from(self.to_string())
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}
