//! No secret of ours is stored or shown, at the loudest log level either.

use std::path::Path;

use redis::Commands as _;

use crate::support::program::{Program, SOON, read};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::{RedisOptions, RedisServer};

const TOKEN: &str = "canarytokenQ7pX2mN9vB4kL8";
const WRONG_TOKEN: &str = "canarywrongR3tY6uI1oP5aS";
const CURRENT: &str = "sig_canarycurrentD4fG7hJ2kL9";
const NEXT: &str = "sig_canarynextZ8xC5vB1nM3qW6";
const FORWARDED: &str = "canaryforwardedE9rT2yU7iO4p";
/// The second is what the first is after decoding.
const WEBHOOK_SECRET: &str = "whsec_Y2FuYXJ5d2ViaG9va0E1c0Q4Zkc3aEoyazBMcTF4eXo=";
const WEBHOOK_SECRET_BYTES: &str = "canarywebhookA5sD8fG7hJ2k0Lq1xyz";
const REDIS_PASSWORD: &str = "canaryredisW1eR8tY5";

/// What must be nowhere: not in Redis, not in any output.
const OURS: [&str; 7] = [
    TOKEN,
    WRONG_TOKEN,
    CURRENT,
    NEXT,
    WEBHOOK_SECRET,
    WEBHOOK_SECRET_BYTES,
    REDIS_PASSWORD,
];

pub(crate) fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle.as_bytes())
}

/// Every key with its value, as RESTORE would take it back, and the files on disk.
pub(crate) fn everything_in(redis: &RedisServer) -> Vec<(String, Vec<u8>)> {
    let mut connection = redis.connection();
    let keys: Vec<Vec<u8>> = connection.keys("*").unwrap();
    let mut found = Vec::new();
    for key in keys {
        let name = String::from_utf8_lossy(&key).into_owned();
        found.push((format!("key {name}"), key.clone()));
        // Uncompressed, so that what is in it can be found.
        let value: redis::Value = match &*redis::cmd("TYPE")
            .arg(&key)
            .query::<String>(&mut connection)
            .unwrap()
        {
            "string" => redis::cmd("GET").arg(&key).query(&mut connection).unwrap(),
            "hash" => redis::cmd("HGETALL")
                .arg(&key)
                .query(&mut connection)
                .unwrap(),
            "list" => redis::cmd("LRANGE")
                .arg(&key)
                .arg(0)
                .arg(-1)
                .query(&mut connection)
                .unwrap(),
            "zset" => redis::cmd("ZRANGE")
                .arg(&key)
                .arg(0)
                .arg(-1)
                .query(&mut connection)
                .unwrap(),
            "set" => redis::cmd("SMEMBERS")
                .arg(&key)
                .query(&mut connection)
                .unwrap(),
            "stream" => redis::cmd("XRANGE")
                .arg(&key)
                .arg("-")
                .arg("+")
                .query(&mut connection)
                .unwrap(),
            // Expired in between.
            "none" => continue,
            other => panic!("{name} is a {other}"),
        };
        let mut bytes = Vec::new();
        flatten(&value, &mut bytes);
        found.push((format!("value of {name}"), bytes));
    }
    files(redis.dir(), &mut found);
    found
}

fn flatten(value: &redis::Value, into: &mut Vec<u8>) {
    match value {
        redis::Value::BulkString(bytes) => into.extend(bytes),
        redis::Value::Array(values) | redis::Value::Set(values) => {
            for value in values {
                flatten(value, into);
            }
        }
        redis::Value::Map(pairs) => pairs.iter().for_each(|(key, value)| {
            flatten(key, into);
            flatten(value, into);
        }),
        other => into.extend(format!("{other:?}").bytes()),
    }
    into.push(b'\n');
}

