//! Flow-control keys over HTTP, on both hosts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::clock::{ManualClock, SystemClock};
use hookstash_shared::message::{Limits, State};
use hookstash_shared::store::Outcome;
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::host::Host;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::front_door::{FrontDoor, embedded_state, redis_state, state_on};
use crate::support::receiver::{Answer, Gate, Receiver};
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

/// Publishes under `key` and says what it allows.
async fn publish(door: &FrontDoor, key: &str, limits: &str) {
    let headers = [
        ("Upstash-Flow-Control-Key", key),
        ("Upstash-Flow-Control-Value", limits),
    ];
    let answer = door.publish("https://h.example/p", &headers, "x").await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

async fn get(door: &FrontDoor, path: &str) -> Value {
    let answer = door.call("GET", &format!("/v2/flowControl/{path}")).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json
}

async fn post(door: &FrontDoor, path: &str) {
    let answer = door.call("POST", &format!("/v2/flowControl/{path}")).await;
    assert_eq!((answer.status, answer.json), (200, json!({})), "{path}");
}

/// Leases what may run now; how many that were.
async fn leased(door: &FrontDoor) -> usize {
    let all = door.lease().await;
    all.iter().map(|leased| leased.leases.len()).sum()
}

fn listed<'a>(answer: &'a Value) -> Vec<&'a str> {
    let keys = answer.as_array().unwrap_or_else(|| panic!("{answer}"));
    let key = |one: &'a Value| one["flowControlKey"].as_str().unwrap();
    keys.iter().map(key).collect()
}

#[tokio::test]
async fn a_key_is_there_from_its_first_message_on_and_tells_what_it_allows_and_holds() {
    for (door, _redis) in doors().await {
        for (method, path) in [
            ("GET", ""),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/resetRate"),
            ("POST", "/reset"),
            ("POST", "/pin?parallelism=1"),
            ("POST", "/unpin?rate=true"),
        ] {
            let answer = door
                .call(method, &format!("/v2/flowControl/new{path}"))
                .await;
            let text = "flow control key new not found";
            assert_eq!((answer.status, answer.error()), (404, text), "{path}");
        }
        assert_eq!(door.call("GET", "/v2/flowControl").await.json, json!([]));
        for _ in 0..7 {
            publish(&door, "new", "parallelism=3, rate=5, period=90s").await;
        }
        assert_eq!(leased(&door).await, 3);
        let mut key = get(&door, "new").await;
        let start_s = key["ratePeriodStart"].take().as_u64().unwrap();
        let now_s = door.state.store.clock_ms().await.unwrap() / 1_000;
        assert!((now_s - 60..=now_s).contains(&start_s), "{start_s} {now_s}");
        let expected = json!({
            "flowControlKey": "new", "waitListSize": 4,
            "parallelismMax": 3, "parallelismCount": 3,
            "rateMax": 5, "rateCount": 5, "ratePeriod": 90, "ratePeriodStart": null,
            "isPaused": false, "isPinnedParallelism": false, "isPinnedRate": false,
        });
        assert_eq!(key, expected);
    }
}

#[tokio::test]
async fn keys_may_hold_anything_and_end_like_an_action() {
    for (door, _redis) in doors().await {
        let keys = ["a b/c", "k/pause", "x|y%41:ü", "/", "k?q=1"];
        for key in keys {
            publish(&door, key, "parallelism=1").await;
        }
        for (path, key) in [
            ("a%20b/c", "a b/c"),
            ("a%20b%2Fc", "a b/c"),
            ("k/pause", "k/pause"),
            ("x%7Cy%2541:%C3%BC", "x|y%41:ü"),
            ("/", "/"),
            ("k%3Fq=1", "k?q=1"),
        ] {
            assert_eq!(get(&door, path).await["flowControlKey"], key, "{path}");
            post(&door, &format!("{path}/pause")).await;
            assert_eq!(get(&door, path).await["isPaused"], true, "{path}");
        }
        for path in ["k", "a%20b", "a%20b/c/", "%FF", &"x".repeat(300)] {
            let answer = door.call("GET", &format!("/v2/flowControl/{path}")).await;
            assert_eq!(answer.status, 404, "{path}");
        }
        for path in [
            "k/pause",
            "k/pause/stop",
            "k/pause/Pause",
            "k%3Fq=1%2Fpause",
        ] {
            let answer = door.call("POST", &format!("/v2/flowControl/{path}")).await;
            assert_eq!(answer.status, 404, "{path}");
        }
        let all = door.call("GET", "/v2/flowControl").await.json;
        assert_eq!(listed(&all).len(), keys.len());
        let found = door.call("GET", "/v2/flowControl?search=%C3%BC").await.json;
        assert_eq!(listed(&found), ["x|y%41:ü"]);
        let found = door.call("GET", "/v2/flowControl?search=k").await.json;
        let found: BTreeSet<&str> = listed(&found).into_iter().collect();
        assert_eq!(found, BTreeSet::from(["k/pause", "k?q=1"]));
    }
}

