//! A full Redis: publishing is refused plainly, and what was accepted is delivered all the same.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::program::{Program, SOON, read};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::{RedisOptions, RedisServer, binaries};

/// More than fits.
const MESSAGES_MAX: usize = 2_000;
const BODY_BYTES: usize = 10_000;

#[tokio::test]
async fn a_full_store_answers_503_and_drains_on_every_supported_redis() {
    for binary in binaries() {
        let redis = RedisServer::start_with(RedisOptions {
            maxmemory: Some("8mb".to_owned()),
            extra: vec!["--maxmemory-policy".to_owned(), "noeviction".to_owned()],
            binary: Some(binary.clone()),
            ..RedisOptions::default()
        });
        let receiver = Receiver::always(Answer::ok());
        let front = Program::role("api", &redis, &[]).await;
        let url = receiver.url("/");
        let mut accepted = BTreeSet::new();
        let mut refusals = 0;
        while refusals < 3 {
            assert!(accepted.len() < MESSAGES_MAX, "it never became full");
            let call = front.publishing(&url).header("Upstash-Retries", "0");
            let (status, answer) = read(call.body("x".repeat(BODY_BYTES))).await;
            match status {
                200 => {
                    assert!(accepted.insert(answer["messageId"].as_str().unwrap().to_owned()));
                }
                503 => {
                    refusals += 1;
                    let text = answer["error"].as_str().unwrap();
                    assert!(text.contains("the store is full"), "{text}");
                }
                other => panic!("{other} {answer}"),
            }
        }
        assert!(accepted.len() > 50, "{}", accepted.len());

        // Workers that start on a full store empty it, also what fails for good.
        let _worker = Program::worker(&redis, &[("HOOKSTASH_DELIVERED_GRACE", "15s")]).await;
        let requests = receiver.wait_for(accepted.len(), SOON).await;
        let ids = requests
            .iter()
            .map(|one| one.header("Upstash-Message-Id").unwrap().to_owned());
        assert_eq!(
            ids.collect::<BTreeSet<_>>(),
            accepted,
            "{}",
            binary.display()
        );
        receiver
            .expect_no_more_than(accepted.len(), Duration::from_secs(3))
            .await;

        // With room again (delivered messages are dropped after their grace) it accepts again.
        let deadline = tokio::time::Instant::now() + SOON + Duration::from_secs(15);
        loop {
            let (status, _) = read(front.publishing(&url).body("again")).await;
            if status == 200 {
                break;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "{} is full still",
                binary.display()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        receiver.wait_for(accepted.len() + 1, SOON).await;
    }
}

#[tokio::test]
async fn what_fails_for_good_on_a_full_store_is_kept_as_a_dead_letter() {
    let redis = RedisServer::start();
    let receiver = Receiver::always(Answer::status(500).body("y".repeat(5_000)));
    let front = Program::role("api", &redis, &[]).await;
    for _ in 0..50 {
        front
            .publish(&receiver.url("/"), &[("Upstash-Retries", "0")], "x")
            .await;
    }
    let () = redis.cli(&["CONFIG", "SET", "maxmemory", "1mb"]);
    let (status, _) = read(front.publishing(&receiver.url("/")).body("x")).await;
    assert_eq!(status, 503);
    let _worker = Program::worker(&redis, &[]).await;
    let dead = front.wait_for_dead(50).await;
    assert_eq!(dead.len(), 50);
    assert_eq!(receiver.count(), 50);
}
