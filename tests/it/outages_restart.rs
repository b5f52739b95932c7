//! Redis is killed and comes back, with its data or without: `api` and `worker` go on.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::support::load::{accepted, all_arrive};
use crate::support::program::SOON;
use crate::support::redis::{RedisOptions, RedisServer, binaries};
use crate::support::scene::{OUTAGE, Scene};

const WAITING: usize = 10;

async fn survives_a_kill(binary: PathBuf) {
    let mut redis = RedisServer::start_with(RedisOptions {
        appendfsync: Some("always"),
        binary: Some(binary.clone()),
        ..RedisOptions::default()
    });
    let name = format!("kill -9 and restart of {}", binary.display());
    let mut scene = Scene::begin(&name, &redis.url(), &[]).await;
    let waiting = scene.prepare(WAITING).await;
    redis.kill9();
    tokio::time::sleep(OUTAGE).await;
    // Returns when the server answers.
    redis.restart();
    scene.heals(&waiting, Instant::now()).await;
    let published = scene.stop_load().await;
    scene.ends_well(&published, WAITING).await;
    scene.nothing_twice().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_and_restart_under_load_loses_nothing_and_sends_nothing_twice() {
    let scenes = binaries()
        .into_iter()
        .map(|binary| tokio::spawn(survives_a_kill(binary)));
    for ended in futures::future::join_all(scenes).await {
        ended.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f01_a_redis_that_comes_back_empty_is_used_again_and_the_loss_is_logged() {
    let mut redis = RedisServer::start();
    let mut scene = Scene::begin("restart without data", &redis.url(), &[]).await;
    let lost = scene.prepare(WAITING).await;
    redis.kill9();
    for program in [&scene.front, &scene.worker] {
        let deadline = Instant::now() + SOON;
        while program.readyz().await.0 != 503 {
            assert!(Instant::now() < deadline, "it stays ready without a Redis");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    redis.restart();
    let back = Instant::now();
    let url = scene.receiver.url("/new");
    let new = scene.front.publish(&url, &[], "new").await;
    scene.heals(&[new], back).await;
    for program in [&scene.front, &scene.worker] {
        program.wait_until_ready().await;
        let line = program.process.wait_for_line("came back empty", SOON).await;
        assert!(
            line.contains("ERROR") && line.contains("are lost"),
            "{line}"
        );
    }
    println!(
        "figure: restart without data: ready {:?} after the return",
        back.elapsed()
    );
    let published: Vec<_> = scene.stop_load().await;
    let after: Vec<_> = published
        .into_iter()
        .filter(|one| one.begun > back)
        .collect();
    let bodies = accepted(&after);
    assert!(!bodies.is_empty());
    all_arrive(&scene.receiver, &bodies, SOON).await;
    for id in lost {
        let (status, _) = scene.front.call("GET", &format!("/v2/messages/{id}")).await;
        assert_eq!(status, 404, "what an emptied Redis held is lost");
    }
    for program in [&mut scene.front, &mut scene.worker] {
        assert!(program.process.is_running());
    }
}

#[tokio::test]
async fn a_worker_that_waited_long_for_redis_is_there_as_soon_as_it_is() {
    // Long enough for every pause between two tries to have grown to its longest.
    const LONG: Duration = Duration::from_secs(20);
    let mut redis = RedisServer::start_durable();
    let mut scene = Scene::begin("a long outage", &redis.url(), &[]).await;
    let delay = [("Upstash-Delay", "2s")];
    let url = scene.receiver.url("/waiting");
    let id = scene.front.publish(&url, &delay, "waiting").await;
    redis.kill9();
    tokio::time::sleep(LONG).await;
    redis.restart();
    let back = Instant::now();
    scene.heals(&[id], back).await;
    scene.stop_load().await;
}
