//! Deliveries to many hosts.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::store::host::{Reply, Step};
use tokio::time::Instant;

use crate::support::name_server::NameServer;
use crate::support::receiver::Receiver;
use crate::support::redis::RedisServer;
use crate::support::stage::{Stage, message};

/// What the child is told: Redis, the name server and the receiver.
const PLACES: &str = "H17_PLACES";
/// Open files of the child: a small machine's limit.
const FILES_MAX: usize = 512;
const HOSTS: usize = 1_000;
const ROUNDS: usize = 4;

/// A process of its own, because memory and open files are those of a process.
#[tokio::test]
async fn h17_many_hosts_use_no_more_memory_and_files_than_few() {
    if let Ok(places) = std::env::var(PLACES) {
        return call_many_hosts(&places).await;
    }
    let redis = RedisServer::start();
    let names = NameServer::failing(0).await;
    let receiver = Receiver::start();
    let places = format!(
        "{} {} {}",
        redis.url(),
        names.address(),
        receiver.addr().port()
    );
    let name = "worker_hosts::h17_many_hosts_use_no_more_memory_and_files_than_few";
    let child = tokio::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -n \"$0\"; exec \"$@\"",
            &FILES_MAX.to_string(),
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(PLACES, places)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = child.await.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines().filter(|line| line.contains("figure:")) {
        println!("{line}");
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert_eq!(receiver.count(), HOSTS * ROUNDS);
}

async fn call_many_hosts(places: &str) {
    let mut places = places.split(' ');
    let mut stage = Stage::on_url(places.next().unwrap(), Duration::from_secs(15), 1);
    stage.name_server = places.next().unwrap().parse().unwrap();
    let port = places.next().unwrap();
    let mut parts = stage.parts();
    // It would keep every report.
    parts.observer = None;
    let worker = hookstash_worker::start(parts).unwrap();
    let files_max = Arc::new(AtomicUsize::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let (seen, over) = (Arc::clone(&files_max), Arc::clone(&is_over));
    let watch = std::thread::spawn(move || {
        while !over.load(Ordering::SeqCst) {
            seen.fetch_max(open_files(), Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    let mut memory = Vec::new();
    for round in 0..ROUNDS {
        let one = |host| message(&format!("http://h{host}.test:{port}/")).retries(0);
        stage.publish_all((0..HOSTS).map(one).collect()).await;
        wait_until_empty(&stage).await;
        memory.push(resident_kib());
        println!(
            "figure: {HOSTS} hosts, round {round}: {} KiB, at most {} open files",
            memory[round],
            files_max.load(Ordering::SeqCst)
        );
    }
    is_over.store(true, Ordering::SeqCst);
    watch.join().unwrap();
    assert!(worker.is_healthy());
    assert_eq!(count(&stage, "ZCARD", "hs:{0}:x").await, 0, "dead letters");
    // The first round finds its sizes: buffers, arenas, the resolver's cache.
    let (warm, last) = (memory[1], memory[ROUNDS - 1]);
    assert!(10 * last <= 11 * warm, "{memory:?} KiB");
    let files = files_max.load(Ordering::SeqCst);
    assert!(10 * files <= 9 * FILES_MAX, "{files} open files");
}

/// Waits until no message waits or is under way.
async fn wait_until_empty(stage: &Stage) {
    let deadline = Instant::now() + Duration::from_mins(2);
    let places = [
        ("LLEN", "hs:{0}:run"),
        ("ZCARD", "hs:{0}:l"),
        ("ZCARD", "hs:{0}:d"),
    ];
    loop {
        let mut left = 0;
        for (command, key) in places {
            left += count(stage, command, key).await;
        }
        if left == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{left} are left");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn count(stage: &Stage, command: &'static str, key: &'static str) -> i64 {
    let step = Step::Command(vec![Bytes::from(command), Bytes::from(key)]);
    match stage.host.run(vec![step]).await.remove(0) {
        Ok(Reply::Int(count)) => count,
        other => panic!("{other:?}"),
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(FILES_MAX, Iterator::count)
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next())
        .and_then(|kib| kib.parse().ok())
        .expect("VmRSS")
}
