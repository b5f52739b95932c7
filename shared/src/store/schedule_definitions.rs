//! Definitions of schedules as they are stored, and putting aside those that are of no use.

use bytes::Bytes;
use futures::future::join_all;

use super::args::{Args, command, text};
use super::host::{HostError, Reply};
use super::schedules::Schedule;
use super::{Store, scripts};
use crate::message::Shard;

/// The definition of a schedule as it was read. A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Definition {
    /// What the schedule does.
    Readable(Box<Schedule>),
    /// This program cannot read what is stored, which is this.
    Unreadable(Bytes),
    /// There is none.
    Gone,
}

impl Definition {
    fn of(replies: Vec<Reply>) -> Self {
        match replies.into_iter().next() {
            Some(Reply::Bytes(json)) => match Schedule::parse(&json) {
                Some(schedule) => Self::Readable(Box::new(schedule)),
                None => Self::Unreadable(json),
            },
            _ => Self::Gone,
        }
    }

    fn schedule(self) -> Option<Schedule> {
        match self {
            Self::Readable(schedule) => Some(*schedule),
            Self::Unreadable(_) | Self::Gone => None,
        }
    }
}

impl Store {
    /// The definitions of the schedules `ids` in `shard`, in their order.
    pub async fn definitions(
        &self,
        shard: Shard,
        ids: &[&str],
    ) -> Result<Vec<Definition>, HostError> {
        let key = self.keys.of_shard(shard, "sd");
        let read = |_: &Self, id: &&str| vec![command([b"HGET", &key, id.as_bytes()])];
        let replies = self.batched(ids, |_| shard, read).await?;
        Ok(replies.into_iter().map(Definition::of).collect())
    }

    /// The newest copy of each of the schedules `ids` in the shards beside `shard`, in their order;
    /// `None` where there is none. Shards that cannot be read are passed over.
    pub async fn newest_elsewhere(&self, shard: Shard, ids: &[&str]) -> Vec<Option<Schedule>> {
        let others = self.shards.iter().filter(|other| *other != shard);
        let read = join_all(others.map(|other| self.definitions(other, ids))).await;
        let mut newest: Vec<Option<Schedule>> = vec![None; ids.len()];
        for definitions in read.into_iter().flatten() {
            for (newest, definition) in newest.iter_mut().zip(definitions) {
                let older = newest.take().into_iter().chain(definition.schedule());
                *newest = older.max_by(|a, b| a.age().cmp(&b.age()));
            }
        }
        newest
    }

    /// Pauses a schedule whose definition is still `unreadable`; `false` when it is another one
    /// now. Safe to repeat.
    pub async fn pause_unreadable(
        &self,
        shard: Shard,
        id: &str,
        unreadable: &[u8],
    ) -> Result<bool, HostError> {
        let args = Args::new().text(id).bytes([b"=", unreadable].concat());
        let script = &scripts::PAUSE_SCHEDULE;
        let paused = self.run_script(shard, script, args).await?;
        Ok(text(&paused).as_deref() == Some("paused"))
    }

    /// Removes what is left of a schedule that has no definition, such as its due time; one that
    /// has a definition now stays. Safe to repeat.
    pub async fn remove_undefined(&self, shard: Shard, id: &str) -> Result<(), HostError> {
        let args = Args::new().text(id).text("").text("=");
        let script = &scripts::REMOVE_SCHEDULE;
        self.run_script(shard, script, args).await.map(drop)
    }
}
