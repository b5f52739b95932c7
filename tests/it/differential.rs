//! The embedded host against Redis: whatever runs on both must answer the same and leave the same.
//!
//! Not compared: the clock (times are compared with a tolerance), the order of unordered replies,
//! and where an error arose in a script.

mod draw;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::{ManualClock, SystemClock};
use hookstash_shared::store::embedded::{DataSync, EmbeddedHost, OpenError};
use hookstash_shared::store::host::{Host, HostError, Reply, Step, StepResult};
use hookstash_shared::store::redis_host::{RedisHost, RedisOptions, RedisUrl};
use hookstash_shared::store::script::Script;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};

use tokio::runtime::Runtime;

use self::draw::{Action, KEYS, What, case};
use crate::support::redis::{RedisOptions as ServerOptions, RedisServer, binaries};

/// Cases of one run.
const CASES: u32 = 400;
/// Longest expiry that a case waits for.
const SHORT_MS: u64 = 5;
/// How far times of the two hosts may lie apart.
const TIME_TOLERANCE_MS: i64 = 5_000;

/// What shows all there is to one key.
const KEY_READERS: [&str; 8] = [
    "TYPE <k>",
    "GET <k>",
    "LRANGE <k> 0 -1",
    "HGETALL <k>",
    "SMEMBERS <k>",
    "ZRANGE <k> 0 -1 WITHSCORES",
    "XRANGE <k> - +",
    "PEXPIRETIME <k>",
];

/// The same store twice.
struct Pair {
    redis: RedisHost,
    embedded: EmbeddedHost,
}

impl Pair {
    async fn both(&self, step: Step) -> (StepResult, StepResult) {
        let redis = self.redis.run(vec![step.clone()]).await.remove(0);
        let embedded = self.embedded.run(vec![step]).await.remove(0);
        (redis, embedded)
    }

    async fn command(&self, line: &str) -> (StepResult, StepResult) {
        self.both(Step::Command(words(line))).await
    }

    /// Does `action` to both; what they answered, made comparable.
    async fn act(&self, action: &Action) -> (String, String) {
        if action.full {
            self.set_full(true).await;
        }
        let answers = match &action.what {
            What::Command(words) => {
                let (redis, embedded) = self.both(Step::Command(words.clone())).await;
                comparable(words, redis, embedded)
            }
            What::Script(source) => {
                let (redis, embedded) = self.both(script_step(source)).await;
                (shown(redis), shown(embedded))
            }
            What::Walk(words) => {
                let redis = walk(&self.redis, words.clone()).await;
                (redis, walk(&self.embedded, words.clone()).await)
            }
        };
        if action.full {
            self.set_full(false).await;
        }
        answers
    }

    async fn set_full(&self, full: bool) {
        self.embedded.set_full(full);
        let limit = if full { "1" } else { "0" };
        let limit = words(&format!("CONFIG SET maxmemory {limit}"));
        let set = self.redis.run(vec![Step::Command(limit)]).await.remove(0);
        assert!(set.is_ok(), "{set:?}");
    }

    /// Where the keyspaces differ: the command that shows it, and what both answer.
    async fn differences(&self) -> Vec<(String, String, String)> {
        let of_key = |key: &str| KEY_READERS.map(|line| line.replace("<k>", key));
        let lines = KEYS.into_iter().flat_map(of_key);
        let mut found = Vec::new();
        for line in lines.chain(["DBSIZE".to_owned()]) {
            let (redis, embedded) = self.command(&line).await;
            let (redis, embedded) = comparable(&words(&line), redis, embedded);
            if redis != embedded {
                found.push((line, redis, embedded));
            }
        }
        found
    }

    async fn reset(&self) {
        let (redis, embedded) = self.command("FLUSHALL").await;
        assert_eq!(redis, embedded);
        self.embedded.take_effects();
    }
}

fn words(line: &str) -> Vec<Bytes> {
    line.split(' ')
        .map(|word| Bytes::copy_from_slice(word.as_bytes()))
        .collect()
}

fn script_step(source: &str) -> Step {
    let source: &'static str = Box::leak(source.to_owned().into_boxed_str());
    let parts: &'static [&'static str] = Box::leak(Box::new([source]));
    Step::Script {
        script: Box::leak(Box::new(Script::new("drawn", parts))),
        keys: words("c f"),
        args: words("one two"),
    }
}

