//! A cluster of three masters: a slot moves under load, a master dies and its replica is promoted.

use std::path::PathBuf;
use std::time::Duration;

use hookstash_shared::message::MessageId;
use tokio::time::Instant;

use crate::support::load::{accepted, all_arrive};
use crate::support::program::SOON;
use crate::support::redis::{RedisServer, binaries};
use crate::support::redis_groups::{RedisCluster, agrees, wait_for_copy, wait_for_master};
use crate::support::scene::Scene;

/// Spread over all shards, so that some are where it happens.
const WAITING: usize = 48;
const SHARDS: [(&str, &str); 1] = [("HOOKSTASH_SHARDS", "6")];

/// Those of `ids` whose shard lives on `node`.
fn on_node(cluster: &RedisCluster, ids: &[String], node: usize) -> Vec<String> {
    let is_there = |id: &&String| {
        let id: MessageId = id.parse().unwrap();
        let key = format!("hs:{{{}}}:nil", id.shard().index());
        cluster.slot(&key).1 == node
    };
    let there: Vec<String> = ids.iter().filter(is_there).cloned().collect();
    assert!(!there.is_empty(), "no message waits there");
    there
}

fn of_shard(ids: &[String], shard: u16) -> Vec<String> {
    let is_of = |id: &&String| id.parse::<MessageId>().unwrap().shard().index() == shard;
    let of_shard: Vec<String> = ids.iter().filter(is_of).cloned().collect();
    assert!(!of_shard.is_empty(), "no message waits there");
    of_shard
}

async fn survives_a_move(binary: PathBuf) {
    let cluster = RedisCluster::start_on(3, Some(&binary));
    let name = format!("slot moved on {}", binary.display());
    let mut scene = Scene::begin(&name, &cluster.url(), &SHARDS).await;
    let (slot, from) = cluster.slot("hs:{0}:nil");
    let to = (from + 1) % 3;
    let ids = scene.prepare(WAITING).await;
    let asks = || errors(&cluster.nodes[from], "ASK");
    let before = asks();
    cluster.begin_move(slot, from, to);
    // Under load: every script of the shard meets a slot that is on its way.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let moved = cluster.move_keys(slot, from, to);
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.end_move(slot, from, to);
    let back = Instant::now();
    let refused = asks() - before;
    println!("figure: {name}: {moved} keys moved, {refused} calls refused with ASK");
    assert!(refused > 0, "nothing met the moving slot");
    scene.heals(&of_shard(&ids, 0), back).await;
    let published = scene.stop_load().await;
    scene.ends_well(&published, WAITING).await;
    scene.nothing_twice().await;
}

/// How often `node` has refused with this code.
fn errors(node: &RedisServer, code: &str) -> u64 {
    let info: String = node.cli(&["INFO", "errorstats"]);
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix(&format!("errorstat_{code}:count=")));
    line.map_or(0, |count| count.trim().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_loses_nothing_and_sends_nothing_twice() {
    let runs = binaries()
        .into_iter()
        .map(|binary| tokio::spawn(survives_a_move(binary)));
    for ended in futures::future::join_all(runs).await {
        ended.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_of_a_cluster_that_dies_is_replaced_by_its_replica() {
    let mut cluster = RedisCluster::start_with_replicas(3);
    let mut scene = Scene::begin("cluster, a master dies", &cluster.url(), &SHARDS).await;
    let (_, dying) = cluster.slot("hs:{0}:nil");
    let ids = scene.prepare(WAITING).await;
    // What was accepted is copied before the master dies, as asynchronous replication does it.
    let before = scene.stop_load().await;
    all_arrive(&scene.receiver, &accepted(&before), SOON).await;
    wait_for_copy(&cluster.nodes[dying]).await;
    let there = on_node(&cluster, &ids, dying);
    cluster.nodes[dying].kill9();
    scene.restart_load("afterwards");
    wait_for_master(&cluster.replicas[dying]).await;
    let deadline = Instant::now() + SOON;
    while !agrees(&cluster.nodes[(dying + 1) % 3], 3) || !agrees(&cluster.replicas[dying], 3) {
        assert!(Instant::now() < deadline, "the cluster is not whole again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let back = Instant::now();
    scene.heals(&there, back).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let after = scene.stop_load().await;
    scene.ends_well(&[before, after].concat(), WAITING).await;
    scene.nothing_twice().await;
}
