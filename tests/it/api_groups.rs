//! URL groups: the resource, and publishing to one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hookstash::api::ApiState;
use hookstash_shared::clock::ManualClock;
use hookstash_shared::http::EgressPolicy;
use hookstash_shared::store::Outcome;
use hookstash_shared::store::embedded::EmbeddedHost;
use serde_json::{Value, json};

use crate::support::front_door::{
    Answered, FrontDoor, answered, embedded_state, on_both, redis_state, state_on,
};
use crate::support::redis::RedisServer;

const DEDUP: &str = "Upstash-Deduplication-Id";

async fn add(door: &FrontDoor, group: &str, endpoints: Value) -> Answered {
    let path = format!("/v2/topics/{group}/endpoints");
    door.send("POST", &path, &json!({ "endpoints": endpoints }))
        .await
}

async fn remove(door: &FrontDoor, group: &str, endpoints: Value) -> Answered {
    let path = format!("/v2/topics/{group}/endpoints");
    door.send("DELETE", &path, &json!({ "endpoints": endpoints }))
        .await
}

async fn endpoints(door: &FrontDoor, group: &str) -> Value {
    door.call("GET", &format!("/v2/topics/{group}")).await.json["endpoints"].take()
}

/// The URLs, ids and whether they are duplicates, of an answer for a group.
fn members(answer: &Answered) -> Vec<(String, String, bool)> {
    let text = |value: &Value| {
        value
            .as_str()
            .unwrap_or_else(|| panic!("{answer:?}"))
            .to_owned()
    };
    let entries = answer
        .json
        .as_array()
        .unwrap_or_else(|| panic!("{answer:?}"));
    let member = |entry: &Value| {
        let is_duplicate = entry.get("deduplicated").is_some_and(|flag| flag == true);
        (text(&entry["url"]), text(&entry["messageId"]), is_duplicate)
    };
    entries.iter().map(member).collect()
}

#[tokio::test]
async fn a_group_is_made_changed_and_removed_with_its_last_endpoint() {
    on_both(async |door| {
        let (a, b, c) = ("https://a/", "https://b/x?y=%20", "https://c/");
        let made = add(
            door,
            "my.Group_1-x",
            json!([{ "url": a }, { "url": b, "name": "b" }]),
        )
        .await;
        assert_eq!(made.status, 200, "{made:?}");
        let group = door.call("GET", "/v2/topics/my.Group_1-x").await.json;
        let created = group["createdAt"].as_u64().unwrap();
        let expected = json!({
            "name": "my.Group_1-x", "createdAt": created, "updatedAt": created,
            "endpoints": [{ "url": a }, { "name": "b", "url": b }],
        });
        assert_eq!(group, expected);
        add(
            door,
            "my.Group_1-x",
            json!([{ "url": c, "name": "b" }, { "url": a, "name": "a" }]),
        )
        .await;
        let expected = json!([{ "name": "a", "url": a }, { "name": "b", "url": c }]);
        assert_eq!(endpoints(door, "my.Group_1-x").await, expected);
        for _ in 0..2 {
            let gone = json!([{ "name": "b" }, { "url": "https://none/" }]);
            assert_eq!(remove(door, "my.Group_1-x", gone).await.status, 200);
            assert_eq!(
                endpoints(door, "my.Group_1-x").await,
                json!([{ "name": "a", "url": a }])
            );
        }
        assert_eq!(
            remove(door, "my.Group_1-x", json!([{ "url": a }]))
                .await
                .status,
            200
        );
        let gone = door.call("GET", "/v2/topics/my.Group_1-x").await;
        assert_eq!(
            (gone.status, gone.error()),
            (404, "url group my.Group_1-x not found")
        );
        assert_eq!(
            remove(door, "my.Group_1-x", json!([{ "url": a }]))
                .await
                .status,
            200
        );
        assert_eq!(door.call("GET", "/v2/topics").await.json, json!([]));
    })
    .await;
}

#[tokio::test]
async fn groups_are_listed_the_newest_first_and_deleted_once_or_twice() {
    on_both(async |door| {
        assert_eq!(door.call("GET", "/v2/topics").await.json, json!([]));
        let names: Vec<String> = (0..30).map(|n| format!("g{n}")).collect();
        for name in &names {
            add(door, name, json!([{ "url": format!("https://{name}/") }])).await;
            // Times are in milliseconds.
            let now = door.state.clock.now_ms();
            while door.state.clock.now_ms() == now {
                tokio::task::yield_now().await;
            }
        }
        let listed = door.call("GET", "/v2/topics").await.json;
        let listed = listed.as_array().unwrap().iter();
        let listed: Vec<&str> = listed
            .map(|group| group["name"].as_str().unwrap())
            .collect();
        let newest: Vec<&str> = names.iter().rev().map(String::as_str).collect();
        assert_eq!(listed, newest);
        for name in names.iter().chain(&names) {
            let path = format!("/v2/topics/{name}");
            assert_eq!(door.call("DELETE", &path).await.status, 200);
        }
        assert_eq!(door.call("GET", "/v2/topics").await.json, json!([]));
    })
    .await;
}

