//! The product's own scripts on both hosts: the simulation plays on a host that runs every call on
//! Redis and on the embedded host, and compares every reply and what is stored after each call.
//!
//! The scripts read the time from a list that is set before each call, so that both see the
//! simulated clock. Not compared: the event log, whose ids are the server's own time, and replies
//! without an order of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hookstash_shared::clock::{Clock, ManualClock};
use hookstash_shared::store::embedded::{Contents, EmbeddedHost};
use hookstash_shared::store::host::{Host, HostError, Reply, Step, StepResult};
use hookstash_shared::store::redis_host::{RedisHost, RedisOptions, RedisUrl};
use hookstash_shared::store::script::Script;
use tokio::runtime::Runtime;

use crate::sim::view::View;
use crate::sim::world::{PREFIX, World};
use crate::support::redis::RedisServer;

const SEEDS: u64 = 6;
const STEPS: usize = 250;

struct BothHosts {
    clock: Arc<ManualClock>,
    embedded: Arc<EmbeddedHost>,
    redis: Arc<RedisHost>,
    runtime: Arc<Runtime>,
    scripts: Mutex<BTreeMap<&'static str, &'static Script>>,
    differences: Arc<Mutex<Vec<String>>>,
}

impl BothHosts {
    fn on_redis(&self, steps: Vec<Step>) -> Vec<StepResult> {
        self.runtime.block_on(self.redis.run(steps))
    }

    /// The same script, reading the simulated time.
    fn with_set_time(&self, script: &'static Script) -> &'static Script {
        let mut scripts = self.scripts.lock().unwrap();
        scripts.entry(script.name()).or_insert_with(|| {
            let asked = "call('TIME')";
            assert!(
                script.source().contains(asked),
                "{script:?} asks the time once"
            );
            let read = "call('LRANGE', 'time', 0, 1)";
            let source = script.source().replace(asked, read);
            Box::leak(Box::new(Script::new(script.name(), &[&source])))
        })
    }

    fn prepare(&self, steps: &[Step]) -> Vec<Step> {
        let ms = self.clock.now_ms();
        let time = [ms / 1000, ms % 1000 * 1000].map(|part| part.to_string());
        let mut prepared = vec![
            words(&["DEL", "time"]),
            words(&["RPUSH", "time", &time[0], &time[1]]),
        ];
        prepared.extend(self.expired_on_redis());
        prepared.extend(steps.iter().cloned().map(|step| match step {
            Step::Script { script, keys, args } => Step::Script {
                script: self.with_set_time(script),
                keys,
                args,
            },
            command @ Step::Command(_) => command,
        }));
        prepared
    }

    /// Deletes on Redis what has expired by the simulated clock only.
    fn expired_on_redis(&self) -> Vec<Step> {
        let scan = words(&["SCAN", "0", "COUNT", "1000000"]);
        let kept = names(
            self.embedded
                .run(vec![scan.clone()])
                .now_or_never()
                .unwrap(),
        );
        let found = names(self.on_redis(vec![scan]));
        let extra = found
            .into_iter()
            .filter(|key| key != "time" && !kept.contains(key));
        extra
            .filter(|key| {
                let expiry = self.on_redis(vec![words(&["PTTL", key])]);
                matches!(expiry.as_slice(), [Ok(Reply::Int(ms))] if *ms > 0)
            })
            .map(|key| words(&["DEL", &key]))
            .collect()
    }

    fn compare(&self, steps: &[Step], embedded: &[StepResult], redis: &[StepResult]) {
        let mut found = Vec::new();
        for ((step, embedded), redis) in steps.iter().zip(embedded).zip(redis) {
            if is_compared(step) && shown(embedded) != shown(redis) {
                found.push(format!(
                    "{step:?}\n  embedded {embedded:?}\n  redis    {redis:?}"
                ));
            }
        }
        let (ours, theirs) = (View::read(&self.embedded, PREFIX), self.view_of_redis());
        if ours != theirs {
            found.push(format!(
                "after {steps:?}\n  embedded {ours:?}\n  redis    {theirs:?}"
            ));
        }
        self.differences.lock().unwrap().extend(found);
    }

    fn view_of_redis(&self) -> View {
        let keys = names(self.on_redis(vec![words(&["SCAN", "0", "COUNT", "1000000"])]));
        let types = self.on_redis(keys.iter().map(|key| words(&["TYPE", key])).collect());
        let asked = keys.iter().zip(&types).map(|(key, kind)| match kind {
            Ok(Reply::Status(kind)) if kind == "list" => words(&["LRANGE", key, "0", "-1"]),
            Ok(Reply::Status(kind)) if kind == "hash" => words(&["HGETALL", key]),
            Ok(Reply::Status(kind)) if kind == "zset" => {
                words(&["ZRANGE", key, "0", "-1", "WITHSCORES"])
            }
            _ => words(&["EXISTS", key]),
        });
        let values = self.on_redis(asked.collect());
        let read = keys.iter().zip(types).zip(values);
        let read = read
            .map(|((key, kind), value)| (Bytes::from(key.clone()), contents(kind, &texts(value))));
        View::of(read, PREFIX)
    }
}

/// What a key holds, from its type and its elements. Of a string only that it is there is looked at.
fn contents(kind: StepResult, elements: &[String]) -> Contents {
    let bytes = |text: &String| Bytes::from(text.clone());
    let pairs = elements.chunks_exact(2);
    match kind {
        Ok(Reply::Status(kind)) if kind == "list" => {
            Contents::List(elements.iter().map(bytes).collect())
        }
        Ok(Reply::Status(kind)) if kind == "hash" => Contents::Hash(
            pairs
                .map(|pair| (bytes(&pair[0]), bytes(&pair[1])))
                .collect(),
        ),
        Ok(Reply::Status(kind)) if kind == "zset" => Contents::SortedSet(
            pairs
                .map(|pair| (bytes(&pair[0]), pair[1].clone()))
                .collect(),
        ),
        _ => Contents::Text(Bytes::new()),
    }
}

impl Host for BothHosts {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        let prepared = self.prepare(&steps);
        let before = prepared.len() - steps.len();
        let redis = self.on_redis(prepared).split_off(before);
        let embedded = self.embedded.run(steps.clone()).now_or_never().unwrap();
        self.compare(&steps, &embedded, &redis);
        async move { embedded }.boxed()
    }

    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        self.embedded.wait(key, timeout)
    }
}

