//! Schedules: putting, reading, pausing and removing them. Firing them is in `tick`.
//!
//! A schedule lives in one shard, with the queue or flow-control key of its messages where they have
//! one, so that firing it is one script. Its definition is never changed: whoever puts it again
//! makes a new one, with a message under a new body key, and that key tells the two apart.

use bytes::Bytes;
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::args::{Args, Reader, command, integer, text};
use super::host::{HostError, Reply};
use super::{Store, scripts};
use crate::cron::Cron;
use crate::message::{Envelope, EnvelopeHeader, MessageId, Peek, Shard, State};

/// Most schedules of one store.
pub const SCHEDULES_MAX: u64 = 1_000;
/// Schedules on one page of a walk, about.
const PAGE: &[u8] = b"100";
/// A message is read up to here to find its header; a longer one is read again.
const HEAD_END: &[u8] = b"4095";
/// How often a put whose guarded message was gone is sent again.
const BODY_MISSING_RESENDS: u32 = 3;
/// Asks a script to act whatever the definition is.
const ANY_DEFINITION: &str = "";
/// The version of definitions.
const VERSION: u8 = 1;

/// What a schedule does. Beside it, under [`Self::body_key`], is the message that it sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The version of this form.
    #[serde(rename = "v")]
    version: u8,
    /// When it fires.
    #[serde(with = "cron_text")]
    pub cron: Cron,
    /// When it was put, in milliseconds since the epoch by the store's clock.
    pub created_ms: u64,
    /// The key of its message, of this shard; no two puts share one.
    pub body_key: String,
    /// How long each message waits before it is ready, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    /// The URL group whose endpoints get the messages; absent = the destination of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl Schedule {
    /// A schedule put at `created_ms`, whose message is under `body_key`.
    pub fn new(cron: Cron, created_ms: u64, body_key: String) -> Self {
        Self {
            version: VERSION,
            cron,
            created_ms,
            body_key,
            delay_ms: 0,
            group: None,
        }
    }

    /// What orders the copies of one schedule in several shards, the same for all who look: the
    /// greatest is the newest, which is the one that counts.
    pub fn age(&self) -> (u64, &str) {
        (self.created_ms, &self.body_key)
    }

    /// Reads a definition; `None` for one that this program cannot read.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        let read: Self = serde_json::from_slice(json).ok()?;
        (read.version == VERSION).then_some(read)
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the form that serde asks for"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

mod cron_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::cron::Cron;

    pub(super) fn serialize<S: Serializer>(cron: &Cron, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(cron.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Cron, D::Error> {
        Cron::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A schedule on its way into the store. The same value may be sent any number of times.
#[derive(Debug, Clone)]
pub struct PutSchedule {
    /// Its name.
    pub id: String,
    /// What it does.
    pub schedule: Schedule,
    /// Its encoded message.
    pub envelope: Bytes,
    /// When it is due first, in milliseconds since the epoch.
    pub due_ms: u64,
    /// Most schedules that its shard may hold.
    pub most: u64,
    /// Deduplication scope; `None` accepts every put.
    pub dedup_scope: Option<String>,
}

/// The answer to a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchedulePut {
    /// It is in the store, now or since an earlier try.
    Accepted,
    /// Another put with the same deduplication id came first, of this schedule; nothing was changed.
    Duplicate(String),
    /// There are too many.
    TooMany,
}

/// The answer to a resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumed {
    /// It is due again; one that was not paused as before.
    Resumed,
    /// Another one was put in between: its due time may differ.
    Changed,
    /// There is none.
    None,
}

/// A schedule as it is stored. A snapshot: it may have moved on when this is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSchedule {
    /// Its name.
    pub id: String,
    /// Where it is.
    pub shard: Shard,
    /// What it does.
    pub schedule: Schedule,
    /// Whether it is paused.
    pub is_paused: bool,
    /// When it is due, in milliseconds since the epoch; `None` while it is paused.
    pub due_ms: Option<u64>,
    /// When it last made messages, in milliseconds since the epoch.
    pub fired_ms: Option<u64>,
    /// The messages that it made then.
    pub fired: Vec<MessageId>,
    /// Why it made none when it was last due, or not all.
    pub fault: Option<String>,
}

