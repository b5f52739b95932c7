//! Batches: each item is accepted or refused by itself, and says so in its place.

use std::collections::BTreeSet;
use std::sync::Arc;

use hookstash_shared::clock::SystemClock;
use hookstash_shared::random::SeededRandom;
use hookstash_shared::store::Outcome;
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::faulty::{Fault, FaultyHost};
use serde_json::{Value, json};

use crate::support::front_door::{FrontDoor, answered, embedded_state, on_both, state_on};

async fn message(door: &FrontDoor, id: &Value) -> Value {
    let path = format!("/v2/messages/{}", id.as_str().unwrap());
    door.call("GET", &path).await.json
}

#[tokio::test]
async fn items_are_messages_as_a_publish_makes_them() {
    on_both(async |door| {
        let items = json!([
            {
                "destination": "https://H/p?a=1&upstash-retries=7&qstash_token=no",
                "headers": {
                    "CONTENT-type": "text/x", "upstash-METHOD": "PUT", "Upstash-Delay": "1h",
                    "UPSTASH-forward-X-Key": "ü", "X-Other": "stays here",
                    "Upstash-Label": "one,two", "Upstash-Telemetry-Sdk": "x",
                },
                "body": "{\"a\":\"ü\\n\"}",
            },
            { "destination": "https://h/", "body": null, "queue": null, "headers": null },
            { "destination": "https://h/", "queue": "q", "extra": [1] },
            { "destination": "https://h/", "body": "null" },
        ]);
        let answer = door.send("POST", "/v2/batch", &items).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answers = answer.json.as_array().unwrap();
        assert_eq!(answers.len(), 4);
        let ids: BTreeSet<&str> = answers
            .iter()
            .map(|a| a["messageId"].as_str().unwrap())
            .collect();
        assert_eq!(ids.len(), 4);
        let first = message(door, &answers[0]["messageId"]).await;
        for (key, expected) in [
            ("url", json!("https://H/p?a=1")),
            ("method", json!("PUT")),
            ("body", json!("{\"a\":\"ü\\n\"}")),
            (
                "header",
                json!({ "Content-Type": ["text/x"], "X-Key": ["ü"] }),
            ),
            ("maxRetries", json!(7)),
            ("labels", json!(["one", "two"])),
            ("callerIP", json!("127.0.0.1")),
        ] {
            assert_eq!(first[key], expected, "{key}");
        }
        let second = message(door, &answers[1]["messageId"]).await;
        assert_eq!(
            (&second["body"], &second["queueName"]),
            (&Value::Null, &Value::Null)
        );
        assert_eq!(
            (&second["header"], &second["method"]),
            (&Value::Null, &json!("POST"))
        );
        assert_eq!(
            message(door, &answers[2]["messageId"]).await["queueName"],
            "q"
        );
        assert_eq!(
            message(door, &answers[3]["messageId"]).await["body"],
            "null"
        );
    })
    .await;
}

#[tokio::test]
async fn a_refused_item_says_why_and_the_others_proceed() {
    on_both(async |door| {
        let scheme =
            "invalid destination url: endpoint has invalid scheme, add http:// or https://";
        let refused = [
            (json!({ "destination": "nowhere" }), scheme),
            (
                json!({ "destination": "http://127.0.0.1/" }),
                "resolves to a loopback address",
            ),
            (
                json!({ "destination": "https://h/", "queue": "a b" }),
                "invalid queue name",
            ),
            (
                json!({ "destination": "https://h/", "headers": { "a b": "1" } }),
                "invalid headers",
            ),
            (
                json!({ "destination": "https://h/", "headers": { "x": "a\nb" } }),
                "invalid x: ",
            ),
            (
                json!({ "destination": "https://h/", "headers": { "upstash-delay": "soon" } }),
                "invalid Upstash-Delay",
            ),
            (
                json!({ "destination": "https://h/", "headers": {
                    "Upstash-Retries": "1", "upstash-retries": "1",
                } }),
                "given more than once",
            ),
            (
                json!({ "destination": "https://h/", "headers": {
                    "upstash-deduplication-id": "a:b",
                } }),
                "DeduplicationId cannot contain ':'",
            ),
            (
                json!({ "destination": "https://h/", "headers": { "x": 1 } }),
                "invalid item",
            ),
            (
                json!({ "destination": "https://h/", "body": { "a": "s3cret" } }),
                "invalid item",
            ),
            (json!({ "body": "no destination" }), "invalid item"),
            (json!(null), "invalid item"),
            (json!("https://h/"), "invalid item"),
        ];
        let mut items = Vec::new();
        for (item, _) in &refused {
            items.push(item.clone());
            items.push(json!({ "destination": "https://h/" }));
        }
        let answer = door.send("POST", "/v2/batch", &json!(items)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.json.to_string().contains("s3cret"), "{answer:?}");
        let answers = answer.json.as_array().unwrap();
        assert_eq!(answers.len(), items.len());
        for (pair, (item, text)) in answers.chunks(2).zip(&refused) {
            let error = pair[0]["error"].as_str().unwrap();
            assert!(error.contains(text), "{item}: {error}");
            assert_eq!(pair[0]["status"], 400, "{item}");
            assert!(pair[1]["messageId"].is_string(), "{item}");
        }
        assert_eq!(door.settle(&Outcome::Delivered).await, refused.len());
    })
    .await;
}

