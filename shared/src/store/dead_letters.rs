//! The dead-letter queue: reading, redriving, deleting. Walking it is in `deaths`.

use bytes::Bytes;

use super::args::{Args, command, integer, text};
use super::host::{HostError, Reply, Step};
use super::publish::due;
use super::{Record, Store, scripts};
use crate::message::{MessageId, When};

/// A listed envelope is read up to here; a longer header block is read again whole.
const HEAD_END: &[u8] = b"4095";

/// A dead letter as listed.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// The message.
    pub id: MessageId,
    /// Time of death, milliseconds since the epoch.
    pub died_ms: u64,
    /// Its record; `None` if it cannot be read.
    pub record: Option<Record>,
    /// The first 4,096 bytes of its envelope, or all of it; empty if the envelope is missing.
    pub envelope: Bytes,
    /// Whether `envelope` is cut.
    pub is_cut: bool,
    /// Its encoded last response; empty when there is none.
    pub response: Bytes,
}

/// One entry of the queue. As a cursor: where a page ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DlqCursor {
    /// Time of death, milliseconds since the epoch.
    pub died_ms: u64,
    /// The message.
    pub id: MessageId,
}

/// The answer to a redrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redriven {
    /// The new message is in the store.
    Accepted,
    /// There is no such dead letter.
    None,
    /// The dead letter's envelope is missing, so nothing can be sent.
    Gone,
}

/// What a redrive needs.
#[derive(Debug, Clone)]
pub struct Redrive {
    /// The dead letter.
    pub old: MessageId,
    /// The message that it becomes: of the same shard, drawn once and kept over repeats.
    pub new: MessageId,
    /// An envelope that names the body of `old`; used when other messages use that body too, or
    /// when it is changed.
    pub shared: Bytes,
    /// The entry in the event log.
    pub event: Bytes,
    /// What `shared` has otherwise than `old`; `None` when nothing.
    pub change: Option<RedriveChange>,
}

/// What a redriven message has otherwise than its dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedriveChange {
    /// The body key that the new envelope names: the one of `old` if that has one, else `old`
    /// itself; `None` when the envelope carries all it needs.
    pub body_key: Option<String>,
    /// Retries after the first attempt.
    pub retries: u32,
    /// When it is due.
    pub when: When,
}

impl Store {
    /// The letters of `deaths`, in their order; `None` for one that has gone. The envelopes are read
    /// up to their first 4,096 bytes. One pipeline for each shard and 64 letters.
    pub async fn dead_letters_at(
        &self,
        deaths: &[DlqCursor],
    ) -> Result<Vec<Option<DeadLetter>>, HostError> {
        self.read_letters(deaths, Depth::Listed).await
    }

    /// The same with no more of the last response than its first 4,096 bytes: what filters look at.
    /// A response that is cut may not decode.
    pub async fn dead_letter_heads(
        &self,
        deaths: &[DlqCursor],
    ) -> Result<Vec<Option<DeadLetter>>, HostError> {
        self.read_letters(deaths, Depth::Heads).await
    }

    /// One dead letter with its whole envelope; `None` when `id` is not one.
    pub async fn dead_letter(&self, id: &MessageId) -> Result<Option<DeadLetter>, HostError> {
        let deaths = self.deaths_by_id(std::slice::from_ref(id)).await?;
        let mut letters = self.read_letters(&deaths, Depth::Whole).await?;
        Ok(letters.pop().flatten())
    }

    /// Those of `ids` that are dead letters, with their times of death, in no meaningful order.
    pub async fn deaths_by_id(&self, ids: &[MessageId]) -> Result<Vec<DlqCursor>, HostError> {
        let score = |store: &Self, id: &MessageId| {
            let key = store.keys.of_shard(id.shard(), "x");
            vec![command([b"ZSCORE", &key, id.as_str().as_bytes()])]
        };
        let scores = self.batched(ids, MessageId::shard, score).await?;
        let deaths = ids.iter().zip(scores).filter_map(|(id, replies)| {
            let died_ms = text(replies.first()?)?.parse().ok()?;
            Some(DlqCursor { died_ms, id: *id })
        });
        Ok(deaths.collect())
    }

    /// Makes the dead letter `old` the new message `new`: see [`Redrive`].
    pub async fn redrive(
        &self,
        old: &MessageId,
        new: &MessageId,
        shared: Bytes,
        event: Bytes,
    ) -> Result<Redriven, HostError> {
        let (old, new) = (*old, *new);
        let redrive = Redrive {
            old,
            new,
            shared,
            event,
            change: None,
        };
        let redriven = self.redrive_all(&[redrive]).await?;
        Ok(redriven.first().copied().unwrap_or(Redriven::None))
    }