fn words(words: &[&str]) -> Step {
    Step::Command(
        words
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect(),
    )
}

fn names(replies: Vec<StepResult>) -> Vec<String> {
    match replies.into_iter().next() {
        Some(Ok(Reply::Array(mut page))) => texts(Ok(page.remove(1))),
        other => panic!("a scan answers a page, not {other:?}"),
    }
}

/// The elements of an array, as text.
fn texts(reply: StepResult) -> Vec<String> {
    let Ok(Reply::Array(items)) = reply else {
        return Vec::new();
    };
    let text = |item| match item {
        Reply::Bytes(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        _ => None,
    };
    items.into_iter().filter_map(text).collect()
}

/// TIME differs, and so does the order of what has none; the whole store is compared besides.
fn is_compared(step: &Step) -> bool {
    const UNORDERED: [&str; 3] = ["TIME", "HSCAN", "HGETALL"];
    !matches!(step, Step::Command(words) if UNORDERED.iter().any(|word| words[0] == word))
}

/// Errors differ in their wording between servers.
fn shown(result: &StepResult) -> String {
    match result {
        Ok(reply) => format!("{reply:?}"),
        Err(HostError::Full(_)) => "full".to_owned(),
        Err(_) => "error".to_owned(),
    }
}

#[test]
fn the_products_scripts_do_the_same_on_both_hosts() {
    let server = RedisServer::start();
    let runtime = Arc::new(Runtime::new().unwrap());
    let url = RedisUrl::parse(&server.url()).unwrap();
    let redis = runtime
        .block_on(RedisHost::connect(&url, RedisOptions::default()))
        .unwrap();
    let redis = Arc::new(redis);
    for seed in 0..SEEDS {
        runtime.block_on(redis.run(vec![words(&["FLUSHALL"])]));
        let differences = Arc::new(Mutex::new(Vec::new()));
        let mut world = World::over(seed, |clock, embedded| {
            Arc::new(BothHosts {
                clock,
                embedded,
                redis: redis.clone(),
                runtime: runtime.clone(),
                scripts: Mutex::default(),
                differences: differences.clone(),
            })
        });
        world.may_fill = false;
        world.may_fail_over = false;
        for _ in 0..STEPS {
            world.step();
            let found = differences.lock().unwrap();
            assert!(found.is_empty(), "seed {seed}:\n{}", found.join("\n"));
        }
        assert_eq!(world.broken, Vec::<String>::new(), "seed {seed}");
    }
}
