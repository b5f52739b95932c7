//! Cancelling messages by filters, by a count, and all, on both hosts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hookstash_shared::clock::{Clock, SystemClock};
use hookstash_shared::headers::{HeaderSource, Headers};
use hookstash_shared::message::{
    Destination, GroupEndpoint, Limits, MessageId, NewMessage, NewMessageBuilder, State, When,
};
use hookstash_shared::random::SeededRandom;
use hookstash_shared::store::Outcome;
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::faulty::{Fault, FaultyHost};
use hookstash_worker::Drained;
use http::HeaderMap;
use serde_json::{Value, json};

use crate::support::front_door::{
    Answered, FrontDoor, answered, embedded_state, redis_state, state_on,
};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;
use crate::support::stage::{SOON, Stage, connect, message};

/// A front door over each host, with what has to live as long.
async fn doors() -> Vec<(FrontDoor, Option<RedisServer>)> {
    let redis = RedisServer::start();
    vec![
        (FrontDoor::open(embedded_state()).await, None),
        (
            FrontDoor::open(redis_state(&redis.url())).await,
            Some(redis),
        ),
    ]
}

fn to(url: &str) -> NewMessageBuilder {
    NewMessage::to(Destination::parse(url).unwrap())
}

/// Publishes; the ids in order.
async fn publish(door: &FrontDoor, messages: Vec<NewMessageBuilder>) -> Vec<MessageId> {
    let publisher = &door.state.publisher;
    let items = messages.into_iter().map(|message| {
        let now_ms = door.state.clock.now_ms();
        let message = message.build(now_ms, &Limits::default()).unwrap();
        (publisher.id_for(&message), message)
    });
    let published = publisher.publish_many(items.collect(), SOON).await;
    let ids = published.into_iter().map(|one| one.unwrap().id);
    ids.collect()
}

async fn cancel(door: &FrontDoor, query: &str) -> Value {
    let answer = door.call("DELETE", &format!("/v2/messages{query}")).await;
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    answer.json
}

async fn cancel_with(door: &FrontDoor, body: &Value) -> Answered {
    let request = door.request("DELETE", "/v2/messages");
    answered(request.body(body.to_string())).await
}

/// Which of `ids` are still there.
async fn left(door: &FrontDoor, ids: &[MessageId]) -> Vec<usize> {
    let mut left = Vec::new();
    for (index, id) in ids.iter().enumerate() {
        let message = door.state.store.message(id).await.unwrap();
        left.extend(message.map(|_| index));
    }
    left
}

/// Six messages, each with something of its own.
fn various() -> Vec<NewMessageBuilder> {
    let endpoint = GroupEndpoint {
        group: "group".to_owned(),
        name: None,
    };
    let labels = |labels: &[&str]| labels.iter().map(|&label| label.to_owned()).collect();
    vec![
        to("https://a.example/p?x=1,2").labels(labels(&["red", "round"])),
        to("https://b.example:8443/q").labels(labels(&["blue"])),
        to("https://b.example:8443/r").queue("queue").unwrap(),
        to("https://c.example/p")
            .flow_control(b"a/key", Some(1), None, None)
            .unwrap(),
        to("https://d.example/s")
            .to_endpoint(Destination::parse("https://d.example/s").unwrap(), endpoint),
        to("https://e.example/t")
            .schedule("schedule")
            .caller_ip([10, 0, 0, 7].into())
            .when(When::After(Duration::from_hours(1))),
    ]
}

