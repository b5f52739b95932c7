//! Starting the program: what it prints, what it refuses, and how it says so.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use hookstash_shared::signing::{Receiver as Verifier, SigningKeys};
use serde_json::json;

use crate::support::process::Process;
use crate::support::program::{Program, SOON, TOKEN, exported, finish};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::{RedisOptions, RedisServer, free_port};

const CANARY: &str = "canary7kYjw48mhY7kAjqNGcy6cr29RJ6r";

fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

#[tokio::test]
async fn dev_prints_the_lines_to_paste_and_serves_what_they_say() {
    let program = Program::dev(&[], &[]).await;
    let keys = [
        exported(&program.process, "QSTASH_CURRENT_SIGNING_KEY").await,
        exported(&program.process, "QSTASH_NEXT_SIGNING_KEY").await,
    ];
    program
        .process
        .wait_for_line("EVERYTHING IS LOST", SOON)
        .await;
    assert!(
        program.base.starts_with("http://127.0.0.1:"),
        "{}",
        program.base
    );
    assert_eq!(
        program.call("GET", "/v2/keys").await.1,
        json!({"current": keys[0], "next": keys[1]})
    );

    let receiver = Receiver::always(Answer::ok());
    let url = receiver.url("/hook?a=1");
    program.publish(&url, &[], "wörld 🚀").await;
    let requests = receiver.wait_for(1, SOON).await.remove(0);
    assert_eq!(requests.text(), "wörld 🚀");
    let keys = SigningKeys::from_settings(Some(&keys[0]), Some(&keys[1])).unwrap();
    let verifier = Verifier::new(keys.as_ref(), None, Duration::ZERO);
    let signature = requests.header("Upstash-Signature").expect("a signature");
    verifier
        .verify_qstash(signature, &requests.body, Some(&url), now_s())
        .expect("verified");
}

#[tokio::test]
async fn dev_keeps_its_messages_on_redis_over_a_restart() {
    let redis = RedisServer::start_durable();
    let url = redis.url();
    let receiver = Receiver::always(Answer::ok());
    let mut program = Program::dev(&["--redis-url", &url], &[]).await;
    program
        .publish(&receiver.url("/"), &[("Upstash-Delay", "2s")], "later")
        .await;
    program.process.kill9();
    let _again = Program::dev(&["--redis-url", &url], &[]).await;
    assert_eq!(receiver.wait_for(1, SOON).await[0].text(), "later");
}

#[tokio::test]
async fn dev_does_not_show_a_token_of_ones_own() {
    let process = Process::start(&["dev", "--port", "0"], &[("QSTASH_TOKEN", CANARY)]);
    process
        .wait_for_line("# QSTASH_TOKEN: as you set it here", SOON)
        .await;
    assert!(!process.lines().join("\n").contains(CANARY));
}

#[tokio::test]
async fn dev_listens_on_loopback_only() {
    for (args, env) in [
        (vec!["dev", "--listen", "0.0.0.0:0"], vec![]),
        (vec!["dev"], vec![("HOOKSTASH_LISTEN", "[::]:0")]),
        (vec!["dev"], vec![("HOOKSTASH_LISTEN", "192.0.2.1:80")]),
    ] {
        let finished = finish(&args, &env).await;
        assert_eq!(finished.code, 2, "{args:?}");
        assert!(
            finished.stderr.contains("listens on loopback only"),
            "{}",
            finished.stderr
        );
    }
}

#[tokio::test]
async fn a_directory_that_would_not_be_used_stops_the_start() {
    let (redis, dir, sync) = (
        "HOOKSTASH_REDIS_URL",
        "HOOKSTASH_DATA_DIR",
        "HOOKSTASH_DATA_SYNC",
    );
    let usual = "REDIS_URL";
    let url = "redis://127.0.0.1:1";
    for (command, env, told) in [
        ("dev", vec![(redis, url), (dir, "/none")], "unset one"),
        ("serve", vec![(redis, url), (dir, "/none")], "unset one"),
        ("serve", vec![(usual, url), (dir, "/none")], "unset one"),
        ("api", vec![(dir, "/none")], "share a Redis"),
        ("worker", vec![(dir, "/none")], "share a Redis"),
        (
            "dev",
            vec![(dir, "/none"), (sync, "often")],
            "everysec, always",
        ),
        ("dev", vec![(sync, "always")], "give --data-dir"),
        (
            "serve",
            vec![(usual, url), (sync, "always")],
            "give --data-dir",
        ),
        ("dev", vec![(dir, " ")], "is blank"),
    ] {
        let all = [vec![("QSTASH_TOKEN", TOKEN)], env.clone()].concat();
        let finished = finish(&[command], &all).await;
        assert_eq!(finished.code, 2, "{command} {env:?}");
        assert!(
            finished.stderr.contains(told),
            "{env:?} {}",
            finished.stderr
        );
    }
    assert!(!std::path::Path::new("/none").exists());
}

