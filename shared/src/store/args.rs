//! Building script arguments and reading replies.

use bytes::Bytes;

use super::host::{HostError, Reply};

/// Arguments of one script call, in order.
#[derive(Debug, Default)]
pub(super) struct Args(Vec<Bytes>);

impl Args {
    pub(super) fn new() -> Self {
        Self::default()
    }

    pub(super) fn bytes(mut self, value: impl Into<Bytes>) -> Self {
        self.0.push(value.into());
        self
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.bytes(Bytes::copy_from_slice(value.as_bytes()))
    }

    pub(super) fn number(self, value: impl Into<u64>) -> Self {
        let number: u64 = value.into();
        self.bytes(number.to_string())
    }

    pub(super) fn flag(self, value: bool) -> Self {
        self.bytes(Bytes::from_static(if value { b"1" } else { b"0" }))
    }

    pub(super) fn finish(self) -> Vec<Bytes> {
        self.0
    }
}

/// A plain command from its words.
pub(super) fn command<const N: usize>(words: [&[u8]; N]) -> super::host::Step {
    super::host::Step::Command(
        words
            .iter()
            .map(|word| Bytes::copy_from_slice(word))
            .collect(),
    )
}

/// Reads a reply of known shape; a wrong shape is a fault that names where.
#[derive(Debug)]
pub(super) struct Reader {
    items: std::vec::IntoIter<Reply>,
    what: &'static str,
}

impl Reader {
    pub(super) fn new(reply: Reply, what: &'static str) -> Result<Self, HostError> {
        match reply {
            Reply::Array(items) => Ok(Self {
                items: items.into_iter(),
                what,
            }),
            other => Err(unexpected(what, &other)),
        }
    }

    pub(super) fn next(&mut self) -> Result<Reply, HostError> {
        self.items
            .next()
            .ok_or_else(|| HostError::Fault(format!("{}: reply is short", self.what)))
    }

    pub(super) fn array(&mut self) -> Result<Reader, HostError> {
        Reader::new(self.next()?, self.what)
    }

    pub(super) fn text(&mut self) -> Result<String, HostError> {
        let reply = self.next()?;
        text(&reply).ok_or_else(|| unexpected(self.what, &reply))
    }

    pub(super) fn integer(&mut self) -> Result<i64, HostError> {
        let reply = self.next()?;
        integer(&reply).ok_or_else(|| unexpected(self.what, &reply))
    }

    pub(super) fn number(&mut self) -> Result<u64, HostError> {
        Ok(u64::try_from(self.integer()?).unwrap_or(0))
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }
}

pub(super) fn text(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Bytes(bytes) => String::from_utf8(bytes.to_vec()).ok(),
        Reply::Status(status) => Some(status.clone()),
        Reply::Int(number) => Some(number.to_string()),
        Reply::Nil | Reply::Array(_) => None,
    }
}

pub(super) fn integer(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Int(number) => Some(*number),
        other => text(other)?.parse().ok(),
    }
}

pub(super) fn unexpected(what: &'static str, reply: &Reply) -> HostError {
    HostError::Fault(
        format!("{what}: unexpected reply {reply:?}")
            .chars()
            .take(300)
            .collect(),
    )
}