#[tokio::test]
async fn a_paused_key_lets_nothing_go_and_takes_everything_in() {
    for (door, _redis) in doors().await {
        publish(&door, "k", "parallelism=2").await;
        publish(&door, "free", "parallelism=2").await;
        for _ in 0..2 {
            post(&door, "k/pause").await;
        }
        publish(&door, "k", "parallelism=2").await;
        assert_eq!(leased(&door).await, 1, "only that of the other key");
        let key = get(&door, "k").await;
        assert_eq!(
            (
                &key["isPaused"],
                &key["waitListSize"],
                &key["parallelismCount"]
            ),
            (&json!(true), &json!(2), &json!(0))
        );
        for _ in 0..2 {
            post(&door, "k/resume").await;
        }
        assert_eq!(get(&door, "k").await["isPaused"], false);
        assert_eq!(leased(&door).await, 2);
    }
}

#[tokio::test]
async fn a_paused_keys_rate_window_goes_on() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let host = EmbeddedHost::new(clock.clone()).unwrap();
    let door = FrontDoor::open(state_on(Arc::new(host), clock.clone())).await;
    for _ in 0..4 {
        publish(&door, "k", "rate=2, period=10s").await;
    }
    assert_eq!(leased(&door).await, 2);
    post(&door, "k/pause").await;
    clock.advance(Duration::from_secs(4));
    let key = get(&door, "k").await;
    assert_eq!(
        (&key["rateCount"], &key["ratePeriodStart"]),
        (&json!(2), &json!(1_700_000_000))
    );
    clock.advance(Duration::from_secs(6));
    let key = get(&door, "k").await;
    assert_eq!(
        (&key["rateCount"], &key["ratePeriodStart"]),
        (&json!(0), &json!(1_700_000_010))
    );
    assert_eq!(leased(&door).await, 0, "it is still paused");
    post(&door, "k/resume").await;
    assert_eq!(leased(&door).await, 2, "and its new window has room");
    let key = get(&door, "k").await;
    assert_eq!(
        (&key["rateCount"], &key["waitListSize"]),
        (&json!(2), &json!(0))
    );
}

#[tokio::test]
async fn a_pinned_key_takes_no_limits_from_messages_until_it_is_unpinned() {
    for (door, _redis) in doors().await {
        for _ in 0..6 {
            publish(&door, "k", "parallelism=1, rate=1, period=1h").await;
        }
        assert_eq!(leased(&door).await, 1);
        post(&door, "k/pin?parallelism=3&rate=20&period=120").await;
        let key = get(&door, "k").await;
        let limits = ["parallelismMax", "rateMax", "ratePeriod", "rateCount"];
        assert_eq!(
            limits.map(|name| key[name].as_u64().unwrap()),
            [3, 20, 120, 0]
        );
        assert_eq!(
            leased(&door).await,
            2,
            "the pin's three, one of them already"
        );
        publish(&door, "k", "parallelism=1, rate=1, period=1h").await;
        let key = get(&door, "k").await;
        assert_eq!(
            limits.map(|name| key[name].as_u64().unwrap()),
            [3, 20, 120, 2]
        );
        let pins = ["isPinnedParallelism", "isPinnedRate"];
        assert_eq!(pins.map(|name| key[name].as_bool().unwrap()), [true, true]);

        post(&door, "k/unpin?parallelism=true&rate=false").await;
        let key = get(&door, "k").await;
        assert_eq!(pins.map(|name| key[name].as_bool().unwrap()), [false, true]);
        assert_eq!(key["parallelismMax"], 3, "until the next message");
        publish(&door, "k", "parallelism=7, rate=1, period=1h").await;
        let key = get(&door, "k").await;
        assert_eq!(
            limits.map(|name| key[name].as_u64().unwrap())[..3],
            [7, 20, 120]
        );
        post(&door, "k/unpin?rate=true").await;
        publish(&door, "k", "parallelism=7").await;
        let key = get(&door, "k").await;
        assert_eq!(limits.map(|name| key[name].as_u64().unwrap()), [7, 0, 0, 0]);
    }
}