    /// Makes each dead letter a new message at the tail of its lane, with a fresh retry budget. An
    /// error may come after some were redriven; safe to repeat.
    pub async fn redrive_all(&self, redrives: &[Redrive]) -> Result<Vec<Redriven>, HostError> {
        let script = |store: &Self, redrive: &Redrive| {
            let args = Args::new()
                .text(redrive.old.as_str())
                .text(redrive.new.as_str())
                .bytes(redrive.shared.clone())
                .bytes(redrive.event.clone())
                .flag(redrive.change.is_some());
            let args = match &redrive.change {
                Some(change) => {
                    let (due_ms, delay_ms) = due(change.when);
                    args.text(change.body_key.as_deref().unwrap_or_default())
                        .number(change.retries)
                        .number(due_ms)
                        .number(delay_ms)
                }
                None => args,
            };
            vec![store.script(redrive.old.shard(), &scripts::REDRIVE_MESSAGE, args)]
        };
        let replies = self
            .batched(redrives, |redrive| redrive.old.shard(), script)
            .await?;
        let redriven =
            replies
                .iter()
                .map(|replies| match replies.first().and_then(text).as_deref() {
                    Some("accepted") => Redriven::Accepted,
                    Some("gone") => Redriven::Gone,
                    _ => Redriven::None,
                });
        Ok(redriven.collect())
    }

    /// Deletes a dead letter for good; `false` when there is none. Safe to repeat.
    pub async fn delete_dead_letter(&self, id: &MessageId) -> Result<bool, HostError> {
        Ok(self.delete_dead_letters(std::slice::from_ref(id)).await? == 1)
    }

    /// Deletes dead letters for good; how many there were. An error may come after some were
    /// deleted; safe to repeat.
    pub async fn delete_dead_letters(&self, ids: &[MessageId]) -> Result<usize, HostError> {
        let script = |store: &Self, id: &MessageId| {
            let args = Args::new().text(id.as_str());
            vec![store.script(id.shard(), &scripts::DELETE_DEAD_LETTER, args)]
        };
        let replies = self.batched(ids, MessageId::shard, script).await?;
        let is_deleted =
            |replies: &&Vec<Reply>| replies.first().and_then(text).as_deref() == Some("deleted");
        Ok(replies.iter().filter(is_deleted).count())
    }

    async fn read_letters(
        &self,
        deaths: &[DlqCursor],
        depth: Depth,
    ) -> Result<Vec<Option<DeadLetter>>, HostError> {
        let read = |store: &Self, death: &DlqCursor| store.letter_steps(death, depth);
        let replies = self.batched(deaths, |death| death.id.shard(), read).await?;
        let letters = deaths.iter().zip(replies);
        Ok(letters
            .map(|(death, replies)| letter(death, replies))
            .collect())
    }

    fn letter_steps(&self, death: &DlqCursor, depth: Depth) -> Vec<Step> {
        let (shard, id) = (death.id.shard(), death.id.as_str());
        let (records, envelope) = (
            self.keys.of_shard(shard, "m"),
            self.keys.envelope(shard, id),
        );
        let response = self.keys.response(shard, id);
        let (envelope_end, response_end) = match depth {
            Depth::Heads => (HEAD_END, HEAD_END),
            Depth::Listed => (HEAD_END, b"-1".as_slice()),
            Depth::Whole => (b"-1".as_slice(), b"-1".as_slice()),
        };
        vec![
            command([b"HGET", &records, id.as_bytes()]),
            command([b"GETRANGE", &envelope, b"0", envelope_end]),
            command([b"STRLEN", &envelope]),
            command([b"GETRANGE", &response, b"0", response_end]),
        ]
    }
}

/// How much of a letter is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Depth {
    Heads,
    Listed,
    Whole,
}

fn letter(death: &DlqCursor, replies: Vec<Reply>) -> Option<DeadLetter> {
    let bytes = |reply| match reply {
        Reply::Bytes(bytes) => bytes,
        _ => Bytes::new(),
    };
    let [packed, envelope, length, response] = <[Reply; 4]>::try_from(replies).ok()?;
    let Reply::Bytes(packed) = packed else {
        return None;
    };
    let envelope = bytes(envelope);
    let whole = integer(&length).and_then(|length| usize::try_from(length).ok());
    Some(DeadLetter {
        id: death.id,
        died_ms: death.died_ms,
        record: Record::parse(&packed),
        is_cut: envelope.len() < whole.unwrap_or_default(),
        envelope,
        response: bytes(response),
    })
}
