//! Latency: from the call of publish to the first byte at the receiver, at a steady rate.

use std::sync::Arc;
use std::time::Duration;

use hookstash_producer::publish::{PublishError, Published};
use tokio::task::{JoinError, JoinSet};
use tokio::time::MissedTickBehavior;

use super::figures::{Latency, Percentiles};
use super::stage::Stage;
use crate::cli::failure::Failure;

/// Time in which a fresh worker opens its connections, at the same rate, before anything counts.
const WARM: Duration = Duration::from_secs(2);
/// So long after the last arrival the others are missing, and as long the worker may take to end.
const LAST_MAX: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// Publishes `rate` messages a second for `time`, one by one, to a running worker.
pub(super) async fn measure(stage: &Stage, rate: u32, time: Duration) -> Result<Latency, Failure> {
    let messages = |time: Duration| usize::try_from(time.as_secs() * u64::from(rate));
    let warm = messages(WARM).unwrap_or(0);
    let count = messages(time).unwrap_or(0) + warm;
    let arrivals = stage.receiver.expect(count, count);
    let worker = stage.start_worker()?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = JoinSet::new();
    let mut publishes = Publishes::new(count);
    for number in 0..count {
        let message = stage.message(number)?;
        ticks.tick().await;
        let (publisher, clock) = (stage.publisher.clone(), Arc::clone(stage.clock()));
        calls.spawn(async move {
            let called = clock.monotonic();
            let published = publisher.publish(message, PATIENCE).await;
            (number, called, clock.monotonic(), published)
        });
        // Not all at the end: what is kept until then grows, and growing takes time.
        while let Some(ended) = calls.try_join_next() {
            publishes.note(ended)?;
        }
    }
    while let Some(ended) = calls.join_next().await {
        publishes.note(ended)?;
    }
    arrivals.complete(LAST_MAX).await;
    worker.drain(LAST_MAX).await;
    let mut whole = Vec::with_capacity(count);
    for (number, called) in publishes.called.iter().enumerate().skip(warm) {
        let came = arrivals.time(number);
        whole.extend(came.map(|came| came.saturating_sub(*called)));
    }
    Ok(Latency {
        rate,
        lost: count - arrivals.arrived(),
        duplicates: arrivals.duplicates(),
        received: Percentiles::of(whole),
        accepted: Percentiles::of(publishes.took.split_off(warm)),
    })
}

/// One publish: its number, when it was called and answered, and the answer.
type Ended = (usize, Duration, Duration, Result<Published, PublishError>);

/// When each message was published, and how long that took.
struct Publishes {
    called: Vec<Duration>,
    took: Vec<Duration>,
}

impl Publishes {
    fn new(count: usize) -> Self {
        Self {
            called: vec![Duration::ZERO; count],
            took: vec![Duration::ZERO; count],
        }
    }

    fn note(&mut self, ended: Result<Ended, JoinError>) -> Result<(), Failure> {
        let failed = |error: &dyn std::error::Error| Failure::failed("publish").because(error);
        let (number, called, answered, published) = ended.map_err(|error| failed(&error))?;
        published.map_err(|error| failed(&error))?;
        if let (Some(at), Some(took)) = (self.called.get_mut(number), self.took.get_mut(number)) {
            (*at, *took) = (called, answered.saturating_sub(called));
        }
        Ok(())
    }
}
