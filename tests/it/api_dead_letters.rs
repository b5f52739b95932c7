//! The dead-letter queue over HTTP.

use std::collections::BTreeSet;

use bytes::Bytes;
use hookstash_shared::store::Outcome;
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};

use crate::support::front_door::FrontDoor;

fn no_headers() -> HeaderMap {
    HeaderMap::new()
}

#[tokio::test]
async fn a_dead_letter_shows_the_message_and_what_the_destination_said() {
    let door = FrontDoor::embedded().await;
    let headers = [("Content-Type", "text/plain"), ("Upstash-Retries", "0")];
    let id = door.publish("https://h/p", &headers, "hello").await.id();
    let mut answer = HeaderMap::new();
    answer.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/x"));
    let body = Bytes::from_static(b"404 Not Found");
    assert_eq!(door.kill(404, &answer, &body).await, 1);
    let mut one = door.call("GET", &format!("/v2/dlq/{id}")).await;
    let died_at = one.json["diedAt"].take();
    assert!(died_at.as_u64().unwrap() >= id.created_ms());
    let expected = json!({
        "messageId": id, "dlqId": id, "url": "https://h/p", "method": "POST",
        "header": { "Content-Type": ["text/plain"] }, "body": "hello", "maxRetries": 0,
        "notBefore": id.created_ms(), "createdAt": id.created_ms(), "timeout": 900_000,
        "callerIP": "127.0.0.1", "responseStatus": 404, "diedAt": null,
        "responseHeader": { "Content-Type": ["text/x"] }, "responseBody": "404 Not Found",
    });
    assert_eq!(one.json, expected);
    let mut list = door.call("GET", "/v2/dlq").await;
    list.json["messages"][0]["diedAt"].take();
    assert_eq!(
        list.json,
        json!({ "messages": [expected] }),
        "the last page has no cursor"
    );
}

#[tokio::test]
async fn without_an_answer_the_status_is_0() {
    let door = FrontDoor::embedded().await;
    let id = door.publish("https://h/p", &[], "").await.id();
    assert_eq!(
        door.settle(&Outcome::Dead {
            response: Bytes::new()
        })
        .await,
        1
    );
    let letter = door.call("GET", &format!("/v2/dlq/{id}")).await.json;
    assert_eq!(letter["responseStatus"], 0);
    assert!(letter.get("responseBody").is_none() && letter.get("body").is_none());
}

#[tokio::test]
async fn pages_cover_every_dead_letter_once_newest_first() {
    let door = FrontDoor::embedded().await;
    let mut all = BTreeSet::new();
    for n in 0..25 {
        all.insert(
            door.publish("https://h/p", &[], format!("{n}"))
                .await
                .id()
                .to_string(),
        );
    }
    let mut died = 0;
    while died < all.len() {
        died += door.kill(500, &no_headers(), &Bytes::new()).await;
    }
    let mut seen = Vec::new();
    let mut times = Vec::new();
    let mut path = "/v2/dlq?count=10".to_owned();
    for size in [10, 10, 5] {
        let page = door.call("GET", &path).await.json;
        let messages = page["messages"]
            .as_array()
            .unwrap_or_else(|| panic!("{path}: {page}"));
        assert_eq!(messages.len(), size);
        for message in messages {
            seen.push(message["dlqId"].as_str().unwrap().to_owned());
            times.push(message["diedAt"].as_u64().unwrap());
        }
        match page.get("cursor").and_then(Value::as_str) {
            Some(cursor) => path = format!("/v2/dlq?count=10&cursor={cursor}"),
            None => assert_eq!(size, 5, "only the last page has no cursor"),
        }
    }
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert_eq!(seen.len(), 25);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), all);
}

