//! Random runs: everything at once.

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::store::faulty::FaultRates;

use super::callbacks::both;
use super::caller::Answer;
use super::ground::{Ground, Outage, Strike};
use super::ledger::Strictness;
use super::scene::{Builder, QUEUES, Scene};
use super::{Played, in_virtual_time, play_all};

const STEPS: usize = 30;
const SEEDS: u64 = 40;
/// Small, so that it stops leases at times.
const BUDGET: u64 = 12_000;

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// What may happen in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    /// Replies are lost, the store is away or full: nothing is sent twice.
    Rough,
    /// Workers die too.
    Deadly,
    /// Workers freeze, clocks step, links are cut, the store comes back empty.
    Wild,
}

fn weather(seed: u64) -> Weather {
    [Weather::Rough, Weather::Deadly, Weather::Wild][usize::try_from(seed % 3).expect("small")]
}

async fn run(seed: u64) -> Played {
    let ground = Ground::new(
        seed,
        [0, 3, 40][usize::try_from(seed / 3 % 3).expect("small")],
        BUDGET,
    );
    let weather = weather(seed);
    ground.ledger().strictness = match weather {
        Weather::Rough => Strictness::NothingTwice,
        Weather::Deadly => Strictness::Losses,
        Weather::Wild => Strictness::Zombies,
    };
    let slots = [2, 4, 8][usize::try_from(seed / 9 % 3).expect("small")];
    let workers = 1 + usize::try_from(seed / 27 % 3).expect("small");
    let mut scene = Scene::new(ground, workers, slots).await;
    for _ in 0..STEPS {
        step(&mut scene, weather).await;
        let ms = [0, 1, 30, 400, 1_500, 4_000, 9_000][scene.below(7)];
        scene.pass(Duration::from_millis(ms)).await;
        if scene.is_broken() {
            break;
        }
    }
    scene.finish().await;
    Played::of(&scene)
}

async fn step(scene: &mut Scene, weather: Weather) {
    match scene.below(100) {
        0..50 => publish(scene).await,
        50..56 => cancel(scene).await,
        56..60 => scene.redrive().await,
        60..64 => some(scene, |scene, index| scene.processes[index].control.drain()),
        64..70 => {
            let kind = [Outage::Refusing, Outage::Silent][scene.below(2)];
            let time = secs([1, 6, 17, 40][scene.below(4)]);
            scene.ground.away(kind, time);
        }
        70..75 => faults(scene),
        75..78 => {
            let is_full = scene.below(2) == 0;
            scene.ground.note(format!("full {is_full}"));
            scene.ground.embedded.set_full(is_full);
        }
        _ if weather == Weather::Rough => publish(scene).await,
        78..80 => some(scene, |scene, index| scene.processes[index].control.stop()),
        80..88 => {
            let more = scene.below(25);
            scene.ground.strike_after(more, Strike::Crash);
        }
        _ if weather == Weather::Deadly => publish(scene).await,
        88..92 => {
            let (more, time) = (scene.below(25), secs([1, 8, 17, 40][scene.below(4)]));
            scene.ground.strike_after(more, Strike::Freeze(time));
        }
        92..95 => {
            let (more, time) = (scene.below(25), secs([3, 12, 40][scene.below(3)]));
            scene.ground.strike_after(more, Strike::Cut(time));
        }
        95..99 => {
            let ms = [-60_000, -5_000, 1_000, 5_000, 40_000, 100_000][scene.below(6)];
            scene.ground.note(format!("clock {ms}"));
            scene.ground.clock.step(ms);
        }
        _ => scene.ground.empty(),
    }
}

fn some(scene: &mut Scene, act: impl FnOnce(&mut Scene, usize)) {
    if !scene.processes.is_empty() {
        let index = scene.below(scene.processes.len());
        let number = scene.processes[index].control.number;
        scene.ground.note(format!("a signal to w{number}"));
        act(scene, index);
    }
}

fn faults(scene: &mut Scene) {
    let rate = [0, 100, 800][scene.below(3)];
    let rates = FaultRates {
        lose_before: rate,
        lose_after: rate,
        delay: rate,
        delay_max: secs(3),
        refuse: rate,
        full: rate / 4,
        forget_scripts: rate / 4,
        cut: rate,
    };
    scene.ground.note(format!("faults {rate}"));
    scene.set_faults(rates);
}

async fn cancel(scene: &Scene) {
    let ids = scene.ground.ledger().observer.ids();
    if !ids.is_empty() {
        scene.cancel(ids[scene.below(ids.len())]).await;
    }
}

async fn publish(scene: &Scene) {
    let hosts = ["h1.test", "h2.test", "h3.test"];
    let path = format!("{}/x", hosts[scene.below(3)]);
    let body = Bytes::from(vec![b'x'; [1, 100, 5_000][scene.below(3)]]);
    let answers: Vec<Answer> = (0..=scene.below(3)).map(|_| answer(scene)).collect();
    let retries = u32::try_from(scene.below(4)).expect("small");
    let lane = scene.below(6);
    let callbacks = (scene.below(2) == 0).then(|| both(scene.below(3)));
    let make = |m: Builder| {
        let m = m.retries(retries);
        let m = match &callbacks {
            Some([each, last]) => m.callback(each.clone()).failure_callback(last.clone()),
            None => m,
        };
        match lane {
            0 | 1 => m.queue(QUEUES[lane].0).expect("a queue"),
            2 => m
                .flow_control(b"f1", None, Some(3), Some(secs(2)))
                .expect("limits"),
            3 => m.flow_control(b"f2", Some(2), None, None).expect("limits"),
            _ => m,
        }
    };
    for _ in 0..=scene.below(3) {
        scene.publish(&path, body.clone(), &answers, make).await;
    }
}

fn answer(scene: &Scene) -> Answer {
    let ms = [0, 5, 300, 3_000, 9_000, 25_000, 70_000][scene.below(7)];
    match scene.below(20) {
        0..11 => Answer::Status(200, ms),
        11..15 => Answer::Status(500, ms),
        15 => Answer::Status(410, ms),
        16..19 => Answer::Break(ms),
        _ => Answer::Panic,
    }
}

fn played(seed: u64) -> Played {
    in_virtual_time(run(seed))
}

#[test]
fn the_workers_laws_hold_on_every_seed() {
    let begun = super::stopwatch();
    let seeds = match crate::setting("SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..crate::setting("SIM_SEEDS").unwrap_or(SEEDS)).collect(),
    };
    let (count, lasted) = play_all(seeds, played);
    super::report("seeds", count, lasted, begun);
}

#[test]
fn one_seed_of_workers_twice_gives_the_same_trace() {
    for seed in [1, 2, 29] {
        assert_eq!(played(seed), played(seed), "seed {seed}");
    }
}
