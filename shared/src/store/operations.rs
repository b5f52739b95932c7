//! What an operation leaves behind for the process that goes on with it: one record, of a form
//! that its runtime knows.

use std::time::Duration;

use bytes::Bytes;

use super::Store;
use super::args::command;
use super::host::{HostError, Reply};
use crate::message::shard_of_operation;

/// The one field of an operation's hash. A hash, because writing a field keeps the key's expiry: a
/// process that comes late cannot make an ended operation live for ever.
const RECORD: &[u8] = b"record";

impl Store {
    /// Stores the operation's record in place of the one it has. One without an end is kept for
    /// ever; one that has ended keeps its end. Safe to repeat.
    pub async fn save_operation(&self, operation: &str, record: Bytes) -> Result<(), HostError> {
        let shard = shard_of_operation(operation, self.shards);
        let key = self.keys.operation(shard, operation);
        self.run_one(command([b"HSET", &key, RECORD, &record]))
            .await
            .map(drop)
    }

    /// The operation's record; `None` when there is none, or none any more.
    pub async fn operation(&self, operation: &str) -> Result<Option<Bytes>, HostError> {
        let shard = shard_of_operation(operation, self.shards);
        let key = self.keys.operation(shard, operation);
        match self.run_one(command([b"HGET", &key, RECORD])).await? {
            Reply::Bytes(record) => Ok(Some(record)),
            _ => Ok(None),
        }
    }

    /// Lets the operation's record go after `kept`. Safe to repeat: each call starts that time anew.
    pub async fn retire_operation(&self, operation: &str, kept: Duration) -> Result<(), HostError> {
        let shard = shard_of_operation(operation, self.shards);
        let key = self.keys.operation(shard, operation);
        let ms = kept.as_millis().to_string();
        self.run_one(command([b"PEXPIRE", &key, ms.as_bytes()]))
            .await
            .map(drop)
    }
}