#[tokio::test]
async fn of_50_racing_changes_of_a_group_none_is_lost() {
    let redis = RedisServer::start();
    let on_redis = [
        FrontDoor::open(redis_state(&redis.url())).await,
        FrontDoor::open(redis_state(&redis.url())).await,
    ];
    let embedded = FrontDoor::embedded().await;
    let in_process = [
        FrontDoor::open(embedded.state.clone()).await,
        FrontDoor::open(embedded.state.clone()).await,
    ];
    for doors in [on_redis, in_process] {
        let adds = (0..50).map(|n| {
            let url = format!("https://h{n}/");
            add(&doors[n % 2], "g", json!([{ "url": url }]))
        });
        for answer in join_all(adds).await {
            assert_eq!(answer.status, 200, "{answer:?}");
        }
        assert_eq!(
            endpoints(&doors[0], "g").await.as_array().unwrap().len(),
            50
        );
    }
}

#[tokio::test]
async fn wrong_groups_and_endpoints_are_refused_with_the_reason() {
    let door = FrontDoor::embedded().await;
    let many: Vec<Value> = (0..101)
        .map(|n| json!({ "url": format!("https://h{n}/") }))
        .collect();
    let long: Vec<Value> = (0..50)
        .map(|n| json!({ "url": format!("https://h{n}/{}", "x".repeat(8_000)) }))
        .collect();
    for (endpoints, text) in [
        (json!([]), "expected at least one"),
        (json!([{ "name": "x" }]), "invalid endpoints"),
        (json!([{ "url": "nowhere" }]), "endpoint has invalid scheme"),
        (
            json!([{ "url": "http://127.0.0.1/" }]),
            "resolves to a loopback address",
        ),
        (
            json!([{ "url": "https://h/", "name": "x".repeat(257) }]),
            "name of an endpoint",
        ),
        (json!("https://h/"), "invalid body"),
        (json!(many), "a group has at most 100"),
        (json!(long), "more than 262144 bytes"),
    ] {
        let refused = add(&door, "g", endpoints).await;
        assert_eq!(refused.status, 400, "{text}: {refused:?}");
        assert!(refused.error().contains(text), "{text}: {refused:?}");
    }
    assert_eq!(remove(&door, "g", json!([{}])).await.status, 400);
    for name in ["a%2Fb", "a:b", "a%20b"] {
        let refused = add(&door, name, json!([{ "url": "https://h/" }])).await;
        assert_eq!(refused.status, 400, "{name}");
        assert!(
            refused.error().starts_with("invalid url group name: "),
            "{refused:?}"
        );
        assert_eq!(
            door.call("GET", &format!("/v2/topics/{name}")).await.status,
            400
        );
        assert_eq!(
            door.call("DELETE", &format!("/v2/topics/{name}"))
                .await
                .status,
            400
        );
    }
    assert_eq!(door.call("GET", "/v2/topics").await.json, json!([]));
}

#[tokio::test]
async fn a_publish_to_a_group_is_a_message_for_each_endpoint() {
    on_both(async |door| {
        add(
            door,
            "g",
            json!([{ "url": "https://a/?x=1" }, { "url": "https://b/", "name": "b" }]),
        )
        .await;
        let headers = [
            ("Content-Type", "text/x"),
            ("Upstash-Retries", "7"),
            ("Upstash-Label", "l"),
        ];
        let answer = door
            .publish("g?upstash-timeout=30s", &headers, "the body")
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let published = members(&answer);
        let urls: Vec<&str> = published.iter().map(|(url, ..)| url.as_str()).collect();
        assert_eq!(urls, ["https://a/?x=1", "https://b/"]);
        assert_ne!(published[0].1, published[1].1);
        for ((url, id, _), name) in published.iter().zip([json!(null), json!("b")]) {
            let message = door.call("GET", &format!("/v2/messages/{id}")).await.json;
            for (key, expected) in [
                ("url", json!(url)),
                ("body", json!("the body")),
                ("topicName", json!("g")),
                ("endpointName", name),
                ("maxRetries", json!(7)),
                ("timeout", json!(30_000)),
                ("header", json!({ "Content-Type": ["text/x"] })),
            ] {
                assert_eq!(message[key], expected, "{key}");
            }
        }
        assert_eq!(door.settle(&Outcome::Delivered).await, 2);
    })
    .await;
}

