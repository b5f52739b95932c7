//! The embedded store in a directory: what was accepted survives a kill, and a Redis can take over.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::support::process::Process;
use crate::support::program::{Program, SOON, TOKEN, finish};
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::redis::{RedisOptions, RedisServer, binaries};

/// How often a loaded process is killed, unless `HOOKSTASH_TEST_KILLS` says otherwise.
const KILLS: u64 = 25;
/// Publishes at one time.
const CALLERS: usize = 8;
/// A short lease, so that what a kill interrupts comes back soon.
const SHORT_LEASE: [(&str, &str); 2] = [("HOOKSTASH_LEASE", "1s"), ("HOOKSTASH_RENEW", "300ms")];

fn directory() -> (TempDir, String) {
    let home = tempfile::tempdir().expect("a temporary directory");
    let path = home.path().join("data").to_string_lossy().into_owned();
    (home, path)
}

fn log_of(directory: &str) -> PathBuf {
    Path::new(directory).join("appendonly.aof")
}

fn ids(requests: &[Received]) -> BTreeSet<String> {
    let id = |one: &Received| one.header("Upstash-Message-Id").expect("an id").to_owned();
    requests.iter().map(id).collect()
}

/// Waits until every one of `accepted` was delivered.
async fn wait_for_all(receiver: &Receiver, accepted: &BTreeSet<String>) {
    let deadline = Instant::now() + 4 * SOON;
    loop {
        let delivered = ids(&receiver.received());
        let missing: Vec<_> = accepted.difference(&delivered).collect();
        if missing.is_empty() {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{} of {} were accepted and lost: {:?}",
            missing.len(),
            accepted.len(),
            &missing[..missing.len().min(5)]
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Publishes to `url` from many callers until the program is gone; the ids that were accepted.
async fn publish_until_killed(program: &mut Program, url: &str, kill: Duration) -> Vec<String> {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let target = format!("{}/v2/publish/{url}", program.base);
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let publish = client.post(&target).bearer_auth(&program.token);
            tokio::spawn(async move {
                let mut accepted = Vec::new();
                loop {
                    let body = format!("{caller} {}", "x".repeat(500 * caller));
                    let publish = publish.try_clone().expect("no body yet").body(body);
                    let Ok(answer) = publish.send().await else {
                        return accepted;
                    };
                    let is_accepted = answer.status().is_success();
                    let Ok(text) = answer.text().await else {
                        return accepted;
                    };
                    if is_accepted {
                        let answer: serde_json::Value = serde_json::from_str(&text).unwrap();
                        accepted.push(answer["messageId"].as_str().unwrap().to_owned());
                    }
                }
            })
        })
        .collect();
    tokio::time::sleep(kill).await;
    program.process.kill9();
    let mut accepted = Vec::new();
    for caller in callers {
        accepted.extend(caller.await.expect("a caller"));
    }
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_survives_every_kill_under_load() {
    let kills = std::env::var("HOOKSTASH_TEST_KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let (_home, path) = directory();
    let args = ["--data-dir", &path, "--data-sync", "always"];
    let receiver = Receiver::always(Answer::ok());
    let url = receiver.url("/");
    let mut accepted = BTreeSet::new();
    let mut slowest = Duration::ZERO;
    for round in 0..kills {
        let started = Instant::now();
        let mut program = Program::dev(&args, &SHORT_LEASE).await;
        slowest = slowest.max(started.elapsed());
        let kill = Duration::from_millis(50 + 37 * round % 250);
        accepted.extend(publish_until_killed(&mut program, &url, kill).await);
    }
    println!(
        "{kills} kills, {} accepted, slowest start {slowest:?}",
        accepted.len()
    );
    assert!(accepted.len() as u64 > kills, "{}", accepted.len());
    let program = Program::dev(&args, &SHORT_LEASE).await;
    wait_for_all(&receiver, &accepted).await;
    assert_eq!(program.dead().await, Vec::<String>::new());
}

#[tokio::test]
async fn messages_in_flight_at_a_kill_are_delivered_at_once_after_it_and_no_retry_is_used_up() {
    const MESSAGES: usize = 150;
    let (_home, path) = directory();
    let args = ["--data-dir", &path];
    // Waiting for the lease would take longer than this test.
    let env = [("HOOKSTASH_LEASE", "10m"), ("HOOKSTASH_RENEW", "1m")];
    let is_fast = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_fast);
    let receiver = Receiver::with(move |_| {
        if told.load(Ordering::SeqCst) {
            Answer::ok()
        } else {
            Answer::hang()
        }
    });
    let mut program = Program::dev(&args, &env).await;
    let url = receiver.url("/");
    let retries = [("Upstash-Retries", "0")];
    let calls = (0..MESSAGES).map(|_| program.publish(&url, &retries, "x"));
    let accepted = futures::future::join_all(calls).await;
    receiver.wait_for(MESSAGES, SOON).await;
    program.process.kill9();
    is_fast.store(true, Ordering::SeqCst);

    let program = Program::dev(&args, &env).await;
    let line = format!("count={MESSAGES}");
    let told = program.process.wait_for_line("delivered again", SOON).await;
    assert!(told.contains(&line), "{told}");
    let requests = receiver.wait_for(2 * MESSAGES, SOON).await;
    let again = &requests[MESSAGES..];
    assert_eq!(ids(again), accepted.into_iter().collect());
    let retried = again.iter().map(|one| one.header("Upstash-Retried"));
    assert!(retried.into_iter().all(|retried| retried == Some("0")));
    assert_eq!(program.dead().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_real_redis_loads_the_log_and_a_worker_on_it_delivers_the_rest() {
    const MESSAGES: usize = 60;
    for binary in binaries() {
        let (_home, path) = directory();
        let receiver = Receiver::always(Answer::ok());
        let broken = Receiver::always(Answer::status(500));
        let hanging = Receiver::answering(vec![Answer::hang(), Answer::ok()]);
        let env = [("HOOKSTASH_LEASE", "2s"), ("HOOKSTASH_RENEW", "500ms")];
        let mut program = Program::dev(&["--data-dir", &path], &env).await;
        let none = [("Upstash-Retries", "0")];
        program.publish(&broken.url("/"), &none, "dead").await;
        let dead = program.wait_for_dead(1).await;
        program.publish(&hanging.url("/"), &none, "held").await;
        hanging.wait_for(1, SOON).await;
        let delay = [("Upstash-Delay", "20s")];
        let mut accepted = BTreeSet::new();
        for number in 0..MESSAGES {
            let body = format!("{number} \r\n*1\r\n$4\r\nEXEC\r\n");
            let id = program.publish(&receiver.url("/"), &delay, body).await;
            accepted.insert(id);
        }
        program.process.kill9();
        assert_eq!(receiver.count(), 0);

        // The log is the whole of what a Redis needs.
        let redis = RedisServer::start_with(RedisOptions {
            appendfsync: Some("everysec"),
            log: Some(log_of(&path)),
            binary: Some(binary.clone()),
            ..RedisOptions::default()
        });
        let server = Program::serve(&redis, &[]).await;
        assert_eq!(server.dead().await, dead, "{}", redis.log());
        // It was being delivered: its lease ends, and it comes back.
        hanging.wait_for(2, SOON).await;
        wait_for_all(&receiver, &accepted).await;
        let texts: BTreeSet<_> = receiver
            .received()
            .iter()
            .map(|one| one.body.clone())
            .collect();
        assert_eq!(texts.len(), MESSAGES, "{}", binary.display());
        server.publish(&receiver.url("/"), &[], "new").await;
        receiver.wait_for(MESSAGES + 1, SOON).await;
    }
}

/// `hookstash serve` in the directory `path`.
async fn serve(path: &str, env: &[(&str, &str)]) -> Program {
    let usual = [
        ("QSTASH_TOKEN", TOKEN),
        ("HOOKSTASH_EGRESS_ALLOW", "loopback"),
        ("HOOKSTASH_DATA_DIR", path),
    ];
    let process = Process::start(
        &["serve", "--listen", "127.0.0.1:0"],
        &[&usual, env].concat(),
    );
    let line = process.wait_for_line("ready address=", SOON).await;
    let address = line.split("address=").nth(1).unwrap();
    let address = address.split(' ').next().unwrap();
    let program = Program::at(process, format!("http://{address}"), TOKEN);
    program.wait_until_ready().await;
    program
}

#[tokio::test]
async fn serve_needs_no_redis_with_a_directory_and_goes_on_where_it_ended() {
    let (_home, path) = directory();
    let receiver = Receiver::always(Answer::ok());
    let mut program = serve(&path, &[("HOOKSTASH_DATA_SYNC", "always")]).await;
    program.publish(&receiver.url("/"), &[], "now").await;
    receiver.wait_for(1, SOON).await;
    let later = [("Upstash-Delay", "3s")];
    program.publish(&receiver.url("/"), &later, "later").await;
    program.process.signal("TERM");
    assert_eq!(program.process.wait_exit(SOON).await.code(), Some(0));
    let again = serve(&path, &[]).await;
    assert_eq!(receiver.wait_for(2, SOON).await[1].text(), "later");
    let (status, answer) = again.readyz().await;
    assert_eq!((status, answer), (200, json!({"status": "ready"})));
}

#[tokio::test]
async fn a_directory_belongs_to_one_process_at_a_time() {
    let (_home, path) = directory();
    let first = Program::dev(&["--data-dir", &path], &[]).await;
    let second = finish(&["dev", "--port", "0", "--data-dir", &path], &[]).await;
    assert_eq!(second.code, 1);
    for text in ["another process uses", &*path, "choose another directory"] {
        assert!(second.stderr.contains(text), "{}", second.stderr);
    }
    let receiver = Receiver::always(Answer::ok());
    first.publish(&receiver.url("/"), &[], "x").await;
    receiver.wait_for(1, SOON).await;
}

#[tokio::test]
async fn dev_tells_where_the_store_is() {
    let (_home, path) = directory();
    let program = Program::dev(&["--data-dir", &path], &[]).await;
    let told = program.process.wait_for_line("The store is in", SOON).await;
    assert!(
        told.contains(&path) && told.contains("every second"),
        "{told}"
    );
    let all = program.process.lines().join("\n");
    assert!(!all.contains("LOST"), "{all}");
    drop(program);
    let args = ["--data-dir", &path, "--data-sync", "always"];
    let program = Program::dev(&args, &[]).await;
    program
        .process
        .wait_for_line("before every answer", SOON)
        .await;
}

#[tokio::test]
async fn a_torn_end_is_dropped_with_a_warning_and_damage_stops_the_start_untouched() {
    let (_home, path) = directory();
    let receiver = Receiver::always(Answer::ok());
    let later = [("Upstash-Delay", "4s")];
    let mut program = Program::dev(&["--data-dir", &path], &[]).await;
    program.publish(&receiver.url("/"), &later, "later").await;
    program.process.kill9();
    let log = std::fs::read(log_of(&path)).unwrap();

    let damaged =
        String::from_utf8_lossy(&log).replacen("*1\r\n$5\r\nMULTI", "*1\r\n$6\r\nMULTI", 1);
    std::fs::write(log_of(&path), &damaged).unwrap();
    let finished = finish(&["dev", "--port", "0", "--data-dir", &path], &[]).await;
    assert_eq!(finished.code, 1);
    for text in ["is damaged at byte", "appendonly.aof", "truncate -s"] {
        assert!(finished.stderr.contains(text), "{}", finished.stderr);
    }
    assert_eq!(std::fs::read(log_of(&path)).unwrap(), damaged.as_bytes());

    let torn = [&log[..], b"*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL"].concat();
    std::fs::write(log_of(&path), &torn).unwrap();
    let program = Program::dev(&["--data-dir", &path], &[]).await;
    let told = program
        .process
        .wait_for_line("middle of a write", SOON)
        .await;
    assert!(told.contains("dropped_bytes=26"), "{told}");
    assert_eq!(receiver.wait_for(1, SOON).await[0].text(), "later");
}