/// One page of a walk over the schedules of a shard.
#[derive(Debug, Clone)]
pub struct SchedulePage {
    /// What was found.
    pub schedules: Vec<StoredSchedule>,
    /// Where the next page starts; 0 when the walk is over.
    pub cursor: u64,
}

impl Store {
    /// Puts a schedule into `shard`, in place of the one of its name if there is one there. Safe to
    /// repeat; after [`HostError::Lost`] it may or may not be there.
    pub async fn put_schedule(
        &self,
        shard: Shard,
        put: &PutSchedule,
    ) -> Result<SchedulePut, HostError> {
        let fault = |error: serde_json::Error| HostError::Fault(error.to_string());
        let definition = serde_json::to_vec(&put.schedule).map_err(fault)?;
        for _ in 0..=BODY_MISSING_RESENDS {
            let args = Args::new()
                .text(&put.id)
                .text(&put.schedule.body_key)
                .bytes(definition.clone())
                .number(put.due_ms)
                .number(put.most)
                .text(put.dedup_scope.as_deref().unwrap_or_default())
                .number(self.retention.dedup_window_ms);
            let steps = vec![
                self.guarded_envelope(shard, &put.schedule.body_key, &put.envelope),
                self.script(shard, &scripts::PUT_SCHEDULE, args),
            ];
            let mut replies = self.host.run(steps).await.into_iter();
            let no_reply = || Err(HostError::Lost("the host gave no reply".to_owned()));
            let set = replies.next().unwrap_or_else(no_reply);
            let answer = replies.next().unwrap_or_else(no_reply)?;
            let mut reader = Reader::new(answer, "put a schedule")?;
            match (reader.text()?.as_str(), reader.text()?) {
                ("accepted", _) => return Ok(SchedulePut::Accepted),
                ("duplicate", first) => return Ok(SchedulePut::Duplicate(first)),
                ("too_many", _) => return Ok(SchedulePut::TooMany),
                _ => drop(set?),
            }
        }
        let text = "the message was gone before the schedule was accepted";
        Err(HostError::RetryLater(text.to_owned()))
    }

    /// Removes a schedule from `shard`: whichever has its name, or only the one with this body key.
    /// Messages that it made stay. `false` when there is none. Safe to repeat.
    pub async fn remove_schedule(
        &self,
        shard: Shard,
        id: &str,
        body_key: Option<&str>,
    ) -> Result<bool, HostError> {
        let args = Args::new().text(id).text(body_key.unwrap_or_default());
        let args = args.text(ANY_DEFINITION);
        let removed = self
            .run_script(shard, &scripts::REMOVE_SCHEDULE, args)
            .await?;
        Ok(text(&removed).as_deref() == Some("removed"))
    }

    /// Pauses a schedule; `false` when there is none in `shard`. Safe to repeat.
    pub async fn pause_schedule(&self, shard: Shard, id: &str) -> Result<bool, HostError> {
        let args = Args::new().text(id).text(ANY_DEFINITION);
        let paused = self
            .run_script(shard, &scripts::PAUSE_SCHEDULE, args)
            .await?;
        Ok(text(&paused).as_deref() == Some("paused"))
    }

    /// Resumes the schedule with this body key, due next at `due_ms`. Safe to repeat.
    pub async fn resume_schedule(
        &self,
        shard: Shard,
        id: &str,
        body_key: &str,
        due_ms: u64,
    ) -> Result<Resumed, HostError> {
        let args = Args::new().text(id).text(body_key).number(due_ms);
        let resumed = self
            .run_script(shard, &scripts::RESUME_SCHEDULE, args)
            .await?;
        Ok(match text(&resumed).as_deref() {
            Some("resumed") => Resumed::Resumed,
            Some("changed") => Resumed::Changed,
            _ => Resumed::None,
        })
    }

