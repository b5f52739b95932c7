//! Publishers, workers and operators over one embedded shard and a manual clock, under a seeded
//! scheduler that loses and delays replies, crashes and freezes workers, steps the clock, fills and
//! empties the store.

mod drain;
mod machine;
mod operators;
mod publishing;
mod schedules;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::{Clock, ManualClock};
use hookstash_shared::message::{Lane, MessageId, Shard, Shards, When};
use hookstash_shared::random::{Random, SeededRandom};
use hookstash_shared::store::embedded::{EmbeddedHost, Keyspace};
use hookstash_shared::store::host::{Host, HostError};
use hookstash_shared::store::{
    Accepted, AuditWalk, Child, Completion, CompletionKey, Enqueue, Exchange, Exchanged, Held,
    LOST_MAX, LaneChange, LaneLimits, Lease, LeaseToken, Outcome, Retention, Settlement, Store,
    Withdrawn,
};
use hookstash_worker::contact::Contact;
use hookstash_worker::fairness::fair;

use super::laws;
use super::observer::Observer;
use super::view::{View, block_on, run};
use schedules::Schedule;

pub const PREFIX: &str = "hs:{0}:";
pub const LEASE: Duration = Duration::from_secs(15);
const START_MS: u64 = 1_800_000_000_000;
const QUEUES: [(&str, u32); 3] = [("a", 1), ("b", 2), ("c", 3)];
const HOSTS: [&str; 3] = ["h1.test", "h2.test", "h3.test"];
const PENDING_MAX: usize = 64;
const SNAPSHOTS_MAX: usize = 6;

/// A flow key: its name and its limits.
const FLOWS: [(&str, LaneLimits); 4] = [
    (
        "f1",
        LaneLimits {
            cap: 0,
            rate: 3,
            period_ms: 2000,
        },
    ),
    (
        "f2",
        LaneLimits {
            cap: 2,
            rate: 0,
            period_ms: 0,
        },
    ),
    (
        "f3",
        LaneLimits {
            cap: 0,
            rate: 3,
            period_ms: 2000,
        },
    ),
    (
        "f4",
        LaneLimits {
            cap: 2,
            rate: 0,
            period_ms: 0,
        },
    ),
];

/// What the network does to one call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Net {
    Good,
    LostBefore,
    LostAfter,
    Late,
}

/// How the receiver will treat a message, and which callbacks it has.
#[derive(Clone, Copy, Default)]
struct Plan {
    callback: bool,
    failure_callback: bool,
}

struct Pending {
    message: Enqueue,
    until: Duration,
}

/// A message in a worker's hands.
struct Holding {
    lease: Lease,
    calling: bool,
    /// When the exchange or renewal that confirmed it was sent, by the worker's clock.
    confirmed: Duration,
    /// How often the store had been emptied when it was leased.
    life: u32,
}

struct Worker {
    number: usize,
    slots: u64,
    frozen_until: Duration,
    contact: Contact,
    held: BTreeMap<(MessageId, LeaseToken), Holding>,
    unsettled: Vec<Settlement>,
}

