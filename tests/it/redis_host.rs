//! The Redis host against real servers: order, healing, refusals, waits.

use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hookstash_shared::random::SeededRandom;
use hookstash_shared::store::faulty::{Fault, FaultyHost};
use hookstash_shared::store::host::{Host, HostError, Reply, Step};
use hookstash_shared::store::redis_host::{ConnectError, RedisHost, RedisOptions, RedisUrl};
use hookstash_shared::store::script::Script;
use tracing_subscriber::fmt::MakeWriter;

use crate::support::listen_everywhere;
use crate::support::proxy::Proxy;
use crate::support::redis::{self as server, RedisServer, percent_encoded};
use crate::support::redis_groups::{RedisCluster, RedisSentinel, replica_of, wait_for_copy};

/// Time in which everything must have healed.
const HEAL: Duration = Duration::from_secs(5);

/// Appends `ARGV[1]` to the list `KEYS[1]`.
static PUSH: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "push",
        &["return redis.call('RPUSH', KEYS[1], ARGV[1]) -- it test"],
    )
});
/// Like [`PUSH`], but another script.
static PUSH_TOO: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        "push_too",
        &["redis.call('RPUSH', KEYS[1], ARGV[1]); return {1, false, ARGV[1]}"],
    )
});

fn command(words: &[&str]) -> Step {
    Step::Command(
        words
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect(),
    )
}

fn script(script: &'static Script, key: &str, value: &str) -> Step {
    Step::Script {
        script,
        keys: vec![Bytes::copy_from_slice(key.as_bytes())],
        args: vec![Bytes::copy_from_slice(value.as_bytes())],
    }
}

fn quick() -> RedisOptions {
    RedisOptions {
        connect_timeout: Duration::from_secs(2),
        response_timeout: Duration::from_secs(2),
        ..RedisOptions::default()
    }
}

async fn connect(url: &str) -> RedisHost {
    try_connect(url).await.expect("a connection")
}

async fn try_connect(url: &str) -> Result<RedisHost, ConnectError> {
    RedisHost::connect(&RedisUrl::parse(url)?, quick()).await
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "compared with the result of a step"
)]
fn int(number: i64) -> Result<Reply, HostError> {
    Ok(Reply::Int(number))
}

fn bytes(text: &str) -> Reply {
    Reply::Bytes(Bytes::copy_from_slice(text.as_bytes()))
}

/// Repeats `step` until it succeeds; panics after [`HEAL`] and when an attempt takes longer.
async fn heal(host: &RedisHost, step: Step) -> Reply {
    let start = Instant::now();
    loop {
        let mut results = tokio::time::timeout(HEAL, host.run(vec![step.clone()]))
            .await
            .expect("an answer in time");
        match results.remove(0) {
            Ok(reply) => return reply,
            Err(HostError::Fault(text)) => panic!("{text}"),
            Err(error) => assert!(start.elapsed() < HEAL, "not healed: {error}"),
        }
    }
}

#[tokio::test]
async fn answers_come_in_the_order_and_the_types_of_resp2() {
    let redis = RedisServer::start();
    let host = connect(&redis.url()).await;
    let raw = Bytes::from_static(b"\x00\xff\r\n");
    let results = host
        .run(vec![
            command(&["SET", "{0}a", "1"]),
            Step::Command(vec![Bytes::from("SET"), Bytes::from("{0}b"), raw.clone()]),
            command(&["INCR", "{0}a"]),
            command(&["NO-SUCH-COMMAND"]),
            Step::Command(vec![]),
            command(&["GET", "{0}none"]),
            command(&["MGET", "{0}a", "{0}none", "{0}b"]),
            command(&["PING"]),
        ])
        .await;
    assert_eq!(results[0], Ok(Reply::Status("OK".to_owned())));
    assert_eq!(results[2], int(2));
    assert!(matches!(results[3], Err(HostError::Fault(_))));
    assert!(matches!(results[4], Err(HostError::Fault(_))));
    assert_eq!(results[5], Ok(Reply::Nil));
    let values = vec![bytes("2"), Reply::Nil, Reply::Bytes(raw)];
    assert_eq!(results[6], Ok(Reply::Array(values)));
    assert_eq!(results[7], Ok(Reply::Status("PONG".to_owned())));
    assert!(host.run(vec![]).await.is_empty());
}

