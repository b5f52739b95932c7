//! Ending a worker: gracefully, at its deadline, and at once.

use std::collections::BTreeMap;
use std::time::Duration;

use hookstash_shared::message::State;
use hookstash_worker::Drained;
use tokio::time::Instant;

use crate::support::receiver::{Answer, Receiver};
use crate::support::stage::{SOON, Stage, message};

const CALLS: usize = 20;

/// A worker with 20 calls under way that take this long, and more messages waiting.
async fn busy(
    stage: &Stage,
    call: Duration,
) -> (Receiver, Vec<hookstash_shared::message::MessageId>) {
    let receiver = Receiver::always(Answer::ok().after(call));
    let all = (0..CALLS).map(|_| message(&receiver.url("/f23"))).collect();
    let ids = stage.publish_all(all).await;
    (receiver, ids)
}

fn requests_per_id(receiver: &Receiver) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for one in receiver.received() {
        *counts
            .entry(one.header("upstash-message-id").unwrap().to_owned())
            .or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn f23_a_long_grace_lets_every_call_end_once() {
    for stage in Stage::both() {
        let worker = stage.work();
        let (receiver, ids) = busy(&stage, Duration::from_millis(500)).await;
        receiver.wait_for(CALLS, SOON).await;
        let late = stage.publish(message(&receiver.url("/late"))).await;
        let begun = Instant::now();
        assert_eq!(
            worker.drain(SOON).await,
            Drained::Finished,
            "{}",
            stage.name()
        );
        assert!(
            begun.elapsed() < Duration::from_secs(3),
            "{:?}",
            begun.elapsed()
        );
        for id in &ids {
            assert_eq!(stage.state(id).await, Some(State::Delivered));
        }
        let counts = requests_per_id(&receiver);
        assert!(counts.values().all(|&count| count == 1), "{counts:?}");
        let after = stage.publish(message(&receiver.url("/after"))).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(
            stage.state(&after).await,
            Some(State::Ready),
            "a drained worker leases nothing"
        );
        let _next = stage.work();
        stage.wait_for_state(&after, State::Delivered).await;
        stage.wait_for_state(&late, State::Delivered).await;
    }
}

#[tokio::test]
async fn f23_a_short_grace_hands_running_calls_to_another_worker() {
    for stage in Stage::both() {
        let worker = stage.work();
        let (receiver, ids) = busy(&stage, Duration::from_millis(1500)).await;
        receiver.wait_for(CALLS, SOON).await;
        let (grace, begun) = (Duration::from_millis(300), Instant::now());
        let end = worker.drain(grace).await;
        assert_eq!(end, Drained::Cut { dropped: CALLS }, "{}", stage.name());
        assert!(
            begun.elapsed() < grace + Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
        let _other = stage.work();
        for id in &ids {
            stage.wait_for_state(id, State::Delivered).await;
        }
        let counts = requests_per_id(&receiver);
        assert!(counts.values().all(|&count| count == 2), "{counts:?}");
        let message = stage.store.message(&ids[0]).await.unwrap().unwrap();
        assert_eq!((message.record.lost, message.record.failed), (1, 0));
    }
}

#[tokio::test]
async fn f23_a_second_signal_cuts_the_grace_short() {
    for stage in Stage::both() {
        let worker = stage.work();
        let (receiver, ids) = busy(&stage, Duration::from_hours(1)).await;
        receiver.wait_for(CALLS, SOON).await;
        let begun = Instant::now();
        let second = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            worker.stop_now().await
        };
        let (first, second) = tokio::join!(worker.drain(Duration::from_hours(1)), second);
        assert_eq!(
            (first, second),
            (Drained::Cut { dropped: CALLS }, first),
            "{}",
            stage.name()
        );
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
        // Handed back, not left to expire.
        for id in &ids {
            assert_eq!(stage.state(id).await, Some(State::Ready));
        }
    }
}

#[tokio::test]
async fn f23_a_worker_ends_in_time_although_the_store_is_away() {
    let mut stage = Stage::redis(Duration::from_secs(15));
    let worker = stage.work();
    let (receiver, _) = busy(&stage, Duration::from_hours(1)).await;
    receiver.wait_for(CALLS, SOON).await;
    stage.redis.as_mut().unwrap().kill9();
    let begun = Instant::now();
    let end = worker.drain(Duration::from_millis(200)).await;
    assert_eq!(end, Drained::Cut { dropped: CALLS });
    assert!(
        begun.elapsed() < Duration::from_secs(8),
        "{:?}",
        begun.elapsed()
    );
}
