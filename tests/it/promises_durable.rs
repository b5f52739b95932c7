//! Accepted is never lost: 2xx, then everything is killed.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::program::{Program, SOON};
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::redis::RedisServer;

/// Publishes at one time; each is followed by a kill somewhere between two of them.
const CALLERS: usize = 8;

/// What was accepted while everything was killed is delivered afterwards.
async fn survives(kill: impl Fn(&mut RedisServer, &mut Program)) {
    let mut redis = RedisServer::start_durable();
    let receiver = Receiver::always(Answer::ok());
    for round in 0..3 {
        // Nothing is delivered before the kill.
        let mut front = Program::role("api", &redis, &[]).await;
        let url = receiver.url("/");
        let bodies: Vec<String> = (0..CALLERS)
            .map(|caller| format!("{round} {caller} {}", "x".repeat(20_000)))
            .collect();
        let calls = bodies
            .iter()
            .map(|body| front.publish(&url, &[], body.clone()));
        let ids: BTreeSet<String> = futures::future::join_all(calls).await.into_iter().collect();
        kill(&mut redis, &mut front);
        drop(front);

        let _server = Program::serve(&redis, &[]).await;
        let requests = receiver.wait_for((round + 1) * CALLERS, SOON).await;
        let delivered = requests
            .iter()
            .map(|one| one.header("Upstash-Message-Id").expect("an id"));
        let delivered: BTreeSet<String> = delivered.map(str::to_owned).collect();
        assert!(ids.is_subset(&delivered), "round {round}");
        let texts: BTreeSet<&str> = requests.iter().map(Received::text).collect();
        assert!(
            bodies.iter().all(|body| texts.contains(&**body)),
            "round {round}"
        );
    }
}

#[tokio::test]
async fn what_was_accepted_survives_a_kill_of_redis_right_after_the_answer() {
    survives(|redis, _| redis.restart()).await;
}

#[tokio::test]
async fn what_was_accepted_survives_a_kill_of_everything_right_after_the_answer() {
    survives(|redis, front| {
        front.process.kill9();
        redis.restart();
    })
    .await;
}

/// Publishing goes on over a restart of Redis, and what got its 2xx is delivered.
#[tokio::test]
async fn publishing_through_a_kill_of_redis_loses_nothing_that_was_accepted() {
    let mut redis = RedisServer::start_durable();
    let receiver = Receiver::always(Answer::ok());
    let server = Program::serve(&redis, &[]).await;
    let url = receiver.url("/");
    let mut accepted = BTreeSet::new();
    for number in 0..60 {
        if number == 20 || number == 40 {
            redis.kill9();
        }
        if number == 25 || number == 45 {
            redis.restart();
        }
        let call = server
            .publishing(&url)
            .header("Upstash-Deduplication-Id", number.to_string());
        let call = call
            .body(number.to_string())
            .timeout(Duration::from_secs(20))
            .send();
        let answer = call.await.expect("an answer");
        match answer.status().as_u16() {
            200 | 202 => drop(accepted.insert(number.to_string())),
            503 => assert!(answer.headers().contains_key("retry-after")),
            other => panic!("{other}"),
        }
        if (20..25).contains(&number) || (40..45).contains(&number) {
            assert!(
                !accepted.contains(&number.to_string()),
                "accepted without a store"
            );
        }
    }
    assert!(
        accepted.len() >= 40,
        "{} of 60 were accepted",
        accepted.len()
    );
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let requests = receiver.received();
        let delivered: BTreeSet<String> =
            requests.iter().map(|one| one.text().to_owned()).collect();
        let missing: Vec<&String> = accepted.difference(&delivered).collect();
        if missing.is_empty() {
            break;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "accepted and lost: {missing:?}"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
