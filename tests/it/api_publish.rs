//! Publishing over HTTP: what is accepted is in the store, exactly as it was sent, once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use hookstash_shared::clock::ManualClock;
use hookstash_shared::store::Outcome;
use hookstash_shared::store::embedded::EmbeddedHost;
use serde_json::json;

use crate::support::front_door::{Answered, FrontDoor, embedded_state, redis_state, state_on};
use crate::support::redis::RedisServer;

const DEDUP: &str = "Upstash-Deduplication-Id";

#[tokio::test]
async fn a_published_message_can_be_read_as_it_was_sent() {
    let door = FrontDoor::embedded().await;
    let headers = [
        ("Content-Type", "application/json"),
        ("Upstash-Method", "PATCH"),
        ("Upstash-Retries", "0"),
        ("Upstash-Retry-Delay", "1000 * (1 + retried)"),
        ("Upstash-Timeout", "30s"),
        ("Upstash-Label", "one,two"),
        ("upstash-forward-test-HEADER", "Value"),
        ("Upstash-Telemetry-Sdk", "test"),
        ("X-Other", "stays here"),
    ];
    let published = door
        .publish("https://Example.com/p?x=%20", &headers, "{\"a\": 1}\n")
        .await;
    assert_eq!(published.status, 200, "{published:?}");
    let id = published.id();
    assert_eq!(published.json, json!({ "messageId": id }));
    let message = door.call("GET", &format!("/v2/messages/{id}")).await;
    let expected = json!({
        "messageId": id, "url": "https://Example.com/p?x=%20", "method": "PATCH",
        "header": { "Content-Type": ["application/json"], "Test-Header": ["Value"] },
        "body": "{\"a\": 1}\n", "maxRetries": 0, "notBefore": id.created_ms(),
        "createdAt": id.created_ms(), "timeout": 30_000, "callerIP": "127.0.0.1",
        "retryDelayExpression": "1000 * (1 + retried)", "label": "one", "labels": ["one", "two"],
    });
    assert_eq!((message.status, message.json), (200, expected));
}

#[tokio::test]
async fn bodies_of_any_bytes_are_kept() {
    let door = FrontDoor::embedded().await;
    for (body, key, shown) in [
        (&b"\xff\x00"[..], "bodyBase64", json!("/wA=")),
        ("ü\r\n".as_bytes(), "body", json!("ü\r\n")),
        (b"", "body", json!(null)),
    ] {
        let id = door.publish("https://h/", &[], body).await.id();
        let message = door.call("GET", &format!("/v2/messages/{id}")).await;
        assert_eq!(message.json[key], shown);
    }
}

#[tokio::test]
async fn a_duplicate_is_answered_with_the_first_id() {
    let door = FrontDoor::embedded().await;
    let id = "0".repeat(128);
    let first = door.publish("https://h/a", &[(DEDUP, &id)], "1").await;
    let second = door.publish("https://h/b", &[(DEDUP, &id)], "2").await;
    assert_eq!((first.status, second.status), (200, 202));
    assert_eq!(
        second.json,
        json!({ "messageId": first.id(), "deduplicated": true })
    );
    let by_content = [("Upstash-Content-Based-Deduplication", "True")];
    let statuses = [
        door.publish("https://h/a", &by_content, "1").await.status,
        door.publish("https://h/a", &by_content, "1").await.status,
        door.publish("https://h/a", &by_content, "2").await.status,
        door.publish("https://h/b", &by_content, "1").await.status,
    ];
    assert_eq!(statuses, [200, 202, 200, 200]);
}