/// What the store held, and what the world knew of it.
struct Snapshot {
    keyspace: Keyspace,
    schedule: Schedule,
    completions: BTreeMap<String, Bytes>,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fault that is on or off"
)]
pub struct World {
    random: SeededRandom,
    clock: Arc<ManualClock>,
    embedded: Arc<EmbeddedHost>,
    /// What the store runs on: the embedded host, or something in front of it.
    host: Arc<dyn Host>,
    /// Whether memory may run out.
    pub may_fill: bool,
    /// Whether the store may fall back to an earlier state.
    pub may_fail_over: bool,
    snapshots: Vec<Snapshot>,
    /// An audit under way: its cursor and what it has seen.
    walk: Option<(u64, AuditWalk)>,
    differences: BTreeMap<String, i64>,
    store: Store,
    workers: Vec<Worker>,
    workers_made: usize,
    pending: VecDeque<Pending>,
    late: VecDeque<(usize, Duration, u32, Exchanged)>,
    plans: BTreeMap<MessageId, Plan>,
    pub accepted: BTreeSet<MessageId>,
    /// Calls begun, by message and by how often the store had been emptied when it was leased.
    attempts: BTreeMap<(MessageId, u32), u64>,
    emptied: u32,
    completions: BTreeMap<String, Bytes>,
    schedule: Schedule,
    pub observer: Observer,
    is_full: bool,
    /// Whether an exchange changed anything since this was last asked.
    has_changed: bool,
    /// A lane whose state is added to the trace after every step.
    pub watched: Option<String>,
    pub trace: Vec<String>,
    pub broken: Vec<String>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        Self::over(seed, |_, embedded| embedded)
    }

    /// A world whose store runs on what `wrap` puts in front of the embedded host.
    pub fn over(
        seed: u64,
        wrap: impl FnOnce(Arc<ManualClock>, Arc<EmbeddedHost>) -> Arc<dyn Host>,
    ) -> Self {
        let clock = Arc::new(ManualClock::at(START_MS));
        let embedded = Arc::new(EmbeddedHost::new(clock.clone()).expect("the host starts"));
        let host = wrap(clock.clone(), embedded.clone());
        let store = Store::new(host.clone(), "hs", Shards::ONE, LEASE, Retention::default());
        let mut world = Self {
            random: SeededRandom::new(seed),
            clock,
            embedded,
            host,
            may_fill: true,
            may_fail_over: true,
            snapshots: Vec::new(),
            walk: None,
            differences: BTreeMap::new(),
            store,
            workers: Vec::new(),
            workers_made: 0,
            pending: VecDeque::new(),
            late: VecDeque::new(),
            plans: BTreeMap::new(),
            accepted: BTreeSet::new(),
            attempts: BTreeMap::new(),
            emptied: 0,
            completions: BTreeMap::new(),
            schedule: Schedule::default(),
            observer: Observer::default(),
            is_full: false,
            has_changed: false,
            watched: None,
            trace: Vec::new(),
            broken: Vec::new(),
        };
        for _ in 0..3 {
            world.add_worker();
        }
        world.set_up();
        world
    }

    /// Queues with their caps, and a schedule.
    fn set_up(&mut self) {
        for (name, cap) in QUEUES {
            let change = LaneChange {
                cap: Some(cap),
                ..LaneChange::default()
            };
            block_on(self.store.set_lane(shard(), &queue(name), change)).expect("set a queue");
        }
        self.put_schedule();
    }

    fn add_worker(&mut self) {
        let slots = [2, 4, 8][self.below(3)];
        self.workers.push(Worker {
            number: self.workers_made,
            slots,
            frozen_until: Duration::ZERO,
            contact: Contact::new(LEASE),
            held: BTreeMap::new(),
            unsettled: Vec::new(),
        });
        self.workers_made += 1;
    }

    fn below(&self, n: usize) -> usize {
        usize::try_from(self.random.below(n as u64)).expect("small")
    }

    fn chance(&self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn note(&mut self, what: &str) {
        self.trace
            .push(format!("{} {what}", self.clock.monotonic().as_millis()));
    }

    fn fresh_id(&self) -> MessageId {
        MessageId::new(shard(), self.clock.now_ms(), &self.random)
    }

    fn net(&self) -> Net {
        match self.random.below(100) {
            0..4 => Net::LostBefore,
            4..9 => Net::LostAfter,
            9..12 => Net::Late,
            _ => Net::Good,
        }
    }

    pub fn step(&mut self) {
        match self.random.below(1000) {
            0..180 => self.advance(),
            180..330 => self.publish_new(),
            330..360 => self.publish_again(),
            360..570 => {
                let worker = self.below(self.workers.len());
                self.exchange(worker);
            }
            570..700 => self.start_call(),
            700..820 => self.end_call(None),
            820..860 => self.renew_all(),
            860..870 => self.cancel(),
            870..882 => self.redrive(),
            882..902 => self.pause_or_resume(),
            902..908 => self.restart_window(),
            908..912 => self.delete_queue(),
            912..925 => self.sweep(),
            925..940 => self.schedule(),
            940..945 => self.complete(),
            945..950 => self.crash_or_stop(),
            950..957 => self.freeze(),
            957..963 => self.step_clock(),
            963..969 => self.toggle_full(),
            969..970 => self.empty(),
            970..972 => self.fail_over(),
            972..977 => self.audit(),
            977..980 => self.delete_dead_letter(),
            980..990 => self.deliver_late(),
            _ => self.clock.advance(Duration::from_millis(10)),
        }
        self.check();
        self.keep_snapshot();
    }

    fn advance(&mut self) {
        let ms = [0, 1, 5, 50, 300, 1000, 2500][self.below(7)];
        self.clock.advance(Duration::from_millis(ms));
    }

    /// Checks every law on what the store holds now.
    fn check(&mut self) {
        let view = View::read(&self.embedded, PREFIX);
        if let Some(lane) = &self.watched {
            self.trace.push(view.describe(lane));
        }
        let mut broken = laws::broken(&view);
        broken.extend(self.observer.observe(view));
        if !broken.is_empty() {
            self.broken.extend(broken);
        }
    }
}

fn shard() -> Shard {
    Shard::default()
}

fn queue(name: &str) -> Lane {
    Lane::queue(name).expect("a queue name")
}

fn flow(name: &str) -> Lane {
    Lane::flow(name.as_bytes()).expect("a flow key")
}