#[tokio::test]
async fn the_members_of_a_group_are_all_in_the_queue_or_under_the_flow_key() {
    on_both(async |door| {
        add(
            door,
            "g",
            json!([{ "url": "https://a/" }, { "url": "https://b/" }]),
        )
        .await;
        let queued = door.call("POST", "/v2/enqueue/q/g").await;
        assert_eq!(members(&queued).len(), 2);
        assert_eq!(door.call("GET", "/v2/queues/q").await.json["lag"], 2);
        let flow = [
            ("Upstash-Flow-Control-Key", "k"),
            ("Upstash-Flow-Control-Value", "parallelism=1"),
        ];
        for (_, id, _) in members(&door.publish("g", &flow, "x").await) {
            let message = door.call("GET", &format!("/v2/messages/{id}")).await.json;
            assert_eq!(
                (&message["flowControlKey"], &message["parallelism"]),
                (&json!("k"), &json!(1))
            );
        }
        // One of the queue and one of the key at a time.
        assert_eq!(door.settle(&Outcome::Delivered).await, 2);
        assert_eq!(door.settle(&Outcome::Delivered).await, 2);
    })
    .await;
}

#[tokio::test]
async fn d05_a_deduplication_id_counts_for_each_endpoint_and_for_its_window() {
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let host = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let door = FrontDoor::open(state_on(host, clock.clone())).await;
    for (header, value) in [
        (DEDUP, "id"),
        ("Upstash-Content-Based-Deduplication", "true"),
    ] {
        add(
            &door,
            "g",
            json!([{ "url": "https://a/" }, { "url": "https://b/" }]),
        )
        .await;
        let headers = [(header, value)];
        let publish = || door.publish("g", &headers, "x");
        let first = publish().await;
        assert_eq!(first.status, 200);
        add(&door, "g", json!([{ "url": "https://c/", "name": "c" }])).await;
        let second = publish().await;
        assert_eq!(second.status, 200);
        let (first, second) = (members(&first), members(&second));
        for n in [0, 1] {
            assert_eq!((&second[n].1, second[n].2), (&first[n].1, true), "{header}");
        }
        assert!(!second[2].2, "{header}");
        let third = publish().await;
        assert_eq!(third.status, 202, "{third:?}");
        assert!(
            members(&third)
                .iter()
                .all(|(.., is_duplicate)| *is_duplicate)
        );
        assert_eq!(door.settle(&Outcome::Delivered).await, 3);
        clock.advance(Duration::from_secs(599));
        assert_eq!(publish().await.status, 202, "{header}");
        clock.advance(Duration::from_secs(2));
        assert!(
            members(&publish().await)
                .iter()
                .all(|(.., is_duplicate)| !is_duplicate)
        );
        assert_eq!(door.settle(&Outcome::Delivered).await, 3);
        // Another group, and the URL by itself, count by themselves.
        add(&door, "other", json!([{ "url": "https://a/" }])).await;
        assert_eq!(
            door.publish("other", &[(header, value)], "x").await.status,
            200
        );
        assert_eq!(
            door.publish("https://a/", &[(header, value)], "x")
                .await
                .status,
            200
        );
        assert_eq!(door.settle(&Outcome::Delivered).await, 2);
        for group in ["g", "other"] {
            door.call("DELETE", &format!("/v2/topics/{group}")).await;
        }
    }
}

#[tokio::test]
async fn d09_of_50_racing_publishes_to_a_group_each_endpoint_gets_one() {
    let redis = RedisServer::start();
    let doors = [
        FrontDoor::open(redis_state(&redis.url())).await,
        FrontDoor::open(redis_state(&redis.url())).await,
    ];
    add(
        &doors[0],
        "g",
        json!([{ "url": "https://a/" }, { "url": "https://b/" }]),
    )
    .await;
    let calls = (0..50).map(|n| doors[n % 2].publish("g", &[(DEDUP, "one")], "x"));
    let answers: Vec<_> = join_all(calls).await.iter().map(members).collect();
    let ids: BTreeSet<_> = answers.iter().flatten().map(|(_, id, _)| id).collect();
    let duplicates = answers
        .iter()
        .flatten()
        .filter(|(.., is_duplicate)| *is_duplicate);
    assert_eq!((ids.len(), duplicates.count()), (2, 98));
    assert_eq!(doors[0].settle(&Outcome::Delivered).await, 2);
    assert_eq!(doors[1].settle(&Outcome::Delivered).await, 0);
}

