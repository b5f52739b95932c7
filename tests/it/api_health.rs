//! Readiness tells the truth.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hookstash_shared::clock::{Clock, SystemClock};
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
    let down = probe(&door, "/readyz").await;
    assert_eq!(down.status, 503, "{down:?}");
    assert_eq!(down.json["notReady"][0]["part"], "store");
    assert_eq!(probe(&door, "/healthz").await.status, 200);
    redis.restart();
    becomes_ready(&door).await;
    // A frozen server answers nothing: the probe still does, in its bound.
    redis.signal("STOP");
    let start = Instant::now();
    let frozen = probe(&door, "/readyz").await;
    redis.signal("CONT");
    assert_eq!(frozen.status, 503);
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    becomes_ready(&door).await;
}

#[tokio::test]
async fn a_full_store_is_not_ready_for_new_messages() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let host = Arc::new(EmbeddedHost::new(Arc::clone(&clock)).unwrap());
    let door = FrontDoor::open(state_on(host.clone(), clock)).await;
    assert_eq!(probe(&door, "/readyz").await.status, 200);
    host.set_full(true);
    let full = probe(&door, "/readyz").await;
    let list = json!([{ "part": "store", "reason": "it is full" }]);
    assert_eq!((full.status, &full.json["notReady"]), (503, &list));
    host.set_full(false);
    assert_eq!(probe(&door, "/readyz").await.status, 200);
}

async fn becomes_ready(door: &FrontDoor) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while probe(door, "/readyz").await.status != 200 {
        assert!(
            Instant::now() < deadline,
            "not ready 5 s after Redis came back"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_store_that_takes_no_writes_or_has_other_shards_is_not_ready() {
    let redis = RedisServer::start();
    let door = FrontDoor::open(redis_state(&redis.url())).await;
    assert_eq!(probe(&door, "/readyz").await.status, 200);
    let () = redis.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    let replica = probe(&door, "/readyz").await;
    assert_eq!(replica.status, 503, "{replica:?}");
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
