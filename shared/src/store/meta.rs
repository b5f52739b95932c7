//! What every process of one deployment shares, and whether the store is there at all.

use std::sync::PoisonError;

use bytes::Bytes;

use super::Store;
use super::args::{Reader, command, text};
use super::host::{HostError, Reply};

impl Store {
    /// Whether every shard answers and takes new messages: a write that creates nothing, and that a
    /// full, read-only or failing store refuses.
    pub async fn ping(&self) -> Result<(), HostError> {
        for shard in self.shards.iter() {
            let key = self.keys.of_shard(shard, "nil");
            self.run_one(command([b"SETRANGE", &key, b"0", b""]))
                .await?;
        }
        Ok(())
    }

    /// The number of shards this deployment was started with; records `shards` if it is new. A
    /// store that is full still tells, because workers must be able to empty it. Says in the log
    /// when it is another store than the one that this process met before.
    pub async fn agree_on_shards(&self, shards: u16) -> Result<u16, HostError> {
        let (mut agreed, mut born) = self.meta().await?;
        if agreed.is_none() || born.is_none() {
            let recorded = self.record_meta(shards).await;
            if agreed.is_none() {
                recorded?;
            }
            (agreed, born) = self.meta().await?;
        }
        if let Some(born) = born {
            self.compare_birth(&born);
        }
        Ok(agreed.unwrap_or(shards))
    }

    async fn record_meta(&self, shards: u16) -> Result<(), HostError> {
        let key = self.keys.meta();
        let now = match self.run_one(command([b"TIME"])).await? {
            Reply::Array(parts) => parts.iter().filter_map(text).collect::<Vec<_>>().join("."),
            _ => String::new(),
        };
        let count = shards.to_string();
        let fields: [(&[u8], &[u8]); 3] = [
            (b"shards", count.as_bytes()),
            (b"record", b"1"),
            (b"born", now.as_bytes()),
        ];
        for (field, value) in fields {
            self.run_one(command([b"HSETNX", &key, field, value]))
                .await?;
        }
        Ok(())
    }

    /// The number of shards and the time of birth, as far as they are recorded.
    async fn meta(&self) -> Result<(Option<u16>, Option<Bytes>), HostError> {
        let key = self.keys.meta();
        let meta = self
            .run_one(command([b"HMGET", &key, b"shards", b"born"]))
            .await?;
        let mut reader = Reader::new(meta, "meta")?;
        let shards = reader.next()?;
        let born = match reader.next()? {
            Reply::Bytes(born) => Some(born),
            _ => None,
        };
        Ok((text(&shards).and_then(|text| text.parse().ok()), born))
    }

    fn compare_birth(&self, born: &Bytes) {
        let mut known = self.born.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.replace(born.clone());
        if before.is_some_and(|before| before != *born) {
            tracing::error!(
                "the store came back empty: the messages it held are lost (is its append-only file \
                 on?). Going on with what is published from now on"
            );
        }
    }
}
