//! Seeded simulation of production's worker: the same claimer, intake, dispatch, delivery,
//! settlement, heart, sweeper and supervisor, over the embedded host and faults in front of it, in
//! one thread whose time moves only when everything is idle. The HTTP call is replaced at its one
//! seam by a receiver that plays by a script. A worker can be killed or frozen at any await.
//!
//! `SIM_SEED`, `SIM_SEEDS` and `SIM_GREP` work as for the simulation of the scripts; `SIM_FULL=1`
//! leaves out no await.

mod callbacks;
mod caller;
mod clock;
mod ground;
mod idle;
mod ledger;
mod process;
mod scene;
mod schedules;
mod seeds;
mod story;
mod tap;
mod wire;

use std::time::Duration;

const LEASE: Duration = Duration::from_secs(15);
const RENEW: Duration = Duration::from_secs(5);

/// Runs `future` in a runtime of its own whose time is virtual.
fn in_virtual_time<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, future)
}

#[expect(
    clippy::disallowed_methods,
    reason = "for the report of a whole test only"
)]
fn stopwatch() -> std::time::Instant {
    std::time::Instant::now()
}

/// Whether to play everything, in whatever time.
fn is_full() -> bool {
    crate::word("SIM_FULL").is_some()
}

fn report(what: &str, count: usize, lasted: Duration, begun: std::time::Instant) {
    let hours = lasted.as_secs() / 3600;
    println!(
        "{count} {what}, {hours} virtual hours, {:?}",
        begun.elapsed()
    );
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Played {
    broken: Vec<String>,
    trace: Vec<String>,
    /// How many awaits of workers there were.
    points: usize,
    /// Virtual time it took.
    lasted: Duration,
}

impl Played {
    fn of(scene: &scene::Scene) -> Self {
        let mut ledger = scene.ground.ledger();
        Self {
            broken: std::mem::take(&mut ledger.broken),
            trace: std::mem::take(&mut ledger.trace),
            points: scene.ground.points().len(),
            lasted: scene.now(),
        }
    }
}

/// Plays every run on two threads; the first that breaks fails the test with its trace. Returns how
/// many were played, and the virtual time of all.
fn play_all<R>(
    runs: Vec<R>,
    play: impl Fn(R) -> Played + Send + Copy + 'static,
) -> (usize, Duration)
where
    R: std::fmt::Debug + Copy + Send + 'static,
{
    let count = runs.len();
    let mut halves = [Vec::new(), Vec::new()];
    for (index, run) in runs.into_iter().enumerate() {
        halves[index % 2].push(run);
    }
    let halves = halves.map(|half| {
        std::thread::spawn(move || {
            let mut lasted = Duration::ZERO;
            for run in half {
                let played = play(run);
                lasted += played.lasted;
                if !played.broken.is_empty() {
                    return Err((format!("{run:?}"), played));
                }
            }
            Ok(lasted)
        })
    });
    let mut lasted = Duration::ZERO;
    for half in halves {
        match half.join().expect("a simulation does not panic") {
            Ok(more) => lasted += more,
            Err((run, played)) => crate::fail(&run, &played.broken, &played.trace),
        }
    }
    (count, lasted)
}
