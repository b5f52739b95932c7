//! What an operator wants to know of a store without changing it.

use super::Store;
use super::args::{Reader, command, text};
use super::host::HostError;
use crate::message::Shard;

/// Most heartbeats that are counted.
const HEARTBEATS: &[u8] = b"9999";

impl Store {
    /// The store's clock, milliseconds since the epoch.
    pub async fn clock_ms(&self) -> Result<u64, HostError> {
        let mut time = Reader::new(self.run_one(command([b"TIME"])).await?, "time")?;
        let (s, us) = (time.number()?, time.number()?);
        Ok(s.saturating_mul(1_000).saturating_add(us / 1_000))
    }

    /// The number of shards this deployment was started with; `None` when it is new.
    pub async fn known_shards(&self) -> Result<Option<u16>, HostError> {
        let key = self.keys.meta();
        let known = self.run_one(command([b"HGET", &key, b"shards"])).await?;
        Ok(text(&known).and_then(|text| text.parse().ok()))
    }

    /// Workers of `shard` that were heard of since `since_ms` by the store's clock, and their slots.
    pub async fn live_workers(
        &self,
        shard: Shard,
        since_ms: u64,
    ) -> Result<(usize, u64), HostError> {
        let (key, since) = (self.keys.of_shard(shard, "hb"), since_ms.to_string());
        let words: [&[u8]; 7] = [
            b"ZRANGEBYSCORE",
            &key,
            since.as_bytes(),
            b"+inf",
            b"LIMIT",
            b"0",
            HEARTBEATS,
        ];
        let mut beats = Reader::new(self.run_one(command(words)).await?, "heartbeats")?;
        let (mut workers, mut slots) = (0, 0_u64);
        while beats.len() > 0 {
            let beat = beats.text()?;
            let given = beat
                .split_once(' ')
                .and_then(|(slots, _)| slots.parse().ok());
            workers += 1;
            slots = slots.saturating_add(given.unwrap_or(0));
        }
        Ok((workers, slots))
    }
}