#[tokio::test]
async fn default_headers_of_a_group_are_below_those_of_the_publish() {
    on_both(async |door| {
        add(door, "g", json!([{ "url": "https://a/" }])).await;
        let defaults = json!({ "headers": {
            "Upstash-Retries": "9", "Upstash-Forward-X-A": ["1", "2"], "upstash-delay": "1h",
            "Upstash-Queue-Name": "q", "Content-Type": "text/default",
        } });
        let set = door.send("PATCH", "/v2/topics/g", &defaults).await;
        assert_eq!(set.status, 200, "{set:?}");
        let shown = door.call("GET", "/v2/topics/g").await.json;
        assert_eq!(shown["headers"]["Upstash-Forward-X-A"], json!(["1", "2"]));
        let read = async |answer: Answered| {
            let id = &members(&answer)[0].1;
            door.call("GET", &format!("/v2/messages/{id}")).await.json
        };
        let plain = read(door.publish("g", &[], "x").await).await;
        assert_eq!(
            (&plain["maxRetries"], &plain["queueName"]),
            (&json!(9), &json!("q"))
        );
        let header = json!({ "Content-Type": ["text/default"], "X-A": ["1", "2"] });
        assert_eq!(plain["header"], header);
        assert!(plain["notBefore"].as_u64() > plain["createdAt"].as_u64());
        let headers = [
            ("Upstash-Not-Before", "1"),
            ("Upstash-Forward-X-A", "3"),
            ("Content-Type", "text/own"),
            ("Upstash-Flow-Control-Key", "k"),
            ("Upstash-Flow-Control-Value", "rate=5"),
        ];
        let own = read(door.publish("g?upstash-retries=2", &headers, "x").await).await;
        assert_eq!(
            (&own["maxRetries"], &own["queueName"]),
            (&json!(2), &json!(null))
        );
        assert_eq!(
            own["header"],
            json!({ "Content-Type": ["text/own"], "X-A": ["3"] })
        );
        assert_eq!(
            (&own["notBefore"], &own["flowControlKey"]),
            (&own["createdAt"], &json!("k"))
        );
        let queued = read(door.call("POST", "/v2/enqueue/own/g").await).await;
        assert_eq!(queued["queueName"], "own");
        for (headers, text) in [
            (json!({ "X-Other": "1" }), "invalid headers"),
            (
                json!({ "Upstash-Retries": "many" }),
                "invalid Upstash-Retries",
            ),
            (json!({ "Upstash-Forward-X": "a\nb" }), "invalid headers"),
            (json!({ "Upstash-Forward-Host": "h" }), ""),
            (json!(5), "invalid body"),
        ] {
            let body = json!({ "headers": headers });
            let refused = door.send("PATCH", "/v2/topics/g", &body).await;
            assert_eq!(refused.status, 400, "{headers}");
            assert!(refused.error().contains(text), "{headers}: {refused:?}");
        }
        let unknown = door
            .send("PATCH", "/v2/topics/none", &json!({ "headers": {} }))
            .await;
        assert_eq!(
            (unknown.status, unknown.error()),
            (404, "url group none not found")
        );
        let none = door
            .send("PATCH", "/v2/topics/g", &json!({ "headers": {} }))
            .await;
        assert_eq!(none.status, 200);
        assert_eq!(
            read(door.publish("g", &[], "x").await).await["maxRetries"],
            3
        );
    })
    .await;
}

#[tokio::test]
async fn what_a_group_says_to_its_callback_is_not_said_to_another_callback() {
    let door = FrontDoor::embedded().await;
    add(&door, "g", json!([{ "url": "https://a/" }])).await;
    for (option, shown) in [
        ("Upstash-Callback", "callback"),
        ("Upstash-Failure-Callback", "failureCallback"),
    ] {
        let secret = format!("{option}-Forward-Authorization");
        let defaults = json!({ "headers": { option: "https://own/", &secret: "s3cret" } });
        let set = door.send("PATCH", "/v2/topics/g", &defaults).await;
        assert_eq!(set.status, 200, "{set:?}");
        let read = async |answer: Answered| {
            let id = &members(&answer)[0].1;
            door.call("GET", &format!("/v2/messages/{id}")).await.json
        };
        let header = format!("{shown}Header");
        let of_group = read(door.publish("g", &[], "x").await).await;
        assert_eq!(of_group[shown], "https://own/");
        assert_eq!(of_group[&header], json!({ "Authorization": ["s3cret"] }));
        let query = format!("g?{}=https://other/", option.to_ascii_lowercase());
        for (to, headers) in [("g", &[(option, "https://other/")][..]), (&query, &[])] {
            let of_publish = read(door.publish(to, headers, "x").await).await;
            assert_eq!(of_publish[shown], "https://other/");
            assert_eq!(of_publish[&header], json!(null), "{to}");
        }
    }
}