#[tokio::test]
async fn an_unknown_script_in_a_pipeline_does_not_change_the_order() {
    for binary in server::binaries() {
        let redis = RedisServer::start_with(server::RedisOptions {
            binary: Some(binary),
            ..server::RedisOptions::default()
        });
        let host = connect(&redis.url()).await;
        for round in 0..3 {
            // Round 0 knows no script, round 1 knows both, round 2 has forgotten both.
            if round == 2 {
                let () = redis.cli(&["SCRIPT", "FLUSH"]);
            }
            let () = redis.cli(&["DEL", "{0}l"]);
            let results = host
                .run(vec![
                    script(&PUSH, "{0}l", "a"),
                    command(&["RPUSH", "{0}l", "b"]),
                    script(&PUSH_TOO, "{0}l", "c"),
                    script(&PUSH, "{0}l", "d"),
                    script(&PUSH_TOO, "{0}l", "e"),
                ])
                .await;
            assert_eq!(results[0], int(1), "round {round}");
            assert_eq!(results[3], int(4));
            let table = vec![Reply::Int(1), Reply::Nil, bytes("e")];
            assert_eq!(results[4], Ok(Reply::Array(table)));
            let list: Vec<String> = redis.cli(&["LRANGE", "{0}l", "0", "-1"]);
            assert_eq!(list, ["a", "b", "c", "d", "e"]);
        }
    }
}

#[tokio::test]
async fn a_lone_script_goes_by_digest_and_survives_script_flush() {
    let redis = RedisServer::start();
    let host = connect(&redis.url()).await;
    assert_eq!(
        host.run(vec![script(&PUSH, "{0}l", "a")]).await,
        vec![int(1)]
    );
    let evals = |redis: &RedisServer| -> usize {
        let info: String = redis.cli(&["INFO", "commandstats"]);
        let line = info.lines().find(|line| line.starts_with("cmdstat_eval:"));
        let calls = line.and_then(|line| line.split(['=', ',']).nth(1));
        calls.map_or(0, |calls| calls.parse().expect("a number"))
    };
    assert_eq!(evals(&redis), 1);
    host.run(vec![script(&PUSH, "{0}l", "b")]).await;
    assert_eq!(evals(&redis), 1, "a known script is not sent as source");
    let () = redis.cli(&["SCRIPT", "FLUSH"]);
    let steps = vec![command(&["RPUSH", "{0}l", "c"]), script(&PUSH, "{0}l", "d")];
    assert_eq!(host.run(steps).await, vec![int(3), int(4)]);
    assert_eq!(evals(&redis), 2);
}

#[tokio::test]
async fn kill_9_and_restart_heals_within_seconds() {
    let mut redis = RedisServer::start_durable();
    let host = connect(&redis.url()).await;
    host.run(vec![script(&PUSH, "{0}l", "a")]).await;
    for round in 2..5 {
        redis.kill9();
        let start = Instant::now();
        let down = host.run(vec![script(&PUSH, "{0}l", "lost")]).await;
        assert!(
            matches!(
                down[..],
                [Err(HostError::RetryLater(_) | HostError::Lost(_))]
            ),
            "{down:?}"
        );
        assert!(start.elapsed() < HEAL);
        redis.restart();
        assert_eq!(
            heal(&host, script(&PUSH, "{0}l", "b")).await,
            Reply::Int(round)
        );
    }
}

#[tokio::test]
async fn a_restart_while_idle_goes_unnoticed() {
    let mut redis = RedisServer::start_durable();
    let host = connect(&redis.url()).await;
    redis.restart();
    // The task that reads the socket must get a turn to see it closed.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(
        host.run(vec![script(&PUSH, "{0}l", "a")]).await,
        vec![int(1)]
    );
}

#[tokio::test]
async fn f02_waits_and_calls_survive_twenty_rounds_of_kill_and_unblock() {
    let redis = RedisServer::start();
    let host = connect(&redis.url()).await;
    for round in 0..20 {
        let wait = async {
            let start = Instant::now();
            loop {
                match host.wait(Bytes::from("{0}w"), Duration::from_secs(3)).await {
                    Ok(true) => return,
                    Ok(false) | Err(HostError::Lost(_) | HostError::RetryLater(_)) => {}
                    Err(error) => panic!("{error}"),
                }
                assert!(start.elapsed() < HEAL, "round {round} got no token");
            }
        };
        let disturb = async {
            let blocked = blocked_client(&redis).await;
            if round % 2 == 0 {
                let () = redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
            } else {
                let () = redis.cli(&["CLIENT", "UNBLOCK", &blocked, "ERROR"]);
            }
            heal(&host, command(&["LPUSH", "{0}w", "1"])).await;
        };
        tokio::join!(wait, disturb);
    }
}

