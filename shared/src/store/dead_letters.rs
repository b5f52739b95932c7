//! The dead-letter queue: listing, reading, redriving, deleting.

use bytes::Bytes;

use super::args::{Args, Reader, command, integer, text};
use super::host::{HostError, Reply, Step};
use super::{Record, Store, scripts};
use crate::message::{MessageId, Shard};

/// A listed envelope is read up to here; a longer header block is read again whole.
const LISTED_ENVELOPE_END: &str = "4095";
/// How many entries with one time of death are skipped to find a cursor whose entry has gone.
const TIES_MAX: usize = 2_000;

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

/// Where a page ended: the next one starts after this entry, newest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DlqCursor {
    /// Time of death of the last entry.
    pub died_ms: u64,
    /// The last entry.
    pub id: MessageId,
}

/// One page, newest first.
#[derive(Debug, Clone)]
pub struct DeadLetterPage {
    /// The entries.
    pub letters: Vec<DeadLetter>,
    /// `None` on the last page.
    pub cursor: Option<DlqCursor>,
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

impl Store {
    /// Up to `count` dead letters of all shards, newest first, after `cursor`. O(count + shards).
    pub async fn dead_letters(
        &self,
        cursor: Option<&DlqCursor>,
        count: usize,
    ) -> Result<DeadLetterPage, HostError> {
        let mut found = Vec::new();
        for shard in self.shards().iter() {
            found.extend(self.deaths_of(shard, cursor, count + 1).await?);
        }
        found.sort_by(|a, b| b.cmp(a));
        let has_more = found.len() > count;
        found.truncate(count);
        let mut letters = Vec::with_capacity(found.len());
        for death in &found {
            if let Some(letter) = self.dead_letter_at(death, LISTED_ENVELOPE_END).await? {
                letters.push(letter);
            }
        }
        Ok(DeadLetterPage {
            letters,
            cursor: found.pop().filter(|_| has_more),
        })
    }

    /// One dead letter with its whole envelope; `None` when `id` is not one.
    pub async fn dead_letter(&self, id: &MessageId) -> Result<Option<DeadLetter>, HostError> {
        let died_ms = self.time_of_death(id).await?;
        match died_ms {
            Some(died_ms) => {
                self.dead_letter_at(&DlqCursor { died_ms, id: *id }, "-1")
                    .await
            }
            None => Ok(None),
        }
    }

    /// Makes the dead letter `old` the new message `new` (same shard, drawn once and kept over
    /// repeats), at the tail of its lane with a fresh retry budget. `shared` is an envelope that
    /// names `old`'s body; it is used when other messages use that body too. Safe to repeat.
    pub async fn redrive(
        &self,
        old: &MessageId,
        new: &MessageId,
        shared: Bytes,
        event: Bytes,
    ) -> Result<Redriven, HostError> {
        let args = Args::new()
            .text(old.as_str())
            .text(new.as_str())
            .bytes(shared)
            .bytes(event);
        let reply = self
            .run_script(old.shard(), &scripts::REDRIVE_MESSAGE, args)
            .await?;
        Ok(match text(&reply).as_deref() {
            Some("accepted") => Redriven::Accepted,
            Some("gone") => Redriven::Gone,
            _ => Redriven::None,
        })
    }

    /// Deletes a dead letter for good; `false` when there is none. Safe to repeat.
    pub async fn delete_dead_letter(&self, id: &MessageId) -> Result<bool, HostError> {
        let args = Args::new().text(id.as_str());
        let reply = self
            .run_script(id.shard(), &scripts::DELETE_DEAD_LETTER, args)
            .await?;
        Ok(text(&reply).as_deref() == Some("deleted"))
    }

    async fn time_of_death(&self, id: &MessageId) -> Result<Option<u64>, HostError> {
        let key = self.keys.of_shard(id.shard(), "x");
        let score = self
            .run_one(command([b"ZSCORE", &key, id.as_str().as_bytes()]))
            .await?;
        Ok(text(&score).and_then(|score| score.parse().ok()))
    }

