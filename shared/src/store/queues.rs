//! Queues as operators see them. What changes them is in `lanes`.

use super::Store;
use super::args::{Reader, command, integer, text};
use super::host::{HostError, Reply};
use crate::message::{Lane, LaneKind, Shard, shard_of_lane};

/// How many lanes one page of a walk over the settings asks for.
const PAGE: &str = "256";

/// A queue. It exists from its first message or setting on until it is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Most calls in flight, at least 1.
    pub parallelism: u32,
    /// When it was made, in milliseconds since the epoch.
    pub created_ms: u64,
    /// When its settings were last changed, or a message first came after an hour without.
    pub updated_ms: u64,
    /// How many messages wait in it, those of delayed and running ones not counted. Cancelled
    /// messages count until their turn comes.
    pub lag: u64,
    /// Whether it waits.
    pub is_paused: bool,
}

/// One page of a walk over the queues of a shard.
#[derive(Debug)]
pub struct QueuePage {
    /// Where the next page starts; 0 when the walk is over.
    pub cursor: u64,
    /// The queues of this page. One may come twice in a walk when others are made meanwhile.
    pub queues: Vec<Queue>,
}

impl Store {
    /// The queue `name`; `None` when there is none.
    pub async fn queue(&self, name: &Lane) -> Result<Option<Queue>, HostError> {
        let shard = shard_of_lane(name, self.shards);
        let settings = self.keys.of_shard(shard, "cfg");
        let steps = vec![
            command([b"HGET", &settings, name.as_str().as_bytes()]),
            command([b"LLEN", &self.keys.waiting(shard, name)]),
        ];
        let [settings, lag] = self.run_all(steps).await?;
        let settings = text(&settings);
        Ok(settings.and_then(|settings| read(name, &settings, &lag)))
    }

    /// One page of the queues of `shard`, from `cursor` on (0 at first). O(page).
    pub async fn queues(&self, shard: Shard, cursor: u64) -> Result<QueuePage, HostError> {
        let key = self.keys.of_shard(shard, "cfg");
        let from = cursor.to_string();
        let scan = command([b"HSCAN", &key, from.as_bytes(), b"COUNT", PAGE.as_bytes()]);
        let mut reader = Reader::new(self.run_one(scan).await?, "queues")?;
        let cursor = reader.number()?;
        let mut fields = reader.array()?;
        let (mut found, mut steps) = (Vec::new(), Vec::new());
        while fields.len() > 0 {
            let (name, settings) = (fields.text()?, fields.text()?);
            let lane = Lane::parse(&name).ok();
            if let Some(lane) = lane.filter(|lane| lane.kind() == LaneKind::Queue) {
                steps.push(command([b"LLEN", &self.keys.waiting(shard, &lane)]));
                found.push((lane, settings));
            }
        }
        let mut queues = Vec::with_capacity(found.len());
        for ((lane, settings), lag) in found.iter().zip(self.host.run(steps).await) {
            queues.extend(read(lane, settings, &lag?));
        }
        Ok(QueuePage { cursor, queues })
    }
}

/// Reads `cap|rate|period ms|paused|pinned cap|pinned rate|created ms|used ms`.
fn read(name: &Lane, settings: &str, lag: &Reply) -> Option<Queue> {
    let fields: Vec<&str> = settings.split('|').collect();
    let [cap, _, _, paused, _, _, created, used] = fields.as_slice() else {
        return None;
    };
    let cap: u32 = cap.parse().ok()?;
    Some(Queue {
        name: String::from_utf8(name.plain_name()).ok()?,
        parallelism: cap.max(1),
        created_ms: created.parse().ok()?,
        updated_ms: used.parse().ok()?,
        lag: integer(lag)
            .and_then(|lag| lag.try_into().ok())
            .unwrap_or(0),
        is_paused: *paused == "1",
    })
}
