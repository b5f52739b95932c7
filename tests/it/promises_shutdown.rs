//! Workers that end under load: asked to, hurried, or killed at any moment.

use std::collections::BTreeMap;
use std::time::Duration;

use hookstash_shared::random::{Random as _, SeededRandom};
use tokio::time::Instant;

use crate::support::load::{Load, accepted, all_arrive, arrivals};
use crate::support::process::Process;
use crate::support::program::{Program, SOON};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;

/// Time a process may take to end beyond what it was given.
const MARGIN: Duration = Duration::from_secs(3);

async fn publish_all(front: &Program, url: &str, count: usize) {
    const AT_ONCE: usize = 16;
    let callers = (0..AT_ONCE).map(|caller| async move {
        for number in (caller..count).step_by(AT_ONCE) {
            front
                .publish(url, &[("Upstash-Retries", "0")], number.to_string())
                .await;
        }
    });
    futures::future::join_all(callers).await;
}

/// How many messages arrived so often.
fn histogram(receiver: &Receiver) -> BTreeMap<usize, usize> {
    let mut histogram = BTreeMap::new();
    for count in arrivals(receiver).into_values() {
        *histogram.entry(count).or_default() += 1;
    }
    histogram
}

#[tokio::test]
async fn f23_a_worker_told_to_end_under_load_ends_its_calls_and_leaves_the_rest_to_others() {
    const MESSAGES: usize = 400;
    let redis = RedisServer::start();
    let receiver = Receiver::always(Answer::ok().after(Duration::from_secs(1)));
    let front = Program::role("api", &redis, &[]).await;
    publish_all(&front, &receiver.url("/"), MESSAGES).await;
    // Leases so long that what is not handed back would be missed.
    let env = [
        ("HOOKSTASH_LEASE", "60s"),
        ("HOOKSTASH_RENEW", "5s"),
        ("HOOKSTASH_SLOTS", "64"),
    ];
    for signal in ["TERM", "INT"] {
        let before = receiver.count();
        let mut worker = Program::worker(&redis, &env).await;
        receiver.wait_for(before + 64, SOON).await;
        worker.signal(signal);
        let begun = Instant::now();
        let code = worker.wait_exit(SOON).await.code();
        println!(
            "figure: {signal} with 64 calls under way: ended after {:?}",
            begun.elapsed()
        );
        assert_eq!(code, Some(0), "{}", worker.lines().join("\n"));
        let lines = worker.lines().join("\n");
        assert!(lines.contains("Finished"), "{lines}");
    }
    let begun = Instant::now();
    let _other = Program::worker(&redis, &env).await;
    receiver.wait_for(MESSAGES, Duration::from_secs(50)).await;
    println!(
        "figure: the rest was delivered within {:?}",
        begun.elapsed()
    );
    receiver
        .expect_no_more_than(MESSAGES, Duration::from_secs(2))
        .await;
    assert_eq!(histogram(&receiver), BTreeMap::from([(1, MESSAGES)]));
    assert_eq!(front.dead().await, Vec::<String>::new());
}

/// Ends a busy worker; its exit code, and how long the end took.
type End = fn(&Process);

#[tokio::test]
async fn f23_a_worker_that_must_end_at_once_under_load_repeats_what_was_under_way_and_no_more() {
    const MESSAGES: usize = 120;
    const SLOTS: usize = 32;
    let ends: [(&str, &str, End, Option<i32>, Duration); 3] = [
        (
            "a grace too short",
            "1s",
            |worker| worker.signal("TERM"),
            Some(4),
            Duration::from_secs(1),
        ),
        (
            "a second signal",
            "60s",
            |worker| {
                worker.signal("TERM");
                std::thread::sleep(Duration::from_millis(200));
                worker.signal("TERM");
            },
            Some(4),
            Duration::ZERO,
        ),
        (
            "a kill",
            "60s",
            |worker| worker.signal("KILL"),
            None,
            Duration::ZERO,
        ),
    ];
    for (name, drain, end, code, grace) in ends {
        let redis = RedisServer::start();
        let receiver = Receiver::always(Answer::ok().after(Duration::from_secs(3)));
        let front = Program::role("api", &redis, &[]).await;
        publish_all(&front, &receiver.url("/"), MESSAGES).await;
        let env = [("HOOKSTASH_DRAIN", drain), ("HOOKSTASH_SLOTS", "32")];
        let mut worker = Program::worker(&redis, &env).await;
        receiver.wait_for(SLOTS, SOON).await;
        end(&worker);
        let begun = Instant::now();
        assert_eq!(worker.wait_exit(SOON).await.code(), code, "{name}");
        let took = begun.elapsed();
        println!("figure: {name}: ended after {took:?}");
        assert!(took <= grace + MARGIN, "{name}: {took:?}");
        let _other = Program::worker(&redis, &[]).await;
        let bodies: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        all_arrive(&receiver, &bodies, SOON).await;
        // The calls that were cut, and the time in which leases come back.
        tokio::time::sleep(Duration::from_secs(6)).await;
        let histogram = histogram(&receiver);
        let twice = histogram.get(&2).copied().unwrap_or(0);
        assert!((1..=SLOTS).contains(&twice), "{name}: {histogram:?}");
        assert_eq!(
            histogram.get(&1),
            Some(&(MESSAGES - twice)),
            "{name}: {histogram:?}"
        );
        assert_eq!(front.dead().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn f15_workers_killed_at_random_moments_under_load_leave_nothing_behind() {
    const ROUNDS: usize = 15;
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let random = SeededRandom::new(seed);
    let redis = RedisServer::start_durable();
    let receiver = Receiver::with(move |request| {
        // A few are refused once, so that retries are under way too.
        let is_first = request.header("upstash-retried") == Some("0");
        let is_refused = is_first && request.text().ends_with('7');
        let time = Duration::from_millis(20);
        Answer::status(if is_refused { 503 } else { 200 }).after(time)
    });
    let front = Program::role("api", &redis, &[]).await;
    let load = Load::start("load", &front, &receiver.url("/f15"));
    for _ in 0..ROUNDS {
        let mut worker = Program::worker(&redis, &[]).await;
        tokio::time::sleep(Duration::from_millis(random.below(400))).await;
        worker.kill9();
    }
    let published = load.stop().await;
    let _last = Program::worker(&redis, &[]).await;
    let bodies = accepted(&published);
    assert_eq!(
        bodies.len(),
        published.len(),
        "the api was well all the time"
    );
    all_arrive(&receiver, &bodies, Duration::from_mins(1)).await;
    // Nothing is left in any place: accepted = delivered.
    let deadline = Instant::now() + Duration::from_mins(1);
    let left = || {
        let leased: usize = redis.cli(&["ZCARD", "hs:{0}:l"]);
        let delayed: usize = redis.cli(&["ZCARD", "hs:{0}:d"]);
        let runnable: usize = redis.cli(&["LLEN", "hs:{0}:run"]);
        leased + delayed + runnable
    };
    while left() > 0 {
        assert!(Instant::now() < deadline, "{} are left", left());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(front.dead().await, Vec::<String>::new());
    println!("figure: {} messages through {ROUNDS} kills", bodies.len());
}
