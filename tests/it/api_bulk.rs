//! Actions on several messages and dead letters over HTTP.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::SystemClock;
use hookstash_shared::message::MessageId;
use hookstash_shared::random::SeededRandom;
use hookstash_shared::store::Outcome;
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::faulty::{Fault, FaultRates, FaultyHost};
use http::HeaderMap;
use serde_json::{Value, json};

use crate::support::front_door::{Answered, FrontDoor, answered, on_both, state_on};

/// So many dead letters of a label.
async fn dead(door: &FrontDoor, label: &str, count: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for _ in 0..count {
        let headers = [("Upstash-Label", label)];
        ids.push(door.publish("https://h/p", &headers, "body").await.id());
    }
    let mut died = 0;
    while died < count {
        died += door.kill(500, &HeaderMap::new(), &Bytes::new()).await;
    }
    ids
}

async fn left(door: &FrontDoor) -> usize {
    let page = door.call("GET", "/v2/dlq").await.json;
    page["messages"].as_array().unwrap().len()
}

async fn with_body(door: &FrontDoor, method: &str, path: &str, body: &str) -> Answered {
    let request = door.request(method, path);
    let request = request.header("Content-Type", "application/json");
    answered(request.body(body.to_owned())).await
}

#[tokio::test]
async fn dead_letters_are_deleted_by_ids_in_query_or_body() {
    let door = FrontDoor::embedded().await;
    let ids = dead(&door, "x", 5).await;
    let query = format!("/v2/dlq?dlqIds={}&dlqIds={}&dlqIds=nothing", ids[0], ids[1]);
    let deleted = door.call("DELETE", &query).await;
    assert_eq!(
        (deleted.status, deleted.json),
        (200, json!({ "deleted": 2 }))
    );
    let body = json!({ "dlqIds": [ids[1], ids[2], ids[3]] }).to_string();
    let deleted = with_body(&door, "DELETE", "/v2/dlq", &body).await;
    assert_eq!(deleted.json, json!({ "deleted": 2 }));
    assert_eq!(left(&door).await, 1);
}

#[tokio::test]
async fn a_bulk_action_that_names_nothing_or_something_unknown_touches_nothing() {
    let door = FrontDoor::embedded().await;
    let ids = dead(&door, "x", 3).await;
    for (method, path) in [("DELETE", "/v2/dlq"), ("POST", "/v2/dlq/retry")] {
        for body in [
            r#"{"dlqIds":[]}"#,
            r#"{"messageIds":[]}"#,
            r#"{"dlqIds":["unknown"]}"#,
        ] {
            let answer = with_body(&door, method, path, body).await;
            let none = answer.json["deleted"] == 0 || answer.json["responses"] == json!([]);
            assert!(
                none && answer.json.get("cursor").is_none(),
                "{body}: {answer:?}"
            );
        }
        for body in [
            "{}",
            "[]",
            "null",
            "x",
            r#"{"dlqIds":null}"#,
            r#"{"label":[]}"#,
            r#"{"ids":["x"]}"#,
        ] {
            let answer = with_body(&door, method, path, body).await;
            assert_eq!(answer.status, 400, "{body}: {answer:?}");
        }
        for query in [
            "labeel=x",
            "label=",
            "host=h",
            "count=0",
            &format!("dlqIds={}&label=x", ids[0]),
        ] {
            let answer = door.call(method, &format!("{path}?{query}")).await;
            assert_eq!(answer.status, 400, "{query}: {answer:?}");
        }
    }
    assert_eq!(left(&door).await, 3);
}

