//! How fast the embedded store accepts messages without a directory and with one, and how fast it
//! starts again: `cargo run --release -p hookstash-shared --example data_dir_rates [DIRECTORY]`.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a measurement fails by panicking and reads the machine's clock"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hookstash_shared::clock::{Clock, SystemClock};
use hookstash_shared::message::{Lane, MessageId, Shard, Shards, When};
use hookstash_shared::random::SystemRandom;
use hookstash_shared::store::embedded::{DataSync, EmbeddedHost};
use hookstash_shared::store::{Enqueue, LaneLimits, Retention, Store};

/// How long each way is measured.
const TIME: Duration = Duration::from_secs(4);
/// Bytes of a message.
const BODY: usize = 1000;
/// Messages of the start that is measured.
const REPLAYED: usize = 100_000;
/// Callers at one time and messages of each call.
const SHAPES: [(usize, usize); 3] = [(1, 1), (64, 1), (8, 64)];

fn store(host: Arc<EmbeddedHost>) -> Store {
    let lease = Duration::from_secs(15);
    Store::new(host, "hs", Shards::ONE, lease, Retention::default())
}

fn message(body: &Bytes) -> Enqueue {
    let id = MessageId::new(Shard::default(), 1_800_000_000_000, &SystemRandom);
    Enqueue {
        id,
        envelope: body.clone(),
        dedup_scope: None,
        lane: Lane::host("receiver.test").expect("a lane"),
        host: "receiver.test".to_owned(),
        when: When::Now,
        retries: 3,
        limits: LaneLimits::default(),
        event: Bytes::from_static(b"event"),
    }
}

/// Publishes batches until `until` says stop; how many messages were accepted.
async fn publish(store: Store, batch: usize, goes_on: impl Fn(usize) -> bool) -> usize {
    let body = Bytes::from(vec![b'x'; BODY]);
    let mut accepted = 0;
    while goes_on(accepted) {
        let messages: Vec<_> = (0..batch).map(|_| message(&body)).collect();
        for answer in store.publish(Shard::default(), &messages).await {
            answer.expect("accepted");
            accepted += 1;
        }
    }
    accepted
}

async fn rate(host: Arc<EmbeddedHost>, callers: usize, batch: usize) -> f64 {
    let started = Instant::now();
    let calls: Vec<_> = (0..callers)
        .map(|_| {
            let store = store(Arc::clone(&host));
            tokio::spawn(publish(store, batch, move |_| started.elapsed() < TIME))
        })
        .collect();
    let mut accepted = 0;
    for call in calls {
        accepted += u32::try_from(call.await.expect("a caller")).expect("a count");
    }
    f64::from(accepted) / started.elapsed().as_secs_f64()
}

fn open(path: &Path, sync: DataSync) -> Arc<EmbeddedHost> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    Arc::new(EmbeddedHost::open(path, sync, clock).expect("a store"))
}

#[tokio::main]
async fn main() {
    let parent = std::env::args().nth(1);
    let parent = parent.map_or_else(std::env::temp_dir, PathBuf::from);
    let home = parent.join(format!("hookstash-rates-{}", std::process::id()));
    println!(
        "messages of {BODY} bytes accepted per second, {} s each",
        TIME.as_secs()
    );
    println!(
        "callers x batch      memory    everysec      always   everysec/memory  always/memory"
    );
    for (number, (callers, batch)) in SHAPES.into_iter().enumerate() {
        let memory = EmbeddedHost::new(Arc::new(SystemClock::new())).expect("a store");
        let memory = rate(Arc::new(memory), callers, batch).await;
        let mut kept = Vec::new();
        for sync in [DataSync::EverySecond, DataSync::Always] {
            let path = home.join(format!("{number}-{sync:?}"));
            kept.push(rate(open(&path, sync), callers, batch).await);
        }
        println!(
            "{callers:>7} x {batch:<5} {memory:>11.0} {:>11.0} {:>11.0} {:>17.2} {:>14.2}",
            kept[0],
            kept[1],
            kept[0] / memory,
            kept[1] / memory
        );
    }
    let path = home.join("replayed");
    let host = open(&path, DataSync::EverySecond);
    publish(store(Arc::clone(&host)), 64, |accepted| accepted < REPLAYED).await;
    drop(host);
    let log = path.join("appendonly.aof");
    for what in ["effects", "a compacted log"] {
        let bytes = log.metadata().expect("a log").len();
        let started = Instant::now();
        let host = open(&path, DataSync::EverySecond);
        let took = started.elapsed();
        println!(
            "start from {what} of {REPLAYED} messages: {:.2} s for {} MB, {} keys",
            took.as_secs_f64(),
            bytes / 1_000_000,
            host.keys().len()
        );
    }
    std::fs::remove_dir_all(&home).expect("its own directory");
}