#[tokio::test]
async fn an_array_is_answered_also_when_all_items_are_wrong_or_none_is_given() {
    let door = FrontDoor::embedded().await;
    let wrong = json!([{ "destination": "x" }, 5]);
    let answer = door.send("POST", "/v2/batch", &wrong).await;
    assert_eq!(
        (answer.status, answer.json.as_array().map(Vec::len)),
        (200, Some(2))
    );
    let answer = door.send("POST", "/v2/batch", &json!([])).await;
    assert_eq!((answer.status, answer.json), (200, json!([])));
}

#[tokio::test]
async fn what_is_no_array_or_too_long_is_refused_as_a_whole() {
    let door = FrontDoor::embedded().await;
    let item = r#"{"destination":"https://h/"}"#;
    let most = format!("[{}]", vec![item; 10_000].join(","));
    let more = format!("[{}]", vec![item; 10_001].join(","));
    for (body, text) in [
        ("", "expected a JSON array of items"),
        ("{}", "expected a JSON array of items"),
        ("[", "expected a JSON array of items"),
        (item, "expected a JSON array of items"),
        (more.as_str(), "more than 10000 items"),
    ] {
        let refused = answered(door.request("POST", "/v2/batch").body(body.to_owned())).await;
        let text = format!("invalid batch: {text}");
        assert_eq!((refused.status, refused.error()), (400, text.as_str()));
    }
    assert_eq!(door.settle(&Outcome::Delivered).await, 0);
    let taken = answered(door.request("POST", "/v2/batch").body(most)).await;
    let all = taken.json.as_array().unwrap();
    assert_eq!(
        all.iter()
            .filter(|one| one["messageId"].is_string())
            .count(),
        10_000
    );
}

#[tokio::test]
async fn bytes_are_limited_for_each_message_and_for_the_request() {
    let mut state = embedded_state();
    state.limits.body_bytes_max = 1024 * 1024;
    let door = FrontDoor::open(state).await;
    let body = |bytes| json!({ "destination": "https://h/", "body": "x".repeat(bytes) });
    let items = json!([body(1024 * 1024), body(1024 * 1024 + 1)]);
    let answer = door.send("POST", "/v2/batch", &items).await;
    assert!(
        answer.json[0]["messageId"].is_string(),
        "{:?}",
        answer.json[0]
    );
    assert_eq!(answer.json[1]["status"], 413);
    let error = answer.json[1]["error"].as_str().unwrap();
    assert!(error.contains("quota maxMessageSize exceeded"), "{error}");
    let request = door
        .request("POST", "/v2/batch")
        .body(vec![b' '; 64 * 1024 * 1024 + 1]);
    let refused = answered(request).await;
    assert_eq!(refused.status, 413, "{refused:?}");
}

#[tokio::test]
async fn after_a_group_that_could_not_be_looked_up_nothing_is_sent() {
    let clock = Arc::new(SystemClock::new());
    let inner = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let host = Arc::new(FaultyHost::new(inner, Arc::new(SeededRandom::new(1))));
    let door = FrontDoor::open(state_on(host.clone(), clock)).await;
    let endpoints = json!({ "endpoints": [{ "url": "https://h/" }] });
    let made = door
        .send("POST", "/v2/topics/g/endpoints", &endpoints)
        .await;
    assert_eq!(made.status, 200, "{made:?}");
    let items = json!([
        { "destination": "https://h/", "queue": "q" },
        { "destination": "g", "queue": "q" },
        { "destination": "https://h/", "queue": "q" },
    ]);
    host.inject(Fault::LoseBefore);
    let answer = door.send("POST", "/v2/batch", &items).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.json[0]["messageId"].is_string(), "{answer:?}");
    for place in [1, 2] {
        assert_eq!(answer.json[place]["status"], 503, "{answer:?}");
    }
    let text = answer.json[2]["error"].as_str().unwrap();
    assert!(text.contains("a message before this one"), "{text}");
    assert_eq!(door.settle(&Outcome::Delivered).await, 1);
}