#[tokio::test]
async fn endpoints_that_are_not_allowed_any_more_refuse_the_whole_publish() {
    let mut open = embedded_state();
    open.egress = EgressPolicy::default().in_development();
    let strict = FrontDoor::open(ApiState {
        egress: EgressPolicy::default(),
        ..open.clone()
    })
    .await;
    let open = FrontDoor::open(open).await;
    add(
        &open,
        "g",
        json!([{ "url": "https://a/" }, { "url": "http://127.0.0.1:9/" }]),
    )
    .await;
    let refused = strict.publish("g", &[], "x").await;
    let text = "an endpoint of the URL group g: invalid destination url: endpoint resolves to a \
                loopback address: 127.0.0.1";
    assert_eq!((refused.status, refused.error()), (400, text));
    assert_eq!(open.publish("g", &[], "x").await.status, 200);
}

#[tokio::test]
async fn names_of_no_group_and_of_services_of_the_cloud_are_refused() {
    let door = FrontDoor::embedded().await;
    let scheme = "invalid destination url: endpoint has invalid scheme, add http:// or https://";
    for name in ["no-such-group", "", "a/b"] {
        let refused = door.publish(name, &[], "x").await;
        assert_eq!((refused.status, refused.error()), (400, scheme), "{name}");
    }
    for name in ["api/llm", "api/email/resend"] {
        let refused = door.publish(name, &[], "x").await;
        assert_eq!(refused.status, 400, "{name}");
        let start = format!("invalid destination url: {name} is a service of the cloud");
        assert!(refused.error().starts_with(&start), "{refused:?}");
    }
}

#[tokio::test]
async fn a_batch_answers_a_group_with_an_array_in_its_place() {
    on_both(async |door| {
        add(
            door,
            "g",
            json!([{ "url": "https://a/" }, { "url": "https://b/" }]),
        )
        .await;
        let items = json!([
            { "destination": "https://h/", "queue": "q" },
            { "destination": "g", "queue": "q", "headers": { DEDUP: "x" }, "body": "body" },
            { "destination": "none" },
            { "destination": "https://h/", "queue": "q" },
            { "destination": "g", "queue": "q", "headers": { DEDUP: "x" } },
        ]);
        let answer = door.send("POST", "/v2/batch", &items).await.json;
        assert!(answer[0]["messageId"].is_string() && answer[3]["messageId"].is_string());
        assert_eq!(answer[2]["status"], 400);
        for n in [0, 1] {
            assert_eq!(answer[1][n]["messageId"], answer[4][n]["messageId"]);
            assert_eq!(answer[4][n]["deduplicated"], true);
        }
        // One after the other, in the order of the batch.
        let expected = [&answer[0], &answer[1][0], &answer[1][1], &answer[3]];
        for entry in expected {
            let leased = door.lease().await.into_iter().flat_map(|all| all.leases);
            let leased: Vec<_> = leased.collect();
            assert_eq!(leased.len(), 1);
            assert_eq!(entry["messageId"], leased[0].id.as_str());
            door.settle_one(&leased[0], &Outcome::Delivered).await;
        }
        let hundred: Vec<Value> = (0..100)
            .map(|n| json!({ "url": format!("https://h{n}/") }))
            .collect();
        add(door, "hundred", json!(hundred)).await;
        let items = vec![json!({ "destination": "hundred" }); 101];
        let refused = door.send("POST", "/v2/batch", &json!(items)).await;
        assert_eq!(refused.status, 400);
        assert!(
            refused.error().contains("more than 10000 messages"),
            "{refused:?}"
        );
        assert_eq!(door.settle(&Outcome::Delivered).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_repeated_route_in_front_of_a_group_or_queue_is_tolerated() {
    let door = FrontDoor::embedded().await;
    add(&door, "g", json!([{ "url": "https://a/" }])).await;
    for path in [
        "/v2/publish/v2/publish/g",
        "/v2/v2/publish/g",
        "/v2/v2/enqueue/q/g",
    ] {
        let answer = answered(door.request("POST", path).body("x")).await;
        assert_eq!(members(&answer).len(), 1, "{path}");
    }
}
