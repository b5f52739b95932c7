//! A publish that the store cannot take: 503, and whether a repeat is safe.

use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::clock::SystemClock;
use hookstash_shared::random::SeededRandom;
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::faulty::{Fault, FaultRates, FaultyHost};

use crate::support::front_door::{Answered, FrontDoor, redis_state, state_on};
use crate::support::redis::{RedisOptions, RedisServer};

const DEDUP: (&str, &str) = ("Upstash-Deduplication-Id", "one-key");

fn assert_not_accepted(answer: &Answered) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(
        answer
            .error()
            .ends_with("sending the request again is safe"),
        "{answer:?}"
    );
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
}

#[tokio::test]
async fn a_full_store_refuses_and_takes_messages_again_when_it_has_room() {
    let clock = Arc::new(SystemClock::new());
    let host = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let door = FrontDoor::open(state_on(host.clone(), clock)).await;
    host.set_full(true);
    let full = door.publish("https://h/", &[], "x").await;
    assert_not_accepted(&full);
    assert!(full.error().contains("full"), "{full:?}");
    host.set_full(false);
    assert_eq!(door.publish("https://h/", &[], "x").await.status, 200);
}

#[tokio::test]
async fn a_full_redis_refuses_and_loses_nothing_it_had() {
    let redis = RedisServer::start_with(RedisOptions {
        maxmemory: Some("8mb".to_owned()),
        ..RedisOptions::default()
    });
    let door = FrontDoor::open(redis_state(&redis.url())).await;
    let mut accepted = Vec::new();
    let full = loop {
        let answer = door.publish("https://h/", &[], vec![b'x'; 500_000]).await;
        if answer.status != 200 {
            break answer;
        }
        accepted.push(answer.id());
        assert!(accepted.len() < 100, "8 MiB are never full");
    };
    assert_not_accepted(&full);
    assert!(!accepted.is_empty());
    for id in accepted {
        assert_eq!(
            door.call("GET", &format!("/v2/messages/{id}")).await.status,
            200
        );
        assert_eq!(
            door.call("DELETE", &format!("/v2/messages/{id}"))
                .await
                .status,
            200
        );
    }
    assert_eq!(door.publish("https://h/", &[], "x").await.status, 200);
}

#[tokio::test]
async fn a_redis_that_is_down_or_read_only_refuses() {
    let mut redis = RedisServer::start();
    let door = FrontDoor::open(redis_state(&redis.url())).await;
    let () = redis.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_not_accepted(&door.publish("https://h/", &[], "x").await);
    redis.kill9();
    assert_not_accepted(&door.publish("https://h/", &[], "x").await);
    let read = door.call("GET", "/v2/dlq").await;
    assert_eq!(read.status, 503, "{read:?}");
    redis.restart();
    assert_eq!(door.publish("https://h/", &[], "x").await.status, 200);
}

#[tokio::test]
async fn an_unknown_outcome_says_so_and_whether_a_repeat_is_safe() {
    let clock = Arc::new(SystemClock::new());
    let inner = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let host = Arc::new(FaultyHost::new(inner, Arc::new(SeededRandom::new(1))));
    let door = FrontDoor::open(state_on(host.clone(), clock)).await;

    // One lost answer is repeated under the same id.
    host.inject(Fault::LoseAfter);
    assert_eq!(door.publish("https://h/", &[DEDUP], "x").await.status, 200);
    assert_eq!(door.publish("https://h/", &[DEDUP], "x").await.status, 202);

    host.set_rates(FaultRates {
        lose_after: 10_000,
        ..FaultRates::default()
    });
    let key = ("Upstash-Deduplication-Id", "another-key");
    let with_key = [key];
    let (without, with) = tokio::join!(
        door.publish("https://h/", &[], "x"),
        door.publish("https://h/", &with_key, "x"),
    );
    host.set_rates(FaultRates::default());
    for answer in [&without, &with] {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.error().contains("unknown"), "{answer:?}");
        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    }
    assert!(
        without.error().contains("may deliver it twice"),
        "{without:?}"
    );
    assert!(
        with.error()
            .contains("is safe, because it has a deduplication id"),
        "{with:?}"
    );
    // And it is true: the repeat finds the message.
    let repeat = door.publish("https://h/", &[key], "x").await;
    assert_eq!(repeat.status, 202);
    assert!(with.error().contains(repeat.id().as_str()), "{with:?}");
}

#[tokio::test]
async fn a_redrive_whose_answer_is_lost_makes_one_message() {
    let clock = Arc::new(SystemClock::new());
    let inner = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let host = Arc::new(FaultyHost::new(inner, Arc::new(SeededRandom::new(1))));
    let door = FrontDoor::open(state_on(host.clone(), clock)).await;
    let id = door.publish("https://h/", &[], "x").await.id();
    assert_eq!(
        door.kill(500, &http::HeaderMap::new(), &bytes::Bytes::new())
            .await,
        1
    );
    // The first call reads the letter, the second one redrives it.
    host.inject(Fault::Delay(Duration::ZERO));
    host.inject(Fault::Delay(Duration::ZERO));
    host.inject(Fault::LoseAfter);
    let redriven = door.call("POST", &format!("/v2/dlq/retry/{id}")).await;
    assert_eq!(redriven.status, 201, "{redriven:?}");
    let leased = door
        .lease()
        .await
        .into_iter()
        .flat_map(|leased| leased.leases);
    let ids: Vec<_> = leased.map(|lease| lease.id).collect();
    assert_eq!(ids, [redriven.id()]);
}

#[tokio::test]
async fn a_redrive_that_was_lost_and_then_refused_does_not_say_that_nothing_was_changed() {
    const TRIES: usize = 5;
    let clock = Arc::new(SystemClock::new());
    let inner = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let host = Arc::new(FaultyHost::new(inner, Arc::new(SeededRandom::new(1))));
    let door = FrontDoor::open(state_on(host.clone(), clock)).await;
    let mut done = 0;
    // Call by call, until the one that makes the message is lost.
    for calls in 0..6 {
        let id = door.publish("https://h/", &[], "x").await.id();
        door.kill(500, &http::HeaderMap::new(), &bytes::Bytes::new())
            .await;
        for _ in 0..calls {
            host.inject(Fault::Delay(Duration::ZERO));
        }
        host.inject(Fault::LoseAfter);
        for _ in 1..TRIES {
            host.inject(Fault::Refuse);
        }
        let answer = door.call("POST", &format!("/v2/dlq/retry/{id}")).await;
        // Uses up what is left of the faults.
        for _ in 0..calls + TRIES {
            drop(door.state.store.message(&id).await);
        }
        let is_gone = door.state.store.dead_letter(&id).await.unwrap().is_none();
        if answer.status == 503 && is_gone {
            assert!(answer.error().contains("unknown"), "{answer:?}");
            done += 1;
        }
    }
    assert!(done > 0);
}