#[tokio::test]
async fn default_headers_that_make_a_small_batch_large_are_refused() {
    let door = FrontDoor::embedded().await;
    let endpoints = json!({ "endpoints": [{ "url": "https://h/" }] });
    let made = door
        .send("POST", "/v2/topics/g/endpoints", &endpoints)
        .await;
    assert_eq!(made.status, 200, "{made:?}");
    let long = "x".repeat(7_000);
    let names = ["A", "B"].map(|name| format!("Upstash-Forward-{name}"));
    let defaults = json!({ "headers": { &names[0]: long, &names[1]: long } });
    let set = door.send("PATCH", "/v2/topics/g", &defaults).await;
    assert_eq!(set.status, 200, "{set:?}");
    let items = |count| json!(vec![json!({ "destination": "g" }); count]);
    let refused = door.send("POST", "/v2/batch", &items(5_000)).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.error().contains("bytes of headers"), "{refused:?}");
    assert_eq!(door.settle(&Outcome::Delivered).await, 0);
    let taken = door.send("POST", "/v2/batch", &items(50)).await;
    assert_eq!(
        (taken.status, taken.json.as_array().map(Vec::len)),
        (200, Some(50))
    );
}

#[tokio::test]
async fn a_part_that_is_not_built_refuses_the_whole_batch_before_anything_is_stored() {
    let door = FrontDoor::embedded().await;
    let items = json!([
        { "destination": "https://h/" },
        { "destination": "https://h/", "headers": { "Upstash-Workflow-Init": "true" } },
    ]);
    let refused = door.send("POST", "/v2/batch", &items).await;
    let text = "Upstash-Workflow-Init is not supported by this server yet";
    assert_eq!((refused.status, refused.error()), (501, text));
    assert_eq!(door.settle(&Outcome::Delivered).await, 0);
}

#[tokio::test]
async fn duplicates_within_and_between_batches_carry_the_first_id() {
    on_both(async |door| {
        let item = |id: &str| {
            json!({
                "destination": "https://h/", "headers": { "upstash-deduplication-id": id },
            })
        };
        let items = json!([item("a"), item("b"), item("a")]);
        let first = door.send("POST", "/v2/batch", &items).await.json;
        assert_eq!(
            first[2],
            json!({ "messageId": first[0]["messageId"], "deduplicated": true })
        );
        assert_eq!(first[1].get("deduplicated"), None);
        let second = door.send("POST", "/v2/batch", &items).await;
        assert_eq!(second.status, 200);
        for (n, of_first) in [(0, 0), (1, 1), (2, 0)] {
            let expected = json!({
                "messageId": first[of_first]["messageId"], "deduplicated": true,
            });
            assert_eq!(second.json[n], expected);
        }
        assert_eq!(door.settle(&Outcome::Delivered).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_thousand_mixed_items_keep_their_order_within_each_queue() {
    on_both(async |door| {
        let item = |n: usize| match n % 5 {
            0 => json!({ "destination": "https://h/", "body": format!("{n}") }),
            1 => json!({ "destination": "not a url" }),
            _ => json!({
                "destination": format!("https://h{}/", n % 7), "body": format!("{n}"),
                "queue": format!("q{}", n % 3),
            }),
        };
        let items: Vec<Value> = (0..1_000).map(item).collect();
        let answer = door.send("POST", "/v2/batch", &json!(items)).await;
        let answers = answer.json.as_array().unwrap();
        assert_eq!((answer.status, answers.len()), (200, 1_000));
        for (n, entry) in answers.iter().enumerate() {
            assert_eq!(entry["messageId"].is_string(), n % 5 != 1, "{n}: {entry}");
        }
        let mut seen = [Vec::new(), Vec::new(), Vec::new()];
        loop {
            let mut count = 0;
            for leased in door.lease().await {
                for lease in leased.leases {
                    count += 1;
                    if let Some(queue) = lease.lane.as_str().strip_prefix("q:q") {
                        let queue: usize = queue.parse().unwrap();
                        let n = answers
                            .iter()
                            .position(|a| a["messageId"] == lease.id.as_str());
                        seen[queue].push(n.unwrap());
                    }
                    door.settle_one(&lease, &Outcome::Delivered).await;
                }
            }
            if count == 0 {
                break;
            }
        }
        for (queue, order) in seen.iter().enumerate() {
            let expected: Vec<usize> = (0..1_000).filter(|n| n % 5 > 1 && n % 3 == queue).collect();
            assert_eq!(order, &expected, "queue {queue}");
        }
    })
    .await;
}