#[tokio::test]
async fn d05_a_deduplication_id_lasts_for_its_window_and_no_longer() {
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let host = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let door = FrontDoor::open(state_on(host, clock.clone())).await;
    let dead = Outcome::Dead {
        response: Bytes::new(),
    };
    for (round, end) in ["delivered", "dead", "cancelled"].into_iter().enumerate() {
        let id = format!("id-{round}");
        let headers = [(DEDUP, id.as_str())];
        let publish = || door.publish("https://h/", &headers, "x");
        let first = publish().await;
        assert_eq!(first.status, 200, "{end}");
        assert_eq!(publish().await.status, 202, "{end}");
        match end {
            "delivered" => assert_eq!(door.settle(&Outcome::Delivered).await, 1),
            "dead" => assert_eq!(door.settle(&dead).await, 1),
            _ => {
                let path = format!("/v2/messages/{}", first.id());
                assert_eq!(door.call("DELETE", &path).await.status, 200);
            }
        }
        clock.advance(Duration::from_secs(599));
        let late = publish().await;
        assert_eq!((late.status, late.id()), (202, first.id()), "{end}");
        clock.advance(Duration::from_secs(2));
        let after = publish().await;
        assert_eq!(after.status, 200, "{end}");
        assert_ne!(after.id(), first.id(), "{end}");
        assert_eq!(door.settle(&Outcome::Delivered).await, 1, "{end}");
    }
}

#[tokio::test]
async fn d09_of_200_racing_publishes_with_one_key_one_is_accepted() {
    let state = embedded_state();
    let doors = [
        FrontDoor::open(state.clone()).await,
        FrontDoor::open(state).await,
    ];
    race(&doors).await;
}

#[tokio::test]
async fn d09_of_200_racing_publishes_one_is_accepted_on_redis() {
    let redis = RedisServer::start();
    // Two connections, as two processes have.
    let doors = [
        FrontDoor::open(redis_state(&redis.url())).await,
        FrontDoor::open(redis_state(&redis.url())).await,
    ];
    race(&doors).await;
}

async fn race(doors: &[FrontDoor; 2]) {
    let publishes = (0..200).map(|n| {
        let body = format!("body {n}");
        async move {
            doors[n % 2]
                .publish("https://h/p", &[(DEDUP, "one-key")], body)
                .await
        }
    });
    let answers = join_all(publishes).await;
    let ids: BTreeSet<_> = answers.iter().map(Answered::id).collect();
    assert_eq!(ids.len(), 1);
    let accepted = answers.iter().filter(|answer| answer.status == 200).count();
    let duplicate = answers.iter().filter(|answer| answer.status == 202).count();
    assert_eq!((accepted, duplicate), (1, 199));
    assert_eq!(doors[0].settle(&Outcome::Delivered).await, 1);
    assert_eq!(doors[1].settle(&Outcome::Delivered).await, 0);
}

#[tokio::test]
async fn the_token_is_taken_from_the_query_and_goes_no_further() {
    let door = FrontDoor::embedded().await;
    let target = "/v2/publish/https://h/p?a=1&qstash_token=t0ken%3D%3D&upstash-retries=7&b=2";
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: h\r\nX-Github-Event: push\r\nConnection: close\r\n\
         Upstash-Header-Forward: true\r\nContent-Type: text/x\r\nContent-Length: 2\r\n\r\nhi"
    );
    let published = door.raw(head).await;
    assert_eq!(published.status, 200, "{published:?}");
    let message = door
        .call("GET", &format!("/v2/messages/{}", published.id()))
        .await;
    assert_eq!(message.json["url"], "https://h/p?a=1&b=2");
    assert_eq!(message.json["maxRetries"], 7);
    let header = json!({ "Content-Type": ["text/x"], "X-Github-Event": ["push"] });
    assert_eq!(message.json["header"], header);
    assert!(!message.json.to_string().contains("t0ken"));
}

#[tokio::test]
async fn a_shutdown_lets_a_running_publish_finish() {
    use tokio::io::AsyncWriteExt as _;
    let door = FrontDoor::embedded().await;
    let mut stream = tokio::net::TcpStream::connect(door.addr).await.unwrap();
    let head = "POST /v2/publish/https://h/ HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\
                Authorization: Bearer t0ken==\r\n\r\nab";
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let closing = tokio::spawn(door.close());
    tokio::time::sleep(Duration::from_millis(50)).await;
    stream.write_all(b"cd").await.unwrap();
    let answer = crate::support::front_door::read_answer(&mut stream).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    closing.await.unwrap();
}
