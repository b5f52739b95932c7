//! Pipelines that are answered once replicas have what they wrote.
//!
//! `WAIT` blocks its connection, so these pipelines have one of their own, and those that come
//! while it is blocked go together afterwards: one `WAIT` for all of them.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;

use super::link::Link;
use super::pipeline::{self, Outcome};
use super::routing_key;
use crate::store::host::{HostError, Reply, Step, StepResult};

/// Time replicas have. One that is well needs a round trip; a caller that got too few asks again.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Most steps and bytes of one group; a single larger pipeline still goes, alone.
const GROUP_STEPS_MAX: usize = 256;
const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The connection to one server for pipelines that replicas must have.
pub(super) struct Replicated {
    link: Link,
    replicas: usize,
    waiting: Mutex<VecDeque<Call>>,
    /// Held by the caller that sends for all who wait.
    turn: tokio::sync::Mutex<()>,
}

/// One caller's pipeline, its mark included.
struct Call {
    steps: Vec<Step>,
    tell: oneshot::Sender<Outcome>,
}

impl Replicated {
    /// Asks for `replicas` replicas of the server of `link`.
    pub(super) fn new(link: Link, replicas: usize) -> Self {
        Self {
            link,
            replicas,
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Runs `steps` in order. What was applied but is not on enough replicas in time is
    /// [`HostError::Unconfirmed`], a refusal stays what it is.
    pub(super) async fn run(&self, steps: &[Step]) -> Outcome {
        let (tell, mut told) = oneshot::channel();
        // A repeat of what is stored already writes nothing, and then `WAIT` would ask for nothing:
        // newer servers count from the connection's last write.
        let marked = steps.iter().cloned().chain([mark(steps)]).collect();
        self.lock().push_back(Call {
            steps: marked,
            tell,
        });
        loop {
            tokio::select! {
                biased;
                outcome = &mut told => return outcome.unwrap_or_else(|_| lost(steps.len())),
                _turn = self.turn.lock() => self.send_group().await,
            }
        }
    }

    /// Sends what waits, as much as goes together, and tells each caller.
    async fn send_group(&self) {
        let group = self.take_group();
        let mut steps: Vec<Step> = Vec::new();
        for call in &group {
            steps.extend(call.steps.iter().cloned());
        }
        if steps.is_empty() {
            return;
        }
        steps.push(wait(self.replicas));
        let mut all = pipeline::run_closing(&self.link, &steps).await;
        let confirmed = self.confirmed(all.results.pop());
        let mut results = all.results.into_iter();
        for call in group {
            let of_call: Vec<StepResult> = results.by_ref().take(call.steps.len()).collect();
            // Gone when the caller does not wait any more.
            let _ = call.tell.send(Outcome {
                results: settled(of_call, &confirmed),
                wrong_server: all.wrong_server,
            });
        }
    }

    /// Takes out the pipelines that go together, the longest waiting first; none whose caller is
    /// gone.
    fn take_group(&self) -> Vec<Call> {
        let mut waiting = self.lock();
        waiting.retain(|call| !call.tell.is_closed());
        let (mut steps, mut bytes) = (0, 0);
        let fits = |call: &&Call| {
            steps += call.steps.len();
            bytes += call.steps.iter().map(size).sum::<usize>();
            steps <= GROUP_STEPS_MAX && bytes <= GROUP_BYTES_MAX
        };
        let count = waiting.iter().take_while(fits).count().max(1);
        let count = count.min(waiting.len());
        waiting.drain(..count).collect()
    }

    /// Whether enough replicas have everything, by the answer to `WAIT`.
    fn confirmed(&self, answer: Option<StepResult>) -> Result<(), HostError> {
        let asked = self.replicas;
        match answer {
            Some(Ok(Reply::Int(have))) if usize::try_from(have).is_ok_and(|have| have >= asked) => {
                Ok(())
            }
            Some(Ok(Reply::Int(have))) => Err(HostError::Unconfirmed(format!(
                "{have} of {asked} within {} s",
                WAIT_MAX.as_secs()
            ))),
            Some(Err(HostError::Fault(text) | HostError::RetryLater(text))) => {
                Err(HostError::Unconfirmed(text))
            }
            other => Err(HostError::Lost(format!("WAIT answered {other:?}"))),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Call>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a caller is told: without its mark, and nothing as done that is not confirmed.
fn settled(mut results: Vec<StepResult>, confirmed: &Result<(), HostError>) -> Vec<StepResult> {
    let marked = match results.pop() {
        Some(Err(error)) => Err(HostError::Unconfirmed(error.to_string())),
        _ => Ok(()),
    };
    let confirmed = confirmed.clone().and(marked);
    results
        .into_iter()
        .map(|result| result.and_then(|reply| confirmed.clone().map(|()| reply)))
        .collect()
}

/// A write that is never without effect: the key `ack` of the shard that `steps` belong to.
fn mark(steps: &[Step]) -> Step {
    let key = routing_key(steps).unwrap_or_default();
    let tag_end = key.iter().position(|&byte| byte == b'}');
    let tag = key.get(..tag_end.map_or(0, |end| end + 1));
    let key = [tag.unwrap_or_default(), b":ack"].concat();
    Step::Command(vec!["SET".into(), key.into(), "1".into()])
}

fn wait(replicas: usize) -> Step {
    let number = |number: u128| Bytes::from(number.to_string());
    Step::Command(vec![
        "WAIT".into(),
        number(replicas as u128),
        number(WAIT_MAX.as_millis()),
    ])
}

fn size(step: &Step) -> usize {
    match step {
        Step::Command(words) => words.iter().map(Bytes::len).sum(),
        Step::Script { keys, args, .. } => keys.iter().chain(args).map(Bytes::len).sum(),
    }
}

fn lost(count: usize) -> Outcome {
    let lost = || Err(HostError::Lost("the call was given up".to_owned()));
    Outcome {
        results: (0..count).map(|_| lost()).collect(),
        wrong_server: false,
    }
}
