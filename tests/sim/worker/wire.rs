//! What lies between a worker and the store: every request is a task of its own, so that one that
//! was sent takes effect whatever becomes of its sender.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use hookstash_shared::random::Random;
use hookstash_shared::store::faulty::FaultyHost;
use hookstash_shared::store::host::{Host, HostError, Step, StepResult};
use tokio::sync::oneshot;

use super::ground::{At, Ground, Outage, Verdict};
use super::process::Control;

/// How long a caller waits for a store that is silent.
pub const SILENCE: Duration = Duration::from_secs(2);

pub struct Wire {
    pub ground: Arc<Ground>,
    pub control: Arc<Control>,
    pub faults: Arc<FaultyHost>,
}

impl Wire {
    /// The error of a call while the store cannot be reached.
    async fn away(&self) -> Option<HostError> {
        if self.control.is_cut() {
            tokio::time::sleep(SILENCE).await;
            return Some(HostError::Lost("the link is cut".to_owned()));
        }
        match self.ground.outage()? {
            Outage::Refusing => Some(HostError::RetryLater("LOADING".to_owned())),
            Outage::Silent => {
                tokio::time::sleep(SILENCE).await;
                Some(HostError::Lost("no answer".to_owned()))
            }
        }
    }
}

impl Host for Wire {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        Box::pin(async move {
            let all = |error: HostError| steps.iter().map(|_| Err(error.clone())).collect();
            self.control.alive().await;
            match self.ground.point(At::Request, &self.control).await {
                Verdict::Lose => return all(HostError::Lost("the request".to_owned())),
                Verdict::Refuse => return all(HostError::RetryLater("refused".to_owned())),
                Verdict::Go => {}
            }
            if let Some(error) = self.away().await {
                return all(error);
            }
            let (tell, answer) = oneshot::channel();
            let (faults, count) = (Arc::clone(&self.faults), steps.len());
            let latency = self.ground.random.below(self.ground.latency_ms + 1);
            tokio::spawn(async move {
                if latency > 0 {
                    tokio::time::sleep(Duration::from_millis(latency)).await;
                }
                // Refused when its sender is dead.
                let _ = tell.send(faults.run(steps).await);
            });
            let lost = |what: &str| vec![Err(HostError::Lost(what.to_owned())); count];
            let answer = answer.await.unwrap_or_else(|_| lost("a panic"));
            self.control.alive().await;
            match self.ground.point(At::Reply, &self.control).await {
                Verdict::Lose => lost("the reply"),
                Verdict::Refuse | Verdict::Go => answer,
            }
        })
    }

    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        Box::pin(async move {
            self.control.alive().await;
            if let Some(error) = self.away().await {
                return Err(error);
            }
            self.ground.count("wait");
            let taken = self.faults.wait(key, timeout).await;
            self.control.alive().await;
            taken
        })
    }
}