#[tokio::test]
async fn one_limit_can_be_pinned_and_a_period_without_its_rate() {
    for (door, _redis) in doors().await {
        publish(&door, "k", "parallelism=1").await;
        let refused = door.call("POST", "/v2/flowControl/k/pin?period=9").await;
        assert_eq!(refused.status, 400, "a period of what?");
        post(&door, "k/pin?rate=4").await;
        let key = get(&door, "k").await;
        let pins = ["isPinnedParallelism", "isPinnedRate"];
        assert_eq!(pins.map(|name| key[name].as_bool().unwrap()), [false, true]);
        assert_eq!(
            (&key["rateMax"], &key["ratePeriod"]),
            (&json!(4), &json!(1))
        );
        post(&door, "k/pin?period=9").await;
        let key = get(&door, "k").await;
        assert_eq!(
            (&key["rateMax"], &key["ratePeriod"]),
            (&json!(4), &json!(9))
        );
        post(&door, "k/pin?rate=5").await;
        assert_eq!(get(&door, "k").await["ratePeriod"], 9);
    }
}

#[tokio::test]
async fn resetting_the_rate_lets_the_next_go_at_once() {
    for (door, _redis) in doors().await {
        for _ in 0..6 {
            publish(&door, "k", "rate=2, period=1h").await;
        }
        for (action, left) in [("resetRate", 2), ("reset", 0)] {
            assert_eq!((leased(&door).await, leased(&door).await), (2, 0));
            let key = get(&door, "k").await;
            assert_eq!(key["rateCount"], 2, "{key}");
            post(&door, &format!("k/{action}")).await;
            let key = get(&door, "k").await;
            assert_eq!(
                (&key["rateCount"], &key["waitListSize"]),
                (&json!(0), &json!(left + 2))
            );
        }
        assert_eq!(leased(&door).await, 2);
        assert_eq!(get(&door, "k").await["parallelismCount"], 6);
        post(&door, "k/resetRate").await;
        let key = get(&door, "k").await;
        assert_eq!(key["parallelismCount"], 6, "calls under way are a fact");
    }
}

