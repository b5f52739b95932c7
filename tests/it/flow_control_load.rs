//! Many flow-control keys with limits of their own on four worker processes.
//!
//! `HOOKSTASH_TEST_FLOW_FULL=1` runs them at full size: 1,000 keys and 50,000 messages.

use std::time::{Duration, Instant};

use hookstash_shared::message::{Lane, NewMessageBuilder, shard_of_lane};
use hookstash_shared::store::LaneChange;

use crate::support::meter::Meter;
use crate::support::process::Process;
use crate::support::program::Program;
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;
use crate::support::stage::{SOON, Stage, message};

const WORKERS: usize = 4;
/// Time for all deliveries of a load, on a busy machine too.
const LOAD_TIME: Duration = Duration::from_mins(5);
/// Longest way of a message from its admission to the receiver on a busy machine.
const WAY: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(3);

/// How large a load is.
#[derive(Clone, Copy)]
struct Size {
    keys: usize,
    messages_of_each: usize,
}

const USUAL: Size = Size {
    keys: 200,
    messages_of_each: 20,
};
const FULL: Size = Size {
    keys: 1_000,
    messages_of_each: 50,
};

fn size() -> Size {
    match std::env::var_os("HOOKSTASH_TEST_FLOW_FULL") {
        Some(_) => FULL,
        None => USUAL,
    }
}

/// A Redis, publishing to it, and what its workers are told.
fn stage() -> Stage {
    Stage::on_server(RedisServer::start(), Duration::from_secs(15), 1)
}

async fn workers(stage: &Stage, slots: &str) -> Vec<Process> {
    let redis = stage.redis.as_ref().unwrap();
    let env = [
        ("HOOKSTASH_LEASE", "15s"),
        ("HOOKSTASH_RENEW", "5s"),
        ("HOOKSTASH_SLOTS", slots),
    ];
    let mut workers = Vec::new();
    for _ in 0..WORKERS {
        workers.push(Program::worker(redis, &env).await);
    }
    workers
}

/// What a key allows.
#[derive(Debug, Clone, Copy, Default)]
struct Limits {
    cap: Option<u32>,
    rate: Option<u32>,
}

/// The limits of key `n`: a cap of 1 to 10, a rate that takes two to six periods, or both.
fn limits(n: usize, size: Size) -> Limits {
    let number = |n: usize| u32::try_from(n).unwrap();
    let cap = Some(number(1 + n / 3 % 10));
    let rate = Some(number(size.messages_of_each / (2 + n / 3 % 5)));
    match n % 3 {
        0 => Limits { cap, rate: None },
        1 => Limits { cap: None, rate },
        _ => Limits { cap, rate },
    }
}

fn of_key(url: &str, key: &str, limits: Limits, period: Duration) -> NewMessageBuilder {
    let message = message(url).retries(0).timeout(LOAD_TIME);
    let limited = message.flow_control(key.as_bytes(), limits.cap, limits.rate, Some(period));
    limited.expect("limits")
}

#[tokio::test]
async fn no_key_of_many_exceeds_its_parallelism_or_its_rate_on_four_workers() {
    let size = size();
    let stage = stage();
    let meter = Meter::start(size.keys);
    let begun = Instant::now();
    for _ in 0..size.messages_of_each {
        let one = |n: usize| {
            let hold = Duration::from_millis(20 + n as u64 % 80);
            let name = format!("key {n}");
            of_key(&meter.url(n, hold), &name, limits(n, size), PERIOD)
        };
        stage.publish_all((0..size.keys).map(one).collect()).await;
    }
    let published = begun.elapsed();
    // Only now, so that every key has as much as it can bear.
    let _workers = workers(&stage, "128").await;
    let begun = Instant::now();
    let total = size.keys * size.messages_of_each;
    meter.wait_for(total, LOAD_TIME).await;
    let (mut at_cap, mut closest) = (0, Duration::MAX);
    for n in 0..size.keys {
        let limits = limits(n, size);
        let arrivals = meter.arrivals(n);
        assert_eq!(arrivals.len(), size.messages_of_each, "key {n}: each once");
        if let Some(cap) = limits.cap {
            let most = meter.active_max(n);
            assert!(most <= cap as usize, "key {n}: {most} calls, {limits:?}");
            at_cap += usize::from(most == cap as usize);
        }
        if let Some(rate) = limits.rate {
            // A fixed window lets two windows' calls come together, and no more of the next before
            // a whole period is over.
            for (earlier, later) in arrivals.iter().zip(arrivals.iter().skip(2 * rate as usize)) {
                closest = closest.min(*later - *earlier);
            }
        }
    }
    println!(
        "{total} messages of {} keys: published in {published:?}, delivered in {:?}; {at_cap} keys \
         reached their cap; 2 x rate + 1 calls took at least {closest:?}, the period is {PERIOD:?}",
        size.keys,
        begun.elapsed()
    );
    assert!(closest + WAY >= PERIOD, "{closest:?}");
    assert!(at_cap > 0, "the load is too light to tell");
}

/// The slowest but one in a hundred of messages that go through one free key after the other.
async fn p99(stage: &Stage, meter: &Meter, free: usize) -> Duration {
    const PROBES: usize = 300;
    let limits = Limits {
        cap: Some(2),
        rate: None,
    };
    let mut took = Vec::new();
    for n in 0..PROBES {
        let (before, begun) = (meter.total(), Instant::now());
        let url = meter.url(n % free, Duration::ZERO);
        stage
            .publish(of_key(&url, &format!("free {}", n % free), limits, PERIOD))
            .await;
        meter.wait_for(before + 1, SOON).await;
        took.push(begun.elapsed());
    }
    took.sort();
    took[PROBES * 99 / 100]
}

