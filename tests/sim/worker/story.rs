//! One small story, told again with something happening at each await in turn: every kind of
//! message, every kind of end, on one worker and on two.

use std::time::Duration;

use bytes::Bytes;

use super::callbacks::both;
use super::caller::Answer;
use super::ground::{Ground, Outage, Strike};
use super::ledger::Strictness;
use super::scene::Scene;
use super::{Played, in_virtual_time, play_all};

const SLOTS: usize = 4;
const BUDGET: u64 = 1 << 20;
const OK: Answer = Answer::Status(200, 5);

/// A telling of the story.
#[derive(Debug, Clone, Copy)]
struct Telling {
    workers: usize,
    strike: Option<(usize, Strike)>,
    /// A second one, of the same kind, so many awaits later.
    again_after: Option<usize>,
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// What may be demanded while `strike` happens.
fn strictness(strike: Strike) -> Strictness {
    match strike {
        Strike::Crash | Strike::Stop => Strictness::Losses,
        // A process that comes back within the lease has lost nothing.
        Strike::Freeze(time) if time > secs(7) => Strictness::Zombies,
        Strike::Cut(time) if time > secs(7) => Strictness::Zombies,
        // An overdue lease is taken back by anyone.
        Strike::Step(ms) if ms > 60_000 => Strictness::Zombies,
        Strike::Empty => Strictness::Zombies,
        _ => Strictness::NothingTwice,
    }
}

async fn tell(telling: Telling) -> Played {
    let ground = Ground::new(1, 2, BUDGET);
    if let Some((at, strike)) = telling.strike {
        ground.ledger().strictness = strictness(strike);
        ground.strike_at(at, strike);
        if let Some(more) = telling.again_after {
            ground.strike_at(at + more, strike);
        }
    }
    let mut scene = Scene::new(ground, telling.workers, SLOTS).await;
    scene.must_finish = matches!(telling.strike, Some((_, Strike::Drain)));
    let body = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let fails = [Answer::Status(500, 5), OK];
    scene.publish("h1.test/ok", body("1"), &[OK], |m| m).await;
    scene
        .publish("h1.test/retry", body("2"), &fails, |m| m.retries(1))
        .await;
    let told = |m: super::scene::Builder, fate| {
        let [each, last] = both(fate);
        m.callback(each).failure_callback(last)
    };
    let queued = |m: super::scene::Builder| m.queue("a").expect("a queue").retries(2);
    let first = |m: super::scene::Builder| told(queued(m), 1);
    scene
        .publish("h2.test/first", body("3"), &[Answer::Break(20), OK], first)
        .await;
    scene
        .publish(
            "h2.test/second",
            body("4"),
            &[Answer::Status(200, 900)],
            queued,
        )
        .await;
    scene
        .publish("h2.test/dead", body("5"), &[Answer::Status(500, 5)], |m| {
            told(m.retries(0), 2)
        })
        .await;
    scene
        .publish(
            "h3.test/slow",
            body("6"),
            &[Answer::Status(200, 8_000)],
            |m| m,
        )
        .await;
    scene
        .publish("h3.test/panic", body("7"), &[Answer::Panic, OK], |m| {
            m.retries(1)
        })
        .await;
    let limited =
        |m: super::scene::Builder| m.flow_control(b"f2", Some(2), None, None).expect("limits");
    for _ in 0..3 {
        scene
            .publish(
                "h1.test/flow",
                body("8"),
                &[Answer::Status(200, 400)],
                limited,
            )
            .await;
    }
    let long = [Answer::Status(200, 30_000)];
    let cancelled = scene
        .publish("h4.test/cancelled", body("9"), &long, |m| m)
        .await;
    scene.pass(secs(2)).await;
    scene.cancel(cancelled).await;
    scene.pass(secs(3)).await;
    scene
        .publish("h1.test/late", body("10"), &[OK], |m| m)
        .await;
    scene.pass(secs(5)).await;
    let is_away = |strike: Option<(usize, Strike)>| match strike {
        Some((_, Strike::Outage(_, time) | Strike::Cut(time))) => time,
        _ => Duration::ZERO,
    };
    scene.pass(is_away(telling.strike)).await;
    scene.finish().await;
    Played::of(&scene)
}

fn told(telling: Telling) -> Played {
    in_virtual_time(tell(telling))
}

/// The story without any strike.
fn untouched(workers: usize) -> (Telling, usize) {
    let plain = Telling {
        workers,
        strike: None,
        again_after: None,
    };
    let untouched = told(plain);
    assert_eq!(
        untouched.broken,
        Vec::<String>::new(),
        "{:#?}",
        untouched.trace
    );
    (plain, untouched.points)
}

/// An outage that ends at another moment for each await, so that it ends anywhere between two
/// tries of a worker.
fn varied(strike: Strike, at: usize) -> Strike {
    let more = Duration::from_millis(at as u64 * 373 % 5_000);
    match strike {
        Strike::Outage(kind, time) => Strike::Outage(kind, time + more),
        other => other,
    }
}

/// Tells the story with each of `strikes` at every await of it, by one worker and by two. Unless
/// `SIM_FULL` is set, at every `stride`th one only (by two workers half as many), beginning with
/// another for each strike.
fn everywhere(stride: usize, strikes: &[Strike]) {
    let begun = super::stopwatch();
    let mut tellings = Vec::new();
    for workers in [1, 2] {
        let stride = if super::is_full() {
            1
        } else {
            stride * workers
        };
        let (plain, points) = untouched(workers);
        for (index, strike) in strikes.iter().enumerate() {
            let places = (index % stride..points).step_by(stride);
            tellings.extend(places.map(|at| Telling {
                strike: Some((at, varied(*strike, at))),
                ..plain
            }));
        }
    }
    let (count, lasted) = play_all(tellings, told);
    super::report("tellings", count, lasted, begun);
}

#[test]
fn a_crash_at_any_await_loses_nothing() {
    everywhere(1, &[Strike::Crash]);
}

#[test]
fn two_crashes_at_any_two_awaits_lose_nothing() {
    let begun = super::stopwatch();
    let (plain, points) = untouched(1);
    let stride = if super::is_full() { 1 } else { 43 };
    let pairs = (0..points).flat_map(|at| (1..40).map(move |more| (at, more)));
    let tellings = pairs.step_by(stride).map(|(at, more)| Telling {
        strike: Some((at, Strike::Crash)),
        again_after: Some(more),
        ..plain
    });
    let (count, lasted) = play_all(tellings.collect(), told);
    super::report("tellings", count, lasted, begun);
}

#[test]
fn a_lost_or_refused_request_at_any_await_sends_nothing_twice() {
    everywhere(3, &[Strike::Lose, Strike::Refuse]);
}

#[test]
fn a_graceful_end_at_any_await_is_clean() {
    everywhere(1, &[Strike::Drain]);
}

#[test]
fn a_second_signal_at_any_await_hands_everything_back() {
    everywhere(3, &[Strike::Stop]);
}

#[test]
fn a_process_frozen_at_any_await_goes_on() {
    everywhere(8, &[7, 17, 40].map(|s| Strike::Freeze(secs(s))));
}

#[test]
fn an_outage_from_any_await_sends_nothing_twice() {
    everywhere(
        8,
        &[
            Strike::Outage(Outage::Refusing, secs(4)),
            Strike::Outage(Outage::Refusing, secs(40)),
            Strike::Outage(Outage::Silent, secs(20)),
        ],
    );
}

#[test]
fn a_link_cut_at_any_await_loses_nothing() {
    everywhere(9, &[6, 25].map(|s| Strike::Cut(secs(s))));
}

#[test]
fn a_step_of_the_stores_clock_at_any_await_sends_nothing_twice() {
    everywhere(9, &[-60_000, 40_000].map(Strike::Step));
}

#[test]
fn a_store_that_comes_back_empty_at_any_await_is_worked_on() {
    everywhere(6, &[Strike::Empty]);
}

#[test]
fn a_store_that_is_full_from_any_await_is_emptied() {
    everywhere(6, &[Strike::Fill]);
}

#[test]
fn one_telling_twice_gives_the_same_trace() {
    let (plain, _) = untouched(2);
    for strike in [Strike::Crash, Strike::Drain, Strike::Freeze(secs(40))] {
        let telling = Telling {
            strike: Some((40, strike)),
            ..plain
        };
        assert_eq!(told(telling), told(telling));
    }
}