#[tokio::test]
async fn messages_are_cancelled_by_every_filter_and_by_no_other() {
    for (query, gone) in [
        ("label=red", vec![0]),
        ("label=red,blue", vec![0, 1]),
        ("label=round&label=blue&host=b.example:8443", vec![1]),
        ("url=https://a.example/p?x%3D1,2", vec![0]),
        (
            "url=https://b.example:8443/q,https://c.example/p",
            vec![1, 3],
        ),
        ("host=b.example:8443", vec![1, 2]),
        ("host=b.example", vec![]),
        ("path=/p", vec![0, 3]),
        ("path=/p&host=c.example", vec![3]),
        ("queueName=queue", vec![2]),
        ("queueName=other", vec![]),
        ("flowControlKey=a/key", vec![3]),
        ("flowControlKey=queue", vec![]),
        ("topicName=group", vec![4]),
        ("urlGroup=group,other", vec![4]),
        ("scheduleId=schedule", vec![5]),
        ("callerIp=10.0.0.7", vec![5]),
        ("callerIP=10.0.0.8", vec![]),
        ("fromDate=0", vec![0, 1, 2, 3, 4, 5]),
        ("toDate=1", vec![]),
        ("toDate=9999999999999&label=blue", vec![1]),
        ("label=red&count=100", vec![0]),
        ("", vec![0, 1, 2, 3, 4, 5]),
        ("count=100", vec![0, 1, 2, 3, 4, 5]),
    ] {
        let door = FrontDoor::embedded().await;
        let ids = publish(&door, various()).await;
        let answer = cancel(&door, &format!("?{query}")).await;
        assert_eq!(answer, json!({ "cancelled": gone.len() }), "{query}");
        let expected: Vec<usize> = (0..6).filter(|n| !gone.contains(n)).collect();
        assert_eq!(left(&door, &ids).await, expected, "{query}");
    }
}

#[tokio::test]
async fn a_body_says_the_same_as_a_query_and_an_empty_list_cancels_nothing() {
    for (door, _redis) in doors().await {
        let ids = publish(&door, various()).await;
        for (body, status, cancelled) in [
            (json!({ "messageIds": [] }), 200, 0),
            (json!({ "messageIds": [], "label": "red" }), 200, 0),
            (json!({ "messageIds": ["nothing"] }), 200, 0),
            (json!({ "label": [] }), 400, 0),
            (json!({ "label": "" }), 400, 0),
            (json!({ "label": null }), 400, 0),
            (json!({ "labeel": "red" }), 400, 0),
            (json!({}), 400, 0),
            (json!([]), 400, 0),
            (
                json!({ "label": ["red", "blue"], "host": "b.example:8443" }),
                200,
                1,
            ),
            (
                json!({ "messageIds": [ids[2], ids[2]], "label": "red" }),
                200,
                1,
            ),
            (json!({ "path": "/p", "count": 1 }), 200, 1),
            (json!({ "path": "/p", "count": 100 }), 200, 1),
        ] {
            let answer = cancel_with(&door, &body).await;
            assert_eq!(answer.status, status, "{body}: {answer:?}");
            if status == 200 {
                assert_eq!(answer.json, json!({ "cancelled": cancelled }), "{body}");
            }
        }
        assert_eq!(left(&door, &ids).await, [4, 5]);
    }
}

#[tokio::test]
async fn what_is_no_filter_of_messages_is_refused_and_nothing_is_cancelled() {
    let door = FrontDoor::embedded().await;
    let ids = publish(&door, various()).await;
    for query in [
        "labeel=red",
        "label=red&labeel=x",
        "state=CREATED",
        "responseStatus=500",
        "dlqIds=x",
        "order=latestFirst",
        "trimBody=1",
        "label=",
        "count=0",
        "count=-1",
        "count=all",
        "fromDate=now",
        "callerIp=me",
        "cursor=7",
        "all=true",
    ] {
        let answer = door.call("DELETE", &format!("/v2/messages?{query}")).await;
        let refused = if query.starts_with("trimBody") {
            501
        } else {
            400
        };
        assert_eq!(answer.status, refused, "{query}: {answer:?}");
    }
    assert_eq!(left(&door, &ids).await.len(), 6);
}

#[tokio::test]
async fn a_count_is_kept_to_and_a_hundred_means_all() {
    for (door, _redis) in doors().await {
        let many = || {
            (0..250)
                .map(|n| to(&format!("https://h.example/{}", n % 2)))
                .collect()
        };
        publish(&door, many()).await;
        for (query, cancelled) in [
            ("?count=1", 1),
            ("?path=/0&count=99", 99),
            ("?count=101", 101),
            ("?path=/1&count=1", 1),
            ("?count=100", 48),
            ("", 0),
        ] {
            let answer = cancel(&door, query).await;
            assert_eq!(answer, json!({ "cancelled": cancelled }), "{query}");
        }
        publish(&door, many()).await;
        assert_eq!(cancel(&door, "?path=/1&count=100").await["cancelled"], 125);
        assert_eq!(cancel(&door, "").await["cancelled"], 125);
    }
}

