//! The event log's end: what is older than its retention goes. Entries are written by the scripts.

use super::Store;
use super::args::command;
use super::host::HostError;
use crate::message::Shard;

impl Store {
    /// Removes the log entries of `shard` that are older than the retention at `now_ms`, whole
    /// blocks at a time. Safe to repeat.
    pub async fn trim_events(&self, shard: Shard, now_ms: u64) -> Result<(), HostError> {
        let key = self.keys.of_shard(shard, "log");
        let oldest = now_ms.saturating_sub(self.retention.events_ms).to_string();
        let trim = command([b"XTRIM", &key, b"MINID", b"~", oldest.as_bytes()]);
        self.run_one(trim).await.map(drop)
    }
}
