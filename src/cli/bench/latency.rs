//! Latency: from a call to the first byte at the receiver, at a steady rate: of a publish, and of a
//! raw call beside it, which says what this machine makes of any work at that rate.

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::MissedTickBehavior;

use super::figures::{Latency, Percentiles};
use super::raw;
use super::receiver::Arrivals;
use super::stage::Stage;
use crate::cli::failure::Failure;

/// Time in which connections are opened, at the same rate, before anything counts.
const WARM: Duration = Duration::from_secs(2);
/// So long after the last arrival the others are missing, and as long the worker may take to end.
const LAST_MAX: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// Publishes `rate` messages a second for `time`, one by one, to a running worker; after that, posts
/// as many without a queue.
pub(super) async fn measure(stage: &Stage, rate: u32, time: Duration) -> Result<Latency, Failure> {
    let messages = |time: Duration| usize::try_from(time.as_secs() * u64::from(rate));
    let warm = messages(WARM).unwrap_or(0);
    let count = messages(time).unwrap_or(0) + warm;

    let arrivals = stage.receiver.expect(count, count);
    let worker = stage.start_worker()?;
    let publishes = steadily(stage, rate, count, |number| {
        let message = stage.message(number)?;
        Ok(async {
            let published = stage.publisher.publish(message, PATIENCE).await;
            published
                .map(drop)
                .map_err(|error| Failure::failed("publish").because(&error))
        })
    })
    .await?;
    arrivals.complete(LAST_MAX).await;
    worker.drain(LAST_MAX).await;

    let posted = stage.receiver.expect(count, count);
    let posting = raw::Calls::new(stage)?;
    let posts = steadily(stage, rate, count, |number| Ok(posting.post(number))).await?;
    posted.complete(LAST_MAX).await;
    Ok(Latency {
        rate,
        lost: count - arrivals.arrived(),
        duplicates: arrivals.duplicates(),
        raw: posts.until(&posted, warm),
        received: publishes.until(&arrivals, warm),
        accepted: Percentiles::of(publishes.took.into_iter().skip(warm).collect()),
    })
}

/// Starts `count` calls, `rate` of them a second, and waits until all have ended.
async fn steadily<Call>(
    stage: &Stage,
    rate: u32,
    count: usize,
    start: impl Fn(usize) -> Result<Call, Failure>,
) -> Result<Calls, Failure>
where
    Call: Future<Output = Result<(), Failure>>,
{
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut calls = Calls {
        called: Vec::with_capacity(count),
        took: vec![Duration::ZERO; count],
    };
    let mut running = FuturesUnordered::new();
    while calls.called.len() < count || !running.is_empty() {
        tokio::select! {
            biased;
            Some((number, called, ended)) = running.next() => {
                let _: () = ended?;
                if let Some(took) = calls.took.get_mut(number) {
                    *took = stage.now().saturating_sub(called);
                }
            }
            _ = ticks.tick(), if calls.called.len() < count => {
                let number = calls.called.len();
                let call = start(number)?;
                let called = stage.now();
                calls.called.push(called);
                running.push(async move { (number, called, call.await) });
            }
        }
    }
    Ok(calls)
}

/// When each call began, and how long it took.
struct Calls {
    called: Vec<Duration>,
    took: Vec<Duration>,
}

impl Calls {
    /// From each call to the arrival of its message, without the first `warm`.
    fn until(&self, arrivals: &Arrivals, warm: usize) -> Percentiles {
        let calls = self.called.iter().enumerate().skip(warm);
        let times = calls.filter_map(|(number, called)| {
            let came = arrivals.time(number);
            came.map(|came| came.saturating_sub(*called))
        });
        Percentiles::of(times.collect())
    }
}
