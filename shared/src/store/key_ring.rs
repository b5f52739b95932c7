//! The stored key ring: one encrypted record for all processes of a deployment.

use bytes::Bytes;

use super::args::{Args, command, text};
use super::host::{HostError, Reply, Step};
use super::{Store, scripts};

/// The field of `hs:meta` that holds it.
const FIELD: &[u8] = b"keys";

/// The answer to a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingChange {
    /// The new ring is stored.
    Replaced,
    /// Another one was stored in between.
    Changed,
}

impl Store {
    /// The ring as it is stored; `None` when there is none.
    pub async fn key_ring(&self) -> Result<Option<Bytes>, HostError> {
        let read = command([b"HGET", &self.keys.meta(), FIELD]);
        Ok(match self.run_one(read).await? {
            Reply::Bytes(ring) => Some(ring),
            _ => None,
        })
    }

    /// Stores `new` if what is stored is still `read` (`None`: nothing). Of concurrent callers one
    /// wins and the others are told. Safe to repeat.
    pub async fn replace_key_ring(
        &self,
        read: Option<Bytes>,
        new: Bytes,
    ) -> Result<RingChange, HostError> {
        let args = Args::new().bytes(read.unwrap_or_default()).bytes(new);
        let step = Step::Script {
            script: &scripts::REPLACE_KEY_RING,
            keys: vec![self.keys.meta()],
            args: args.finish(),
        };
        let reply = self.run_one(step).await?;
        Ok(match text(&reply).as_deref() {
            Some("replaced") => RingChange::Replaced,
            _ => RingChange::Changed,
        })
    }
}
