//! What all machines of a run share: the store, what was promised, what the receiver saw, and the
//! one place where something is made to happen at a chosen await.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hookstash_shared::clock::Clock;
use hookstash_shared::random::SeededRandom;
use hookstash_shared::store::embedded::EmbeddedHost;
use tokio::time::Instant;

use super::clock::SimClock;
use super::ledger::Ledger;
use super::process::Control;

/// An await of a worker where its environment can do something to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// A request to the store, not sent yet.
    Request,
    /// Its effect is there, its reply is not.
    Reply,
    /// A call, not received yet.
    Call,
    /// Received and not answered.
    Received,
    /// Answered, the answer not read.
    Answered,
}

/// What happens there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strike {
    /// The process is killed.
    Crash,
    /// The request or the reply is lost; nothing at a call.
    Lose,
    /// The store refuses for now; nothing at a reply or a call.
    Refuse,
    /// The process is not polled for a time.
    Freeze(Duration),
    /// The first signal.
    Drain,
    /// The first signal, and the second at once.
    Stop,
    /// The store is away for a time.
    Outage(Outage, Duration),
    /// The link of this process is cut for a time.
    Cut(Duration),
    /// The wall time of the store's machine steps.
    Step(i64),
    /// The store comes back empty.
    Empty,
    /// The store is out of memory from here on, until the end of the story.
    Fill,
}

/// How a store is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// It refuses at once.
    Refusing,
    /// It never answers.
    Silent,
}

/// What an await learns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Go,
    Lose,
    Refuse,
}

pub struct Ground {
    pub clock: Arc<SimClock>,
    pub embedded: EmbeddedHost,
    pub random: SeededRandom,
    /// Longest time a request travels.
    pub latency_ms: u64,
    pub body_budget: u64,
    ledger: Mutex<Ledger>,
    points: Mutex<Points>,
    outage: Mutex<Option<(Outage, Instant)>>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
}

#[derive(Default)]
struct Points {
    /// Where each await so far was.
    seen: Vec<At>,
    strikes: Vec<(usize, Strike)>,
}

impl Ground {
    pub fn new(seed: u64, latency_ms: u64, body_budget: u64) -> Arc<Self> {
        let clock = Arc::new(SimClock::new());
        let embedded = EmbeddedHost::new(Arc::clone(&clock) as _).expect("the host starts");
        embedded.take_effects();
        Arc::new(Self {
            clock,
            embedded,
            random: SeededRandom::new(seed),
            latency_ms,
            body_budget,
            ledger: Mutex::default(),
            points: Mutex::default(),
            outage: Mutex::default(),
            counts: Mutex::default(),
        })
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("no panic")
    }

    pub fn note(&self, what: impl Into<String>) {
        let at = self.clock.monotonic().as_millis();
        self.ledger().trace.push(format!("{at} {}", what.into()));
    }

    pub fn breaks(&self, what: impl Into<String>) {
        let what = what.into();
        self.note(format!("BROKEN {what}"));
        self.ledger().broken.push(what);
    }

    pub fn count(&self, what: &'static str) {
        *self
            .counts
            .lock()
            .expect("no panic")
            .entry(what)
            .or_default() += 1;
    }

    /// How often each script, command and wait reached the store since this was last asked.
    pub fn take_counts(&self) -> BTreeMap<&'static str, u64> {
        std::mem::take(&mut *self.counts.lock().expect("no panic"))
    }

    /// Lets `strike` happen at the await number `at`.
    pub fn strike_at(&self, at: usize, strike: Strike) {
        self.points
            .lock()
            .expect("no panic")
            .strikes
            .push((at, strike));
    }

    /// Lets `strike` happen at the await that comes after `more` others.
    pub fn strike_after(&self, more: usize, strike: Strike) {
        let mut points = self.points.lock().expect("no panic");
        let at = points.seen.len() + more;
        points.strikes.push((at, strike));
    }

    /// The awaits so far.
    pub fn points(&self) -> Vec<At> {
        self.points.lock().expect("no panic").seen.clone()
    }

    /// An await of a process: what happens at it.
    pub async fn point(&self, at: At, control: &Arc<Control>) -> Verdict {
        let strike = {
            let mut points = self.points.lock().expect("no panic");
            let number = points.seen.len();
            points.seen.push(at);
            let index = points.strikes.iter().position(|(at, _)| *at == number);
            index.map(|index| points.strikes.swap_remove(index))
        };
        let Some((_, strike)) = strike else {
            return Verdict::Go;
        };
        self.note(format!("{strike:?} at {at:?} of w{}", control.number));
        let is_store = matches!(at, At::Request | At::Reply);
        match strike {
            Strike::Lose if is_store => return Verdict::Lose,
            Strike::Refuse if at == At::Request => return Verdict::Refuse,
            Strike::Lose | Strike::Refuse => {}
            Strike::Crash => control.kill(),
            Strike::Freeze(time) => control.freeze(time),
            Strike::Drain => control.drain(),
            Strike::Stop => {
                control.drain();
                control.stop();
            }
            Strike::Outage(kind, time) => self.away(kind, time),
            Strike::Cut(time) => {
                *control.cut_until.lock().expect("no panic") = Some(Instant::now() + time);
            }
            Strike::Step(ms) => self.clock.step(ms),
            Strike::Empty => self.empty(),
            Strike::Fill => self.embedded.set_full(true),
        }
        control.alive().await;
        Verdict::Go
    }

    /// The store is away for `time`.
    pub fn away(&self, kind: Outage, time: Duration) {
        self.note(format!("away, {kind:?}, for {time:?}"));
        *self.outage.lock().expect("no panic") = Some((kind, Instant::now() + time));
    }

    /// The end of an outage at which nobody has looked yet.
    pub fn take_outage(&self) -> Option<Instant> {
        let mut outage = self.outage.lock().expect("no panic");
        let over = outage.take_if(|(_, until)| *until <= Instant::now());
        over.map(|(_, until)| until)
    }

    /// The store is there, and nothing is made to happen any more.
    pub fn calm(&self) {
        if let Some((_, until)) = &mut *self.outage.lock().expect("no panic") {
            *until = (*until).min(Instant::now());
        }
        self.points.lock().expect("no panic").strikes.clear();
    }

    /// How the store is away now.
    pub fn outage(&self) -> Option<Outage> {
        let outage = *self.outage.lock().expect("no panic");
        outage.and_then(|(kind, until)| (Instant::now() < until).then_some(kind))
    }

    /// The store comes back empty: what it held is lost, and nobody is told.
    pub fn empty(&self) {
        self.note("emptied");
        self.embedded
            .restore(hookstash_shared::store::embedded::Keyspace::default());
        self.ledger().emptied();
    }
}
