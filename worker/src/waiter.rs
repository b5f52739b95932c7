//! The waiter: one blocking wait for a wake-up token of one shard.

use std::time::Duration;

use hookstash_shared::message::Shard;
use hookstash_shared::store::Store;
use hookstash_shared::store::host::HostError;
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use crate::patience::Patience;

/// Longest single wait.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// A wait that outlives whoever asks for its token: a token is given to a waiter once, and one that
/// was dropped with its wait would be missed until somebody looks by himself.
///
/// It is a task, so that it goes on while nobody asks. A wait that stood still might hold what others
/// need, such as the host's turn to find its server, and its claimer would wait for it in vain.
pub(crate) struct Waiter {
    store: Store,
    shard: Shard,
    patience: Patience,
    wait: Option<AbortOnDropHandle<Result<bool, HostError>>>,
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
    /// next wait begins a little later. Nothing is lost when the returned future is dropped. Runs
    /// within a [`tokio::task::LocalSet`].
    pub(crate) async fn token(&mut self, may_begin: bool) -> Result<bool, HostError> {
        if self.wait.is_none() && may_begin {
            self.wait = Some(self.begin(Duration::ZERO));
        }
        let Some(wait) = &mut self.wait else {
            return std::future::pending().await;
        };
        let taken = wait.await.unwrap_or_else(|error| Err(ended(&error)));
        self.wait = None;
        if taken.is_ok() {
            self.patience.reset();
        } else {
            let pause = self.patience.next_pause();
            self.wait = Some(self.begin(pause));
        }
        taken
    }

    fn begin(&self, pause: Duration) -> AbortOnDropHandle<Result<bool, HostError>> {
        let (store, shard) = (self.store.clone(), self.shard);
        AbortOnDropHandle::new(tokio::task::spawn_local(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            store.wait(shard, WAIT_MAX).await
        }))
    }
}

/// Only a defect of a host ends a wait without an answer.
fn ended(error: &JoinError) -> HostError {
    HostError::Lost(error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures::FutureExt;
    use futures::future::BoxFuture;
    use hookstash_shared::message::Shards;
    use hookstash_shared::store::Retention;
    use hookstash_shared::store::host::{Host, Step, StepResult};
    use tokio::sync::Mutex;
    use tokio::task::LocalSet;

    use super::*;

    /// A host on which a wait finds its server first, as on a cluster: one caller at a time.
    #[derive(Default)]
    struct Finding(Arc<Mutex<()>>);

    impl Host for Finding {
        fn run(&self, _: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
            Box::pin(async { Vec::new() })
        }

        fn wait(&self, _: Bytes, _: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
            Box::pin(async {
                let _turn = self.0.lock().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok(true)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_nobody_asks_for_holds_up_nobody() {
        let host = Finding::default();
        let turn = Arc::clone(&host.0);
        let (lease, retention) = (Duration::from_secs(15), Retention::default());
        let store = Store::new(Arc::new(host), "hs", Shards::ONE, lease, retention);
        let patience = Patience::new(1);
        let mut waiter = Waiter::new(store, Shard::default(), patience);
        let test = async move {
            assert!(waiter.token(true).now_or_never().is_none());
            tokio::task::yield_now().await;
            assert!(turn.try_lock().is_err(), "the wait has its turn");
            let turn = tokio::time::timeout(Duration::from_secs(1), turn.lock()).await;
            assert!(
                turn.is_ok(),
                "and gives it up while nobody asks for the token"
            );
            assert_eq!(waiter.token(false).await, Ok(true), "which is kept");
        };
        LocalSet::new().run_until(test).await;
    }
}
