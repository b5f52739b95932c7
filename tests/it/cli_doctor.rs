//! `hookstash doctor` against real servers, good and bad ones.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::program::{Finished, Program, TOKEN, finish};
use crate::support::redis::{RedisOptions, RedisServer, binaries};

const SECRET: (&str, &str) = (
    "HOOKSTASH_SECRET_KEY",
    "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
);

async fn doctor(url: &str, env: &[(&str, &str)]) -> (i32, Value) {
    let usual = [("REDIS_URL", url), ("QSTASH_TOKEN", TOKEN)];
    let finished = finish(&["doctor", "-o", "json"], &[&usual[..], env].concat()).await;
    (finished.code, parsed(&finished))
}

fn parsed(finished: &Finished) -> Value {
    let parsed = serde_json::from_str(&finished.stdout);
    parsed.unwrap_or_else(|_| panic!("{}{}", finished.stdout, finished.stderr))
}

/// The worst level of a check, with all that is said of it.
fn of<'a>(answer: &'a Value, check: &str) -> (&'a str, String) {
    let checks = answer["checks"].as_array().unwrap();
    let found: Vec<&Value> = checks.iter().filter(|one| one["check"] == check).collect();
    let levels = ["fail", "warn", "ok"];
    let level = levels
        .iter()
        .find(|level| found.iter().any(|one| one["level"] == **level));
    let text: Vec<String> = found.iter().map(ToString::to_string).collect();
    (
        level.unwrap_or_else(|| panic!("{check} is missing: {answer}")),
        text.join("\n"),
    )
}

#[tokio::test]
async fn a_good_installation_is_all_ok() {
    for binary in binaries() {
        let redis = RedisServer::start_with(RedisOptions {
            appendfsync: Some("everysec"),
            binary: Some(binary),
            ..RedisOptions::default()
        });
        let _program = Program::serve(&redis, &[SECRET]).await;
        let (code, answer) = doctor(&redis.url(), &[SECRET]).await;
        assert_eq!((code, &answer["ok"]), (0, &Value::Bool(true)), "{answer}");
        for check in [
            "store",
            "version",
            "persistence",
            "eviction",
            "write",
            "clock",
            "shards",
            "keys",
            "workers",
            "token",
            "egress",
            "descriptors",
        ] {
            let (level, text) = of(&answer, check);
            assert_eq!(level, "ok", "{text}");
        }
        let env = [
            ("REDIS_URL", &*redis.url()),
            ("QSTASH_TOKEN", TOKEN),
            SECRET,
        ];
        let lines = finish(&["doctor"], &env).await;
        assert_eq!(lines.code, 0);
        assert!(lines.stdout.contains("0 failed"), "{}", lines.stdout);
        assert!(!lines.stdout.contains(SECRET.1) && !lines.stdout.contains(TOKEN));
    }
}

#[tokio::test]
async fn a_new_store_is_looked_at_and_not_changed() {
    let redis = RedisServer::start();
    let (code, answer) = doctor(&redis.url(), &[]).await;
    assert_eq!(code, 0, "{answer}");
    for check in ["persistence", "keys", "workers"] {
        let (level, text) = of(&answer, check);
        assert!(level == "warn" && text.contains("advice"), "{text}");
    }
    assert_eq!(
        redis.cli::<Vec<String>>(&["KEYS", "*"]),
        Vec::<String>::new()
    );
}

#[tokio::test]
async fn f17_every_eviction_policy_but_noeviction_is_loud_in_doctor_and_log() {
    for policy in [
        "noeviction",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        let redis = RedisServer::start_with(RedisOptions {
            extra: vec!["--maxmemory-policy".to_owned(), policy.to_owned()],
            ..RedisOptions::default()
        });
        let (code, answer) = doctor(&redis.url(), &[]).await;
        let (level, text) = of(&answer, "eviction");
        let program = Program::role("api", &redis, &[]).await;
        let log = program.process.lines().join("\n");
        let is_warned = log.contains("set maxmemory-policy to noeviction");
        if policy == "noeviction" {
            assert_eq!((code, level, is_warned), (0, "ok", false), "{text}\n{log}");
        } else {
            assert_eq!((code, level, is_warned), (1, "fail", true), "{text}\n{log}");
            assert!(
                text.contains(policy) && text.contains("noeviction"),
                "{text}"
            );
            assert!(log.contains(policy), "{log}");
        }
    }
}

