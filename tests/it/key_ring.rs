//! Signing keys that are stored: made once, rotated for all processes, never in clear.

use std::time::Duration;

use hookstash_shared::signing::{Receiver as Verifier, SigningKeys};
use serde_json::Value;
use tokio::time::Instant;

use crate::support::process::Process;
use crate::support::program::{Program, SOON, TOKEN, finish};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::{RedisOptions, RedisServer, free_port};

const SECRET: (&str, &str) = (
    "HOOKSTASH_SECRET_KEY",
    "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
);
const OTHER: (&str, &str) = (
    "HOOKSTASH_SECRET_KEY",
    "MTEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
);
const CURRENT: (&str, &str) = (
    "QSTASH_CURRENT_SIGNING_KEY",
    "sig_environmentAAAAAAAAAAAAAAAAA",
);
const NEXT: (&str, &str) = (
    "QSTASH_NEXT_SIGNING_KEY",
    "sig_environmentBBBBBBBBBBBBBBBBB",
);

async fn keys(program: &Program) -> [String; 2] {
    let (status, answer) = program.call("GET", "/v2/keys").await;
    assert_eq!(status, 200, "{answer}");
    pair(&answer)
}

fn pair(answer: &Value) -> [String; 2] {
    ["current", "next"].map(|name| {
        answer[name]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"))
            .to_owned()
    })
}

async fn rotate(program: &Program) -> [String; 2] {
    let (status, answer) = program.call("POST", "/v2/keys/rotate").await;
    assert_eq!(status, 200, "{answer}");
    pair(&answer)
}

fn now_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

/// Whether a delivery to `url` verifies with exactly this current key.
fn is_signed_with(request: &crate::support::receiver::Received, current: &str) -> bool {
    let keys = SigningKeys::from_settings(Some(current), Some(current)).unwrap();
    let verifier = Verifier::new(keys.as_ref(), None, Duration::from_mins(1));
    let signature = request.header("Upstash-Signature").expect("a signature");
    verifier
        .verify_qstash(signature, &request.body, None, now_s())
        .is_ok()
}

