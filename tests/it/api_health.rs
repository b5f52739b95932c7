//! Readiness tells the truth.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hookstash_shared::clock::ManualClock;
use hookstash_shared::message::Shards;
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::{Retention, Store};
use serde_json::json;

use crate::support::front_door::{Answered, FrontDoor, answered, redis_state, state_on};
use crate::support::redis::RedisServer;

async fn probe(door: &FrontDoor, path: &str) -> Answered {
    // Without the token.
    answered(reqwest::Client::new().get(format!("http://{}{path}", door.addr))).await
}

#[tokio::test]
async fn a_part_that_is_not_ready_is_named() {
    let door = FrontDoor::embedded().await;
    assert_eq!(probe(&door, "/healthz").await.status, 200);
    assert_eq!(probe(&door, "/readyz").await.status, 200);
    door.state.readiness.block("worker", "it is draining");
    let blocked = probe(&door, "/readyz").await;
    let list = json!([{ "part": "worker", "reason": "it is draining" }]);
    assert_eq!((blocked.status, &blocked.json["notReady"]), (503, &list));
    assert_eq!(probe(&door, "/healthz").await.status, 200);
    door.state.readiness.clear("worker");
    assert_eq!(probe(&door, "/readyz").await.status, 200);
}

#[tokio::test]
async fn readiness_goes_with_redis_and_comes_back_with_it() {
    let mut redis = RedisServer::start();
    let door = FrontDoor::open(redis_state(&redis.url())).await;
    assert_eq!(probe(&door, "/readyz").await.status, 200);
    redis.kill9();
    let down = becomes(&door, 503).await;
    assert_eq!(down.json["notReady"][0]["part"], "store");
    assert_eq!(probe(&door, "/healthz").await.status, 200);
    redis.restart();
    becomes_ready(&door).await;
    // A frozen server answers nothing: the probe still does, in its bound.
    redis.signal("STOP");
    let start = Instant::now();
    becomes(&door, 503).await;
    redis.signal("CONT");
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    becomes_ready(&door).await;
}

#[tokio::test]
async fn a_full_store_is_not_ready_for_new_messages() {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    let host = Arc::new(EmbeddedHost::new(clock.clone()).unwrap());
    let door = FrontDoor::open(state_on(host.clone(), clock.clone())).await;
    assert_eq!(probe(&door, "/readyz").await.status, 200);
    host.set_full(true);
    // The store's last answer stands for a second.
    assert_eq!(probe(&door, "/readyz").await.status, 200);
    clock.advance(Duration::from_secs(1));
    let full = probe(&door, "/readyz").await;
    let list = json!([{ "part": "store", "reason": "it is full" }]);
    assert_eq!((full.status, &full.json["notReady"]), (503, &list));
    host.set_full(false);
    clock.advance(Duration::from_secs(1));
    assert_eq!(probe(&door, "/readyz").await.status, 200);
}

async fn becomes_ready(door: &FrontDoor) {
    becomes(door, 200).await;
}

/// Waits for an answer of this status: the store's last one stands for a second.
async fn becomes(door: &FrontDoor, status: u16) -> Answered {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let answer = probe(door, "/readyz").await;
        if answer.status == status {
            return answer;
        }
        assert!(Instant::now() < deadline, "not {status} in 5 s: {answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_store_that_takes_no_writes_or_has_other_shards_is_not_ready() {
    let redis = RedisServer::start();
    let door = FrontDoor::open(redis_state(&redis.url())).await;
    assert_eq!(probe(&door, "/readyz").await.status, 200);
    let () = redis.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    becomes(&door, 503).await;
    let () = redis.cli(&["REPLICAOF", "NO", "ONE"]);
    becomes_ready(&door).await;

    let mut state = redis_state(&redis.url());
    let host = hookstash_shared::store::redis_host::RedisHost::lazy(
        &hookstash_shared::store::redis_host::RedisUrl::parse(&redis.url()).unwrap(),
        hookstash_shared::store::redis_host::RedisOptions::default(),
    );
    let shards = Shards::new(8).unwrap();
    let lease = state.store.lease();
    let host = std::sync::Arc::new(host.unwrap());
    state.store = Store::new(host, "hs", shards, lease, Retention::default());
    let other = FrontDoor::open(state).await;
    let refused = probe(&other, "/readyz").await;
    assert_eq!(refused.status, 503);
    assert!(
        refused.json.to_string().contains("number of shards"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_api_describes_itself_without_a_token() {
    let door = FrontDoor::embedded().await;
    let url = format!("http://{}/openapi.json", door.addr);
    let answer = reqwest::get(url).await.unwrap();
    assert_eq!(answer.status(), 200);
    let document: serde_json::Value = answer.json().await.unwrap();
    assert_eq!(document, hookstash::api::document());
    let publish = &document["paths"]["/v2/publish/{destination}"]["post"];
    assert!(
        publish["parameters"].as_array().unwrap().len() > 10,
        "{publish}"
    );
}
