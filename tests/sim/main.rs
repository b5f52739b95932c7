//! Seeded simulation of the store's scripts: the laws hold after every step of every seed.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod bench;
mod exchanges;
mod hazards;
mod laws;
mod observer;
mod repairs;
mod view;
mod worker;
mod world;

use world::World;

const STEPS: usize = 120;
const SEEDS: u64 = 1000;
const TRACE_SHOWN: usize = 25;

/// Runs `seed`; what broke, and the whole trace.
fn play(seed: u64) -> (Vec<String>, Vec<String>) {
    let mut world = World::new(seed);
    world.watched = word("SIM_WATCH");
    for _ in 0..STEPS {
        world.step();
        if !world.broken.is_empty() {
            return (world.broken, world.trace);
        }
    }
    world.drain();
    (world.broken, world.trace)
}

/// `SIM_SEED=n` replays one seed, `SIM_SEEDS=n` plays that many.
fn setting(name: &str) -> Option<u64> {
    word(name)?.parse().ok()
}

/// `SIM_GREP=text` shows the operations of a failing seed that contain it; `SIM_WATCH=lane` adds the
/// state of that lane to them.
#[expect(clippy::disallowed_methods, reason = "how a person replays a seed")]
fn word(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[test]
fn the_laws_hold_on_every_seed() {
    let seeds = match setting("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("SIM_SEEDS").unwrap_or(SEEDS),
    };
    let halves: Vec<_> = [0, 1]
        .map(|half| {
            let seeds: Vec<u64> = seeds.clone().filter(|seed| seed % 2 == half).collect();
            std::thread::spawn(move || {
                seeds
                    .into_iter()
                    .map(|seed| (seed, play(seed)))
                    .find(|(_, (broken, _))| !broken.is_empty())
            })
        })
        .into_iter()
        .map(|half| half.join().expect("a simulation does not panic"))
        .collect();
    if let Some((seed, (broken, trace))) = halves.into_iter().flatten().next() {
        fail(&seed.to_string(), &broken, &trace);
    }
}

/// Fails with what broke in `run` and the end of its trace.
fn fail(run: &str, broken: &[String], trace: &[String]) -> ! {
    if let Some(part) = word("SIM_GREP") {
        trace
            .iter()
            .filter(|line| line.contains(&part))
            .for_each(|line| println!("{line}"));
    }
    let shown = trace.len().saturating_sub(TRACE_SHOWN);
    panic!(
        "{run} breaks after {} operations:\n  {}\nlast operations:\n  {}\nreplay a seed with: \
         SIM_SEED=n cargo test --test sim",
        trace.len(),
        broken.join("\n  "),
        trace[shown..].join("\n  ")
    );
}

#[test]
fn one_seed_twice_gives_the_same_trace() {
    for seed in [3, 17] {
        assert_eq!(play(seed), play(seed), "seed {seed}");
    }
}