    /// The schedule `id`, wherever it is, the newest first: there are several only while one moves
    /// to another shard, or when that was cut off.
    pub async fn find_schedule(&self, id: &str) -> Result<Vec<StoredSchedule>, HostError> {
        let shards: Vec<Shard> = self.shards.iter().collect();
        let ids = [id.to_owned()];
        let found = shards.iter().map(|shard| self.read_schedules(*shard, &ids));
        let mut found: Vec<StoredSchedule> =
            try_join_all(found).await?.into_iter().flatten().collect();
        found.sort_by(|a, b| b.schedule.age().cmp(&a.schedule.age()));
        Ok(found)
    }

    /// One page of the schedules of `shard`, starting at `cursor`, in no meaningful order; one that
    /// is put or removed meanwhile may be missing.
    pub async fn schedules(&self, shard: Shard, cursor: u64) -> Result<SchedulePage, HostError> {
        let (key, from) = (self.keys.of_shard(shard, "sd"), cursor.to_string());
        let scan = command([b"HSCAN", &key, from.as_bytes(), b"COUNT", PAGE]);
        let mut reader = Reader::new(self.run_one(scan).await?, "schedules")?;
        let cursor = reader.number()?;
        let mut fields = reader.array()?;
        let mut ids = Vec::new();
        while fields.len() > 0 {
            ids.push(fields.text()?);
            fields.next()?;
        }
        let schedules = self.read_schedules(shard, &ids).await?;
        Ok(SchedulePage { schedules, cursor })
    }

    /// How many schedules each shard has, in order.
    pub async fn count_schedules(&self) -> Result<Vec<u64>, HostError> {
        let shards: Vec<Shard> = self.shards.iter().collect();
        let count = |store: &Self, shard: &Shard| {
            vec![command([b"HLEN", &store.keys.of_shard(*shard, "sd")])]
        };
        let replies = self.batched(&shards, |shard| *shard, count).await?;
        let counts = replies.iter().map(|replies| {
            let count = replies.first().and_then(integer);
            count.and_then(|count| count.try_into().ok()).unwrap_or(0)
        });
        Ok(counts.collect())
    }

    /// The header of the message of a schedule and how many bytes the whole of it has; `None` when
    /// it is missing or cannot be read.
    pub async fn schedule_header(
        &self,
        shard: Shard,
        body_key: &str,
    ) -> Result<Option<(EnvelopeHeader, u64)>, HostError> {
        let key = self.keys.envelope(shard, body_key);
        let mut end = HEAD_END.to_vec();
        // Twice: a header that is longer than the first look tells its length in it.
        for _ in 0..2 {
            let steps = vec![
                command([b"GETRANGE", &key, b"0", &end]),
                command([b"STRLEN", &key]),
            ];
            let [start, length] = self.run_all(steps).await?;
            let Reply::Bytes(start) = start else { break };
            let length = integer(&length).and_then(|length| length.try_into().ok());
            match Envelope::decode_header(&start) {
                Ok(Peek::Header(header)) => return Ok(Some((*header, length.unwrap_or(0)))),
                Ok(Peek::NeedMore { total }) => end = total.to_string().into_bytes(),
                Err(_) => break,
            }
        }
        Ok(None)
    }

    /// The whole message of a schedule, encoded; `None` when it is missing.
    pub async fn schedule_envelope(
        &self,
        shard: Shard,
        body_key: &str,
    ) -> Result<Option<Bytes>, HostError> {
        self.get(self.keys.envelope(shard, body_key)).await
    }

    /// What became of each message; `None` for one of which nothing is known any more.
    pub async fn message_states(&self, ids: &[MessageId]) -> Result<Vec<Option<State>>, HostError> {
        let read = |store: &Self, id: &MessageId| {
            let key = store.keys.of_shard(id.shard(), "m");
            vec![command([b"HGET", &key, id.as_str().as_bytes()])]
        };
        let replies = self.batched(ids, MessageId::shard, read).await?;
        let state = |replies: &Vec<Reply>| match replies.first() {
            Some(Reply::Bytes(packed)) => super::Record::parse(packed).map(|record| record.state),
            _ => None,
        };
        Ok(replies.iter().map(state).collect())
    }

