//! What a store with a log keeps: over ends, crashes at every point, and disks that fail.

mod crashes;
mod disks;
mod endings;
mod format;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::fickle_disk::{FickleDisk, Mercy};
use super::{DataSync, Log, OpenError, Options};
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::store::embedded::EmbeddedHost;
use crate::store::host::{Host, HostError, Reply, Step, StepResult};
use crate::store::script::Script;

/// Nothing of what was not synced.
const NO_MERCY: Mercy = Mercy {
    bytes: 0,
    names: false,
};

const ALWAYS: Options = Options {
    sync: DataSync::Always,
    compact_from_bytes: u64::MAX,
};

const EVERY_SECOND: Options = Options {
    sync: DataSync::EverySecond,
    compact_from_bytes: u64::MAX,
};

fn try_open_at(
    disk: &FickleDisk,
    options: Options,
    clock: Arc<dyn Clock>,
) -> Result<EmbeddedHost, OpenError> {
    let (keyspace, log) = Log::open_on(Arc::new(disk.clone()), options, &clock)?;
    EmbeddedHost::resume(keyspace, log, clock)
}

fn open_at(disk: &FickleDisk, options: Options, clock: &Arc<ManualClock>) -> EmbeddedHost {
    let clock: Arc<ManualClock> = Arc::clone(clock);
    try_open_at(disk, options, clock).unwrap()
}

fn open(disk: &FickleDisk, options: Options) -> EmbeddedHost {
    try_open_at(disk, options, Arc::new(SystemClock::new())).unwrap()
}

fn words(line: &str) -> Vec<Bytes> {
    let word = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    line.split(' ').map(word).collect()
}

async fn try_run(host: &EmbeddedHost, line: &str) -> StepResult {
    host.run(vec![Step::Command(words(line))]).await.remove(0)
}

async fn run(host: &EmbeddedHost, line: &str) -> Reply {
    let result = try_run(host, line).await;
    result.unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// A step with two effects that belong together.
fn accept(id: usize, body: &str) -> Step {
    static ACCEPT: std::sync::LazyLock<Script> = std::sync::LazyLock::new(|| {
        let source = "redis.call('SET', 'b:' .. ARGV[1], ARGV[2]) \
                      return redis.call('RPUSH', 'ids', ARGV[1])";
        Script::new("accept", &[source])
    });
    Step::Script {
        script: &ACCEPT,
        keys: vec![Bytes::from_static(b"ids")],
        args: vec![Bytes::from(id.to_string()), Bytes::from(body.to_owned())],
    }
}

/// The ids that `host` has; panics when it has half of one.
async fn accepted(host: &EmbeddedHost) -> Vec<usize> {
    let Reply::Array(ids) = run(host, "LRANGE ids 0 -1").await else {
        panic!("no list");
    };
    let keys: BTreeSet<Bytes> = host.keys().into_iter().collect();
    let mut found = Vec::new();
    for id in ids {
        let Reply::Bytes(id) = id else {
            panic!("{id:?} is no id")
        };
        let id = std::str::from_utf8(&id).unwrap().to_owned();
        assert!(keys.contains(format!("b:{id}").as_bytes()), "{id}");
        found.push(id.parse().unwrap());
    }
    let bodies = keys.iter().filter(|key| key.starts_with(b"b:")).count();
    assert_eq!(bodies, found.len(), "a body without its id");
    found
}

/// A store with a value of every kind, some with an end.
async fn fill(host: &EmbeddedHost) {
    for line in [
        "SET text hello PX 60000",
        "SET guarded x EX 600",
        "PERSIST guarded",
        "APPEND guarded y",
        "INCRBY number -7",
        "RPUSH list a b c d",
        "LPUSH list z",
        "LPOP list 2",
        "HSET hash f v g w",
        "HINCRBY hash n 5",
        "HDEL hash g",
        "PEXPIRE hash 90000",
        "SADD set a b",
        "SREM set a",
        "ZADD zset 1.5 a -inf b inf c 0.1 d",
        "ZINCRBY zset 2 a",
        "ZPOPMIN zset",
        "XADD stream * f v",
        "XADD stream MAXLEN = 2 * f w",
        "XADD stream MAXLEN = 2 * f x",
        "XADD empty * f v",
        "XTRIM empty MAXLEN = 0",
        "XADD holed 1-1 f v",
        "XADD holed 5-5 f v",
        "XDEL holed 5-5",
        "SET old v",
        "RENAME old new",
        "SET gone v",
        "EXPIRE gone -1",
    ] {
        run(host, line).await;
    }
    let odd = Bytes::from_static(b"\0\r\n*1\r\n$4\r\nEXEC\r\n\xff");
    let set = vec![Bytes::from_static(b"SET"), odd.clone(), odd.clone()];
    host.run(vec![Step::Command(set)]).await.remove(0).unwrap();
    for number in 0..200 {
        let line = format!("ZADD many {number} m{number}");
        run(host, &line).await;
        run(host, &format!("HSET fields f{number} {number}")).await;
        run(host, &format!("RPUSH long {number}")).await;
    }
}
