//! Reading one message, and cancelling it.

use bytes::Bytes;

use super::args::{Args, command, text};
use super::host::{HostError, Reply};
use super::{Record, Store, scripts};
use crate::message::MessageId;

/// A message as it is stored. A snapshot: it may have moved on when this is read.
#[derive(Debug, Clone)]
pub struct StoredMessage {
    /// Its record.
    pub record: Record,
    /// Its encoded envelope.
    pub envelope: Bytes,
    /// The encoded envelope whose body it shares, if it shares one.
    pub shared_body: Option<Bytes>,
    /// When it is due, in milliseconds since the epoch, while it waits for that.
    pub due_ms: Option<u64>,
}

/// The answer to a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It ended here and now.
    Now,
    /// A worker holds it and drops its call at the next renewal, unless it succeeds before.
    Requested,
    /// There is no such message, or it has ended already.
    None,
}

impl Store {
    /// The message `id`; `None` once it has ended and its grace is over, or was never accepted.
    pub async fn message(&self, id: &MessageId) -> Result<Option<StoredMessage>, HostError> {
        let shard = id.shard();
        let (records, due) = (
            self.keys.of_shard(shard, "m"),
            self.keys.of_shard(shard, "d"),
        );
        let member = id.as_str().as_bytes();
        let steps = vec![
            command([b"HGET", &records, member]),
            command([b"GET", &self.keys.envelope(shard, id.as_str())]),
            command([b"ZSCORE", &due, member]),
        ];
        let [packed, envelope, due] = self.run_all(steps).await?;
        let (Reply::Bytes(packed), Reply::Bytes(envelope)) = (packed, envelope) else {
            return Ok(None);
        };
        let Some(record) = Record::parse(&packed) else {
            return Ok(None);
        };
        let shared_body = match &record.body_key {
            Some(key) => self.get(self.keys.envelope(shard, key)).await?,
            None => None,
        };
        let due_ms = text(&due).and_then(|score| score.parse().ok());
        Ok(Some(StoredMessage {
            record,
            envelope,
            shared_body,
            due_ms,
        }))
    }

    /// The first 4,096 bytes of each message's envelope; empty for a message that is not there.
    pub async fn envelope_heads(&self, ids: &[MessageId]) -> Result<Vec<Bytes>, HostError> {
        let read = |store: &Self, id: &MessageId| {
            let key = store.keys.envelope(id.shard(), id.as_str());
            vec![command([b"GETRANGE", &key, b"0", b"4095"])]
        };
        let replies = self.batched(ids, MessageId::shard, read).await?;
        let heads = replies
            .into_iter()
            .map(|replies| match replies.into_iter().next() {
                Some(Reply::Bytes(head)) => head,
                _ => Bytes::new(),
            });
        Ok(heads.collect())
    }

    /// The first `bytes` of the envelope of `id`; empty for a message that is not there.
    pub async fn envelope_start(&self, id: &MessageId, bytes: usize) -> Result<Bytes, HostError> {
        let key = self.keys.envelope(id.shard(), id.as_str());
        let last = bytes.saturating_sub(1).to_string();
        let words: [&[u8]; 4] = [b"GETRANGE", &key, b"0", last.as_bytes()];
        match self.run_one(command(words)).await? {
            Reply::Bytes(start) => Ok(start),
            _ => Ok(Bytes::new()),
        }
    }

    /// Cancels `id`. Safe to repeat.
    pub async fn cancel(&self, id: &MessageId, event: Bytes) -> Result<Cancelled, HostError> {
        let cancelled = self.cancel_all(&[(*id, event)]).await?;
        Ok(cancelled.first().copied().unwrap_or(Cancelled::None))
    }

    /// Cancels each of the messages, which come with their entries in the event log. An error may
    /// come after some were cancelled; safe to repeat.
    pub async fn cancel_all(
        &self,
        messages: &[(MessageId, Bytes)],
    ) -> Result<Vec<Cancelled>, HostError> {
        let script = |store: &Self, (id, event): &(MessageId, Bytes)| {
            let args = Args::new().text(id.as_str()).bytes(event.clone());
            vec![store.script(id.shard(), &scripts::CANCEL_MESSAGE, args)]
        };
        let replies = self.batched(messages, |(id, _)| id.shard(), script).await?;
        let cancelled =
            replies
                .iter()
                .map(|replies| match replies.first().and_then(text).as_deref() {
                    Some("cancelled") => Cancelled::Now,
                    Some("requested") => Cancelled::Requested,
                    _ => Cancelled::None,
                });
        Ok(cancelled.collect())
    }
}
