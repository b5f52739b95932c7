//! What `HOOKSTASH_PUBLISH_REPLICAS` promises over a failover, and what is lost without it.

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::store::host::{Host as _, HostError, Reply, Step};
use hookstash_shared::store::redis_host::{RedisHost, RedisOptions, RedisUrl};
use tokio::time::Instant;

use crate::support::program::{Program, SOON, read};
use crate::support::proxy::Proxy;
use crate::support::redis::{self as server, RedisServer};
use crate::support::redis_groups::{RedisCluster, replica_of, wait_for_copy};

const DESTINATION: &str = "http://127.0.0.1:9/";
const ONE_REPLICA: [(&str, &str); 1] = [("HOOKSTASH_PUBLISH_REPLICAS", "1")];
const DEDUP: &str = "Upstash-Deduplication-Id";

/// A master, and a replica whose copying can be held up.
struct Pair {
    master: RedisServer,
    copying: Proxy,
    replica: RedisServer,
}

impl Pair {
    async fn start() -> Self {
        let master = RedisServer::start_durable();
        let () = master.cli(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]);
        let copying = Proxy::to_port(master.port());
        let replica = replica_of(copying.port());
        wait_for_copy(&master).await;
        Self {
            master,
            copying,
            replica,
        }
    }

    /// Kills the master and promotes the replica; how many messages it has.
    fn fail_over(&mut self) -> usize {
        self.master.kill9();
        let () = self.replica.cli(&["REPLICAOF", "NO", "ONE"]);
        self.replica.cli(&["HLEN", "hs:{0}:m"])
    }
}

async fn publish(front: &Program, key: &str) -> (u16, serde_json::Value) {
    read(front.publishing(DESTINATION).header(DEDUP, key).body("x")).await
}

