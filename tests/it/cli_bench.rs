//! `hookstash bench` on a real Redis: figures that add up, and nothing left behind.

use std::time::Duration;

use serde_json::Value;

use crate::support::process::hookstash;
use crate::support::redis::RedisServer;

const SMALL: [&str; 8] = [
    "--messages",
    "500",
    "--rounds",
    "1",
    "--seconds",
    "1",
    "--backlog",
    "500",
];

fn run(redis: &RedisServer, args: &[&str]) -> std::process::Output {
    let url = redis.url();
    let args = [&["bench", "--redis-url", &url][..], &SMALL, args].concat();
    hookstash(&args, &[]).output().unwrap()
}

fn keys(redis: &RedisServer) -> usize {
    let mut connection = redis.connection();
    redis::cmd("DBSIZE").query(&mut connection).unwrap()
}

#[test]
fn a_run_reports_figures_of_every_part_as_json_and_leaves_no_key() {
    let redis = RedisServer::start();
    let mut connection = redis.connection();
    let _: () = redis::cmd("SET")
        .arg("mine")
        .arg(1)
        .query(&mut connection)
        .unwrap();
    let output = run(&redis, &["-o", "json"]);
    assert!(output.status.success(), "{output:?}");
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    let positive = [
        "/ratio",
        "/raw/per_s",
        "/raw/cpu_us/sender",
        "/durable/per_s",
        "/durable/cpu_us/worker_store_thread",
        "/durable/cpu_us/worker_delivery_threads",
        "/durable/cpu_us/receiver",
        "/publish/bare/per_s",
        "/publish/batched_ratio",
        "/publish/single_ratio",
        "/memory/bytes_per_queued_message_beyond_envelope",
        "/latency/raw/p99_ms",
        "/latency/received/p50_ms",
        "/latency/received/p99_ms",
        "/latency/accepted/p50_ms",
        "/backlog/to_without",
    ];
    for pointer in positive {
        let figure = figures.pointer(pointer).and_then(Value::as_f64);
        assert!(
            figure.is_some_and(|figure| figure > 0.0),
            "{pointer} in {figures:#}"
        );
    }
    for pointer in ["/durable/lost", "/durable/duplicates", "/latency/lost"] {
        assert_eq!(figures.pointer(pointer), Some(&Value::from(0)), "{pointer}");
    }
    assert_eq!(
        figures.pointer("/redis/appendonly"),
        Some(&Value::from(false))
    );
    assert_eq!(keys(&redis), 1, "only the key that was there before");
}

#[test]
fn without_a_redis_it_says_how_to_give_one() {
    let output = hookstash(&["bench"], &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("--redis-url redis://"), "{text}");
    let secret = "redis+cluster://:s3cret-canary@127.0.0.1:1";
    let output = hookstash(&["bench", "--redis-url", secret], &[])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

/// Starts a bench, sends it `signal` once it has `many` keys, and says how many are left at its end.
async fn left_after(signal: &str, many: usize, args: &[&str]) -> usize {
    let redis = RedisServer::start();
    let url = redis.url();
    let args = [&["bench", "--redis-url", &url][..], args].concat();
    let mut process = crate::support::process::Process::start(&args, &[]);
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while keys(&redis) < many {
        assert!(
            tokio::time::Instant::now() < deadline,
            "it publishes nothing"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    process.signal(signal);
    let status = process.wait_exit(Duration::from_mins(1)).await;
    assert_eq!(status.code(), Some(1));
    keys(&redis)
}

#[tokio::test]
async fn an_interrupted_run_removes_its_keys() {
    let args = ["--messages", "100000", "--rounds", "99"];
    assert_eq!(left_after("INT", 1, &args).await, 0);
}

#[tokio::test]
async fn a_run_that_ends_while_its_worker_delivers_leaves_no_key_either() {
    // More keys than a round has: publisher and worker run side by side.
    let args = ["--messages", "100", "--rounds", "1", "--seconds", "600"];
    for signal in ["INT", "TERM", "INT"] {
        assert_eq!(left_after(signal, 1_000, &args).await, 0, "{signal}");
    }
}
