//! Enqueuing: a publish into a queue, in the order in which it was asked for.

use std::collections::BTreeSet;

use futures::future::join_all;
use hookstash_shared::store::Outcome;
use serde_json::json;

use crate::support::front_door::{Answered, FrontDoor, answered, on_both, redis_state};
use crate::support::redis::RedisServer;

#[tokio::test]
async fn an_enqueued_message_is_in_its_queue_which_then_exists() {
    on_both(async |door| {
        let target = "/v2/enqueue/orders.v1_x-y/https://H/p?x=%20&upstash-retries=7";
        let enqueued = answered(door.request("POST", target).body("hello")).await;
        assert_eq!(enqueued.status, 200, "{enqueued:?}");
        assert_eq!(enqueued.json, json!({ "messageId": enqueued.id() }));
        let path = format!("/v2/messages/{}", enqueued.id());
        let message = door.call("GET", &path).await.json;
        assert_eq!(message["queueName"], "orders.v1_x-y");
        assert_eq!(message["url"], "https://H/p?x=%20");
        assert_eq!(
            (&message["maxRetries"], &message["body"]),
            (&json!(7), &json!("hello"))
        );
        let queue = door.call("GET", "/v2/queues/orders.v1_x-y").await.json;
        assert_eq!(
            (&queue["parallelism"], &queue["lag"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(queue["paused"], false);
    })
    .await;
}

#[tokio::test]
async fn an_enqueue_leaves_the_settings_of_a_queue_alone() {
    on_both(async |door| {
        let settings = json!({ "queueName": "q", "parallelism": 7, "paused": true });
        assert_eq!(door.send("POST", "/v2/queues", &settings).await.status, 200);
        let before = door.call("GET", "/v2/queues/q").await.json;
        let by_path = door.call("POST", "/v2/enqueue/q/https://h/").await;
        let by_header = [("Upstash-Queue-Name", "q")];
        let by_header = door.publish("https://h/", &by_header, "").await;
        assert_eq!((by_path.status, by_header.status), (200, 200));
        let mut after = door.call("GET", "/v2/queues/q").await.json;
        assert_eq!(after["lag"], 2);
        after["lag"] = json!(0);
        assert_eq!(after, before);
    })
    .await;
}

#[tokio::test]
async fn a_wrong_queue_name_is_refused_in_every_place() {
    let door = FrontDoor::embedded().await;
    let text = "invalid queue name: expected 1 to 256 characters of [A-Za-z0-9._-]";
    let long = "q".repeat(257);
    for name in ["a%2Fb", "a:b", "a%20b", "ü", long.as_str()] {
        let target = format!("/v2/enqueue/{name}/https://h/");
        let refused = door.raw_target("POST", &target, "").await;
        assert_eq!((refused.status, refused.error()), (400, text), "{name}");
    }
    let header = [("Upstash-Queue-Name", "a b")];
    let refused = door.publish("https://h/", &header, "").await;
    assert_eq!((refused.status, refused.error()), (400, text));
    let body = json!([{ "destination": "https://h/", "queue": "a b" }]);
    let refused = door.send("POST", "/v2/batch", &body).await;
    assert_eq!(refused.json, json!([{ "error": text, "status": 400 }]));
    assert_eq!(door.call("GET", "/v2/queues").await.json, json!([]));
}

#[tokio::test]
async fn an_enqueue_to_nowhere_says_what_a_destination_needs() {
    let door = FrontDoor::embedded().await;
    let text = "invalid destination url: endpoint has invalid scheme, add http:// or https://";
    for path in [
        "/v2/enqueue/q",
        "/v2/enqueue/q/",
        "/v2/enqueue/q/no-such-group",
    ] {
        let refused = door.call("POST", path).await;
        assert_eq!((refused.status, refused.error()), (400, text), "{path}");
    }
    assert_eq!(door.call("GET", "/v2/queues").await.json, json!([]));
}

#[tokio::test]
async fn a_second_queue_or_a_flow_control_key_beside_the_queue_is_refused() {
    let door = FrontDoor::embedded().await;
    let same = ("Upstash-Queue-Name", "q");
    let other = ("Upstash-Queue-Name", "other");
    for (headers, status) in [
        (vec![same], 200),
        (vec![other], 400),
        (
            vec![
                ("Upstash-Flow-Control-Key", "k"),
                ("Upstash-Flow-Control-Value", "rate=1"),
            ],
            400,
        ),
    ] {
        let mut request = door.request("POST", "/v2/enqueue/q/https://h/");
        for (name, value) in &headers {
            request = request.header(*name, *value);
        }
        assert_eq!(answered(request).await.status, status, "{headers:?}");
    }
}

#[tokio::test]
async fn a_deduplication_id_counts_within_its_queue() {
    on_both(async |door| {
        let enqueue = async |queue: &str| {
            let target = format!("/v2/enqueue/{queue}/https://h/");
            answered(
                door.request("POST", &target)
                    .header("Upstash-Deduplication-Id", "x"),
            )
            .await
        };
        let first = enqueue("a").await;
        let second = enqueue("a").await;
        assert_eq!((first.status, second.status), (200, 202));
        let expected = json!({ "messageId": first.id(), "deduplicated": true });
        assert_eq!(second.json, expected);
        assert_eq!(enqueue("b").await.status, 200);
        let outside = [("Upstash-Deduplication-Id", "x")];
        assert_eq!(door.publish("https://h/", &outside, "").await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn d09_of_50_racing_enqueues_and_batches_of_one_id_one_is_accepted() {
    let redis = RedisServer::start();
    // Two connections, as two processes have.
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
        let calls = (0..50).map(|n| race(&doors[n % 2], n));
        let answers: Vec<Answered> = join_all(calls).await;
        let ids: BTreeSet<_> = answers.iter().map(Answered::id).collect();
        assert_eq!(ids.len(), 1);
        let duplicates = answers.iter().filter(|a| a.json["deduplicated"] == true);
        assert_eq!(duplicates.count(), 49);
        assert_eq!(doors[0].settle(&Outcome::Delivered).await, 1);
        assert_eq!(doors[1].settle(&Outcome::Delivered).await, 0);
    }
}

async fn race(door: &FrontDoor, n: usize) -> Answered {
    const ID: &str = "Upstash-Deduplication-Id";
    if n.is_multiple_of(3) {
        let item = json!({ "destination": "https://h/", "headers": { ID: "one" }, "queue": "q" });
        let mut answer = door.send("POST", "/v2/batch", &json!([item])).await;
        answer.json = answer.json[0].take();
        return answer;
    }
    let request = door.request("POST", "/v2/enqueue/q/https://h/");
    answered(request.header(ID, "one").body(n.to_string())).await
}