#[tokio::test]
async fn the_demo_keeps_every_promise() {
    let finished = finish(
        &["demo"],
        &[("HOOKSTASH_NONSENSE", "1"), ("QSTASH_TOKEN", "")],
    )
    .await;
    assert_eq!(finished.code, 0, "{}{}", finished.stdout, finished.stderr);
    for part in [
        "4 of 4 promises kept",
        "6 of 6 events",
        "11 of 11 requests",
        "dead letter",
        "✓",
    ] {
        assert!(
            finished.stdout.contains(part),
            "{part}: {}",
            finished.stdout
        );
    }
    assert!(!finished.stdout.contains('✗') && !finished.stdout.contains("NOT VERIFY"));
    assert_eq!(finished.stderr, "");
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_failure() {
    let program = env!("CARGO_BIN_EXE_hookstash");
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" demo | head -n 1", program]);
    let output = command.output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[tokio::test]
async fn an_unknown_setting_stops_the_start_and_names_the_closest() {
    for command in ["dev", "serve", "api", "worker"] {
        let env = [("HOOKSTASH_DATADIR", CANARY), ("QSTASH_TOKEN", TOKEN)];
        let finished = finish(&[command], &env).await;
        assert_eq!(finished.code, 2, "{command}");
        let text =
            "HOOKSTASH_DATADIR is not a setting of Hookstash: did you mean HOOKSTASH_DATA_DIR?";
        assert!(finished.stderr.contains(text), "{}", finished.stderr);
        assert!(!finished.stderr.contains(CANARY));
    }
}

#[tokio::test]
async fn variables_of_kubernetes_do_not_stop_the_start() {
    let env = [
        ("HOOKSTASH_SERVICE_HOST", "10.0.0.1"),
        ("HOOKSTASH_SERVICE_PORT_HTTP", "80"),
        ("HOOKSTASH_PORT", "tcp://10.0.0.1:80"),
        ("HOOKSTASH_REDIS_PORT_6379_TCP_ADDR", "10.0.0.2"),
    ];
    let program = Program::dev(&[], &env).await;
    assert_eq!(program.call("GET", "/healthz").await.0, 200);
}

#[tokio::test]
async fn s10_a_blank_or_halved_signing_key_stops_the_start_without_its_value() {
    let (current, next) = ("QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY");
    let secret = "HOOKSTASH_WEBHOOK_SECRET";
    for (env, named) in [
        (vec![(current, ""), (next, CANARY)], current),
        (vec![(current, CANARY), (next, "  ")], next),
        (vec![(current, CANARY)], next),
        (vec![(current, "canary-short"), (next, CANARY)], current),
        (
            vec![(current, CANARY), (next, CANARY), (secret, "")],
            secret,
        ),
        (
            vec![(current, CANARY), (next, CANARY), (secret, CANARY)],
            secret,
        ),
        (
            vec![(secret, "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")],
            secret,
        ),
        (vec![("QSTASH_TOKEN", " ")], "QSTASH_TOKEN"),
        (
            vec![("HOOKSTASH_REDIS_URL", "redis://:canary-pw#x@h")],
            "HOOKSTASH_REDIS_URL",
        ),
        (
            vec![("HOOKSTASH_EGRESS_ALLOW", "canary/99")],
            "HOOKSTASH_EGRESS_ALLOW",
        ),
        (
            vec![("HOOKSTASH_PUBLISH_REPLICAS", "17")],
            "HOOKSTASH_PUBLISH_REPLICAS",
        ),
    ] {
        for command in ["serve", "api"] {
            let usual = vec![
                ("QSTASH_TOKEN", TOKEN),
                ("REDIS_URL", "redis://127.0.0.1:9"),
            ];
            let all = [usual, env.clone()].concat();
            let finished = finish(&[command], &all).await;
            assert_eq!(finished.code, 2, "{env:?}");
            let text = finished.stdout + &finished.stderr;
            assert!(text.contains(named), "{env:?}: {text}");
            assert!(!text.contains("canary"), "{env:?}: {text}");
            assert!(
                !text.contains("panicked") && !text.contains("backtrace"),
                "{text}"
            );
        }
    }
}

#[tokio::test]
async fn servers_say_what_they_miss() {
    for command in ["serve", "api"] {
        let finished = finish(&[command, "--redis-url", "redis://127.0.0.1:9"], &[]).await;
        assert_eq!(finished.code, 2);
        assert!(
            finished.stderr.contains("QSTASH_TOKEN is required"),
            "{}",
            finished.stderr
        );
    }
    for command in ["serve", "api", "worker"] {
        let finished = finish(&[command], &[("QSTASH_TOKEN", TOKEN)]).await;
        assert_eq!(finished.code, 2);
        assert!(
            finished.stderr.contains("HOOKSTASH_REDIS_URL is required"),
            "{}",
            finished.stderr
        );
    }
    let finished = finish(
        &["dev", "--port", "0", "--redis-url", "redis://127.0.0.1:9"],
        &[],
    )
    .await;
    assert_eq!(finished.code, 1);
    assert!(
        finished.stderr.contains("127.0.0.1:9"),
        "{}",
        finished.stderr
    );
}

