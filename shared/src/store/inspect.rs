//! Reading one message, and cancelling it.

use bytes::Bytes;

use super::args::{Args, text};
use super::host::{HostError, Reply, Step};
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
        let command = |words: Vec<Bytes>| Step::Command(words);
        let member = Bytes::copy_from_slice(id.as_str().as_bytes());
        let steps = vec![
            command(vec![
                "HGET".into(),
                self.keys.of_shard(shard, "m"),
                member.clone(),
            ]),
            command(vec!["GET".into(), self.keys.envelope(shard, id.as_str())]),
            command(vec![
                "ZSCORE".into(),
                self.keys.of_shard(shard, "d"),
                member,
            ]),
        ];
        let mut replies = self.host.run(steps).await.into_iter();
        let mut next = || {
            replies
                .next()
                .unwrap_or_else(|| Err(HostError::Lost(String::new())))
        };
        let (packed, envelope, due) = (next()?, next()?, next()?);
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

    /// Cancels `id`. Safe to repeat.
    pub async fn cancel(&self, id: &MessageId, event: Bytes) -> Result<Cancelled, HostError> {
        let args = Args::new().text(id.as_str()).bytes(event);
        let reply = self
            .run_script(id.shard(), &scripts::CANCEL_MESSAGE, args)
            .await?;
        Ok(match text(&reply).as_deref() {
            Some("cancelled") => Cancelled::Now,
            Some("requested") => Cancelled::Requested,
            _ => Cancelled::None,
        })
    }
}
