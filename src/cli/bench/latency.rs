//! Latency: from the call of publish to the first byte at the receiver, at a steady rate.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
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
    for number in 0..count {
        let message = stage.message(number)?;
        ticks.tick().await;
        let (publisher, clock) = (stage.publisher.clone(), Arc::clone(stage.clock()));
        calls.spawn(async move {
            let called = clock.monotonic();
            let published = publisher.publish(message, PATIENCE).await;
            (number, called, clock.monotonic(), published)
        });
    }
    let (mut whole, mut publish) = (Vec::new(), Vec::new());
    let mut called_at = vec![Duration::ZERO; count];
    while let Some(call) = calls.join_next().await {
        let (number, called, answered, published) =
            call.map_err(|error| Failure::failed("publish").because(&error))?;
        published.map_err(|error| Failure::failed("publish").because(&error))?;
        if let Some(slot) = called_at.get_mut(number) {
            *slot = called;
        }
        if number >= warm {
            publish.push(answered.saturating_sub(called));
        }
    }
    arrivals.complete(LAST_MAX).await;
    worker.drain(LAST_MAX).await;
    for (number, called) in called_at.iter().enumerate().skip(warm) {
        whole.extend(
            arrivals
                .time(number)
                .map(|came| came.saturating_sub(*called)),
        );
    }
    Ok(Latency {
        rate,
        lost: count - arrivals.arrived(),
        duplicates: arrivals.duplicates(),
        received: Percentiles::of(whole),
        accepted: Percentiles::of(publish),
    })
}