#[tokio::test]
async fn a_port_in_use_is_said_plainly() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let finished = finish(&["dev", "--listen", &address], &[]).await;
    assert_eq!(finished.code, 1);
    let text = format!("cannot listen on {address}: another program has the port");
    assert!(finished.stderr.contains(&text), "{}", finished.stderr);
}

#[tokio::test]
async fn a_server_waits_for_its_redis_and_says_so() {
    let port = free_port();
    let env = [
        ("QSTASH_TOKEN", TOKEN),
        ("REDIS_URL", &*format!("redis://127.0.0.1:{port}")),
        ("HOOKSTASH_EGRESS_ALLOW", "loopback"),
    ];
    let listen = format!("127.0.0.1:{}", free_port());
    let process = Process::start(&["serve", "--listen", &listen], &env);
    process
        .wait_for_line("the store cannot be opened", SOON)
        .await;
    let program = Program::at(process, format!("http://{listen}"), TOKEN);
    assert_eq!(program.call("GET", "/healthz").await.0, 200);
    let (status, answer) = program.readyz().await;
    assert_eq!(
        (status, &answer["notReady"][0]["part"]),
        (503, &json!("store")),
        "{answer}"
    );
    let receiver = Receiver::always(Answer::ok());
    assert_eq!(
        program
            .publishing(&receiver.url("/"))
            .send()
            .await
            .unwrap()
            .status(),
        503
    );

    let _redis = RedisServer::start_with(RedisOptions {
        port: Some(port),
        ..RedisOptions::default()
    });
    program.wait_until_ready().await;
    program.publish(&receiver.url("/"), &[], "now").await;
    assert_eq!(receiver.wait_for(1, SOON).await[0].text(), "now");
}

#[tokio::test]
async fn another_number_of_shards_delivers_nothing_and_is_not_ready() {
    let redis = RedisServer::start();
    let one = Program::serve(&redis, &[("HOOKSTASH_SHARDS", "2")]).await;
    let url = redis.url();
    let env = [
        ("REDIS_URL", &*url),
        ("HOOKSTASH_SHARDS", "3"),
        ("HOOKSTASH_EGRESS_ALLOW", "loopback"),
    ];
    let listen = format!("127.0.0.1:{}", free_port());
    let process = Process::start(&["worker", "--listen", &listen], &env);
    process
        .wait_for_line("HOOKSTASH_SHARDS is not the number", SOON)
        .await;
    process.wait_for_line("ready address=", SOON).await;
    let other = Program::at(process, format!("http://{listen}"), TOKEN);
    let (status, answer) = other.readyz().await;
    assert_eq!(status, 503, "{answer}");
    assert!(answer.to_string().contains("HOOKSTASH_SHARDS"), "{answer}");
    assert_eq!(one.readyz().await.0, 200);
    drop(one);

    let front = Program::role("api", &redis, &[]).await;
    let receiver = Receiver::always(Answer::ok());
    front.publish(&receiver.url("/"), &[], "x").await;
    receiver
        .expect_no_more_than(0, Duration::from_secs(2))
        .await;
    let _worker = Program::worker(&redis, &[]).await;
    receiver.wait_for(1, SOON).await;
}

#[tokio::test]
async fn dev_answers_no_web_page_because_its_credentials_are_public() {
    let program = Program::dev(&[], &[]).await;
    let keys = format!("{}/v2/keys", program.base);
    let client = reqwest::Client::new();
    let ask = || client.get(&keys).bearer_auth(TOKEN);
    for (name, value) in [
        ("Origin", "https://evil.example"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Host", "rebound.evil.example"),
    ] {
        let refused = ask().header(name, value).send().await.unwrap();
        assert_eq!(refused.status(), 403, "{name}");
    }
    assert_ne!(ask().send().await.unwrap().status(), 403);
}

#[tokio::test]
async fn dev_does_not_join_the_redis_that_an_application_uses() {
    let redis = RedisServer::start();
    let url = redis.url();
    let program = Program::dev(&[], &[("REDIS_URL", &url)]).await;
    program
        .process
        .wait_for_line("EVERYTHING IS LOST", SOON)
        .await;
}

#[tokio::test]
async fn the_public_token_is_refused_where_others_can_reach_it() {
    let public = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";
    for role in ["serve", "api"] {
        let args = [
            role,
            "--redis-url",
            "redis://127.0.0.1:1",
            "--listen",
            "0.0.0.0:0",
        ];
        let finished = finish(&args, &[("QSTASH_TOKEN", public)]).await;
        assert_eq!(finished.code, 2, "{}", finished.stderr);
        assert!(
            finished.stderr.contains("QSTASH_TOKEN"),
            "{}",
            finished.stderr
        );
        assert!(!finished.stderr.contains(public));
    }
}

#[tokio::test]
async fn replicas_of_a_store_that_has_none_are_refused() {
    let finished = finish(&["dev", "--publish-replicas", "1"], &[]).await;
    assert_eq!(finished.code, 2, "{}", finished.stderr);
    assert!(
        finished.stderr.contains("HOOKSTASH_PUBLISH_REPLICAS")
            && finished.stderr.contains("--redis-url"),
        "{}",
        finished.stderr
    );
}
