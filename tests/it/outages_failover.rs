//! Another server becomes the master: behind the same name, or found by a sentinel.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::load::{accepted, all_arrive, first};
use crate::support::program::SOON;
use crate::support::proxy::Proxy;
use crate::support::redis::{RedisOptions, RedisServer};
use crate::support::redis_groups::{
    Passwords, RedisSentinel, quick_replication, replica_of, wait_for_copy, wait_for_master,
};
use crate::support::scene::{HEAL, Scene};

const WAITING: usize = 10;
/// Every publish waits for one replica.
const ONE_REPLICA: [(&str, &str); 1] = [("HOOKSTASH_PUBLISH_REPLICAS", "1")];

fn master() -> RedisServer {
    RedisServer::start_with(RedisOptions {
        extra: quick_replication().to_vec(),
        ..RedisOptions::default()
    })
}

fn demote(old: &RedisServer, new: &RedisServer) {
    let port = new.port().to_string();
    let () = old.cli(&["REPLICAOF", "127.0.0.1", &port]);
}

fn promote(new: &RedisServer) {
    let () = new.cli(&["REPLICAOF", "NO", "ONE"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f07_a_switch_of_masters_behind_one_name_loses_nothing_and_sends_nothing_twice() {
    let old = master();
    let new = replica_of(old.port());
    wait_for_copy(&old).await;
    let proxy = Proxy::to_port(old.port());
    let mut scene = Scene::begin("planned switch", &proxy.redis_url(), &[]).await;
    let waiting = scene.prepare(WAITING).await;
    // As an operator switches: writes stop, the copy is complete, the roles change, the name
    // follows. The old sockets stay open.
    let () = old.cli(&["CLIENT", "PAUSE", "20000", "WRITE"]);
    wait_for_copy(&old).await;
    promote(&new);
    demote(&old, &new);
    let () = old.cli(&["CLIENT", "UNPAUSE"]);
    // Long enough for the messages to fall due while there is no master behind the name.
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.switch_to_port(new.port());
    let back = Instant::now();
    scene.heals(&waiting, back).await;
    let published = accepted_after(&mut scene, back).await;
    scene.ends_well(&published, WAITING).await;
    scene.nothing_twice().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f07_a_hard_switch_loses_nothing_that_a_replica_confirmed() {
    let old = master();
    let new = replica_of(old.port());
    wait_for_copy(&old).await;
    let proxy = Proxy::to_port(old.port());
    let mut scene = Scene::begin("hard switch", &proxy.redis_url(), &ONE_REPLICA).await;
    let waiting = scene.prepare(WAITING).await;
    // For a while both are masters and the old one still takes writes: none may be a 2xx.
    promote(&new);
    let split = Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    demote(&old, &new);
    // Then there is none behind the name, until the messages have fallen due.
    tokio::time::sleep(Duration::from_secs(2)).await;
    proxy.switch_to_port(new.port());
    let back = Instant::now();
    scene.heals(&waiting, back).await;
    let published = accepted_after(&mut scene, back).await;
    // What was begun and answered while two were masters was not answered with a 2xx.
    let false_ok = published
        .iter()
        .find(|one| one.is_accepted() && one.begun > split && one.answered < back);
    assert!(false_ok.is_none(), "{false_ok:?}");
    scene.ends_well(&published, WAITING).await;
}

/// What the load published, once a publish has succeeded soon after the store came `back`.
async fn accepted_after(scene: &mut Scene, back: Instant) -> Vec<crate::support::load::Publish> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let published = scene.stop_load().await;
    let accepted = published.iter().filter(|one| one.is_accepted());
    let soonest = accepted
        .map(|one| one.answered)
        .filter(|at| *at > back)
        .min();
    let after = soonest.expect("an accepted publish") - back;
    println!("figure: {}: a publish accepted after {after:?}", scene.name);
    assert!(after <= HEAL, "{}: {after:?}", scene.name);
    published
}

/// A master with two replicas and a sentinel.
struct Group {
    master: RedisServer,
    replicas: [RedisServer; 2],
    sentinel: RedisSentinel,
}

impl Group {
    async fn start() -> Self {
        let master = master();
        let replicas = [replica_of(master.port()), replica_of(master.port())];
        wait_for_copy(&master).await;
        let sentinel = RedisSentinel::start("main", master.port());
        sentinel.wait_for_replicas(2);
        Self {
            master,
            replicas,
            sentinel,
        }
    }

    /// Kills the master and waits until one of the replicas has taken its place.
    async fn fail_over(&mut self) -> &RedisServer {
        let old = self.master.port();
        self.master.kill9();
        let deadline = Instant::now() + SOON;
        let new = loop {
            let port = self.sentinel.master_port().filter(|port| *port != old);
            if let Some(port) = port {
                break port;
            }
            assert!(Instant::now() < deadline, "no other master was named");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let new = self.replicas.iter().find(|one| one.port() == new);
        let new = new.expect("one of the replicas");
        wait_for_master(new).await;
        new
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_failover_under_load_loses_nothing_that_a_replica_confirmed() {
    let mut group = Group::start().await;
    let url = group.sentinel.url();
    let mut scene = Scene::begin("sentinel, one replica confirms", &url, &ONE_REPLICA).await;
    let waiting = scene.prepare(WAITING).await;
    group.fail_over().await;
    let back = Instant::now();
    scene.heals(&waiting, back).await;
    // Publishing goes on once the other replica follows the new master.
    let url = scene.receiver.url("/again");
    let deadline = Instant::now() + SOON;
    loop {
        let call = scene.front.publishing(&url);
        let call = call
            .header("Upstash-Deduplication-Id", "again")
            .body("again");
        if call.send().await.unwrap().status().is_success() {
            break;
        }
        assert!(Instant::now() < deadline, "publishing does not go on");
    }
    println!(
        "figure: {}: publishing again after {:?}",
        scene.name,
        back.elapsed()
    );
    let published = scene.stop_load().await;
    scene.ends_well(&published, WAITING).await;
    all_arrive(&scene.receiver, &["again"], SOON).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_failover_loses_nothing_that_was_copied_and_repeats_no_call() {
    let mut group = Group::start().await;
    let url = group.sentinel.url();
    let mut scene = Scene::begin("sentinel", &url, &[]).await;
    let waiting = scene.prepare(WAITING).await;
    let before = scene.stop_load().await;
    all_arrive(&scene.receiver, &accepted(&before), SOON).await;
    wait_for_copy(&group.master).await;
    group.fail_over().await;
    let back = Instant::now();
    scene.restart_load("afterwards");
    scene.heals(&waiting, back).await;
    let after = accepted_after(&mut scene, back).await;
    scene.ends_well(&[before, after].concat(), WAITING).await;
    scene.nothing_twice().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passwords_of_sentinels_and_of_the_master_are_used_each_in_its_place() {
    let passwords = Passwords {
        sentinel: "of-the-sentinel",
        master: "of-the-master",
    };
    let master = RedisServer::start_with(RedisOptions {
        requirepass: Some(passwords.master.to_owned()),
        ..RedisOptions::default()
    });
    let sentinel = RedisSentinel::start_with("main", master.port(), Some(passwords));
    let mut scene = Scene::begin("passwords", &sentinel.url(), &[]).await;
    let url = scene.receiver.url("/passwords");
    scene.front.publish(&url, &[], "with passwords").await;
    first(&scene.receiver, |one| one.path == "/passwords", SOON).await;
    for program in [&scene.front, &scene.worker] {
        let lines = program.process.lines().join("\n");
        assert!(!lines.contains("of-the-"), "{lines}");
    }
    scene.stop_load().await;
}
