//! A queue waits for the callbacks of its messages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hookstash_shared::message::{CallbackSpec, MessageId, RetryDelay, State};
use hookstash_shared::store::EventRange;
use tokio::time::Instant;

use crate::support::program::{Program, read};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;
use crate::support::stage::{SOON, Stage, message};
use crate::support::told::{DEVELOPMENT_KEYS, callback, told};

/// The paths in the order in which they were called.
fn paths(receiver: &Receiver) -> Vec<String> {
    let requests = receiver.received().into_iter();
    requests.map(|request| request.path).collect()
}

/// The first message of the log that is none of `known`.
async fn callback_among(stage: &Stage, known: &[MessageId]) -> MessageId {
    let deadline = Instant::now() + SOON;
    loop {
        let mut walk = stage.store.events(EventRange::default());
        while let Some(event) = walk.next().await.unwrap() {
            if !known.contains(&event.id) {
                return event.id;
            }
        }
        assert!(Instant::now() < deadline, "no callback was enqueued");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_next_message_starts_only_after_the_callbacks_of_the_one_before() {
    const SLOW: Duration = Duration::from_millis(600);
    for stage in Stage::both() {
        let receiver = Receiver::with(|request| match request.path.as_str() {
            "/told" => Answer::ok().after(SLOW),
            _ => Answer::ok(),
        });
        let _worker = stage.work();
        let mut ids = Vec::new();
        for path in ["/1", "/2", "/3"] {
            let message = message(&receiver.url(path)).queue("q").unwrap();
            let message = message.callback(callback(&receiver.url("/told")));
            ids.push(stage.publish(message).await);
        }
        let requests = receiver.wait_for(6, SOON).await;
        let order = ["/1", "/told", "/2", "/told", "/3", "/told"];
        assert_eq!(paths(&receiver), order, "{}", stage.name());
        for pair in requests[1..].chunks(2).filter(|pair| pair.len() == 2) {
            let waited = pair[1].at.duration_since(pair[0].at);
            assert!(waited >= SLOW, "{waited:?} after the callback began");
        }
        assert_eq!(receiver.active_max(), 1);
        stage.wait_for_state(&ids[2], State::Delivered).await;
    }
}

#[tokio::test]
async fn a_queue_waits_for_callbacks_that_are_retried_and_fail_and_for_those_of_failed_attempts() {
    for stage in Stage::both() {
        let receiver = Receiver::with(|request| match request.path.as_str() {
            "/fails" | "/told" => Answer::status(500),
            _ => Answer::ok(),
        });
        let _worker = stage.work();
        let spec = CallbackSpec {
            retries: Some(1),
            ..callback(&receiver.url("/told"))
        };
        let first = message(&receiver.url("/fails")).retries(1).callback(spec);
        let first = first.failure_callback(callback(&receiver.url("/mourned")));
        let id = stage.publish(first.queue("q").unwrap()).await;
        let next = message(&receiver.url("/next")).queue("q").unwrap();
        let next = stage.publish(next).await;
        stage.wait_for_state(&next, State::Delivered).await;
        let mut order = paths(&receiver);
        // The callback and the failure callback of the last attempt go at one time.
        let last = order.iter().position(|path| path == "/mourned").unwrap();
        assert!((4..=6).contains(&last), "{order:?}");
        order.remove(last);
        let expected = [
            "/fails", "/told", "/told", "/fails", "/told", "/told", "/next",
        ];
        assert_eq!(order, expected, "{}", stage.name());
        stage.wait_for_state(&id, State::Dead).await;
    }
}

#[tokio::test]
async fn cancelling_a_callback_lets_the_queue_go_on() {
    for stage in Stage::both() {
        let receiver = Receiver::with(|request| match request.path.as_str() {
            "/told" => Answer::status(500),
            _ => Answer::ok(),
        });
        let _worker = stage.work();
        let spec = CallbackSpec {
            retries: Some(1),
            retry_delay: Some(RetryDelay::parse("3600000").unwrap()),
            ..callback(&receiver.url("/told"))
        };
        let first = message(&receiver.url("/1")).queue("q").unwrap();
        let first = stage.publish(first.callback(spec)).await;
        let next = message(&receiver.url("/2")).queue("q").unwrap();
        let next = stage.publish(next).await;
        receiver.wait_for(2, SOON).await;
        let delayed = callback_among(&stage, &[first, next]).await;
        stage.wait_for_state(&delayed, State::Delayed).await;
        receiver
            .expect_no_more_than(2, Duration::from_millis(300))
            .await;
        assert_eq!(stage.state(&next).await, Some(State::Ready));
        stage.store.cancel(&delayed, "{}".into()).await.unwrap();
        stage.wait_for_state(&next, State::Delivered).await;
        assert_eq!(paths(&receiver), ["/1", "/told", "/2"], "{}", stage.name());
    }
}

#[tokio::test]
async fn a_queue_waits_for_a_callback_whose_worker_was_killed() {
    let redis = RedisServer::start_durable();
    let is_first = AtomicBool::new(true);
    let receiver = Receiver::with(move |request| match request.path.as_str() {
        "/told" if is_first.swap(false, Ordering::SeqCst) => Answer::hang(),
        _ => Answer::ok(),
    });
    let front = Program::role("api", &redis, &[]).await;
    let mut worker = Program::worker(&redis, &DEVELOPMENT_KEYS).await;
    let to = receiver.url("/told");
    let of_queue = |path: &str| {
        let request = front.publishing(&receiver.url(path)).body("b");
        request.header("Upstash-Queue-Name", "q")
    };
    let first = of_queue("/1").header("Upstash-Callback", &to);
    let (status, first) = read(first).await;
    assert_eq!(status, 200, "{first}");
    let (status, next) = read(of_queue("/2")).await;
    assert_eq!(status, 200, "{next}");
    receiver.wait_for(2, SOON).await;
    worker.kill9();
    let _other = Program::worker(&redis, &DEVELOPMENT_KEYS).await;
    let requests = receiver.wait_for(4, SOON).await;
    assert_eq!(paths(&receiver), ["/1", "/told", "/told", "/2"]);
    let ids: Vec<_> = requests[1..3]
        .iter()
        .map(|request| request.header("upstash-message-id").unwrap())
        .collect();
    assert_eq!(ids[0], ids[1]);
    let story = told(&requests[2], &to);
    assert_eq!(story["sourceMessageId"], first["messageId"]);
}