#[tokio::test]
async fn a_publish_that_too_few_replicas_have_is_unknown_and_can_be_repeated() {
    let mut pair = Pair::start().await;
    let front = Program::role("api", &pair.master, &ONE_REPLICA).await;
    assert_eq!(publish(&front, "first").await.0, 200);

    pair.copying.pause();
    let (status, answer) = publish(&front, "second").await;
    assert_eq!(status, 503, "{answer}");
    let text = answer["error"].as_str().unwrap();
    assert!(
        text.contains("unknown") && text.contains("is safe"),
        "{text}"
    );
    let deadline = Instant::now() + SOON;
    loop {
        let (status, answer) = front.readyz().await;
        if status == 503 {
            let reason = answer.to_string();
            assert!(reason.contains("HOOKSTASH_PUBLISH_REPLICAS"), "{reason}");
            break;
        }
        assert!(Instant::now() < deadline, "ready without a replica");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    pair.copying.resume();
    front.wait_until_ready().await;
    // The repeat finds the message of the first try.
    assert_eq!(publish(&front, "second").await.0, 202);
    assert_eq!(pair.fail_over(), 2, "both are on the replica");
}

#[tokio::test]
async fn without_replicas_a_failover_loses_what_was_not_copied_and_no_more() {
    let mut pair = Pair::start().await;
    let front = Program::role("api", &pair.master, &[]).await;
    assert_eq!(publish(&front, "copied").await.0, 200);
    wait_for_copy(&pair.master).await;
    pair.copying.pause();
    assert_eq!(publish(&front, "not copied").await.0, 200);
    assert_eq!(pair.fail_over(), 1);
}

async fn host(url: &str, replicas: usize) -> RedisHost {
    let options = RedisOptions {
        replicas,
        ..RedisOptions::default()
    };
    let url = RedisUrl::parse(url).unwrap();
    RedisHost::connect(&url, options).await.unwrap()
}

fn command(words: &[&str]) -> Step {
    let words = words
        .iter()
        .map(|word| Bytes::copy_from_slice(word.as_bytes()));
    Step::Command(words.collect())
}

#[tokio::test]
async fn a_repeat_that_writes_nothing_waits_for_the_replicas_all_the_same() {
    let pair = Pair::start().await;
    let set = || vec![command(&["SET", "{0}k", "1", "NX"])];
    pair.copying.pause();
    let first = host(&pair.master.url(), 1).await.run(set()).await;
    assert!(
        matches!(first[..], [Err(HostError::Unconfirmed(_))]),
        "{first:?}"
    );
    // Another connection, and the key is there already.
    let other = host(&pair.master.url(), 1).await;
    let again = other.run(set()).await;
    assert!(
        matches!(again[..], [Err(HostError::Unconfirmed(_))]),
        "{again:?}"
    );
    pair.copying.resume();
    wait_for_copy(&pair.master).await;
    assert_eq!(other.run(set()).await, [Ok(Reply::Nil)]);
    assert_eq!(pair.replica.cli::<String>(&["GET", "{0}k"]), "1");
    // A refusal stays a refusal, and does not spoil what came with it.
    let steps = vec![command(&["INCR", "{0}n"]), command(&["LLEN", "{0}k"])];
    let mixed = other.run(steps).await;
    assert_eq!(mixed[0], Ok(Reply::Int(1)));
    assert!(matches!(mixed[1], Err(HostError::Fault(_))), "{mixed:?}");
}

#[tokio::test]
async fn on_a_cluster_each_master_waits_for_its_own_replica() {
    let mut cluster = RedisCluster::start_with_replicas(3);
    let host = host(&cluster.url(), 1).await;
    let keys: Vec<String> = (0..6).map(|shard| format!("hs:{{{shard}}}:k")).collect();
    let deadline = Instant::now() + SOON;
    for key in &keys {
        // A replica that has just begun to copy may answer a little late.
        while host.run(vec![command(&["SET", key, "1"])]).await[0].is_err() {
            assert!(Instant::now() < deadline, "{key} is not confirmed");
        }
    }
    let (_, dead) = cluster.slot(&keys[0]);
    cluster.replicas[dead].kill9();
    for key in &keys {
        let is_confirmed = host.run(vec![command(&["SET", key, "1"])]).await[0].is_ok();
        assert_eq!(is_confirmed, cluster.slot(key).1 != dead, "{key}");
    }
}

#[tokio::test]
async fn calls_that_wait_for_replicas_wait_together() {
    const CALLS: usize = 400;
    let pair = Pair::start().await;
    let host = host(&pair.master.url(), 1).await;
    let calls = (0..CALLS).map(|_| host.run(vec![command(&["INCR", "{0}n"])]));
    let results = futures::future::join_all(calls).await;
    let mut numbers: Vec<i64> = results
        .into_iter()
        .map(|results| match results[..] {
            [Ok(Reply::Int(number))] => number,
            ref other => panic!("{other:?}"),
        })
        .collect();
    assert!(numbers.is_sorted(), "calls are sent in their order");
    numbers.dedup();
    assert_eq!(numbers.len(), CALLS);
    let info: String = pair.master.cli(&["INFO", "commandstats"]);
    let line = info.lines().find(|line| line.starts_with("cmdstat_wait:"));
    let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
    let waits: usize = calls.unwrap().parse().unwrap();
    println!("figure: {CALLS} calls waited {waits} times");
    assert!(waits <= CALLS / 20, "{waits} waits for {CALLS} calls");
}

#[tokio::test]
async fn a_redis_that_refuses_writes_for_safety_is_not_ready_and_says_nothing_was_accepted() {
    let redis = RedisServer::start_with(server::RedisOptions {
        extra: ["--dbfilename", "taken"].map(String::from).to_vec(),
        ..server::RedisOptions::default()
    });
    let front = Program::role("api", &redis, &[]).await;
    for (trouble, cure) in [
        (no_replicas as fn(&_), enough_replicas as fn(&_)),
        (no_disk, disk),
    ] {
        trouble(&redis);
        let deadline = Instant::now() + SOON;
        while front.readyz().await.0 != 503 {
            assert!(Instant::now() < deadline, "ready, and no write is taken");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (status, answer) = publish(&front, "refused").await;
        assert_eq!(status, 503, "{answer}");
        assert!(
            answer["error"]
                .as_str()
                .unwrap()
                .contains("nothing was changed"),
            "{answer}"
        );
        cure(&redis);
        front.wait_until_ready().await;
    }
    assert_eq!(publish(&front, "refused").await.0, 200);
}

/// NOREPLICAS.
fn no_replicas(redis: &RedisServer) {
    let () = redis.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
}

fn enough_replicas(redis: &RedisServer) {
    let () = redis.cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
}

/// MISCONF: a snapshot that cannot be put into its place.
fn no_disk(redis: &RedisServer) {
    std::fs::create_dir(redis.dir().join("taken")).unwrap();
    let () = redis.cli(&["CONFIG", "SET", "save", "3600 1"]);
    let _: String = redis.cli(&["BGSAVE"]);
    let deadline = std::time::Instant::now() + SOON;
    while !redis
        .cli::<String>(&["INFO", "persistence"])
        .contains("rdb_last_bgsave_status:err")
    {
        assert!(
            std::time::Instant::now() < deadline,
            "the snapshot succeeds"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn disk(redis: &RedisServer) {
    let () = redis.cli(&["CONFIG", "SET", "save", ""]);
}