#[tokio::test]
async fn nonsense_is_refused_and_changes_nothing() {
    let door = FrontDoor::embedded().await;
    publish(&door, "k", "parallelism=2, rate=3, period=4s").await;
    let mut before = get(&door, "k").await;
    for query in [
        "pin",
        "pin?parallelism=0",
        "pin?parallelism=-1",
        "pin?parallelism=%2B1",
        "pin?parallelism=1.5",
        "pin?parallelism=4294967296",
        "pin?rate=",
        "pin?rate=many",
        "pin?rate=1&rate=2",
        "pin?rate=1&period=604801",
        "pin?rate=1&period=0",
        "pin?rate=1&period=1m",
        "pin?paralelism=9",
        "pin?parallelism=9&burst=2",
        "unpin",
        "unpin?parallelism=1",
        "unpin?period=true",
        "unpin?rate=true&rate=true",
        "pause?now=1",
        "resetRate?x=",
    ] {
        let answer = door
            .call("POST", &format!("/v2/flowControl/k/{query}"))
            .await;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert!(
            answer.error().starts_with("invalid "),
            "{query}: {}",
            answer.error()
        );
    }
    for (method, path, status) in [
        ("GET", "?serach=k", 400),
        ("GET", "?cursor=7", 400),
        ("GET", "/", 404),
        ("POST", "/k", 404),
        ("DELETE", "/k", 405),
        ("POST", "", 405),
    ] {
        let answer = door.call(method, &format!("/v2/flowControl{path}")).await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
    let mut after = get(&door, "k").await;
    for key in [&mut before, &mut after] {
        key["ratePeriodStart"].take();
        key["rateCount"].take();
    }
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_list_of_many_keys_comes_in_pages_and_misses_none() {
    const KEYS: usize = 2_500;
    for (door, _redis) in doors().await {
        let publisher = &door.state.publisher;
        let one = |n: usize| {
            let message = message("https://h.example/p");
            let message =
                message.flow_control(format!("key {n:04}").as_bytes(), Some(1), None, None);
            let message = message.unwrap().build(0, &Limits::default()).unwrap();
            (publisher.id_for(&message), message)
        };
        let published = publisher
            .publish_many((0..KEYS).map(one).collect(), SOON)
            .await;
        assert!(published.iter().all(Result::is_ok));
        let (mut seen, mut pages, mut cursor) = (BTreeSet::new(), 0, String::new());
        loop {
            let path = format!("/v2/flowControl?cursor={cursor}");
            let answer = door.call("GET", &path).await;
            let keys = listed(&answer.json);
            assert!(keys.len() < 1_800, "a page of {}", keys.len());
            seen.extend(keys.into_iter().map(str::to_owned));
            pages += 1;
            match answer.headers.get("hookstash-cursor") {
                Some(next) => next.to_str().unwrap().clone_into(&mut cursor),
                None => break,
            }
        }
        assert_eq!(seen.len(), KEYS);
        assert!(pages >= 2, "{pages} pages");
        let found = door.call("GET", "/v2/flowControl?search=key%20123").await;
        assert_eq!(listed(&found.json).len(), 10);
    }
}

#[tokio::test]
async fn the_global_parallelism_is_that_of_all_workers_that_live() {
    let redis = RedisServer::start();
    let embedded = EmbeddedHost::new(Arc::new(SystemClock::new())).unwrap();
    for host in [Arc::new(embedded) as Arc<dyn Host>, connect(&redis.url())] {
        let door = FrontDoor::open(state_on(Arc::clone(&host), Arc::new(SystemClock::new()))).await;
        let mut stage = Stage::on(host, Duration::from_secs(15), 4);
        stage.settings.slots = 10;
        let until = async |max: u64, count: u64| {
            let deadline = Instant::now() + SOON;
            loop {
                let now = door.call("GET", "/v2/globalParallelism").await.json;
                if now == json!({ "parallelismMax": max, "parallelismCount": count }) {
                    return;
                }
                assert!(Instant::now() < deadline, "{now}, not {max} and {count}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        until(0, 0).await;
        let workers = [stage.work(), stage.work()];
        until(20, 0).await;
        let gate = Gate::shut();
        let receiver = Receiver::always(Answer::ok().behind(&gate));
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(stage.publish(message(&receiver.url("/"))).await);
        }
        until(20, 5).await;
        gate.open();
        for id in &ids {
            stage.wait_for_state(id, State::Delivered).await;
        }
        until(20, 0).await;
        for worker in workers {
            worker.stop_now().await;
        }
        until(0, 0).await;
    }
}

#[tokio::test]
async fn a_key_whose_messages_have_all_gone_keeps_its_limits() {
    for (door, _redis) in doors().await {
        publish(&door, "k", "parallelism=2").await;
        assert_eq!(door.settle(&Outcome::Delivered).await, 1);
        let key = get(&door, "k").await;
        let counts = ["parallelismMax", "parallelismCount", "waitListSize"];
        assert_eq!(counts.map(|name| key[name].as_u64().unwrap()), [2, 0, 0]);
    }
}