/// Every page of a walk, sorted.
async fn walk(host: &dyn Host, mut words: Vec<Bytes>) -> String {
    let place = words
        .iter()
        .position(|word| word == "0" || word.ends_with(b"x"))
        .unwrap_or(1);
    let chunk = if words[0] == "HSCAN" || words[0] == "ZSCAN" {
        2
    } else {
        1
    };
    let mut seen = Vec::new();
    loop {
        let reply = match host.run(vec![Step::Command(words.clone())]).await.remove(0) {
            Ok(Reply::Array(reply)) => reply,
            other => return shown(other),
        };
        let [Reply::Bytes(next), Reply::Array(page)] = reply.as_slice() else {
            panic!("{reply:?} is no page");
        };
        seen.extend(page.chunks(chunk).map(|element| format!("{element:?}")));
        if next == "0" {
            seen.sort();
            seen.dedup();
            return seen.join(", ");
        }
        words[place] = next.clone();
    }
}

fn shown(result: StepResult) -> String {
    // Redis names the script and the line, and quotes an unknown command's arguments.
    let text = |fault: String| {
        let end = [" script: ", ", with args beginning with: "].map(|mark| fault.find(mark));
        let end = end.into_iter().flatten().min().unwrap_or(fault.len());
        fault[..end].trim_end().to_owned()
    };
    match result {
        Ok(reply) => format!("{reply:?}"),
        Err(HostError::Fault(fault)) => format!("fault {}", text(fault)),
        Err(HostError::Full(fault)) => format!("full {}", text(fault)),
        Err(other) => format!("{other:?}"),
    }
}

fn comparable(words: &[Bytes], redis: StepResult, embedded: StepResult) -> (String, String) {
    let name = String::from_utf8_lossy(&words[0]).to_uppercase();
    match (name.as_str(), redis, embedded) {
        ("TTL" | "PTTL" | "PEXPIRETIME", Ok(Reply::Int(redis)), Ok(Reply::Int(embedded)))
            if redis > 0 && embedded > 0 && (redis - embedded).abs() <= TIME_TOLERANCE_MS =>
        {
            ("about the same".to_owned(), "about the same".to_owned())
        }
        ("HGETALL", Ok(Reply::Array(redis)), Ok(Reply::Array(embedded))) => {
            (sorted(&redis, 2), sorted(&embedded, 2))
        }
        ("HKEYS" | "HVALS" | "SMEMBERS", Ok(Reply::Array(redis)), Ok(Reply::Array(embedded))) => {
            (sorted(&redis, 1), sorted(&embedded, 1))
        }
        (_, redis, embedded) => (shown(redis), shown(embedded)),
    }
}

fn sorted(replies: &[Reply], chunk: usize) -> String {
    let mut shown: Vec<String> = replies
        .chunks(chunk)
        .map(|part| format!("{part:?}"))
        .collect();
    shown.sort();
    shown.join(", ")
}

/// Applies everything `host` noted as its effects to an empty store whose clock stands at 0, so
/// that nothing expires before its removal was noted.
async fn replayed(host: &EmbeddedHost) -> EmbeddedHost {
    let copy = EmbeddedHost::new(Arc::new(ManualClock::at(0))).unwrap();
    for words in host.take_effects().into_iter().flatten() {
        let result = copy.run(vec![Step::Command(words.clone())]).await.remove(0);
        assert!(
            result.is_ok(),
            "the effect {words:?} was refused: {result:?}"
        );
    }
    copy
}

async fn compare(pair: &Pair, actions: &[Action]) -> Result<(), TestCaseError> {
    pair.reset().await;
    for (index, action) in actions.iter().enumerate() {
        let (redis, embedded) = pair.act(action).await;
        prop_assert_eq!(
            &redis,
            &embedded,
            "Redis left, embedded right, at step {}: {:?}",
            index,
            action
        );
        if action.expires_soon() {
            tokio::time::sleep(Duration::from_millis(SHORT_MS + 3)).await;
        }
    }
    let differences = pair.differences().await;
    prop_assert!(
        differences.is_empty(),
        "the keyspaces differ (command, Redis, embedded): {:#?}",
        differences
    );
    let copy = replayed(&pair.embedded).await;
    prop_assert_eq!(
        pair.embedded.dump(),
        copy.dump(),
        "the effects leave another keyspace"
    );
    Ok(())
}

