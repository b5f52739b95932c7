//! heartbeat: which workers live, and how many slots they have together.

use std::time::Duration;

use super::args::{Args, integer};
use super::host::HostError;
use super::{Store, scripts};
use crate::message::Shard;

impl Store {
    /// Says that `worker` lives and has `slots` for messages of `shard`, and returns the slots of
    /// all workers whose last heartbeat is younger than `life`. With `slots` 0 the worker leaves.
    /// Safe to repeat.
    pub async fn heartbeat(
        &self,
        shard: Shard,
        worker: &str,
        slots: u64,
        life: Duration,
    ) -> Result<u64, HostError> {
        let life_ms = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
        let args = Args::new().text(worker).number(slots).number(life_ms);
        let reply = self.run_script(shard, &scripts::HEARTBEAT, args).await?;
        Ok(integer(&reply)
            .and_then(|live| live.try_into().ok())
            .unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::clock::ManualClock;
    use crate::message::Shards;
    use crate::store::Retention;
    use crate::store::embedded::EmbeddedHost;

    const LIFE: Duration = Duration::from_secs(15);

    #[tokio::test]
    async fn only_workers_that_were_heard_of_lately_count() {
        let clock = Arc::new(ManualClock::at(1_000_000_000));
        let host = Arc::new(EmbeddedHost::new(Arc::clone(&clock) as _).unwrap());
        let store = Store::new(host, "hs", Shards::ONE, LIFE, Retention::default());
        let beat = async |worker: &str, slots| {
            store
                .heartbeat(Shard::default(), worker, slots, LIFE)
                .await
                .unwrap()
        };
        assert_eq!(beat("a", 512).await, 512);
        clock.advance(Duration::from_secs(10));
        assert_eq!(beat("b", 100).await, 612);
        assert_eq!(beat("b", 50).await, 562, "fewer slots replace more");
        clock.advance(Duration::from_secs(5));
        assert_eq!(beat("b", 50).await, 50, "a has been silent too long");
        assert_eq!(beat("b", 0).await, 0);
        beat("ahead", 7).await;
        clock.step_wall(-3_600_000);
        assert_eq!(
            beat("b", 50).await,
            50,
            "a heartbeat of the future does not count for ever"
        );
    }
}