fn files(dir: &Path, into: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else {
            into.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
}

async fn misuse(program: &Program, url: &str) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let publish = format!("{}/v2/publish/{url}", program.base);
    let bearer = format!("Bearer {TOKEN}");
    for (request, expected) in [
        (client.post(&publish).bearer_auth(WRONG_TOKEN), 401),
        (
            client.post(format!("{publish}?qstash_token={WRONG_TOKEN}")),
            401,
        ),
        (
            client
                .post(&publish)
                .header("Authorization", format!("Basic {WRONG_TOKEN}")),
            401,
        ),
        (client.post(&publish), 401),
        (
            client.get(format!("{}/v2/keys?qstash_token={TOKEN}", program.base)),
            200,
        ),
        (
            client
                .post(&publish)
                .header("Authorization", &bearer)
                .header("Upstash-Delay", "soon"),
            400,
        ),
        (
            client
                .post(&publish)
                .header("Authorization", &bearer)
                .header("Upstash-Workflow-Init", "true"),
            501,
        ),
        (
            client
                .post(format!("{}/v2/publish/nowhere", program.base))
                .bearer_auth(TOKEN),
            400,
        ),
        (
            client
                .post(format!("{}/v2/nothing/{TOKEN}", program.base))
                .bearer_auth(TOKEN),
            404,
        ),
        (client.put(&publish).bearer_auth(TOKEN), 405),
        (
            client
                .post(format!("{}/v2/keys/rotate", program.base))
                .bearer_auth(TOKEN),
            409,
        ),
    ] {
        let (status, answer) = read(request.body("x")).await;
        assert_eq!(status, expected, "{answer}");
    }
}

#[tokio::test]
async fn canaries_are_neither_stored_nor_shown() {
    let redis = RedisServer::start_with(RedisOptions {
        appendfsync: Some("always"),
        requirepass: Some(REDIS_PASSWORD.to_owned()),
        ..RedisOptions::default()
    });
    let receiver = Receiver::with(|request| match &*request.path {
        "/good" => Answer::ok(),
        "/hang" => Answer::hang(),
        _ => Answer::status(500).header("X-Echo", "no"),
    });
    let env = [
        ("QSTASH_TOKEN", TOKEN),
        ("QSTASH_CURRENT_SIGNING_KEY", CURRENT),
        ("QSTASH_NEXT_SIGNING_KEY", NEXT),
        ("HOOKSTASH_WEBHOOK_SECRET", WEBHOOK_SECRET),
        ("HOOKSTASH_LOG", "trace"),
        ("RUST_BACKTRACE", "1"),
    ];
    let mut program = Program::serve(&redis, &env).await;
    let authorization = format!("Bearer {FORWARDED}");
    let (bad, good, hang) = (
        receiver.url("/bad"),
        receiver.url("/good"),
        receiver.url("/hang"),
    );
    for (url, more) in [
        (&*good, ("Upstash-Retries", "0")),
        (&*bad, ("Upstash-Retries", "1")),
        (&*hang, ("Upstash-Timeout", "300ms")),
        ("https://127.0.0.1:9/refused", ("Upstash-Retries", "1")),
        ("http://does-not-exist.invalid/", ("Upstash-Retries", "0")),
    ] {
        let forwarded = ("Upstash-Forward-Authorization", &*authorization);
        program
            .publish(
                url,
                &[forwarded, ("Upstash-Retry-Delay", "100"), more],
                "{\"a\":1}",
            )
            .await;
    }
    misuse(&program, &good).await;
    for request in receiver.wait_for(2, SOON).await {
        assert_eq!(
            request.header("Authorization"),
            Some(&*authorization),
            "it is forwarded"
        );
        assert!(request.header("webhook-signature").is_some());
    }
    let dead = program.wait_for_dead(4).await;
    program.call("GET", &format!("/v2/dlq/{}", dead[0])).await;
    program
        .call("POST", &format!("/v2/dlq/retry/{}", dead[0]))
        .await;
    program
        .call("DELETE", &format!("/v2/dlq/{}", dead[1]))
        .await;

    let stored = everything_in(&redis);
    let is_stored = |needle| {
        stored
            .iter()
            .filter(|(_, bytes)| contains(bytes, needle))
            .count()
    };
    assert!(
        is_stored(FORWARDED) >= 2,
        "the scan sees what is stored, in Redis and on disk"
    );
    for (place, bytes) in &stored {
        for secret in OURS {
            // Redis itself logs nothing of a login, and its AOF holds no AUTH.
            assert!(!contains(bytes, secret), "{secret} is in {place}");
        }
    }
    program.process.signal("TERM");
    program.process.wait_exit(SOON).await;
    let lines = program.process.lines();
    assert!(
        lines.iter().any(|line| line.contains("TRACE")),
        "the log is as loud as it gets"
    );
    for line in lines {
        for secret in OURS.iter().chain([&FORWARDED]) {
            assert!(!line.contains(secret), "{secret} is logged: {line}");
        }
    }
}