    async fn deaths_of(
        &self,
        shard: Shard,
        cursor: Option<&DlqCursor>,
        count: usize,
    ) -> Result<Vec<DlqCursor>, HostError> {
        let key = self.keys.of_shard(shard, "x");
        let mut start = match cursor {
            Some(cursor) => self.rank_after(&key, cursor).await?,
            None => 0,
        };
        let mut deaths = Vec::new();
        let mut ties = 0;
        while deaths.len() < count && ties < TIES_MAX {
            let end = start + count - deaths.len() - 1;
            let (from, to) = (start.to_string(), end.to_string());
            let reply = self
                .run_one(command([
                    b"ZREVRANGE",
                    &key,
                    from.as_bytes(),
                    to.as_bytes(),
                    b"WITHSCORES",
                ]))
                .await?;
            let mut reader = Reader::new(reply, "dead letters")?;
            if reader.len() == 0 {
                break;
            }
            while reader.len() > 0 {
                let id = reader.text()?.parse::<MessageId>();
                let died_ms = reader.number()?;
                start += 1;
                let Ok(id) = id else { continue };
                let death = DlqCursor { died_ms, id };
                if cursor.is_some_and(|cursor| death >= *cursor) {
                    ties += 1;
                } else {
                    deaths.push(death);
                }
            }
        }
        Ok(deaths)
    }

    /// Rank of the first entry after `cursor`. If the cursor's entry has gone, or lies in another
    /// shard, that of the first entry with its time of death.
    async fn rank_after(&self, key: &Bytes, cursor: &DlqCursor) -> Result<usize, HostError> {
        let above = format!("({}", cursor.died_ms);
        let steps = vec![
            command([b"ZREVRANK", key, cursor.id.as_str().as_bytes()]),
            command([b"ZCOUNT", key, above.as_bytes(), b"+inf"]),
        ];
        let mut replies = self.host.run(steps).await.into_iter();
        let mut next = || {
            replies
                .next()
                .unwrap_or_else(|| Err(HostError::Lost(String::new())))
        };
        let (rank, count) = (next()?, next()?);
        let known = if rank == Reply::Nil {
            None
        } else {
            integer(&rank).map(|rank| rank + 1)
        };
        let rank = known.or_else(|| integer(&count)).unwrap_or(0);
        Ok(usize::try_from(rank).unwrap_or(0))
    }

    async fn dead_letter_at(
        &self,
        death: &DlqCursor,
        end: &str,
    ) -> Result<Option<DeadLetter>, HostError> {
        let (shard, id) = (death.id.shard(), death.id.as_str());
        let key = self.keys.envelope(shard, id);
        let steps = vec![
            Step::Command(vec![
                "HGET".into(),
                self.keys.of_shard(shard, "m"),
                id.to_owned().into(),
            ]),
            command([b"GETRANGE", &key, b"0", end.as_bytes()]),
            command([b"STRLEN", &key]),
            Step::Command(vec!["GET".into(), self.keys.response(shard, id)]),
        ];
        let mut replies = self.host.run(steps).await.into_iter();
        let mut next = || {
            replies
                .next()
                .unwrap_or_else(|| Err(HostError::Lost(String::new())))
        };
        let (packed, envelope, length, response) = (next()?, next()?, next()?, next()?);
        let bytes = |reply| {
            if let Reply::Bytes(bytes) = reply {
                bytes
            } else {
                Bytes::new()
            }
        };
        let Reply::Bytes(packed) = packed else {
            return Ok(None);
        };
        let envelope = bytes(envelope);
        let whole = integer(&length)
            .and_then(|length| usize::try_from(length).ok())
            .unwrap_or(0);
        Ok(Some(DeadLetter {
            id: death.id,
            died_ms: death.died_ms,
            record: Record::parse(&packed),
            is_cut: envelope.len() < whole,
            envelope,
            response: bytes(response),
        }))
    }
}