#[tokio::test]
async fn f17_a_blocked_config_or_info_is_tolerated_with_a_note() {
    let redis = RedisServer::start_durable();
    let rules = ["on", ">secret", "~*", "&*", "+@all", "-config"];
    for (user, extra, level) in [("noconfig", None, "ok"), ("noinfo", Some("-info"), "warn")] {
        let words = [&["ACL", "SETUSER", user][..], &rules, extra.as_slice()].concat();
        redis.cli::<()>(&words);
        let url = format!("redis://{user}:secret@127.0.0.1:{}", redis.port());
        let (code, answer) = doctor(&url, &[]).await;
        assert_eq!(code, 0, "{answer}");
        for check in ["eviction", "persistence"] {
            let (found, text) = of(&answer, check);
            assert_eq!(found, level, "{user}: {text}");
            assert!(!text.contains("secret"), "{text}");
        }
        assert!(of(&answer, "persistence").1.contains("not"), "{answer}");
        let env = [("HOOKSTASH_REDIS_URL", &*url)];
        let program = Program::role("api", &redis, &env).await;
        let log = program.process.lines().join("\n");
        assert_eq!(
            log.contains("does not tell its maxmemory-policy"),
            user == "noinfo",
            "{log}"
        );
    }
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_fails_within_ten_seconds() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let locked = RedisServer::start_with(RedisOptions {
        requirepass: Some("right".to_owned()),
        ..RedisOptions::default()
    });
    for url in [
        "redis://127.0.0.1:9".to_owned(),
        format!("redis://:wrongpw@{}", locked.addr()),
        format!("redis://:hushhush@{}", silent.local_addr().unwrap()),
        "redis://does-not-exist.invalid".to_owned(),
    ] {
        let start = Instant::now();
        let (code, answer) = doctor(&url, &[]).await;
        assert!(
            start.elapsed() < Duration::from_secs(15),
            "{url}: {:?}",
            start.elapsed()
        );
        assert_eq!(
            (code, of(&answer, "store").0),
            (1, "fail"),
            "{url}: {answer}"
        );
        let text = answer.to_string();
        assert!(
            !text.contains("wrongpw") && !text.contains("hushhush"),
            "{text}"
        );
    }
    let finished = finish(&["doctor"], &[("QSTASH_TOKEN", TOKEN)]).await;
    assert_eq!(finished.code, 1);
    assert!(
        finished.stdout.contains("HOOKSTASH_REDIS_URL is not set"),
        "{}",
        finished.stdout
    );
    let finished = finish(&["doctor", "--redis-url", "http://h"], &[]).await;
    assert_eq!(finished.code, 2, "{}", finished.stderr);
}

#[tokio::test]
async fn what_stops_messages_is_a_failure_with_advice() {
    let redis = RedisServer::start();
    drop(Program::role("api", &redis, &[SECRET, ("HOOKSTASH_SHARDS", "2")]).await);
    let (code, answer) = doctor(&redis.url(), &[("HOOKSTASH_SHARDS", "3")]).await;
    assert_eq!(code, 1);
    for check in ["shards", "keys"] {
        let (level, text) = of(&answer, check);
        assert!(level == "fail" && text.contains("advice"), "{text}");
    }
    assert_eq!(of(&doctor(&redis.url(), &[SECRET]).await.1, "keys").0, "ok");

    redis.cli::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    let (code, answer) = doctor(&redis.url(), &[SECRET]).await;
    assert_eq!((code, of(&answer, "write").0), (1, "fail"), "{answer}");
    redis.cli::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    redis.cli::<()>(&["REPLICAOF", "127.0.0.1", "9"]);
    let (code, answer) = doctor(&redis.url(), &[SECRET]).await;
    assert_eq!(
        (code, of(&answer, "role").0, of(&answer, "write").0),
        (1, "fail", "fail"),
        "{answer}"
    );
}