#[tokio::test]
async fn all_means_what_waits_what_is_due_later_and_what_is_being_sent_and_nothing_that_has_ended()
{
    for (door, _redis) in doors().await {
        let delivered = publish(&door, vec![to("https://h.example/"); 2]).await;
        assert_eq!(door.settle(&Outcome::Delivered).await, 2);
        let dead = publish(&door, vec![to("https://h.example/")]).await;
        assert_eq!(door.kill(500, &HeaderMap::new(), &Bytes::new()).await, 1);
        let retry = publish(
            &door,
            vec![
                to("https://h.example/"),
                to("https://h.example/").queue("q").unwrap(),
            ],
        )
        .await;
        let after = Duration::from_hours(1);
        assert_eq!(door.settle(&Outcome::Retry { after }).await, 2);
        let leased = publish(&door, vec![to("https://h.example/"); 3]).await;
        door.lease().await;
        let waiting = publish(
            &door,
            vec![
                to("https://h.example/"),
                to("https://h.example/").queue("q").unwrap(),
                to("https://h.example/").when(When::After(after)),
            ],
        )
        .await;
        let live = retry.len() + leased.len() + waiting.len();
        assert_eq!(cancel(&door, "").await, json!({ "cancelled": live }));
        for id in retry.iter().chain(&waiting) {
            assert!(
                door.state.store.message(id).await.unwrap().is_none(),
                "{id}"
            );
        }
        for id in &leased {
            let message = door.state.store.message(id).await.unwrap().unwrap();
            assert_eq!(message.record.state, State::Leased);
            assert!(message.record.is_cancel_requested);
        }
        assert_eq!(
            cancel(&door, "").await,
            json!({ "cancelled": 0 }),
            "each is counted once"
        );
        for id in &delivered {
            let message = door.state.store.message(id).await.unwrap().unwrap();
            assert_eq!(message.record.state, State::Delivered);
        }
        let letters = door.call("GET", "/v2/dlq").await.json;
        assert_eq!(letters["messages"][0]["messageId"], dead[0].as_str());
        let events = door.call("GET", "/v2/events?state=CANCELED").await.json;
        let events = events["events"].as_array().unwrap();
        assert_eq!(events.len(), retry.len() + waiting.len());
        assert!(
            events
                .iter()
                .all(|event| event["url"] == "https://h.example/")
        );
    }
}

#[tokio::test]
async fn a_message_whose_headers_are_long_is_found_by_its_filter() {
    let door = FrontDoor::embedded().await;
    let mut headers = Headers::default();
    for name in ["X-Long-1", "X-Long-2", "X-Long-3"] {
        let value = HeaderSource::literal("x".repeat(3_000));
        headers.append(name.as_bytes(), value).unwrap();
    }
    let long = |label: &str| {
        to("https://h.example/")
            .headers(headers.clone())
            .labels(vec![label.to_owned()])
    };
    let ids = publish(&door, vec![long("a"), long("b")]).await;
    assert_eq!(cancel(&door, "?label=b").await, json!({ "cancelled": 1 }));
    assert_eq!(left(&door, &ids).await, [0]);
}

/// A clock on which time flies: it jumps a little further at every look.
struct Hasty(SystemClock, AtomicU64);

impl Clock for Hasty {
    fn now_ms(&self) -> u64 {
        self.0.now_ms()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.1.fetch_add(200, Ordering::SeqCst))
    }
}