async fn blocked_client(redis: &RedisServer) -> String {
    let deadline = Instant::now() + HEAL;
    loop {
        let clients: String = redis.cli(&["CLIENT", "LIST"]);
        let blocked = clients.lines().find(|line| line.contains("cmd=blpop"));
        if let Some(line) = blocked.filter(|line| line.contains("flags=b")) {
            let id = line.split(['=', ' ']).nth(1).expect("id=…");
            return id.to_owned();
        }
        assert!(Instant::now() < deadline, "nobody waits: {clients}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn f07_a_demoted_server_is_left_for_the_new_master_behind_the_same_name() {
    let old = RedisServer::start();
    let new = RedisServer::start();
    let proxy = Proxy::to_port(old.port());
    let host = connect(&proxy.redis_url()).await;
    assert_eq!(
        host.run(vec![script(&PUSH, "{0}l", "a")]).await,
        vec![int(1)]
    );
    let port = new.port().to_string();
    let () = old.cli(&["REPLICAOF", "127.0.0.1", &port]);
    let refused = host.run(vec![command(&["SET", "{0}k", "1"])]).await;
    assert!(
        matches!(refused[..], [Err(HostError::RetryLater(_))]),
        "{refused:?}"
    );
    // The name leads to the new master; the old socket, still healthy, is given up.
    proxy.switch_to_port(new.port());
    let first = host.run(vec![command(&["SET", "{0}k", "2"])]).await;
    assert_eq!(first, vec![Ok(Reply::Status("OK".to_owned()))]);
    assert_eq!(new.cli::<String>(&["GET", "{0}k"]), "2");
}

#[tokio::test]
async fn f07_a_wait_leaves_a_demoted_server_too() {
    let old = RedisServer::start();
    let new = RedisServer::start();
    let proxy = Proxy::to_port(old.port());
    let host = connect(&proxy.redis_url()).await;
    let key = Bytes::from("{0}w");
    let waiting = host.wait(key.clone(), Duration::from_secs(30));
    let demoted = async {
        blocked_client(&old).await;
        let port = new.port().to_string();
        let () = old.cli(&["REPLICAOF", "127.0.0.1", &port]);
    };
    let (waited, ()) = tokio::join!(waiting, demoted);
    assert!(
        matches!(waited, Err(HostError::RetryLater(_))),
        "{waited:?}"
    );
    let refused = host.wait(key.clone(), Duration::from_secs(1)).await;
    assert!(
        matches!(refused, Err(HostError::RetryLater(_))),
        "{refused:?}"
    );
    proxy.switch_to_port(new.port());
    let () = new.cli(&["LPUSH", "{0}w", "1"]);
    assert_eq!(host.wait(key, Duration::from_secs(1)).await, Ok(true));
}

#[tokio::test]
async fn f07_scripts_on_a_demoted_server_are_refused_for_now() {
    for binary in server::binaries() {
        let redis = RedisServer::start_with(server::RedisOptions {
            binary: Some(binary),
            ..server::RedisOptions::default()
        });
        let host = connect(&redis.url()).await;
        host.run(vec![script(&PUSH, "{0}l", "a")]).await;
        let nowhere = server::free_port().to_string();
        let () = redis.cli(&["REPLICAOF", "127.0.0.1", &nowhere]);
        let refused = host.run(vec![script(&PUSH, "{0}l", "b")]).await;
        assert!(
            matches!(refused[..], [Err(HostError::RetryLater(_))]),
            "{refused:?}"
        );
        let () = redis.cli(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(heal(&host, script(&PUSH, "{0}l", "b")).await, Reply::Int(2));
    }
}

#[tokio::test]
async fn a_demoted_server_causes_no_storm_of_connections() {
    let redis = RedisServer::start();
    let proxy = Proxy::to_port(redis.port());
    let host = connect(&proxy.redis_url()).await;
    let nowhere = server::free_port().to_string();
    let () = redis.cli(&["REPLICAOF", "127.0.0.1", &nowhere]);
    let before = proxy.accepted();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        host.run(vec![command(&["SET", "{0}k", "1"])]).await;
    }
    let made = proxy.accepted() - before;
    assert!(made <= 12, "{made} connections in two seconds");
}

#[tokio::test]
async fn a_full_store_is_told_apart_also_inside_scripts() {
    for binary in server::binaries() {
        let redis = RedisServer::start_with(server::RedisOptions {
            maxmemory: Some("3mb".to_owned()),
            binary: Some(binary.clone()),
            ..server::RedisOptions::default()
        });
        let host = connect(&redis.url()).await;
        host.run(vec![script(&PUSH, "{0}l", "a")]).await;
        let () = redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
        let results = host
            .run(vec![
                command(&["SET", "{0}k", "1"]),
                script(&PUSH, "{0}l", "b"),
                command(&["HDEL", "{0}nil", "x"]),
                command(&["LLEN", "{0}l"]),
            ])
            .await;
        assert!(matches!(results[0], Err(HostError::Full(_))), "{results:?}");
        assert!(
            matches!(results[1], Err(HostError::Full(_))),
            "{}: {results:?}",
            binary.display()
        );
        assert_eq!(results[2..], [int(0), int(1)]);
    }
}

#[tokio::test]
async fn a_busy_server_and_missing_replicas_mean_later_and_a_wrong_type_means_fault() {
    for binary in server::binaries() {
        let redis = RedisServer::start_with(server::RedisOptions {
            binary: Some(binary),
            ..server::RedisOptions::default()
        });
        let host = connect(&redis.url()).await;
        host.run(vec![script(&PUSH, "{0}l", "a")]).await;
        let wrong = host
            .run(vec![
                command(&["GET", "{0}l"]),
                script(&PUSH, "{0}s", "a"),
                command(&["SET", "{0}s", "text"]),
                script(&PUSH, "{0}s", "a"),
            ])
            .await;
        assert!(matches!(wrong[0], Err(HostError::Fault(_))), "{wrong:?}");
        assert!(matches!(wrong[3], Err(HostError::Fault(_))), "{wrong:?}");
        let () = redis.cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
        let refused = host
            .run(vec![
                command(&["SET", "{0}k", "1"]),
                script(&PUSH, "{0}l", "b"),
            ])
            .await;
        for result in refused {
            assert!(
                matches!(result, Err(HostError::RetryLater(_))),
                "{result:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_told_apart_from_a_refusal() {
    let redis = RedisServer::start();
    let proxy = Proxy::to_port(redis.port());
    let host = connect(&proxy.redis_url()).await;
    // The effect is there, the answer is not.
    proxy.cut_after_reply_bytes(0);
    let lost = host.run(vec![command(&["INCR", "{0}n"])]).await;
    assert!(matches!(lost[..], [Err(HostError::Lost(_))]), "{lost:?}");
    assert_eq!(redis.cli::<i64>(&["GET", "{0}n"]), 1);
    // One of three commands arrives.
    heal(&host, command(&["PING"])).await;
    proxy.cut_after_commands(1);
    let cut = host.run(vec![command(&["INCR", "{0}n"]); 3]).await;
    assert!(cut.iter().all(|one| matches!(one, Err(HostError::Lost(_)))));
    assert_eq!(redis.cli::<i64>(&["GET", "{0}n"]), 2);
    // Nothing can be connected to: surely not applied.
    proxy.refuse(true);
    proxy.cut();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let refused = host.run(vec![command(&["INCR", "{0}n"])]).await;
    assert!(
        matches!(refused[..], [Err(HostError::RetryLater(_))]),
        "{refused:?}"
    );
    proxy.refuse(false);
    assert_eq!(heal(&host, command(&["INCR", "{0}n"])).await, Reply::Int(3));
}

#[tokio::test]
async fn a_server_that_stalls_is_lost_in_time_for_all_callers_at_once() {
    let redis = RedisServer::start();
    let host = connect(&redis.url()).await;
    redis.signal("STOP");
    let start = Instant::now();
    let calls = (0..50).map(|_| host.run(vec![command(&["INCR", "{0}n"])]));
    let lost = futures::future::join_all(calls).await;
    assert!(
        lost.iter()
            .all(|one| matches!(one[..], [Err(HostError::Lost(_))]))
    );
    // Now a new connection is needed, and none of fifty callers waits for more than one attempt.
    let calls = (0..50).map(|_| host.run(vec![command(&["INCR", "{0}n"])]));
    let refused = futures::future::join_all(calls).await;
    assert!(
        refused
            .iter()
            .all(|one| matches!(one[..], [Err(HostError::RetryLater(_))]))
    );
    let passed = start.elapsed();
    assert!(passed < Duration::from_secs(6), "{passed:?}");
    redis.signal("CONT");
    heal(&host, command(&["PING"])).await;
}

#[tokio::test]
async fn a_wait_takes_one_token_and_is_woken_at_once() {
    let redis = RedisServer::start();
    let host = connect(&redis.url()).await;
    let key = Bytes::from("{0}w");
    let start = Instant::now();
    let short = Duration::from_millis(50);
    assert_eq!(host.wait(key.clone(), short).await, Ok(false));
    assert!(start.elapsed() >= short);
    assert_eq!(host.wait(key.clone(), Duration::ZERO).await, Ok(false));
    let mut slowest = Duration::ZERO;
    for _ in 0..20 {
        let woken = async {
            let taken = host.wait(key.clone(), Duration::from_secs(5)).await;
            assert_eq!(taken, Ok(true));
            Instant::now()
        };
        let pushed = async {
            blocked_client(&redis).await;
            // Calls are not delayed by the wait.
            host.run(vec![command(&["LPUSH", "{0}w", "1"])]).await;
            Instant::now()
        };
        let (woken, pushed) = tokio::join!(woken, pushed);
        slowest = slowest.max(woken.saturating_duration_since(pushed));
    }
    assert!(slowest < Duration::from_millis(50), "{slowest:?}");
    assert_eq!(redis.cli::<i64>(&["LLEN", "{0}w"]), 0);
    let () = redis.cli(&["RPUSH", "{0}w", "1", "2"]);
    assert_eq!(host.wait(key.clone(), short).await, Ok(true));
    assert_eq!(redis.cli::<i64>(&["LLEN", "{0}w"]), 1);
    let () = redis.cli(&["SET", "{0}text", "1"]);
    let wrong = host.wait(Bytes::from("{0}text"), short).await;
    assert!(matches!(wrong, Err(HostError::Fault(_))), "{wrong:?}");
}

#[tokio::test]
async fn a_wait_survives_a_restart() {
    let mut redis = RedisServer::start_durable();
    let host = connect(&redis.url()).await;
    let key = Bytes::from("{0}w");
    let waiting = host.wait(key.clone(), Duration::from_secs(30));
    let killed = async {
        blocked_client(&redis).await;
        redis.kill9();
    };
    let (waited, ()) = tokio::join!(waiting, killed);
    assert!(matches!(waited, Err(HostError::Lost(_))), "{waited:?}");
    let down = host.wait(key.clone(), Duration::from_secs(1)).await;
    assert!(matches!(down, Err(HostError::RetryLater(_))), "{down:?}");
    redis.restart();
    let () = redis.cli(&["LPUSH", "{0}w", "1"]);
    let start = Instant::now();
    while host.wait(key.clone(), Duration::from_secs(1)).await != Ok(true) {
        assert!(start.elapsed() < HEAL);
    }
}

#[tokio::test]
async fn a_dropped_wait_takes_no_token() {
    let redis = RedisServer::start();
    let host = connect(&redis.url()).await;
    tokio::select! {
        _ = host.wait(Bytes::from("{0}w"), Duration::from_secs(30)) => panic!("no token was there"),
        _ = blocked_client(&redis) => {}
    }
    let start = Instant::now();
    while redis
        .cli::<String>(&["CLIENT", "LIST"])
        .contains("cmd=blpop")
    {
        assert!(start.elapsed() < HEAL, "the connection stays open");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let () = redis.cli(&["LPUSH", "{0}w", "1"]);
    assert_eq!(redis.cli::<i64>(&["LLEN", "{0}w"]), 1);
}

#[tokio::test]
async fn f14_what_cannot_be_reached_is_named_in_time() {
    let closed = server::free_port();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_port = silent.local_addr().expect("an address").port();
    let web = crate::support::receiver::Receiver::always(crate::support::receiver::Answer::raw(
        "HTTP/1.1 400 Bad Request\r\n\r\n",
    ));
    let web_port = web.addr().port();
    let redis = RedisServer::start();
    let plain_port = redis.port();
    let places = [
        format!("redis://:secret@127.0.0.1:{closed}"),
        // TEST-NET-1: packets to it are dropped.
        "redis://:secret@192.0.2.1:6379".to_owned(),
        format!("redis://:secret@127.0.0.1:{silent_port}"),
        format!("rediss://:secret@127.0.0.1:{silent_port}"),
        format!("redis://:secret@127.0.0.1:{web_port}"),
        format!("rediss://:secret@127.0.0.1:{plain_port}"),
        "redis://:secret@no-such-host.invalid:6379".to_owned(),
        format!("redis-cluster://:secret@192.0.2.1:7000,127.0.0.1:{closed}"),
        format!("redis-cluster://127.0.0.1:{plain_port}"),
        format!("redis-sentinel://:secret@192.0.2.1:7000,127.0.0.1:{closed}/main"),
        format!("redis-sentinel://:secret@127.0.0.1:{silent_port}/main"),
    ];
    futures::future::join_all(places.iter().map(|place| refuses_in_time(place))).await;
}

async fn refuses_in_time(place: &str) {
    let start = Instant::now();
    let url = RedisUrl::parse(place).expect("a valid URL");
    let Err(error) = RedisHost::connect(&url, RedisOptions::default()).await else {
        panic!("{place} was connected to");
    };
    let passed = start.elapsed();
    assert!(passed < Duration::from_secs(10), "{place}: {passed:?}");
    let text = error.to_string();
    assert!(!text.contains("secret"), "{text}");
    let hosts = place.rsplit(['@', '/']).find(|part| part.contains(':'));
    let hosts = hosts.expect("host:port");
    assert!(
        hosts.split(',').any(|host| text.contains(host)),
        "{place}: {text}"
    );
}

#[tokio::test]
async fn f18_urls_with_special_characters_users_databases_and_other_transports_connect() {
    let password = "p#a/s@s=:%25é";
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("redis.sock");
    let socket = socket.to_str().expect("a path in UTF-8");
    let redis = RedisServer::start_with(server::RedisOptions {
        requirepass: Some(password.to_owned()),
        extra: ["--unixsocket", socket, "--bind", "127.0.0.1", "::1"]
            .map(String::from)
            .to_vec(),
        ..server::RedisOptions::default()
    });
    let rule = format!(">{password}");
    let () = redis.cli(&["ACL", "SETUSER", "ann", "on", &rule, "~*", "+@all"]);
    let encoded = percent_encoded(password);
    let port = redis.port();
    let urls = [
        (format!("redis://:{encoded}@127.0.0.1:{port}"), 0),
        (format!("redis://default:{encoded}@127.0.0.1:{port}/"), 0),
        (format!("redis://ann:{encoded}@127.0.0.1:{port}/3"), 3),
        (format!("redis://:{encoded}@[::1]:{port}/2"), 2),
        (format!("redis://:{encoded}@localhost:{port}"), 0),
        (format!("unix://{socket}?db=4&pass={encoded}"), 4),
        (format!("unix://{socket}?user=ann&pass={encoded}"), 0),
    ];
    for (url, database) in urls {
        let host = connect(&url).await;
        host.run(vec![command(&["SET", "where", &url])]).await;
        let mut connection = redis.connection();
        let () = redis::cmd("SELECT")
            .arg(database)
            .query(&mut connection)
            .expect("SELECT");
        let found: Option<String> = redis::cmd("GET")
            .arg("where")
            .query(&mut connection)
            .expect("GET");
        assert_eq!(found.as_ref(), Some(&url));
    }
    for wrong in [
        format!("redis://:{password}@127.0.0.1:{port}"),
        format!("redis://:wrong{encoded}@127.0.0.1:{port}"),
        format!("redis://bob:{encoded}@127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
    ] {
        let Err(error) = try_connect(&wrong).await else {
            panic!("{wrong} was connected to");
        };
        let text = format!("{error} {error:?}");
        for secret in [password, &encoded, "p#a", "s@s"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[tokio::test]
async fn f17_the_eviction_policy_is_known_also_when_config_is_forbidden() {
    let redis = RedisServer::start_with(server::RedisOptions {
        appendfsync: Some("everysec"),
        extra: ["--maxmemory-policy", "allkeys-lru"]
            .map(String::from)
            .to_vec(),
        ..server::RedisOptions::default()
    });
    let () = redis.cli(&[
        "ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all", "-config",
    ]);
    let () = redis.cli(&[
        "ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", "-config", "-info",
    ]);
    let port = redis.port();
    let facts = connect(&redis.url()).await.facts().await.expect("facts");
    assert!(facts[0].may_evict());
    assert_eq!(facts[0].appendfsync.as_deref(), Some("everysec"));
    assert_eq!(facts[0].is_aof_on, Some(true));
    assert_eq!(facts[0].role.as_deref(), Some("master"));
    assert!(facts[0].version.is_some());
    let ann = connect(&format!("redis://ann:pw@127.0.0.1:{port}")).await;
    let facts = ann.facts().await.expect("facts");
    assert_eq!(facts[0].appendfsync, None);
    assert!(facts[0].may_evict());
    let bob = connect(&format!("redis://bob:pw@127.0.0.1:{port}")).await;
    let facts = bob.facts().await.expect("facts");
    assert_eq!(facts[0].maxmemory_policy, None);
    assert!(!facts[0].may_evict());
}

#[tokio::test]
async fn f17_a_policy_that_evicts_is_warned_about_at_the_start() {
    for (policy, is_warned) in [
        ("allkeys-lru", true),
        ("volatile-ttl", true),
        ("noeviction", false),
    ] {
        let redis = RedisServer::start_with(server::RedisOptions {
            extra: ["--maxmemory-policy", policy].map(String::from).to_vec(),
            ..server::RedisOptions::default()
        });
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.clone())
            .with_ansi(false)
            .finish();
        listen_everywhere();
        let guard = tracing::subscriber::set_default(subscriber);
        connect(&redis.url()).await;
        drop(guard);
        let text = String::from_utf8(log.0.lock().expect("no panic").clone()).expect("UTF-8");
        let warned = text
            .lines()
            .any(|line| line.contains("WARN") && line.contains(policy));
        assert_eq!(warned, is_warned, "{policy}: {text}");
    }
}

/// Collects log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

#[tokio::test]
async fn tls_is_used_and_the_authority_is_checked() {
    let files = tempfile::tempdir().expect("a directory");
    let authority = make_certificate(files.path());
    let tls_port = server::free_port();
    let path = |name: &str| files.path().join(name).display().to_string();
    let redis = RedisServer::start_with(server::RedisOptions {
        extra: vec![
            "--tls-port".to_owned(),
            tls_port.to_string(),
            "--tls-cert-file".to_owned(),
            path("cert.pem"),
            "--tls-key-file".to_owned(),
            path("key.pem"),
            "--tls-ca-cert-file".to_owned(),
            path("cert.pem"),
            "--tls-auth-clients".to_owned(),
            "no".to_owned(),
        ],
        ..server::RedisOptions::default()
    });
    let url = RedisUrl::parse(&format!("rediss://localhost:{tls_port}")).expect("valid");
    let trusting = RedisOptions {
        certificate_authorities: Some(authority),
        ..quick()
    };
    let host = RedisHost::connect(&url, trusting).await.expect("trusted");
    assert_eq!(host.run(vec![command(&["INCR", "n"])]).await, vec![int(1)]);
    assert_eq!(redis.cli::<i64>(&["GET", "n"]), 1);
    let Err(error) = RedisHost::connect(&url, quick()).await else {
        panic!("an unknown authority was trusted");
    };
    assert!(error.to_string().contains("certificate"), "{error}");
    refuses_in_time(&format!("redis://:secret@127.0.0.1:{tls_port}")).await;
}

/// Makes `cert.pem` and `key.pem` for localhost, and returns the certificate.
fn make_certificate(dir: &Path) -> Vec<u8> {
    let made = std::process::Command::new("openssl")
        .args([
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        ])
        .args(["-subj", "/CN=localhost", "-keyout", "key.pem"])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-out",
            "cert.pem",
        ])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(dir)
        .output()
        .expect("the openssl program");
    assert!(made.status.success(), "{made:?}");
    std::fs::read(dir.join("cert.pem")).expect("a certificate")
}

#[tokio::test]
async fn a_sentinels_new_master_is_found_after_the_old_one_dies() {
    let mut old = RedisServer::start();
    let new = replica_of(old.port());
    let sentinel = RedisSentinel::start("main", old.port());
    let host = connect(&sentinel.url()).await;
    assert_eq!(
        host.run(vec![script(&PUSH, "{0}l", "a")]).await,
        vec![int(1)]
    );
    sentinel.wait_for_replicas(1);
    wait_for_copy(&old).await;
    old.kill9();
    let start = Instant::now();
    let length = loop {
        let mut results = host.run(vec![script(&PUSH, "{0}l", "b")]).await;
        match results.remove(0) {
            Ok(reply) => break reply,
            Err(error) => {
                assert!(start.elapsed() < Duration::from_secs(30), "{error}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    };
    assert_eq!(length, Reply::Int(2));
    assert_eq!(new.cli::<i64>(&["LLEN", "{0}l"]), 2);
    let Err(error) = try_connect(&sentinel.url().replace("main", "other")).await else {
        panic!("an unknown master was found");
    };
    assert!(error.to_string().contains("other"), "{error}");
}

#[tokio::test]
async fn forgotten_scripts_and_cuts_of_a_faulty_host_are_real_on_redis() {
    let redis = RedisServer::start();
    let inner = Arc::new(connect(&redis.url()).await);
    let host = FaultyHost::new(inner, Arc::new(SeededRandom::new(1)));
    host.run(vec![script(&PUSH, "{0}l", "a")]).await;
    host.inject(Fault::ForgetScripts);
    let results = host
        .run(vec![command(&["LLEN", "{0}l"]), script(&PUSH, "{0}l", "b")])
        .await;
    assert_eq!(results, vec![int(1), int(2)]);
    host.inject(Fault::Cut(1));
    let results = host.run(vec![script(&PUSH, "{0}l", "c"); 2]).await;
    assert_eq!(results[0], int(3));
    assert!(matches!(results[1], Err(HostError::Lost(_))));
    host.inject(Fault::LoseAfter);
    host.run(vec![script(&PUSH, "{0}l", "d")]).await;
    assert_eq!(redis.cli::<i64>(&["LLEN", "{0}l"]), 4);
}

#[tokio::test]
async fn f10_every_shard_of_a_cluster_is_reached_by_its_tag() {
    let cluster = RedisCluster::start(3);
    let one = format!("redis://{}", cluster.nodes[0].addr());
    for url in [cluster.url(), one] {
        let host = connect(&url).await;
        assert_eq!(host.masters().await, Ok(3));
        assert_eq!(host.facts().await.expect("facts").len(), 3);
        for shard in 0..16 {
            let list = format!("hs:{{{shard}}}:l");
            let wake = Bytes::from(format!("hs:{{{shard}}}:w"));
            let results = host
                .run(vec![
                    command(&["DEL", &list]),
                    script(&PUSH, &list, "a"),
                    script(&PUSH_TOO, &list, "b"),
                    command(&["LLEN", &list]),
                    command(&["LPUSH", &format!("hs:{{{shard}}}:w"), "1"]),
                ])
                .await;
            assert_eq!(results[3..], [int(2), int(1)], "{results:?}");
            let taken = host.wait(wake, Duration::from_secs(1)).await;
            assert_eq!(taken, Ok(true));
        }
    }
}

#[tokio::test]
async fn a_moved_slot_is_refused_for_now_and_then_found() {
    let cluster = RedisCluster::start(2);
    let host = connect(&cluster.url()).await;
    let slot: u16 = cluster.nodes[0].cli(&["CLUSTER", "KEYSLOT", "hs:{0}:l"]);
    assert_eq!(
        host.run(vec![command(&["LLEN", "hs:{0}:l"])]).await,
        vec![int(0)]
    );
    let (from, to) = if slot < 8192 { (0, 1) } else { (1, 0) };
    let target: String = cluster.nodes[to].cli(&["CLUSTER", "MYID"]);
    for node in [to, from] {
        let slot = slot.to_string();
        let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &target];
        let () = cluster.nodes[node].cli(&words);
    }
    let moved = host.run(vec![script(&PUSH, "hs:{0}:l", "a")]).await;
    assert!(
        matches!(moved[..], [Err(HostError::RetryLater(_))]),
        "{moved:?}"
    );
    assert_eq!(
        heal(&host, script(&PUSH, "hs:{0}:l", "a")).await,
        Reply::Int(1)
    );
}