#[test]
fn both_hosts_answer_the_same_and_leave_the_same() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let server = RedisServer::start();
    let url = RedisUrl::parse(&server.url()).unwrap();
    let redis = runtime
        .block_on(RedisHost::connect(&url, RedisOptions::default()))
        .unwrap();
    let embedded = EmbeddedHost::new(Arc::new(SystemClock::new())).unwrap();
    let pair = Pair { redis, embedded };
    let config = Config {
        cases: CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&case(), |actions| {
        runtime.block_on(compare(&pair, &actions))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// Cases whose log is replayed.
const LOG_CASES: u32 = 60;
/// Cases that one log holds which a Redis loads.
const REDIS_LOG_CASES: usize = 150;

/// The store of `directory`. A lock lives on for a moment in a process that another test starts.
fn open(directory: &Path) -> EmbeddedHost {
    let clock = || Arc::new(SystemClock::new());
    for _ in 0..500 {
        match EmbeddedHost::open(directory, DataSync::EverySecond, clock()) {
            Err(OpenError::InUse(_)) => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.unwrap(),
        }
    }
    panic!("{} stays in use", directory.display());
}

/// Does `action` to one host; whatever it answers.
async fn act_alone(host: &EmbeddedHost, action: &Action) {
    host.set_full(action.full);
    let step = match &action.what {
        What::Command(words) => Step::Command(words.clone()),
        What::Script(source) => script_step(source),
        What::Walk(_) => return,
    };
    for result in host.run(vec![step]).await {
        let is_kept = !matches!(result, Err(HostError::Lost(_) | HostError::RetryLater(_)));
        assert!(is_kept, "{result:?}");
    }
}

#[test]
fn a_log_replays_to_the_store_that_wrote_it() {
    let runtime = Runtime::new().unwrap();
    let config = Config {
        cases: LOG_CASES,
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&case(), |actions| {
        let directory = tempfile::tempdir().unwrap();
        let host = open(directory.path());
        for action in &actions {
            runtime.block_on(act_alone(&host, action));
        }
        let written = host.dump();
        drop(host);
        // The first start replays the effects, the second one what the first wrote anew.
        for start in ["first", "second"] {
            let replayed = open(directory.path()).dump();
            prop_assert_eq!(&written, &replayed, "the {} start", start);
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn every_supported_redis_loads_a_log_and_a_compacted_one_to_the_same_store() {
    let runtime = Runtime::new().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("appendonly.aof");
    let mut runner = TestRunner::deterministic();
    let mut embedded = open(directory.path());
    for _ in 0..REDIS_LOG_CASES {
        for action in case().new_tree(&mut runner).unwrap().current() {
            runtime.block_on(act_alone(&embedded, &action));
        }
    }
    embedded.set_full(false);
    std::thread::sleep(Duration::from_millis(SHORT_MS + 3));
    for start in ["written", "compacted"] {
        assert!(embedded.keys().len() > 3, "there is something to compare");
        runtime.block_on(embedded.synced()).unwrap();
        for binary in binaries() {
            let server = RedisServer::start_with(ServerOptions {
                appendfsync: Some("everysec"),
                log: Some(log.clone()),
                binary: Some(binary),
                ..ServerOptions::default()
            });
            let url = RedisUrl::parse(&server.url()).unwrap();
            let (differences, back) = runtime.block_on(async move {
                let redis = RedisHost::connect(&url, RedisOptions::default()).await;
                let redis = redis.unwrap();
                let pair = Pair { redis, embedded };
                (pair.differences().await, pair.embedded)
            });
            embedded = back;
            // Redis 6.2 does not tell when a key ends.
            let is_told = |(_, redis, _): &(String, String, String)| {
                !redis.contains("unknown command `PEXPIRETIME`")
            };
            let differences: Vec<_> = differences.into_iter().filter(is_told).collect();
            assert!(
                differences.is_empty(),
                "{start}: {differences:#?}\n{}",
                server.log()
            );
        }
        drop(embedded);
        embedded = open(directory.path());
    }
}