/// Everything in Redis and on its disk.
fn stored(redis: &RedisServer) -> Vec<u8> {
    let meta: Vec<Vec<u8>> = redis.cli(&["HGETALL", "hs:meta"]);
    let mut all = meta.concat();
    let files = std::fs::read_dir(redis.dir()).unwrap();
    let mut dirs: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    while let Some(path) = dirs.pop() {
        if path.is_dir() {
            dirs.extend(
                std::fs::read_dir(path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else {
            all.extend(std::fs::read(path).unwrap());
        }
    }
    all
}

#[tokio::test]
async fn a_rotation_reaches_every_process_within_five_seconds_and_is_stored_encrypted() {
    let redis = RedisServer::start_with(RedisOptions {
        appendfsync: Some("always"),
        ..RedisOptions::default()
    });
    let loud = [SECRET, ("HOOKSTASH_LOG", "trace")];
    let [mut one, two] = [
        Program::role("api", &redis, &loud).await,
        Program::role("api", &redis, &loud).await,
    ];
    let worker = Program::worker(&redis, &loud).await;
    let first = keys(&one).await;
    assert_eq!(keys(&two).await, first, "the ring is made once");
    for key in &first {
        assert_eq!((key.len(), &key[..4]), (32, "sig_"));
    }
    let receiver = Receiver::always(Answer::ok());
    two.publish(&receiver.url("/"), &[], "x").await;
    assert!(is_signed_with(
        &receiver.wait_for(1, SOON).await[0],
        &first[0]
    ));

    let second = rotate(&one).await;
    let rotated = Instant::now();
    assert_eq!(second[0], first[1], "next becomes current");
    assert_eq!(keys(&one).await, second);
    while keys(&two).await != second {
        assert!(
            rotated.elapsed() < Duration::from_secs(5) + SOON,
            "it is learnt in time"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    worker
        .wait_for_line("have changed and are used now", SOON)
        .await;
    two.publish(&receiver.url("/"), &[], "y").await;
    assert!(is_signed_with(
        &receiver.wait_for(2, SOON).await[1],
        &second[0]
    ));

    // Concurrent rotations: both apply, one after the other.
    let (third, fourth) = tokio::join!(rotate(&one), rotate(&two));
    assert_ne!(third, fourth);
    let (before, after) = if third[0] == second[1] {
        (third, fourth)
    } else {
        (fourth, third)
    };
    assert_eq!(
        (&before[0], &after[0]),
        (&second[1], &before[1]),
        "no key is lost"
    );

    // A restart keeps them.
    one.process.kill9();
    let again = Program::role("api", &redis, &loud).await;
    assert_eq!(keys(&again).await, after);
    let everything = stored(&redis);
    let logs = [&one.process, &two.process, &worker, &again.process]
        .map(|process| process.lines().join("\n"));
    for key in [&first, &second, &before, &after].into_iter().flatten() {
        assert!(
            !everything
                .windows(key.len())
                .any(|part| part == key.as_bytes()),
            "{key} is stored"
        );
        assert!(
            logs.iter().all(|log| !log.contains(&key[4..])),
            "{key} is logged"
        );
    }
    let secret = SECRET.1;
    assert!(
        !everything
            .windows(secret.len())
            .any(|part| part == secret.as_bytes())
    );
    assert!(logs.iter().all(|log| !log.contains(secret)));
}

#[tokio::test]
async fn a_rotation_that_cannot_be_is_a_409_that_says_why() {
    let redis = RedisServer::start();
    for (env, named) in [
        (vec![CURRENT, NEXT], "QSTASH_CURRENT_SIGNING_KEY"),
        (vec![CURRENT, NEXT, SECRET], "QSTASH_NEXT_SIGNING_KEY"),
        (vec![], "HOOKSTASH_SECRET_KEY"),
    ] {
        let program = Program::role("api", &redis, &env).await;
        for path in ["/v2/keys/rotate", "/v2/rotate"] {
            let (status, answer) = program.call("POST", path).await;
            assert_eq!(status, 409, "{answer}");
            assert!(
                answer["error"].as_str().unwrap().contains(named),
                "{answer}"
            );
        }
        let ring: Option<String> = redis.cli(&["HGET", "hs:meta", "keys"]);
        assert_eq!(ring, None, "keys of the environment are never stored");
    }
}

#[tokio::test]
async fn a_stored_ring_wins_over_the_environment_and_the_start_says_so() {
    let redis = RedisServer::start();
    let maker = Program::role("api", &redis, &[SECRET]).await;
    let made = keys(&maker).await;
    drop(maker);
    let program = Program::role("api", &redis, &[CURRENT, NEXT, SECRET]).await;
    program
        .process
        .wait_for_line("stored signing keys are used, not those of", SOON)
        .await;
    assert_eq!(keys(&program).await, made);
    assert_ne!(rotate(&program).await, made);
}

#[tokio::test]
async fn a_wrong_or_missing_secret_key_stops_the_start_and_makes_no_new_ring() {
    let redis = RedisServer::start();
    drop(Program::role("api", &redis, &[SECRET]).await);
    let ring: String = redis.cli(&["HGET", "hs:meta", "keys"]);
    let url = redis.url();
    for role in ["api", "serve", "worker"] {
        for extra in [
            vec![OTHER],
            vec![],
            vec![CURRENT, NEXT],
            vec![CURRENT, NEXT, OTHER],
        ] {
            let env = [vec![("REDIS_URL", &*url), ("QSTASH_TOKEN", TOKEN)], extra].concat();
            let args: &[&str] = if role == "worker" {
                &[role]
            } else {
                &[role, "--listen", "127.0.0.1:0"]
            };
            let finished = finish(args, &env).await;
            assert_eq!(finished.code, 2, "{role}: {}", finished.stderr);
            assert!(
                finished.stderr.contains("HOOKSTASH_SECRET_KEY"),
                "{}",
                finished.stderr
            );
            for secret in [SECRET.1, OTHER.1, CURRENT.1, &ring] {
                assert!(!finished.stderr.contains(secret), "{}", finished.stderr);
            }
        }
    }
    assert_eq!(redis.cli::<String>(&["HGET", "hs:meta", "keys"]), ring);
}

#[tokio::test]
async fn a_store_that_has_lost_the_ring_gets_it_back() {
    let redis = RedisServer::start();
    let program = Program::role("api", &redis, &[SECRET]).await;
    let made = keys(&program).await;
    redis.cli::<()>(&["FLUSHALL"]);
    program
        .process
        .wait_for_line("the store had lost the signing keys", SOON)
        .await;
    drop(program);
    assert_eq!(
        keys(&Program::role("api", &redis, &[SECRET]).await).await,
        made
    );
}

#[tokio::test]
async fn the_development_mode_keeps_its_own_ring_when_it_has_a_secret_key() {
    let listen = free_port().to_string();
    let process = Process::start(&["dev", "--port", &listen], &[SECRET]);
    process
        .wait_for_line("# QSTASH_CURRENT_SIGNING_KEY: `hookstash keys show`", SOON)
        .await;
    let token = "eyJVc2VySUQiOiJkZWZhdWx0VXNlciIsIlBhc3N3b3JkIjoiZGVmYXVsdFBhc3N3b3JkIn0=";
    let program = Program::at(process, format!("http://127.0.0.1:{listen}"), token);
    let made = keys(&program).await;
    assert_ne!(made[0], "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r");
    assert_eq!(rotate(&program).await[0], made[1]);
}
