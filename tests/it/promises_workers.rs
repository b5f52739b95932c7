//! Workers come and go: what a killed one held goes to another, and nothing is delivered twice
//! while all are well.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::program::{Program, SOON};
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::redis::RedisServer;

/// Deliveries by message id.
fn by_id(requests: &[Received]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for one in requests {
        let id = one.header("Upstash-Message-Id").expect("an id").to_owned();
        *counts.entry(id).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn what_a_killed_worker_held_is_delivered_by_another() {
    const MESSAGES: usize = 100;
    let redis = RedisServer::start_durable();
    // The first worker's calls never end; the second one's do.
    let is_fast = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&is_fast);
    let receiver = Receiver::with(move |_| {
        let is_fast = told.load(std::sync::atomic::Ordering::SeqCst);
        Answer::ok().after(Duration::from_secs(if is_fast { 0 } else { 60 }))
    });
    let front = Program::role("api", &redis, &[]).await;
    let mut worker = Program::worker(&redis, &[]).await;
    for number in 0..MESSAGES {
        // A third has no retry left: a lost lease must not use up an attempt that it may not have
        // made.
        let retries = if number % 3 == 0 { "0" } else { "3" };
        front
            .publish(&receiver.url("/"), &[("Upstash-Retries", retries)], "x")
            .await;
    }
    receiver.wait_for(MESSAGES, SOON).await;
    worker.kill9();
    is_fast.store(true, std::sync::atomic::Ordering::SeqCst);
    let _other = Program::worker(&redis, &[]).await;

    let requests = receiver.wait_for(2 * MESSAGES, SOON).await;
    let counts = by_id(&requests);
    assert_eq!(counts.len(), MESSAGES);
    assert!(counts.values().all(|count| *count == 2), "{counts:?}");
    let retried = requests
        .iter()
        .all(|one| one.header("Upstash-Retried") == Some("0"));
    assert!(retried, "a lost worker is no failure of the destination");
    receiver
        .expect_no_more_than(2 * MESSAGES, Duration::from_secs(3))
        .await;
    assert_eq!(front.dead().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_message_without_retries_whose_worker_dies_before_the_call_still_gets_its_attempt() {
    let redis = RedisServer::start_durable();
    let receiver = Receiver::always(Answer::ok());
    let front = Program::role("api", &redis, &[]).await;
    // One slot and a slow first message: the others are leased and wait for their call.
    let slow = Receiver::always(Answer::hang());
    let mut worker = Program::worker(&redis, &[("HOOKSTASH_SLOTS", "1")]).await;
    front
        .publish(&slow.url("/"), &[("Upstash-Retries", "3")], "slow")
        .await;
    slow.wait_for(1, SOON).await;
    for _ in 0..5 {
        front
            .publish(&receiver.url("/"), &[("Upstash-Retries", "0")], "x")
            .await;
    }
    worker.kill9();
    let _other = Program::worker(&redis, &[]).await;
    receiver.wait_for(5, SOON).await;
    slow.wait_for(2, SOON).await;
    assert_eq!(front.dead().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_stopped_worker_that_comes_back_settles_nothing_of_others() {
    let redis = RedisServer::start_durable();
    let receiver = Receiver::with(|request| match request.connection {
        0 => Answer::ok().after(Duration::from_secs(1)),
        _ => Answer::ok(),
    });
    let front = Program::role("api", &redis, &[]).await;
    let stopped = Program::worker(&redis, &[]).await;
    let id = front
        .publish(&receiver.url("/"), &[("Upstash-Retries", "0")], "x")
        .await;
    receiver.wait_for(1, SOON).await;
    stopped.signal("STOP");
    let _other = Program::worker(&redis, &[]).await;
    receiver.wait_for(2, SOON).await;
    stopped.signal("CONT");
    receiver
        .expect_no_more_than(2, Duration::from_secs(4))
        .await;
    assert_eq!(front.dead().await, Vec::<String>::new());
    assert!(by_id(&receiver.received()).contains_key(&id));
}

#[tokio::test]
async fn two_servers_and_two_workers_deliver_ten_thousand_once_each() {
    const MESSAGES: usize = 10_000;
    const CALLERS: usize = 32;
    let redis = RedisServer::start_durable();
    let receiver = Receiver::always(Answer::ok());
    let fronts = [
        Program::role("api", &redis, &[]).await,
        Program::role("api", &redis, &[]).await,
    ];
    // The usual lease: on a busy machine a short one is lost without any fault.
    let lease = [("HOOKSTASH_LEASE", "15s"), ("HOOKSTASH_RENEW", "5s")];
    let _workers = [
        Program::worker(&redis, &lease).await,
        Program::worker(&redis, &lease).await,
    ];
    let url = receiver.url("/");
    let calls = (0..CALLERS).map(|caller| {
        let (front, url) = (&fronts[caller % 2], &url);
        async move {
            for number in (caller..MESSAGES).step_by(CALLERS) {
                front.publish(url, &[], number.to_string()).await;
            }
        }
    });
    futures::future::join_all(calls).await;
    let requests = receiver.wait_for(MESSAGES, Duration::from_mins(2)).await;
    receiver
        .expect_no_more_than(MESSAGES, Duration::from_secs(3))
        .await;
    let counts = by_id(&requests);
    assert_eq!(counts.len(), MESSAGES, "each id once");
    let bodies: std::collections::BTreeSet<&str> = requests.iter().map(Received::text).collect();
    assert_eq!(bodies.len(), MESSAGES, "each body once");
    assert_eq!(fronts[0].dead().await, Vec::<String>::new());
}
