//! Publishes that go on while something is done to the store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::program::Program;
use super::receiver::{Received, Receiver};

/// Publishes under way at one time.
const CALLERS: usize = 4;
/// Pause of each caller between two publishes.
const PACE: Duration = Duration::from_millis(25);
/// Longer than any publish may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Callers that publish, each its own bodies and deduplication ids, until told to stop.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    callers: Vec<JoinHandle<Vec<Publish>>>,
}

/// One publish and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Publish {
    /// Also its deduplication id.
    pub(crate) body: String,
    pub(crate) begun: Instant,
    pub(crate) answered: Instant,
    pub(crate) status: u16,
}

impl Publish {
    pub(crate) fn is_accepted(&self) -> bool {
        matches!(self.status, 200 | 202)
    }
}

impl Load {
    /// Publishes to `url` through `front`; bodies begin with `name`.
    pub(crate) fn start(name: &'static str, front: &Program, url: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let callers = (0..CALLERS).map(|caller| {
            let call = front.publishing(url).timeout(ANSWER_TIMEOUT);
            let is_over = Arc::clone(&is_over);
            tokio::spawn(async move {
                let mut made = Vec::new();
                while !is_over.load(Ordering::SeqCst) {
                    let body = format!("{name} {caller}-{}", made.len());
                    made.push(publish(&call, body).await);
                    tokio::time::sleep(PACE).await;
                }
                made
            })
        });
        let callers = callers.collect();
        Self { is_over, callers }
    }

    /// Lets the callers end; what they published.
    pub(crate) async fn stop(mut self) -> Vec<Publish> {
        self.is_over.store(true, Ordering::SeqCst);
        let mut made = Vec::new();
        for caller in std::mem::take(&mut self.callers) {
            made.extend(caller.await.expect("a caller ends"));
        }
        made
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.callers.iter().for_each(JoinHandle::abort);
    }
}

async fn publish(call: &reqwest::RequestBuilder, body: String) -> Publish {
    let begun = Instant::now();
    let request = call.try_clone().expect("no body yet");
    let request = request.header("Upstash-Deduplication-Id", &body);
    let answer = request.body(body.clone()).send().await.expect("an answer");
    let status = answer.status().as_u16();
    assert!(matches!(status, 200 | 202 | 503), "{status} to {body}");
    Publish {
        body,
        begun,
        answered: Instant::now(),
        status,
    }
}

/// The bodies of what was accepted.
pub(crate) fn accepted(published: &[Publish]) -> Vec<&str> {
    let accepted = published.iter().filter(|one| one.is_accepted());
    accepted.map(|one| &*one.body).collect()
}

/// How often each body arrived.
pub(crate) fn arrivals(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for one in receiver.received() {
        *counts.entry(one.text().to_owned()).or_default() += 1;
    }
    counts
}

/// Waits until every one of `bodies` has arrived; panics with those that have not.
pub(crate) async fn all_arrive(receiver: &Receiver, bodies: &[&str], timeout: Duration) {
    let deadline = Instant::now() + timeout;
    loop {
        let arrived = arrivals(receiver);
        let missing: Vec<_> = bodies
            .iter()
            .filter(|body| !arrived.contains_key(**body))
            .collect();
        if missing.is_empty() {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "accepted and not delivered within {timeout:?}: {} of {}, such as {:?}",
            missing.len(),
            bodies.len(),
            missing.first()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for the first request that `is_wanted`; when it came.
pub(crate) async fn first(
    receiver: &Receiver,
    is_wanted: impl Fn(&Received) -> bool,
    timeout: Duration,
) -> Instant {
    let deadline = Instant::now() + timeout;
    loop {
        let received = receiver.received();
        if let Some(one) = received.iter().find(|one| is_wanted(one)) {
            return one.at.into();
        }
        assert!(Instant::now() < deadline, "it has not come in {timeout:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
