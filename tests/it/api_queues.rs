//! The resource of queues: made, changed, listed, paused and deleted.

use hookstash_shared::message::State;
use hookstash_shared::store::Outcome;
use serde_json::{Value, json};

use crate::support::front_door::{FrontDoor, answered, on_both};

async fn upsert(door: &FrontDoor, body: Value) -> u16 {
    door.send("POST", "/v2/queues", &body).await.status
}

async fn enqueue(door: &FrontDoor, queue: &str, headers: &[(&str, &str)]) -> String {
    let mut request = door.request("POST", &format!("/v2/enqueue/{queue}/https://h/"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    answered(request).await.id().to_string()
}

#[tokio::test]
async fn a_queue_is_made_changed_and_read() {
    on_both(async |door| {
        assert_eq!(
            upsert(door, json!({ "queueName": "q", "parallelism": 3 })).await,
            200
        );
        let made = door.call("GET", "/v2/queues/q").await.json;
        let created = made["createdAt"].as_u64().unwrap();
        let expected = json!({
            "name": "q", "parallelism": 3, "createdAt": created, "updatedAt": created,
            "lag": 0, "paused": false,
        });
        assert_eq!(made, expected);
        assert!(created.abs_diff(door.state.clock.now_ms()) < 60_000);
        let change = json!({ "queueName": "q", "parallelism": 1, "paused": true });
        assert_eq!(upsert(door, change).await, 200);
        let changed = door.call("GET", "/v2/queues/q").await.json;
        assert_eq!(changed["createdAt"], created);
        assert!(changed["updatedAt"].as_u64().unwrap() >= created);
        assert_eq!(
            (&changed["parallelism"], &changed["paused"]),
            (&json!(1), &json!(true))
        );
        // Clients that say nothing of a pause end it.
        assert_eq!(upsert(door, json!({ "queueName": "q" })).await, 200);
        let ended = door.call("GET", "/v2/queues/q").await.json;
        assert_eq!(
            (&ended["parallelism"], &ended["paused"]),
            (&json!(1), &json!(false))
        );
    })
    .await;
}

#[tokio::test]
async fn queues_are_listed_whatever_shard_they_are_in() {
    on_both(async |door| {
        assert_eq!(door.call("GET", "/v2/queues").await.json, json!([]));
        let names: Vec<String> = (0..40).map(|n| format!("queue-{n}")).collect();
        for name in &names {
            enqueue(door, name, &[]).await;
        }
        let flow = [
            ("Upstash-Flow-Control-Key", "no-queue"),
            ("Upstash-Flow-Control-Value", "rate=1"),
        ];
        assert_eq!(door.publish("https://h/", &flow, "").await.status, 200);
        let listed = door.call("GET", "/v2/queues").await.json;
        let listed = listed.as_array().unwrap();
        let mut found: Vec<&str> = listed.iter().map(|q| q["name"].as_str().unwrap()).collect();
        let times: Vec<u64> = listed
            .iter()
            .map(|q| q["createdAt"].as_u64().unwrap())
            .collect();
        assert!(
            times.is_sorted_by(|a, b| a >= b),
            "the newest first: {times:?}"
        );
        found.sort_unstable();
        let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(found, names);
        assert!(listed.iter().all(|queue| queue["lag"] == 1));
    })
    .await;
}

#[tokio::test]
async fn an_unknown_queue_is_a_404_and_deleting_it_is_not() {
    on_both(async |door| {
        for (method, path) in [
            ("GET", "/v2/queues/none"),
            ("POST", "/v2/queues/none/pause"),
            ("POST", "/v2/queues/none/resume"),
        ] {
            let answer = door.call(method, path).await;
            assert_eq!(
                (answer.status, answer.error()),
                (404, "queue none not found"),
                "{path}"
            );
        }
        assert_eq!(door.call("DELETE", "/v2/queues/none").await.status, 200);
        assert_eq!(door.call("GET", "/v2/queues").await.json, json!([]));
    })
    .await;
}

#[tokio::test]
async fn wrong_settings_of_a_queue_are_refused_with_their_name() {
    let door = FrontDoor::embedded().await;
    for (body, text) in [
        (json!({ "queueName": "a/b" }), "invalid queue name"),
        (json!({ "queueName": "" }), "invalid queue name"),
        (
            json!({ "parallelism": 1 }),
            "invalid queue: expected queueName",
        ),
        (json!([]), "invalid queue"),
        (
            json!({ "queueName": "q", "parallelism": 0 }),
            "invalid parallelism",
        ),
        (
            json!({ "queueName": "q", "parallelism": -1 }),
            "invalid queue",
        ),
        (
            json!({ "queueName": "q", "parallelism": 1.5 }),
            "invalid queue",
        ),
        (
            json!({ "queueName": "q", "parallelism": 1_000_001 }),
            "invalid parallelism",
        ),
        (
            json!({ "queueName": "q", "paused": "yes" }),
            "invalid queue",
        ),
    ] {
        let refused = door.send("POST", "/v2/queues", &body).await;
        assert_eq!(refused.status, 400, "{body}");
        assert!(refused.error().starts_with(text), "{body}: {refused:?}");
    }
    for path in ["/v2/queues/a%2Fb", "/v2/queues/a:b"] {
        assert_eq!(door.call("GET", path).await.status, 400, "{path}");
    }
    assert_eq!(door.call("GET", "/v2/queues").await.json, json!([]));
}

#[tokio::test]
async fn a_paused_queue_takes_messages_and_gives_none() {
    on_both(async |door| {
        enqueue(door, "q", &[]).await;
        for _ in 0..2 {
            assert_eq!(door.call("POST", "/v2/queues/q/pause").await.status, 200);
        }
        enqueue(door, "q", &[]).await;
        let queue = door.call("GET", "/v2/queues/q").await.json;
        assert_eq!((&queue["paused"], &queue["lag"]), (&json!(true), &json!(2)));
        assert_eq!(door.settle(&Outcome::Delivered).await, 0);
        for _ in 0..2 {
            assert_eq!(door.call("POST", "/v2/queues/q/resume").await.status, 200);
        }
        for _ in 0..2 {
            assert_eq!(door.settle(&Outcome::Delivered).await, 1);
        }
        let queue = door.call("GET", "/v2/queues/q").await.json;
        assert_eq!(
            (&queue["paused"], &queue["lag"]),
            (&json!(false), &json!(0))
        );
    })
    .await;
}

#[tokio::test]
async fn deleting_a_queue_cancels_what_waits_in_it_and_nothing_else() {
    on_both(async |door| {
        let first = enqueue(door, "q", &[]).await;
        let leased = door.lease().await;
        assert_eq!(leased.iter().map(|all| all.leases.len()).sum::<usize>(), 1);
        let delayed = enqueue(door, "q", &[("Upstash-Delay", "1h")]).await;
        let mut waiting = Vec::new();
        for _ in 0..5 {
            waiting.push(enqueue(door, "q", &[]).await);
        }
        let other = enqueue(door, "other", &[]).await;
        for _ in 0..2 {
            assert_eq!(door.call("DELETE", "/v2/queues/q").await.status, 200);
        }
        assert_eq!(door.call("GET", "/v2/queues/q").await.status, 404);
        for (id, state) in [
            (first, Some(State::Leased)),
            (delayed, Some(State::Delayed)),
            (other, Some(State::Ready)),
        ] {
            let stored = door
                .state
                .store
                .message(&id.parse().unwrap())
                .await
                .unwrap();
            assert_eq!(stored.map(|stored| stored.record.state), state);
        }
        for id in waiting {
            let answer = door.call("GET", &format!("/v2/messages/{id}")).await;
            assert_eq!(answer.status, 404, "{id}");
        }
        // The name can be used again at once.
        enqueue(door, "q", &[]).await;
        let anew = door.call("GET", "/v2/queues/q").await.json;
        assert_eq!((&anew["lag"], &anew["parallelism"]), (&json!(1), &json!(1)));
    })
    .await;
}
