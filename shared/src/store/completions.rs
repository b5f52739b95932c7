//! Deferred completions: an empty placeholder that one result fills, once.

use bytes::Bytes;

use super::args::{Args, Reader};
use super::host::{HostError, Reply};
use super::{Store, scripts};
use crate::message::Shard;

/// The answer to a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// This result is the final one.
    Won,
    /// Another result came first: this is it.
    Lost(Bytes),
    /// No placeholder is open: it never was, or its retention is over. Nothing was applied.
    Unknown,
}

impl Store {
    /// Opens the placeholder `name`. Safe to repeat; an open or completed one is left as it is.
    pub async fn open_completion(&self, shard: Shard, name: &str) -> Result<(), HostError> {
        let args = Args::new().text(name);
        self.run_script(shard, &scripts::OPEN_COMPLETION, args)
            .await
            .map(drop)
    }

    /// Fills the placeholder `name`, if it is still empty. Of any number of callers one wins, and
    /// every other gets the winner's result. A repeat of the winner reads its own result back.
    pub async fn complete(
        &self,
        shard: Shard,
        name: &str,
        result: Bytes,
    ) -> Result<Completion, HostError> {
        let args = Args::new()
            .text(name)
            .bytes(result)
            .number(self.retention.completion_ms);
        let reply = self
            .run_script(shard, &scripts::COMPLETE_COMPLETION, args)
            .await?;
        let mut reader = Reader::new(reply, "complete")?;
        Ok(match (reader.text()?.as_str(), reader.next()) {
            ("won", _) => Completion::Won,
            ("lost", Ok(Reply::Bytes(first))) => Completion::Lost(first),
            _ => Completion::Unknown,
        })
    }
}