#[tokio::test]
async fn o01_keys_that_are_blocked_delay_no_other_key() {
    const FREE: usize = 20;
    let size = size();
    let (blocked, messages) = (size.keys / 2, size.messages_of_each);
    let stage = stage();
    let _workers = workers(&stage, "256").await;
    let meter = Meter::start(FREE + blocked);
    let hanging = Receiver::always(Answer::hang());
    p99(&stage, &meter, FREE).await;
    let alone = p99(&stage, &meter, FREE).await;

    // A third is paused, a third waits for its rate, a third for a call that hangs.
    let shards = stage.store.shards();
    for n in (0..blocked).step_by(3) {
        let lane = Lane::flow(format!("blocked {n}").as_bytes()).unwrap();
        let paused = LaneChange {
            paused: Some(true),
            ..LaneChange::default()
        };
        let shard = shard_of_lane(&lane, shards);
        stage.store.set_lane(shard, &lane, paused).await.unwrap();
    }
    let one = |n: usize| {
        let (cap, rate) = (Some(1), (n % 3 == 1).then_some(1));
        let url = if n % 3 == 2 {
            hanging.url("/hang")
        } else {
            meter.url(FREE + n, Duration::ZERO)
        };
        let period = Duration::from_hours(1);
        of_key(&url, &format!("blocked {n}"), Limits { cap, rate }, period)
    };
    let count = |kind: usize| (0..blocked).filter(|n| n % 3 == kind).count();
    let before = meter.total();
    for _ in 0..messages {
        stage.publish_all((0..blocked).map(one).collect()).await;
    }
    meter.wait_for(before + count(1), SOON).await;
    hanging.wait_for(count(2), SOON).await;
    let beside = p99(&stage, &meter, FREE).await;
    println!(
        "p99 of a free key: {alone:?} alone, {beside:?} beside {blocked} blocked keys with {} \
         messages, ratio {:.2}",
        blocked * messages,
        beside.as_secs_f64() / alone.as_secs_f64()
    );
    // Below some milliseconds the machine's own noise is what is measured.
    let bar = 3 * alone.max(Duration::from_millis(10));
    assert!(
        beside <= bar,
        "p99 {beside:?} beside blocked keys, {alone:?} alone"
    );
    for n in 0..blocked {
        let came = meter.arrivals(FREE + n).len();
        assert_eq!(came, usize::from(n % 3 == 1), "blocked key {n}");
    }
}

/// What clients have asked of the server, and what the server has done for them.
struct Commands {
    asked: u64,
    done: u64,
}

/// Over `time`, without what the sweeper walks: a page of it is one HSCAN, one TIME and one script.
async fn commands(redis: &RedisServer, time: Duration) -> Commands {
    let () = redis.cli(&["CONFIG", "RESETSTAT"]);
    tokio::time::sleep(time).await;
    let stats: String = redis.cli(&["INFO", "commandstats"]);
    let calls = |name: &str| -> u64 {
        let line = format!("cmdstat_{name}:calls=");
        let line = stats.lines().find_map(|one| one.strip_prefix(&line));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    };
    let all = stats
        .lines()
        .filter_map(|line| line.strip_prefix("cmdstat_"));
    let done = all
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| calls(name))
        .sum();
    let asked = calls("evalsha") + calls("eval") + calls("blpop");
    let walked = calls("hscan");
    Commands {
        asked: asked.saturating_sub(walked),
        done,
    }
}

#[tokio::test]
async fn messages_that_wait_for_their_rate_are_not_polled_for() {
    const WATCH: Duration = Duration::from_secs(10);
    const RATE: u32 = 2;
    let size = size();
    let messages_of_each = size.messages_of_each / 2;
    let stage = stage();
    let redis = stage.redis.as_ref().unwrap();
    let _workers = workers(&stage, "128").await;
    let meter = Meter::start(size.keys);
    let idle = commands(redis, WATCH).await;

    // Their second window opens after the watch has ended.
    let period = Duration::from_secs(40) * u32::try_from(size.keys.div_ceil(200)).unwrap();
    let limits = Limits {
        cap: None,
        rate: Some(RATE),
    };
    let one = |n: usize| {
        let url = meter.url(n, Duration::ZERO);
        of_key(&url, &format!("key {n}"), limits, period)
    };
    let begun = Instant::now();
    for _ in 0..messages_of_each {
        stage.publish_all((0..size.keys).map(one).collect()).await;
    }
    let admitted = size.keys * RATE as usize;
    meter.wait_for(admitted, SOON).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let waiting = commands(redis, WATCH).await;
    let is_whole = begun.elapsed() < period;
    println!(
        "in {WATCH:?}: idle {} asked, {} done; with {} messages waiting for their rate {} asked, \
         {} done",
        idle.asked,
        idle.done,
        size.keys * messages_of_each - admitted,
        waiting.asked,
        waiting.done
    );
    assert!(is_whole, "the machine is too slow for this test");
    assert_eq!(meter.total(), admitted, "no more than their rate");
    // Each worker may have a beat and a look more in one watch than in the other.
    let chance = 3 * WORKERS as u64;
    assert!(
        waiting.asked <= idle.asked + chance && waiting.done <= 2 * idle.done,
        "{} asked and {} done, idle {} and {}",
        waiting.asked,
        waiting.done,
        idle.asked,
        idle.done
    );
    // And the next window is not missed.
    meter.wait_for(2 * admitted, period + SOON).await;
    for n in 0..size.keys {
        let arrivals = meter.arrivals(n);
        let second = arrivals[RATE as usize] - arrivals[0];
        let is_on_time = second + WAY >= period && second <= period + SOON;
        assert!(is_on_time, "key {n}: {second:?}");
    }
}