#[tokio::test]
async fn a_page_of_large_letters_ends_early_and_goes_on_from_its_cursor() {
    let door = FrontDoor::embedded().await;
    for _ in 0..4 {
        door.publish("https://h/p", &[], vec![b'x'; 9 * 1024 * 1024])
            .await
            .id();
    }
    let mut died = 0;
    while died < 4 {
        died += door.kill(500, &no_headers(), &Bytes::new()).await;
    }
    let mut path = "/v2/dlq".to_owned();
    let mut seen = BTreeSet::new();
    for size in [2, 2] {
        let page = door.call("GET", &path).await.json;
        let messages = page["messages"]
            .as_array()
            .unwrap_or_else(|| panic!("{path}: {page}"));
        assert_eq!(messages.len(), size);
        for message in messages {
            assert_eq!(message["body"].as_str().unwrap().len(), 9 * 1024 * 1024);
            seen.insert(message["dlqId"].as_str().unwrap().to_owned());
        }
        let cursor = page
            .get("cursor")
            .and_then(Value::as_str)
            .unwrap_or_default();
        path = format!("/v2/dlq?cursor={cursor}");
    }
    assert_eq!(seen.len(), 4);
}

#[tokio::test]
async fn a_header_block_of_any_length_is_listed_whole() {
    let door = FrontDoor::embedded().await;
    let value = "v".repeat(7_000);
    let headers = [
        ("Upstash-Forward-X-A", value.as_str()),
        ("Upstash-Forward-X-B", &value),
    ];
    door.publish("https://h/p", &headers, "body").await.id();
    assert_eq!(door.kill(500, &no_headers(), &Bytes::new()).await, 1);
    let page = door.call("GET", "/v2/dlq").await.json;
    assert_eq!(page["messages"][0]["header"]["X-B"], json!([value]));
    assert_eq!(page["messages"][0]["body"], "body");
}

#[tokio::test]
async fn a_deleted_dead_letter_is_not_found_any_more() {
    let door = FrontDoor::embedded().await;
    let id = door.publish("https://h/p", &[], "x").await.id();
    let path = format!("/v2/dlq/{id}");
    assert_eq!(
        door.call("DELETE", &path).await.status,
        404,
        "it is not dead yet"
    );
    assert_eq!(door.kill(500, &no_headers(), &Bytes::new()).await, 1);
    assert_eq!(door.call("DELETE", &path).await.status, 200);
    for (method, path) in [
        ("DELETE", path.clone()),
        ("GET", path.clone()),
        ("POST", format!("/v2/dlq/retry/{id}")),
        ("GET", "/v2/dlq/1725323658779-0".to_owned()),
    ] {
        assert_eq!(
            door.call(method, &path).await.status,
            404,
            "{method} {path}"
        );
    }
    assert_eq!(
        door.call("GET", "/v2/dlq").await.json,
        json!({ "messages": [] })
    );
}

#[tokio::test]
async fn r07_every_redrive_sends_the_message_again_under_a_new_id() {
    let door = FrontDoor::embedded().await;
    let headers = [
        ("Upstash-Deduplication-Id", "once"),
        ("Upstash-Forward-X-A", "1"),
    ];
    let mut id = door.publish("https://h/p", &headers, "body").await.id();
    for _ in 0..3 {
        assert_eq!(door.kill(500, &no_headers(), &Bytes::new()).await, 1);
        let redriven = door.call("POST", &format!("/v2/dlq/retry/{id}")).await;
        assert_eq!(redriven.status, 201, "{redriven:?}");
        let new = redriven.id();
        assert_eq!(redriven.json, json!({ "messageId": new }));
        assert_ne!(new, id);
        assert_eq!(new.shard(), id.shard());
        for (method, path) in [
            ("DELETE", format!("/v2/dlq/{id}")),
            ("POST", format!("/v2/dlq/retry/{id}")),
        ] {
            assert_eq!(door.call(method, &path).await.status, 404);
        }
        let message = door.call("GET", &format!("/v2/messages/{new}")).await.json;
        assert_eq!(
            (&message["body"], &message["header"]["X-A"]),
            (&json!("body"), &json!(["1"]))
        );
        id = new;
    }
    assert_eq!(door.settle(&Outcome::Delivered).await, 1);
    assert_eq!(
        door.call("GET", "/v2/dlq").await.json,
        json!({ "messages": [] })
    );
}
