//! Publishing: a message is durable in the store before the call returns, and repeating an unclear
//! call never makes a second message.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use hookstash_shared::clock::Clock;
use hookstash_shared::message::{EnvelopeError, MessageId, NewMessage, Shard};
use hookstash_shared::random::Random;
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Accepted, Enqueue, EnqueueGroup, Store};

/// Longest time one call goes on repeating after an unclear answer.
pub const PATIENCE_MAX: Duration = Duration::from_secs(5);
/// Messages in one pipeline.
const BATCH_MESSAGES_MAX: usize = 64;
/// Envelope bytes in one pipeline; a single larger message still goes, alone.
const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// An accepted message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// Its id; of a duplicate, the id of the first message.
    pub id: MessageId,
    /// Whether a message with the same deduplication id came first, so that nothing was stored.
    pub is_duplicate: bool,
}

/// Why a publish did not end in "accepted".
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Nothing was stored. Sending the message again is safe.
    #[error("the message was not accepted")]
    NotAccepted(#[source] HostError),
    /// No answer came in time, or too few replicas have the message: it may or may not have been
    /// stored. Sending it again is
    /// safe only with a deduplication id, or through [`Publisher::publish`] with the same id.
    #[error("it is unknown whether message {id} was accepted")]
    Unknown {
        /// The id it has if it was stored.
        id: MessageId,
        /// The last error.
        #[source]
        source: HostError,
    },
    /// The message cannot be stored at all.
    #[error("the message cannot be stored")]
    Envelope(#[from] EnvelopeError),
}

/// Puts messages into the store. Cheap to clone; calls may overlap.
#[derive(Clone)]
pub struct Publisher {
    store: Store,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// One message of a call, with what is known of it so far.
struct Item {
    message: Enqueue,
    may_be_stored: bool,
    result: Option<Result<Published, PublishError>>,
}

impl Publisher {
    /// A publisher into `store`, which is on a host that answers once a write is as durable as asked.
    pub fn new(store: Store, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self {
            store,
            clock,
            random,
        }
    }

    /// The store it publishes through, which answers once a write is as durable as asked.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Whether messages can be accepted now: a write that creates nothing, as durable as a publish.
    pub async fn ping(&self) -> Result<(), HostError> {
        self.store.ping().await
    }

    /// A new id in the shard where `message` belongs.
    pub fn id_for(&self, message: &NewMessage) -> MessageId {
        let shard = message.place(self.store.shards(), &*self.random);
        MessageId::new(shard, self.clock.now_ms(), &*self.random)
    }

    /// Publishes one message. After an unclear answer the same id is sent again for up to
    /// `patience` (at most [`PATIENCE_MAX`]).
    pub async fn publish(
        &self,
        message: NewMessage,
        patience: Duration,
    ) -> Result<Published, PublishError> {
        let id = self.id_for(&message);
        let mut results = self.publish_many(vec![(id, message)], patience).await;
        results.pop().unwrap_or_else(|| {
            Err(PublishError::Unknown {
                id,
                source: HostError::Lost("no result".to_owned()),
            })
        })
    }

    /// Publishes messages under ids from [`Publisher::id_for`], in order within each lane, in as few
    /// round trips as the limits of a pipeline allow. One result for each, in the same order.
    /// Repeating the call with the same ids is safe.
    pub async fn publish_many(
        &self,
        messages: Vec<(MessageId, NewMessage)>,
        patience: Duration,
    ) -> Vec<Result<Published, PublishError>> {
        let mut items = Vec::with_capacity(messages.len());
        let mut refused = BTreeMap::new();
        let total = messages.len();
        for (index, (id, message)) in messages.into_iter().enumerate() {
            match Enqueue::new(id, message) {
                Ok(message) => items.push(Item {
                    message,
                    may_be_stored: false,
                    result: None,
                }),
                Err(error) => drop(refused.insert(index, error)),
            }
        }
        self.send_all(&mut items, patience.min(PATIENCE_MAX)).await;
        let mut sent = items.into_iter();
        (0..total)
            .filter_map(|index| match refused.remove(&index) {
                Some(error) => Some(Err(error.into())),
                None => sent.next().and_then(|item| item.result),
            })
            .collect()
    }

    /// Publishes the messages to the endpoints of a URL group, which have one body and are kept
    /// together. One result for each, in the same order, or none: then none was accepted, or it is
    /// unknown of all. Patience as for [`Publisher::publish`].
    pub async fn publish_group(
        &self,
        messages: Vec<NewMessage>,
        patience: Duration,
    ) -> Result<Vec<Published>, PublishError> {
        let Some(first) = messages.first() else {
            return Ok(Vec::new());
        };
        let shard = first.place(self.store.shards(), &*self.random);
        let new_id = || MessageId::new(shard, self.clock.now_ms(), &*self.random);
        let messages: Vec<_> = messages.into_iter().map(|one| (new_id(), one)).collect();
        let first = messages.first().map_or_else(new_id, |(id, _)| *id);
        let group = EnqueueGroup::new(messages)?;
        let deadline = self.clock.monotonic() + patience.min(PATIENCE_MAX);
        let (mut pauses, mut may_be_stored) = (pauses(), false);
        loop {
            let error = match self.store.publish_group(shard, &group).await {
                Ok(answers) => return Ok(answers.into_iter().map(Published::from).collect()),
                Err(error) => error,
            };
            may_be_stored |= error.may_be_applied();
            let left = deadline.saturating_sub(self.clock.monotonic());
            match pauses.next() {
                Some(pause) if may_change(&error) && pause < left => {
                    tokio::time::sleep(pause).await;
                }
                _ => return Err(failure(first, may_be_stored, error)),
            }
        }
    }

    /// Sends what is open, shard by shard, until everything has its result or patience ends.
    async fn send_all(&self, items: &mut [Item], patience: Duration) {
        let deadline = self.clock.monotonic() + patience;
        let mut pauses = pauses();
        loop {
            let left = deadline.saturating_sub(self.clock.monotonic());
            let pause = pauses.next().filter(|pause| *pause < left);
            self.send_once(items, pause.is_none()).await;
            match pause {
                Some(pause) if items.iter().any(|item| item.result.is_none()) => {
                    tokio::time::sleep(pause).await;
                }
                _ => return,
            }
        }
    }

    async fn send_once(&self, items: &mut [Item], is_last: bool) {
        let mut by_shard: BTreeMap<Shard, Vec<&mut Item>> = BTreeMap::new();
        for item in items.iter_mut().filter(|item| item.result.is_none()) {
            by_shard
                .entry(item.message.id.shard())
                .or_default()
                .push(item);
        }
        for (shard, mut items) in by_shard {
            // What comes after an unclear one waits, or it would overtake it in their lane.
            let mut unclear: Option<HostError> = None;
            for batch in batches(&mut items) {
                let answers = match &unclear {
                    Some(_) if !is_last => break,
                    Some(error) => vec![Err(HostError::RetryLater(error.to_string())); batch.len()],
                    None => {
                        let messages = batch.iter().map(|item| item.message.clone());
                        let messages: Vec<Enqueue> = messages.collect();
                        self.store.publish(shard, &messages).await
                    }
                };
                let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
                unclear = unclear.or(errors.find(|error| may_change(error)).cloned());
                for (item, answer) in batch.iter_mut().zip(answers) {
                    item.take(answer, is_last);
                }
            }
        }
    }
}

impl Item {
    fn take(&mut self, answer: Result<Accepted, HostError>, is_last: bool) {
        self.result = match answer {
            Ok(accepted) => Some(Ok(accepted.into())),
            Err(error) => {
                self.may_be_stored |= error.may_be_applied();
                let (id, may_be_stored) = (self.message.id, self.may_be_stored);
                let is_end = is_last || !may_change(&error);
                is_end.then(|| Err(failure(id, may_be_stored, error)))
            }
        };
    }
}

impl From<Accepted> for Published {
    fn from(accepted: Accepted) -> Self {
        let (id, is_duplicate) = match accepted {
            Accepted::Message(id) => (id, false),
            Accepted::Duplicate(id) => (id, true),
        };
        Self { id, is_duplicate }
    }
}

/// What the last error means when earlier tries may have been applied.
fn failure(id: MessageId, may_be_stored: bool, source: HostError) -> PublishError {
    if may_be_stored {
        PublishError::Unknown { id, source }
    } else {
        PublishError::NotAccepted(source)
    }
}

/// The pauses between repeats, without end.
fn pauses() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::default()
        .with_min_delay(PAUSE_MIN)
        .with_max_delay(PAUSE_MAX)
        .with_jitter()
        .without_max_times()
        .build()
}

/// Whether sending the same again may end differently.
fn may_change(error: &HostError) -> bool {
    error.may_be_applied() || matches!(error, HostError::RetryLater(_))
}

/// Splits into pipelines within the limits, keeping order.
fn batches<'a, 'b>(items: &'a mut [&'b mut Item]) -> Vec<&'a mut [&'b mut Item]> {
    let mut batches = Vec::new();
    let mut rest = items;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = rest.iter().take(BATCH_MESSAGES_MAX).take_while(|item| {
            bytes += item.message.envelope.len();
            bytes <= BATCH_BYTES_MAX
        });
        let count = fits.count().max(1);
        let (batch, others) = rest.split_at_mut(count);
        batches.push(batch);
        rest = others;
    }
    batches
}
