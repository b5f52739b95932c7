//! Publishing to a URL group, up to the end of every message: each endpoint has its own retries, its
//! own end, and the body that they share goes with the last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::message::{
    Destination, GroupEndpoint, Limits, MessageId, Shard, Shards, State,
};
use hookstash_shared::store::host::{Reply, Step};
use hookstash_shared::store::{Exchange, Fair, Retention, Store};

use crate::support::receiver::{Answer, Receiver};
use crate::support::stage::{SOON, Stage, message};

const BODY: &str = "one body for all";

/// The messages to the endpoints, by name.
async fn publish(stage: &Stage, urls: &BTreeMap<&str, String>) -> BTreeMap<String, MessageId> {
    let draft = message("http://unused.test/").retries(2).body(BODY);
    let members = urls.iter().map(|(name, url)| {
        let endpoint = GroupEndpoint {
            group: "g".to_owned(),
            name: Some((*name).to_owned()),
        };
        let url = Destination::parse(url).unwrap();
        let member = draft.clone().to_endpoint(url, endpoint);
        member.build(1, &Limits::default()).unwrap()
    });
    let published = stage
        .publisher
        .publish_group(members.collect(), SOON)
        .await
        .unwrap();
    assert!(published.iter().all(|one| !one.is_duplicate));
    let names = urls.keys().map(|name| (*name).to_owned());
    names.zip(published.into_iter().map(|one| one.id)).collect()
}

#[tokio::test]
async fn every_endpoint_has_its_own_retries_and_its_own_end() {
    for stage in Stage::both() {
        let name = stage.name();
        let good = Receiver::start();
        let slow =
            Receiver::answering(vec![Answer::status(500), Answer::status(503), Answer::ok()]);
        let bad = Receiver::always(Answer::status(500));
        let gone = Receiver::always(Answer::status(410));
        let urls = BTreeMap::from([
            ("bad", bad.url("/bad")),
            ("gone", gone.url("/gone")),
            ("good", good.url("/good")),
            ("slow", slow.url("/slow")),
        ]);
        let worker = stage.work();
        let ids = publish(&stage, &urls).await;
        good.wait_for(1, SOON).await;
        slow.wait_for(3, SOON).await;
        bad.wait_for(3, SOON).await;
        gone.wait_for(1, SOON).await;
        for dead in ["bad", "gone"] {
            stage.wait_for_death(&ids[dead]).await;
        }
        for receiver in [&good, &slow, &bad, &gone] {
            for request in receiver.received() {
                assert_eq!(request.text(), BODY, "{name}");
                assert_eq!(request.header("Upstash-Topic-Name"), Some("g"), "{name}");
            }
        }
        bad.expect_no_more_than(3, Duration::from_millis(300)).await;
        gone.expect_no_more_than(1, Duration::ZERO).await;
        // The dead letters still have the body, and can be read with it.
        for dead in ["bad", "gone"] {
            let stored = stage
                .store
                .message(&ids[dead])
                .await
                .unwrap()
                .expect("a dead letter");
            assert_eq!(stored.record.state, State::Dead, "{name}");
            let shared = stored.shared_body.expect("a shared body");
            assert!(shared.ends_with(BODY.as_bytes()), "{name}");
        }
        let all: Vec<MessageId> = ["bad", "gone"].iter().map(|name| ids[*name]).collect();
        assert_eq!(stage.store.delete_dead_letters(&all).await.unwrap(), 2);
        for delivered in ["good", "slow"] {
            stage
                .wait_for_state(&ids[delivered], State::Delivered)
                .await;
        }
        worker.drain(SOON).await;
        nothing_is_left(&stage).await;
    }
}

/// What is stored is housekeeping only: no body, no count of its users, no lane.
async fn nothing_is_left(stage: &Stage) {
    // Delivered messages are forgotten at once.
    let retention = Retention {
        delivered_grace_ms: 0,
        ..Retention::default()
    };
    let shard = Shard::default();
    let store = Store::new(Arc::clone(&stage.host), "hs", Shards::ONE, SOON, retention);
    let exchange = Exchange {
        settlements: &[],
        want: 0,
        nonce: 1,
        fair: Fair { flow: 1, host: 1 },
        upkeep: 64,
        may_recover: false,
        byte_budget: 1,
    };
    store.exchange(shard, &exchange).await.unwrap();
    let keys = keys(stage).await;
    let is_housekeeping = |key: &String| {
        let name = key.rsplit_once("}:").map_or(key.as_str(), |(_, name)| name);
        ["m", "gone", "log", "hb", "w", "hs:meta"].contains(&name)
    };
    let left: Vec<_> = keys
        .into_iter()
        .filter(|key| !is_housekeeping(key))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "{}", stage.name());
}

async fn keys(stage: &Stage) -> Vec<String> {
    let words = ["SCAN", "0", "COUNT", "100000"];
    let words = words.map(|word| Bytes::from_static(word.as_bytes()));
    let mut replies = stage.host.run(vec![Step::Command(words.to_vec())]).await;
    let reply = replies.remove(0).expect("keys");
    let Reply::Array(parts) = reply else {
        panic!("{reply:?}")
    };
    let Some(Reply::Array(keys)) = parts.into_iter().nth(1) else {
        panic!("no keys")
    };
    let text = |key| match key {
        Reply::Bytes(key) => String::from_utf8_lossy(&key).into_owned(),
        other => panic!("{other:?}"),
    };
    keys.into_iter().map(text).collect()
}
