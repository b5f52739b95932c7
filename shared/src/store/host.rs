//! What the store asks of its host: run a pipeline of commands and scripts, wait for a wake-up.
//!
//! Two hosts exist: Redis, and an embedded one that runs the same scripts in process. In tests a
//! third one stands in front of either and loses, delays or refuses.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::script::Script;

/// A reply, as Redis defines them (RESP2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// No value.
    Nil,
    /// An integer.
    Int(i64),
    /// A bulk string: any bytes.
    Bytes(Bytes),
    /// A status such as `OK`.
    Status(String),
    /// An array.
    Array(Vec<Reply>),
}

/// One item of a pipeline. All keys of one pipeline carry the hash tag of one shard.
#[derive(Debug, Clone)]
pub enum Step {
    /// A plain command: its name and arguments.
    Command(Vec<Bytes>),
    /// A script with its keys and arguments. Every script declares at least one key.
    Script {
        /// The script.
        script: &'static Script,
        /// `KEYS`.
        keys: Vec<Bytes>,
        /// `ARGV`.
        args: Vec<Bytes>,
    },
}

/// Why an item of a pipeline has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// No answer came: the item may or may not have been applied.
    #[error("the store did not answer: {0}")]
    Lost(String),
    /// The store refused the item for now and applied nothing; the same item may be sent again.
    /// Redis: TRYAGAIN, ASK, MOVED, CLUSTERDOWN, LOADING, READONLY, MASTERDOWN, MISCONF,
    /// NOREPLICAS, BUSY, UNBLOCKED, "non local key"; also a connection that could not be made.
    #[error("the store cannot take this now: {0}")]
    RetryLater(String),
    /// The item was applied, but too few replicas have it: a failover may lose it. Sending it again
    /// under the same id is safe, and asks the replicas again.
    #[error("too few replicas have it: {0}")]
    Unconfirmed(String),
    /// The store is full (`OOM`) and applied nothing of this item.
    #[error("the store is full: {0}")]
    Full(String),
    /// The item itself is wrong, or the data it meets is: sending it again does not help. A script
    /// that fails midway keeps what it had applied.
    #[error("the store refused the command: {0}")]
    Fault(String),
}

impl HostError {
    /// Whether the store itself was reached and said no, as a full or read-only one does; `false`
    /// when it could not be reached or did not answer.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Full(_) | Self::Fault(_) => true,
            // Redis begins a refusal with its code in capitals; other texts are about connecting.
            Self::RetryLater(text) => text
                .split(' ')
                .next()
                .is_some_and(|code| code.len() > 1 && code.bytes().all(|b| b.is_ascii_uppercase())),
            Self::Lost(_) | Self::Unconfirmed(_) => false,
        }
    }

    /// Whether the item may have been applied all the same.
    pub fn may_be_applied(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::Unconfirmed(_))
    }
}

/// Result of one item.
pub type StepResult = Result<Reply, HostError>;

/// Something that keeps keys and runs scripts atomically. Safe to share; calls may overlap.
pub trait Host: Send + Sync + 'static {
    /// Runs `steps` in order and returns one result for each, in the same order. The pipeline is
    /// not atomic: other callers' items may run in between, and an item that fails stops no later
    /// one. A lost connection makes every unanswered item [`HostError::Lost`].
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>>;

    /// Takes one wake-up token from the list `key`, waiting up to `timeout` for it. `true` when a
    /// token was taken. Uses a connection of its own, so it delays no other call.
    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>>;
}