    /// The host's time of `shard`, in milliseconds since the epoch.
    pub async fn host_time(&self, shard: Shard) -> Result<u64, HostError> {
        // Asked beside a key of the shard, so that it is the shard's own server that tells.
        let key = self.keys.of_shard(shard, "nil");
        let steps = vec![command([b"EXISTS", &key]), command([b"TIME"])];
        let [_, time] = self.run_all(steps).await?;
        milliseconds(time)
    }

    async fn read_schedules(
        &self,
        shard: Shard,
        ids: &[String],
    ) -> Result<Vec<StoredSchedule>, HostError> {
        let key = |name| self.keys.of_shard(shard, name);
        let (definitions, states, due) = (key("sd"), key("sf"), key("sc"));
        let read = |_: &Self, id: &String| {
            vec![
                command([b"HGET", &definitions, id.as_bytes()]),
                command([b"HGET", &states, id.as_bytes()]),
                command([b"ZSCORE", &due, id.as_bytes()]),
            ]
        };
        let replies = self.batched(ids, |_| shard, read).await?;
        let found = ids.iter().zip(replies);
        Ok(found
            .filter_map(|(id, replies)| stored(id, shard, replies))
            .collect())
    }
}

/// The milliseconds of an answer to `TIME`.
pub(super) fn milliseconds(time: Reply) -> Result<u64, HostError> {
    let mut time = Reader::new(time, "time")?;
    Ok(time.number()? * 1000 + time.number()? / 1000)
}

fn stored(id: &str, shard: Shard, replies: Vec<Reply>) -> Option<StoredSchedule> {
    let [Reply::Bytes(definition), state, due] = <[Reply; 3]>::try_from(replies).ok()? else {
        return None;
    };
    let Some(schedule) = Schedule::parse(&definition) else {
        tracing::error!(schedule = id, %shard, "a stored schedule cannot be read");
        return None;
    };
    let state = text(&state).unwrap_or_default();
    let mut fields = state.splitn(6, '|').skip(1);
    // The two are read one after the other: a state of another one says nothing of this one.
    let is_its_own = fields.next() == Some(schedule.body_key.as_str());
    let mut field = || fields.next().filter(|_| is_its_own).unwrap_or_default();
    let is_paused = field() == "1";
    let fired_ms = field().parse().ok().filter(|fired: &u64| *fired > 0);
    let fired = field()
        .split(' ')
        .filter_map(|id| id.parse().ok())
        .collect();
    let fault = Some(field().to_owned()).filter(|fault| !fault.is_empty());
    Some(StoredSchedule {
        id: id.to_owned(),
        shard,
        is_paused,
        due_ms: text(&due).and_then(|due| due.parse().ok()),
        fired_ms,
        fired,
        fault,
        schedule,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_read_back_and_another_version_is_not() {
        let cron = Cron::parse("CRON_TZ=Europe/Berlin 0 4 * * *").unwrap();
        let mut schedule = Schedule::new(cron, 5, "scb_x".into());
        let json = serde_json::to_string(&schedule).unwrap();
        let expected =
            r#"{"v":1,"cron":"CRON_TZ=Europe/Berlin 0 4 * * *","created_ms":5,"body_key":"scb_x"}"#;
        assert_eq!(json, expected);
        schedule.delay_ms = 7;
        schedule.group = Some("g".into());
        let json = serde_json::to_vec(&schedule).unwrap();
        assert_eq!(Schedule::parse(&json), Some(schedule));
        assert_eq!(
            Schedule::parse(expected.replace(":1,", ":2,").as_bytes()),
            None
        );
        assert_eq!(Schedule::parse(b"{}"), None);
    }
}
