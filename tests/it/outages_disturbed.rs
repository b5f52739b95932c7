//! Redis stays up and is disturbed: connections and waits are cut, scripts forgotten, clients held
//! up, the role changed and changed back.

use std::path::PathBuf;
use std::time::Duration;

use tokio::time::Instant;

use crate::support::load::first;
use crate::support::program::{Program, SOON};
use crate::support::receiver::Receiver;
use crate::support::redis::{RedisOptions, RedisServer, binaries, free_port};
use crate::support::scene::HEAL;

const ROUNDS: usize = 20;
const DISTURBANCES: [&str; 5] = [
    "SCRIPT FLUSH",
    "CLIENT KILL TYPE normal",
    "CLIENT UNBLOCK ERROR",
    "CLIENT PAUSE",
    "REPLICAOF and back",
];

/// The ids of the clients that wait for a wake-up token.
fn waiting(redis: &RedisServer) -> Vec<String> {
    let clients: String = redis.cli(&["CLIENT", "LIST"]);
    let waiting = clients
        .lines()
        .filter(|line| line.contains("cmd=blpop") && line.contains("flags=b"));
    waiting
        .filter_map(|line| line.split(['=', ' ']).nth(1).map(str::to_owned))
        .collect()
}

/// Returns when it is over.
async fn disturb(redis: &RedisServer, how: &str) {
    match how {
        "SCRIPT FLUSH" => redis.cli(&["SCRIPT", "FLUSH"]),
        "CLIENT KILL TYPE normal" => drop(redis.cli::<i64>(&["CLIENT", "KILL", "TYPE", "normal"])),
        "CLIENT UNBLOCK ERROR" => {
            for id in waiting(redis) {
                let _: i64 = redis.cli(&["CLIENT", "UNBLOCK", &id, "ERROR"]);
            }
        }
        "CLIENT PAUSE" => redis.cli(&["CLIENT", "PAUSE", "700", "ALL"]),
        _ => {
            let nowhere = free_port().to_string();
            let () = redis.cli(&["REPLICAOF", "127.0.0.1", &nowhere]);
            tokio::time::sleep(Duration::from_millis(300)).await;
            let () = redis.cli(&["REPLICAOF", "NO", "ONE"]);
        }
    }
}

async fn survives_twenty_rounds(binary: PathBuf) {
    let redis = RedisServer::start_with(RedisOptions {
        binary: Some(binary.clone()),
        ..RedisOptions::default()
    });
    let receiver = Receiver::start();
    let front = Program::role("api", &redis, &[]).await;
    let mut worker = Program::role_on("worker", &redis.url(), &[]).await;
    let mut slowest = [Duration::ZERO; DISTURBANCES.len()];
    for round in 0..ROUNDS {
        let deadline = Instant::now() + SOON;
        while waiting(&redis).is_empty() {
            assert!(Instant::now() < deadline, "round {round}: nobody waits");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let kind = round % DISTURBANCES.len();
        disturb(&redis, DISTURBANCES[kind]).await;
        let over = Instant::now();
        let body = format!("round {round}");
        front
            .publish(&receiver.url("/f02"), &[], body.clone())
            .await;
        let at = first(&receiver, |one| one.text() == body, SOON).await;
        let after = at.saturating_duration_since(over);
        assert!(after <= HEAL, "{} took {after:?}", DISTURBANCES[kind]);
        slowest[kind] = slowest[kind].max(after);
    }
    for (how, slowest) in DISTURBANCES.iter().zip(slowest) {
        println!("figure: {how} on {}: {slowest:?} at most", binary.display());
    }
    receiver
        .expect_no_more_than(ROUNDS, Duration::from_secs(3))
        .await;
    assert!(worker.process.is_running());
    worker.wait_until_ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f02_twenty_rounds_of_disturbance_stop_nothing() {
    let runs = binaries()
        .into_iter()
        .map(|binary| tokio::spawn(survives_twenty_rounds(binary)));
    for ended in futures::future::join_all(runs).await {
        ended.unwrap();
    }
}