#[tokio::test]
async fn dead_letters_are_deleted_by_filter_and_altogether_page_by_page() {
    let door = FrontDoor::embedded().await;
    dead(&door, "a", 7).await;
    dead(&door, "b", 5).await;
    let (mut cursor, mut deleted, mut calls) = (String::new(), 0, 0);
    loop {
        let query = format!("/v2/dlq?label=a&count=3&cursor={cursor}");
        let answer = door.call("DELETE", &query).await.json;
        deleted += answer["deleted"].as_u64().unwrap();
        calls += 1;
        match answer.get("cursor").and_then(Value::as_str) {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    assert_eq!((deleted, calls, left(&door).await), (7, 3, 5));
    let answer = door.call("DELETE", "/v2/dlq?count=4").await.json;
    assert_eq!(answer["deleted"], 4);
    let cursor = answer["cursor"].as_str().unwrap().to_owned();
    let answer = door
        .call("DELETE", &format!("/v2/dlq?count=4&cursor={cursor}"))
        .await
        .json;
    assert_eq!(answer, json!({ "deleted": 1 }));
}

#[tokio::test]
async fn dead_letters_are_redriven_by_ids_and_by_filter() {
    let door = FrontDoor::embedded().await;
    let ids = dead(&door, "a", 3).await;
    dead(&door, "b", 2).await;
    let path = format!("/v2/dlq/retry?dlqIds={}&dlqIds=unknown", ids[0]);
    let answer = door.call("POST", &path).await;
    assert_eq!(answer.status, 201);
    let responses = answer.json["responses"].as_array().unwrap().clone();
    assert_eq!(
        (responses.len(), &responses[0]["dlqId"]),
        (1, &json!(ids[0]))
    );
    let new = responses[0]["messageId"].as_str().unwrap();
    let message = door.call("GET", &format!("/v2/messages/{new}")).await.json;
    assert_eq!(
        (&message["body"], &message["label"]),
        (&json!("body"), &json!("a"))
    );

    let answer = door
        .call("POST", "/v2/dlq/retry?label=a&count=1")
        .await
        .json;
    assert_eq!(answer["responses"].as_array().unwrap().len(), 1);
    let cursor = answer["cursor"].as_str().unwrap();
    let path = format!("/v2/dlq/retry?label=a&count=9&cursor={cursor}");
    let answer = door.call("POST", &path).await.json;
    assert_eq!(answer["responses"].as_array().unwrap().len(), 1);
    assert!(answer.get("cursor").is_none(), "{answer}");
    assert_eq!(left(&door).await, 2);
    let refused = answered(
        door.request("POST", "/v2/dlq/retry")
            .header("Upstash-Retries", "1"),
    )
    .await;
    assert_eq!(refused.status, 501);
    assert_eq!(left(&door).await, 2);
}

#[tokio::test]
async fn messages_are_cancelled_by_ids_and_never_altogether_by_accident() {
    let door = FrontDoor::embedded().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        let headers = [("Upstash-Delay", "1h")];
        ids.push(door.publish("https://h/p", &headers, "x").await.id());
    }
    let query = format!(
        "/v2/messages?messageIds={}&messageIds={},unknown",
        ids[0], ids[1]
    );
    let cancelled = door.call("DELETE", &query).await;
    assert_eq!(
        (cancelled.status, cancelled.json),
        (200, json!({ "cancelled": 2 }))
    );
    let body = json!({ "messageIds": [ids[1], ids[2]] }).to_string();
    let cancelled = with_body(&door, "DELETE", "/v2/messages", &body).await;
    assert_eq!(cancelled.json, json!({ "cancelled": 1 }));
    let cancelled = with_body(&door, "DELETE", "/v2/messages", r#"{"messageIds":[]}"#).await;
    assert_eq!(cancelled.json, json!({ "cancelled": 0 }));
    for query in ["?labeel=x", "?label=", "?messageIds=x&labeel=x"] {
        let refused = door.call("DELETE", &format!("/v2/messages{query}")).await;
        assert_eq!(refused.status, 400, "{query}: {refused:?}");
    }
    let path = format!("/v2/messages/{}", ids[3]);
    assert_eq!(
        door.call("GET", &path).await.status,
        200,
        "the last one is still there"
    );
    let events = door.call("GET", "/v2/events?state=CANCELED").await.json;
    assert_eq!(events["events"].as_array().unwrap().len(), 3);
    assert_eq!(events["events"][0]["url"], "https://h/p");
}

#[tokio::test]
async fn more_ids_than_a_request_may_have_are_refused_whole() {
    let door = FrontDoor::embedded().await;
    let ids = dead(&door, "x", 1).await;
    let mut many: Vec<String> = (0..1_001).map(|n| format!("msg_{n:028}")).collect();
    many[0] = ids[0].to_string();
    for (method, path, key) in [
        ("DELETE", "/v2/dlq", "dlqIds"),
        ("POST", "/v2/dlq/retry", "dlqIds"),
        ("DELETE", "/v2/messages", "messageIds"),
    ] {
        let body = json!({ key: many }).to_string();
        let refused = with_body(&door, method, path, &body).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    assert_eq!(left(&door).await, 1);
}

/// Three messages of the queue, dead one after the other.
async fn dead_in_queue(door: &FrontDoor) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for body in ["1", "2", "3"] {
        let headers = [("Upstash-Queue-Name", "q")];
        ids.push(door.publish("https://h/p", &headers, body).await.id());
    }
    for _ in &ids {
        assert_eq!(door.kill(500, &HeaderMap::new(), &Bytes::new()).await, 1);
        let died = door.state.clock.now_ms();
        while door.state.clock.now_ms() == died {
            tokio::task::yield_now().await;
        }
    }
    ids
}

/// The bodies of what is delivered, one after the other.
async fn delivered(door: &FrontDoor) -> Vec<String> {
    let mut bodies = Vec::new();
    loop {
        let leases: Vec<_> = door.lease().await;
        let leases: Vec<_> = leases.into_iter().flat_map(|one| one.leases).collect();
        if leases.is_empty() {
            return bodies;
        }
        for lease in leases {
            let path = format!("/v2/messages/{}", lease.id);
            let shown = door.call("GET", &path).await.json;
            bodies.push(shown["body"].as_str().unwrap().to_owned());
            door.settle_one(&lease, &Outcome::Delivered).await;
        }
    }
}

#[tokio::test]
async fn a_bulk_redrive_puts_a_queue_back_in_its_order() {
    on_both(async |door| {
        for query in ["", "?order=latestFirst", "?queueName=q&count=3", "ids"] {
            let ids = dead_in_queue(door).await;
            let query = if query == "ids" {
                format!("?dlqIds={},{},{}", ids[2], ids[0], ids[1])
            } else {
                query.to_owned()
            };
            let answer = door.call("POST", &format!("/v2/dlq/retry{query}")).await;
            assert_eq!(answer.status, 201, "{answer:?}");
            assert_eq!(delivered(door).await, ["1", "2", "3"], "{query}");
        }
        // Page by page too, when no order was given.
        dead_in_queue(door).await;
        let first = door.call("POST", "/v2/dlq/retry?count=2").await.json;
        let cursor = first["cursor"].as_str().unwrap();
        let path = format!("/v2/dlq/retry?count=2&cursor={cursor}");
        assert_eq!(door.call("POST", &path).await.status, 201);
        assert_eq!(delivered(door).await, ["1", "2", "3"]);
    })
    .await;
}

#[tokio::test]
async fn bulk_actions_that_failed_half_way_do_not_say_that_nothing_was_changed() {
    let clock = Arc::new(SystemClock::new());
    let inner = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let host = Arc::new(FaultyHost::new(inner, Arc::new(SeededRandom::new(1))));
    let door = FrontDoor::open(state_on(host.clone(), clock)).await;
    let ids = dead(&door, "x", 2).await;
    let shards: BTreeSet<u16> = ids.iter().map(|id| id.shard().index()).collect();
    let ids = format!("dlqIds={},{}", ids[0], ids[1]);
    for (method, path) in [("POST", "/v2/dlq/retry"), ("DELETE", "/v2/dlq")] {
        host.set_rates(FaultRates {
            lose_after: 10_000,
            ..FaultRates::default()
        });
        let unread = door.call(method, &format!("{path}?{ids}")).await;
        host.set_rates(FaultRates::default());
        assert_eq!(unread.status, 503);
        assert!(unread.error().contains("nothing was changed"), "{unread:?}");
    }
    // The letters are looked for in each shard, then deleted.
    for _ in &shards {
        host.inject(Fault::Delay(Duration::ZERO));
    }
    host.inject(Fault::LoseAfter);
    let failed = door.call("DELETE", &format!("/v2/dlq?{ids}")).await;
    assert_eq!(failed.status, 503, "{failed:?}");
    assert!(
        failed.error().contains("part of it may have been done"),
        "{failed:?}"
    );
}
