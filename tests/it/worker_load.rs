//! Many messages at once.

use std::time::{Duration, Instant};

use hookstash_shared::message::{State, When};
use hookstash_worker::Drained;

use crate::support::receiver::{Answer, Receiver};
use crate::support::stage::{SOON, Stage, message};

#[tokio::test]
async fn twenty_thousand_messages_due_at_one_moment_drain() {
    const COUNT: usize = 20_000;
    let mut stage = Stage::redis(Duration::from_secs(15));
    stage.settings.slots = 256;
    let receiver = Receiver::start();
    let server = stage.redis.as_ref().unwrap();
    let slow: String = server.cli(&["CONFIG", "SET", "slowlog-log-slower-than", "100000"]);
    assert_eq!(slow, "OK");
    let due = When::After(Duration::from_millis(1));
    let all = (0..COUNT)
        .map(|_| message(&receiver.url("/due")).when(due))
        .collect();
    stage.publish_all(all).await;
    let due: usize = server.cli(&["ZCARD", "hs:{0}:d"]);
    assert_eq!(due, COUNT);
    let worker = stage.work();
    receiver.wait_for(COUNT, Duration::from_mins(2)).await;
    assert_eq!(worker.drain(SOON).await, Drained::Finished);
    receiver
        .expect_no_more_than(COUNT, Duration::from_millis(100))
        .await;
    let slow: u64 = server.cli(&["SLOWLOG", "LEN"]);
    assert_eq!(
        slow, 0,
        "no step of the store takes 100 ms, however much is due"
    );
    let left: (usize, usize) = (
        server.cli(&["ZCARD", "hs:{0}:d"]),
        server.cli(&["ZCARD", "hs:{0}:l"]),
    );
    assert_eq!(left, (0, 0));
}

/// The slowest but one in a hundred of messages published one after another.
async fn p99(stage: &Stage, receiver: &Receiver) -> Duration {
    const PROBES: usize = 200;
    let mut took = Vec::new();
    for _ in 0..PROBES {
        let (before, begun) = (receiver.count(), Instant::now());
        stage.publish(message(&receiver.url("/fast"))).await;
        let requests = receiver.wait_for(before + 1, SOON).await;
        took.push(requests[before].at.saturating_duration_since(begun));
    }
    took.sort();
    took[PROBES * 99 / 100]
}

#[tokio::test]
async fn o01_a_destination_that_hangs_with_thousands_queued_delays_no_other() {
    const QUEUED: usize = 5_000;
    let mut stage = Stage::redis(Duration::from_secs(15));
    stage.settings.slots = 512;
    let (hanging, fast) = (Receiver::always(Answer::hang()), Receiver::start());
    let worker = stage.work();
    p99(&stage, &fast).await;
    let alone = p99(&stage, &fast).await;
    let all = (0..QUEUED)
        .map(|_| message(&hanging.url("/hang")).timeout(SOON * 60))
        .collect();
    stage.publish_all(all).await;
    hanging.wait_for(200, SOON).await;
    let beside = p99(&stage, &fast).await;
    // Below a few milliseconds the machine's own noise is what is measured.
    let bar = 3 * alone.max(Duration::from_millis(5));
    assert!(
        beside <= bar,
        "p99 {beside:?} beside a hanging destination, {alone:?} alone"
    );
    let held = worker.in_flight();
    assert!(
        (200..=300).contains(&held),
        "one hog gets half of the slots, not {held}"
    );
    worker.stop_now().await;
}

#[tokio::test]
async fn a_burst_of_large_bodies_stays_within_the_budget() {
    const COUNT: usize = 60;
    for mut stage in Stage::both() {
        stage.settings.body_budget_bytes = 1 << 20;
        let receiver = Receiver::always(Answer::ok().after(Duration::from_millis(50)));
        let body = vec![b'x'; 400_000];
        let large = || message(&receiver.url("/large")).body(body.clone());
        let ids = stage
            .publish_all((0..COUNT).map(|_| large()).collect())
            .await;
        let _worker = stage.work();
        for id in &ids {
            stage.wait_for_state(id, State::Delivered).await;
        }
        assert_eq!(receiver.count(), COUNT, "{}", stage.name());
        let at_once = receiver.active_max();
        assert!(
            at_once <= 4,
            "{at_once} bodies of 400 kB at one time within 1 MiB"
        );
    }
}
