//! Walking the dead-letter queue: which letters a page holds, without reading them.
//!
//! Letters are ordered by time of death, then by id. A page asks every shard for as many as it may
//! need by rank, so that it costs the same wherever it lies: O(shards x (page + log n)).

use bytes::Bytes;
use futures::future::try_join_all;

use super::args::{Reader, command, integer};
use super::host::{HostError, Reply};
use super::order::Order;
use super::{DlqCursor, Store};
use crate::message::{MessageId, Shard};

/// Which part of the queue is walked. The default: all of it, newest first.
#[derive(Debug, Clone, Default)]
pub struct DeathRange {
    /// Which way.
    pub order: Order,
    /// Only what comes after this entry, which need not be there any more.
    pub after: Option<DlqCursor>,
    /// Only letters that died then or later, milliseconds since the epoch.
    pub from_ms: Option<u64>,
    /// Only letters that died then or before, milliseconds since the epoch.
    pub to_ms: Option<u64>,
}

/// The next letters of a walk.
#[derive(Debug, Clone)]
pub struct Deaths {
    /// In the order of the walk.
    pub found: Vec<DlqCursor>,
    /// Whether the walk goes on after the last of them.
    pub has_more: bool,
}

impl Store {
    /// Up to `count` entries of all shards in `range`.
    pub async fn deaths(&self, range: &DeathRange, count: usize) -> Result<Deaths, HostError> {
        let shards = self.shards().iter();
        let found = try_join_all(shards.map(|shard| self.deaths_of(shard, range, count + 1)));
        let mut found: Vec<DlqCursor> = found.await?.into_iter().flatten().collect();
        range.order.sort(&mut found);
        let has_more = found.len() > count;
        found.truncate(count);
        Ok(Deaths { found, has_more })
    }

    async fn deaths_of(
        &self,
        shard: Shard,
        range: &DeathRange,
        count: usize,
    ) -> Result<Vec<DlqCursor>, HostError> {
        let key = self.keys.of_shard(shard, "x");
        let after_cursor = match &range.after {
            Some(cursor) => self.rank_after(&key, cursor, range.order).await?,
            None => 0,
        };
        let start = after_cursor.max(self.rank_in_time(&key, range).await?);
        let (from, to) = (
            start.to_string(),
            (start + count).saturating_sub(1).to_string(),
        );
        let name: &[u8] = match range.order {
            Order::LatestFirst => b"ZREVRANGE",
            Order::EarliestFirst => b"ZRANGE",
        };
        let words = [name, &key, from.as_bytes(), to.as_bytes(), b"WITHSCORES"];
        let mut reader = Reader::new(self.run_one(command(words)).await?, "dead letters")?;
        let mut deaths = Vec::new();
        while reader.len() > 0 {
            let id = reader.text()?.parse::<MessageId>();
            let died_ms = reader.number()?;
            let is_in_time = range.from_ms.is_none_or(|from| died_ms >= from)
                && range.to_ms.is_none_or(|to| died_ms <= to);
            if let (Ok(id), true) = (id, is_in_time) {
                deaths.push(DlqCursor { died_ms, id });
            }
        }
        Ok(deaths)
    }

    /// How many entries come before the first one in time.
    async fn rank_in_time(&self, key: &Bytes, range: &DeathRange) -> Result<usize, HostError> {
        let bounds = match range.order {
            Order::LatestFirst => range.to_ms.map(|to| (format!("({to}"), "+inf".to_owned())),
            Order::EarliestFirst => range
                .from_ms
                .map(|from| ("-inf".to_owned(), format!("({from}"))),
        };
        let Some((min, max)) = bounds else {
            return Ok(0);
        };
        let words: [&[u8]; 4] = [b"ZCOUNT", key, min.as_bytes(), max.as_bytes()];
        let count = self.run_one(command(words)).await?;
        Ok(as_rank(&count))
    }

    /// How many entries lie up to and with `cursor`, whose own entry may have gone or lie in another
    /// shard.
    async fn rank_after(
        &self,
        key: &Bytes,
        cursor: &DlqCursor,
        order: Order,
    ) -> Result<usize, HostError> {
        let died = cursor.died_ms.to_string();
        let beyond = format!("({died}");
        let rank: &[u8] = match order {
            Order::LatestFirst => b"ZREVRANK",
            Order::EarliestFirst => b"ZRANK",
        };
        let (min, max): (&[u8], &[u8]) = match order {
            Order::LatestFirst => (beyond.as_bytes(), b"+inf"),
            Order::EarliestFirst => (b"-inf", beyond.as_bytes()),
        };
        let steps = vec![
            command([rank, key, cursor.id.as_str().as_bytes()]),
            command([b"ZCOUNT", key, min, max]),
            command([b"ZCOUNT", key, died.as_bytes(), died.as_bytes()]),
        ];
        let [rank, before, ties] = self.run_all(steps).await?;
        if rank != Reply::Nil {
            return Ok(as_rank(&rank) + 1);
        }
        let before = as_rank(&before);
        self.rank_among(key, cursor, order, before..before + as_rank(&ties))
            .await
    }

    /// Where `cursor` would stand among the entries of `ranks`, which all died when it did: by
    /// halving, one entry read in each step.
    async fn rank_among(
        &self,
        key: &Bytes,
        cursor: &DlqCursor,
        order: Order,
        mut ranks: std::ops::Range<usize>,
    ) -> Result<usize, HostError> {
        let name: &[u8] = match order {
            Order::LatestFirst => b"ZREVRANGE",
            Order::EarliestFirst => b"ZRANGE",
        };
        while !ranks.is_empty() {
            let middle = usize::midpoint(ranks.start, ranks.end);
            let at = middle.to_string();
            let reply = self
                .run_one(command([name, key, at.as_bytes(), at.as_bytes()]))
                .await?;
            let mut reader = Reader::new(reply, "dead letters")?;
            let is_after =
                reader.len() == 0 || order.is_after(reader.text()?.as_str(), cursor.id.as_str());
            if is_after {
                ranks.end = middle;
            } else {
                ranks.start = middle + 1;
            }
        }
        Ok(ranks.start)
    }
}

fn as_rank(reply: &Reply) -> usize {
    let rank = integer(reply).unwrap_or_default();
    usize::try_from(rank).unwrap_or_default()
}
