//! The waiter: one blocking wait for a wake-up token of one shard.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hookstash_shared::message::Shard;
use hookstash_shared::store::Store;
use hookstash_shared::store::host::HostError;

use crate::patience::Patience;

/// Longest single wait.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A wait that outlives whoever polls it: a token is given to a waiter once, and one that was
/// dropped with its wait would be missed until somebody looks by himself.
pub(crate) struct Waiter {
    store: Store,
    shard: Shard,
    patience: Patience,
    wait: Option<BoxFuture<'static, Result<bool, HostError>>>,
}

impl Waiter {
    pub(crate) fn new(store: Store, shard: Shard, patience: Patience) -> Self {
        Self {
            store,
            shard,
            patience,
            wait: None,
        }
    }

    /// Goes on waiting for a token; with `may_begin` begins a wait if none is under way, and
    /// otherwise never returns without one. `true` when a token was taken. After an error the
    /// next wait begins a little later. Nothing is lost when the returned future is dropped.
    pub(crate) async fn token(&mut self, may_begin: bool) -> Result<bool, HostError> {
        if self.wait.is_none() && may_begin {
            self.wait = Some(self.begin(Duration::ZERO));
        }
        let Some(wait) = &mut self.wait else {
            return std::future::pending().await;
        };
        let taken = wait.await;
        self.wait = None;
        if taken.is_ok() {
            self.patience.reset();
        } else {
            let pause = self.patience.next_pause();
            self.wait = Some(self.begin(pause));
        }
        taken
    }

    fn begin(&self, pause: Duration) -> BoxFuture<'static, Result<bool, HostError>> {
        let (store, shard) = (self.store.clone(), self.shard);
        async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            store.wait(shard, WAIT_MAX).await
        }
        .boxed()
    }
}