#[tokio::test]
async fn a_request_that_takes_too_long_ends_with_a_cursor_that_leads_to_the_rest() {
    const MESSAGES: usize = 3_000;
    let redis = RedisServer::start();
    for mut state in [embedded_state(), redis_state(&redis.url())] {
        state.clock = Arc::new(Hasty(SystemClock::new(), AtomicU64::new(0)));
        let door = FrontDoor::open(state).await;
        let label = |n: usize| {
            vec![
                if n.is_multiple_of(3) {
                    "third"
                } else {
                    "other"
                }
                .to_owned(),
            ]
        };
        let many = (0..MESSAGES).map(|n| to("https://h.example/").labels(label(n)));
        publish(&door, many.collect()).await;
        let (mut cancelled, mut requests, mut cursor) = (0, 0, String::new());
        loop {
            let answer = cancel(&door, &format!("?label=third&cursor={cursor}")).await;
            cancelled += answer["cancelled"].as_u64().unwrap();
            requests += 1;
            match answer.get("cursor") {
                Some(next) => next.as_str().unwrap().clone_into(&mut cursor),
                None => break,
            }
        }
        assert_eq!(cancelled, MESSAGES as u64 / 3);
        assert!(requests > 2, "{requests} requests");
        let answer = cancel(&door, "?label=third&cursor=").await;
        assert_eq!(answer["cancelled"], 0);
    }
}

#[tokio::test]
async fn r16_what_a_bulk_cancel_counted_beside_running_workers_is_not_delivered_later() {
    const MESSAGES: usize = 2_000;
    let redis = RedisServer::start();
    let embedded = Arc::new(EmbeddedHost::new(Arc::new(SystemClock::new())).unwrap());
    let hosts = [embedded as Arc<_>, connect(&redis.url()) as _];
    for host in hosts {
        let door = FrontDoor::open(state_on(Arc::clone(&host), Arc::new(SystemClock::new()))).await;
        let stage = Stage::on(host, Duration::from_secs(15), 4);
        let receiver = Receiver::always(Answer::ok().after(Duration::from_millis(5)));
        let one = |_| message(&receiver.url("/")).labels(vec!["x".to_owned()]);
        let ids = stage.publish_all((0..MESSAGES).map(one).collect()).await;
        let worker = stage.work();
        receiver.wait_for(50, SOON).await;
        let answer = cancel(&door, "?label=x").await;
        let ended = Instant::now();
        let cancelled = answer["cancelled"].as_u64().unwrap();
        assert!(answer.get("cursor").is_none());
        assert_eq!(worker.drain(SOON).await, Drained::Finished);
        let mut delivered = 0;
        for id in &ids {
            match stage.state(id).await {
                Some(State::Delivered) => delivered += 1,
                None | Some(State::Cancelled) => {}
                other => panic!("{id} is {other:?}"),
            }
        }
        let came: BTreeSet<Option<String>> = receiver
            .received()
            .iter()
            .map(|one| one.header("Upstash-Message-Id").map(str::to_owned))
            .collect();
        assert_eq!(came.len(), receiver.count(), "each once");
        // Calls that were under way may have succeeded all the same, and none began later.
        assert!(cancelled + delivered >= MESSAGES as u64);
        let late = receiver.received();
        let late = late.iter().filter(|one| one.at > ended).count();
        assert!(
            late <= stage.settings.slots,
            "{late} calls after the answer"
        );
        assert!(
            cancelled > MESSAGES as u64 / 4,
            "{cancelled}: too late to tell"
        );
    }
}

#[tokio::test]
async fn a_cancel_that_fails_half_way_says_how_many_were_cancelled() {
    let clock = Arc::new(SystemClock::new());
    let inner = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let host = Arc::new(FaultyHost::new(inner, Arc::new(SeededRandom::new(1))));
    let door = FrontDoor::open(state_on(host.clone(), clock)).await;
    // Call by call: some failure comes after a whole shard was cancelled.
    let mut texts = BTreeSet::new();
    for calls in 0..16 {
        let ids = publish(&door, vec![to("https://h.example/"); 40]).await;
        for _ in 0..calls {
            host.inject(Fault::Delay(Duration::ZERO));
        }
        host.inject(Fault::LoseBefore);
        let answer = door.call("DELETE", "/v2/messages").await;
        // Uses up what is left of the faults.
        for _ in 0..=calls {
            drop(door.state.store.message(&ids[0]).await);
        }
        if answer.status == 503 && left(&door, &ids).await.len() < ids.len() {
            let text = answer.error();
            assert!(!text.contains("nothing was changed"), "{answer:?}");
            texts.insert(text.to_owned());
        }
        assert!(cancel(&door, "").await.get("cursor").is_none());
    }
    let said = |text: &String| text.contains("were cancelled, then the store failed");
    assert!(texts.iter().any(said), "{texts:?}");
}
