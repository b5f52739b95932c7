//! The waiter: one blocking wait for a wake-up token of one shard.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hookstash_shared::message::Shard;
use hookstash_shared::store::Store;
use hookstash_shared::store::host::HostError;

/// Longest single wait.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A wait that outlives whoever polls it: a token is given to a waiter once, and one that was
/// dropped with its wait would be missed until somebody looks by himself.
pub(crate) struct Waiter {
    store: Store,
    shard: Shard,
    wait: Option<BoxFuture<'static, Result<bool, HostError>>>,
}

impl Waiter {
    pub(crate) fn new(store: Store, shard: Shard) -> Self {
        Self {
            store,
            shard,
            wait: None,
        }
    }

    /// Goes on waiting for a token; with `may_begin` begins a wait if none is under way, and
    /// otherwise never returns without one. Nothing is lost when the returned future is dropped.
    pub(crate) async fn token(&mut self, may_begin: bool) -> Result<bool, HostError> {
        if self.wait.is_none() && may_begin {
            let (store, shard) = (self.store.clone(), self.shard);
            self.wait = Some(async move { store.wait(shard, WAIT_MAX).await }.boxed());
        }
        match &mut self.wait {
            Some(wait) => {
                let taken = wait.await;
                self.wait = None;
                taken
            }
            None => std::future::pending().await,
        }
    }
}
