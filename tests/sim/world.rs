//! Publishers, workers and operators over one embedded shard and a manual clock, under a seeded
//! scheduler that loses and delays replies, crashes and freezes workers, steps the clock, fills and
//! empties the store.

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
    Accepted, AuditWalk, Child, Completion, Enqueue, Exchange, Exchanged, Held, LOST_MAX,
    LaneChange, LaneLimits, Lease, LeaseToken, Outcome, Retention, Settlement, Store, Tick, Ticked,
};
use hookstash_worker::contact::Contact;
use hookstash_worker::fairness::fair;

use super::laws;
use super::observer::Observer;
use super::view::{View, block_on, run};

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
    schedule_due: u64,
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
    schedule_due: u64,
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
            schedule_due: 0,
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
        self.schedule_due = self.clock.now_ms() + 60_000;
        run(&*self.host, &["SET", "hs:{0}:b:sched", "HS"]);
        run(
            &*self.host,
            &["ZADD", "hs:{0}:sc", &self.schedule_due.to_string(), "s"],
        );
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
            925..935 => self.tick(),
            935..942 => self.complete(),
            942..950 => self.crash_or_stop(),
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
        let view = View::read(&*self.embedded, PREFIX);
        if let Some(lane) = &self.watched {
            self.trace.push(view.describe(lane));
        }
        let mut broken = laws::broken(&view);
        broken.extend(self.observer.observe(view));
        if !broken.is_empty() {
            self.broken.extend(broken);
        }
    }

    // Publishing

    fn publish_new(&mut self) {
        let host = HOSTS[self.below(HOSTS.len())];
        let (lane, limits) = match self.random.below(100) {
            0..40 => (
                queue(QUEUES[self.below(QUEUES.len())].0),
                LaneLimits::default(),
            ),
            40..75 => {
                let (name, limits) = FLOWS[self.below(FLOWS.len())];
                (flow(name), limits)
            }
            _ => (
                Lane::host(host).expect("a host lane"),
                LaneLimits::default(),
            ),
        };
        let when = match self.random.below(10) {
            0 => When::After(Duration::from_millis(
                [50, 500, 3000, 20_000][self.below(4)],
            )),
            1 => When::At(self.clock.now_ms().saturating_sub(5)),
            _ => When::Now,
        };
        let id = self.fresh_id();
        let dedup_scope = self
            .chance(15)
            .then(|| format!("{lane}:{}", self.random.below(6)));
        let size = [1, 100, 5000][self.below(3)];
        let message = Enqueue {
            id,
            envelope: Bytes::from(vec![b'x'; size]),
            dedup_scope,
            lane,
            host: host.to_owned(),
            when,
            retries: u32::try_from(self.random.below(4)).expect("small"),
            limits,
            event: Bytes::new(),
        };
        let plan = Plan {
            callback: self.chance(30),
            failure_callback: self.chance(30),
        };
        self.plans.insert(id, plan);
        let until = self.clock.monotonic() + Duration::from_secs(5);
        self.publish(Pending { message, until });
    }

    fn publish_again(&mut self) {
        let Some(pending) = self.pending.pop_front() else {
            return;
        };
        if self.clock.monotonic() <= pending.until {
            self.publish(pending);
        }
    }

    fn publish(&mut self, pending: Pending) {
        let net = self.net();
        self.note(&format!(
            "publish {} {} {net:?}",
            pending.message.id, pending.message.lane
        ));
        if net == Net::LostBefore {
            return self.keep_pending(pending);
        }
        let batch = std::slice::from_ref(&pending.message);
        let result = block_on(self.store.publish(shard(), batch)).remove(0);
        if net != Net::Good {
            return self.keep_pending(pending);
        }
        match result {
            Ok(Accepted::Message(id) | Accepted::Duplicate(id)) => {
                self.accepted.insert(id);
            }
            Err(HostError::Full(_)) if self.is_full => {}
            Err(error) => self
                .broken
                .push(format!("publish {}: {error}", pending.message.id)),
        }
    }

    fn keep_pending(&mut self, pending: Pending) {
        if self.pending.len() < PENDING_MAX {
            self.pending.push_back(pending);
        }
    }

    // Workers

    fn is_frozen(&self, worker: usize) -> bool {
        self.workers[worker].frozen_until > self.clock.monotonic()
    }

    fn exchange(&mut self, index: usize) {
        if self.is_frozen(index) {
            return;
        }
        let net = self.net();
        let sent = self.clock.monotonic();
        let live: u64 = self.workers.iter().map(|w| w.slots).sum();
        let nonce = u32::try_from(self.random.below(1 << 32)).expect("32 bits");
        let worker = &self.workers[index];
        let free = worker.slots.saturating_sub(worker.held.len() as u64);
        let is_backed_up = worker.unsettled.len() as u64 > worker.slots * 2;
        let want = if is_backed_up {
            0
        } else {
            u32::try_from(free).expect("small")
        };
        let request = Exchange {
            settlements: &worker.unsettled,
            want,
            nonce,
            fair: fair(live, free, worker.slots, 1),
            may_recover: worker.contact.may_recover(sent),
            byte_budget: 16_000,
        };
        let settled: Vec<String> = worker
            .unsettled
            .iter()
            .map(|s| format!("{} {:?}", s.id, s.outcome))
            .collect();
        let line = format!(
            "exchange w{} want {want} {net:?} {settled:?}",
            worker.number
        );
        if net == Net::LostBefore {
            self.workers[index].contact.lost();
            return self.note(&line);
        }
        let result = block_on(self.store.exchange(shard(), &request));
        for settlement in request.settlements {
            self.observer.settling(settlement);
        }
        self.note(&line);
        let exchanged = match result {
            Ok(exchanged) => exchanged,
            Err(error) => return self.broken.push(format!("exchange: {error}")),
        };
        let counters = exchanged.counters;
        self.has_changed |= !exchanged.leases.is_empty()
            || !exchanged.settled.is_empty()
            || counters.promoted + counters.recovered + counters.buried > 0;
        self.observer.leased(&exchanged.leases);
        if net == Net::LostAfter {
            return self.workers[index].contact.lost();
        }
        self.workers[index].unsettled.clear();
        let number = self.workers[index].number;
        if net == Net::Late {
            self.late.push_back((number, sent, self.emptied, exchanged));
        } else {
            self.take(number, sent, self.emptied, exchanged);
        }
    }

    fn deliver_late(&mut self) {
        if let Some((number, sent, life, exchanged)) = self.late.pop_front() {
            self.note(&format!("late reply for w{number}"));
            self.take(number, sent, life, exchanged);
        }
    }

    fn take(&mut self, number: usize, sent: Duration, life: u32, exchanged: Exchanged) {
        let now = self.clock.monotonic();
        let Some(worker) = self.workers.iter_mut().find(|w| w.number == number) else {
            return;
        };
        worker.contact.replied(now, exchanged.now_ms);
        for lease in exchanged.leases {
            let key = (lease.id, lease.token);
            worker.held.insert(
                key,
                Holding {
                    lease,
                    calling: false,
                    confirmed: sent,
                    life,
                },
            );
        }
    }

    fn start_call(&mut self) {
        let index = self.below(self.workers.len());
        if self.is_frozen(index) {
            return;
        }
        let now = self.clock.monotonic();
        let worker = &mut self.workers[index];
        let Some((&key, _)) = worker.held.iter().find(|(_, h)| !h.calling) else {
            return;
        };
        let Some(holding) = worker.held.get_mut(&key) else {
            return;
        };
        if now.saturating_sub(holding.confirmed) >= LEASE {
            worker.held.remove(&key);
            return;
        }
        if holding.lease.lost >= LOST_MAX {
            let lease = worker.held.remove(&key).expect("it is held").lease;
            return self.settle_dead(index, &lease);
        }
        holding.calling = true;
        let (lease, life) = (holding.lease.clone(), holding.life);
        self.note(&format!("call w{index} {}", lease.id));
        let attempts = self.attempts.entry((lease.id, life)).or_default();
        *attempts += 1;
        if life < self.emptied {
            return;
        }
        if let Some(line) = self.observer.called(&lease, *attempts) {
            self.broken.push(line);
        }
    }

    fn settle_dead(&mut self, index: usize, lease: &Lease) {
        let plan = self.plans.get(&lease.id).copied().unwrap_or_default();
        let children = self.children(lease, u8::from(plan.failure_callback));
        self.settle(
            index,
            lease,
            Outcome::Dead {
                response: "lost".into(),
            },
            children,
        );
    }

    fn settle(&mut self, index: usize, lease: &Lease, outcome: Outcome, children: Vec<Child>) {
        let settlement = Settlement {
            id: lease.id,
            token: lease.token,
            outcome,
            event: Bytes::new(),
            children,
        };
        self.note(&format!(
            "settle w{index} {} {:?}",
            settlement.id, settlement.outcome
        ));
        let twice = self.chance(5);
        let unsettled = &mut self.workers[index].unsettled;
        if twice {
            unsettled.push(settlement.clone());
        }
        unsettled.push(settlement);
    }

    fn children(&mut self, lease: &Lease, count: u8) -> Vec<Child> {
        (0..count)
            .map(|_| {
                let host = HOSTS[self.below(HOSTS.len())];
                Child {
                    id: self.fresh_id(),
                    envelope: "child".into(),
                    body_key: Some(lease.body_key.clone().unwrap_or(lease.id.to_string())),
                    lane: Lane::host(host).expect("a host lane"),
                    host: host.to_owned(),
                    retries: 1,
                    size: 5000,
                    delay: Duration::ZERO,
                    event: Bytes::new(),
                }
            })
            .collect()
    }

    fn end_call(&mut self, success_percent: Option<u64>) {
        let index = self.below(self.workers.len());
        self.end_call_of(index, success_percent.unwrap_or(50));
    }

    fn end_call_of(&mut self, index: usize, success_percent: u64) {
        if self.is_frozen(index) {
            return;
        }
        let calling: Vec<_> = self.workers[index]
            .held
            .iter()
            .filter(|(_, h)| h.calling)
            .map(|(k, _)| *k)
            .collect();
        if calling.is_empty() {
            return;
        }
        let key = calling[self.below(calling.len())];
        let lease = self.workers[index]
            .held
            .remove(&key)
            .expect("it is held")
            .lease;
        let plan = self.plans.get(&lease.id).copied().unwrap_or_default();
        let retries = self.observer.retries(&lease.id).unwrap_or(0);
        let callbacks = u8::from(plan.callback);
        let (outcome, count) = if self.chance(success_percent) {
            (Outcome::Delivered, callbacks)
        } else if lease.failed >= retries {
            (
                Outcome::Dead {
                    response: "500".into(),
                },
                callbacks + u8::from(plan.failure_callback),
            )
        } else {
            let after = Duration::from_millis([0, 500, 4000, 30_000][self.below(4)]);
            (Outcome::Retry { after }, callbacks)
        };
        let children = self.children(&lease, count);
        self.settle(index, &lease, outcome, children);
    }

    fn renew_all(&mut self) {
        for index in 0..self.workers.len() {
            if !self.is_frozen(index) {
                self.renew(index);
            }
        }
    }

    fn renew(&mut self, index: usize) {
        let net = self.net();
        let sent = self.clock.monotonic();
        let held: Vec<Held> = self
            .held(index)
            .into_iter()
            .filter(|held| held.started)
            .collect();
        if net == Net::LostBefore {
            return self.workers[index].contact.lost();
        }
        let renewed = block_on(self.store.renew(shard(), &held)).expect("renew");
        if net != Net::Good {
            return;
        }
        let mut cancelled = Vec::new();
        let worker = &mut self.workers[index];
        for held in &held {
            let key = (held.id, held.token);
            if renewed.cancelled.contains(&held.id) {
                cancelled.extend(worker.held.remove(&key));
            } else if renewed.lost.contains(&held.id) {
                worker.held.remove(&key);
            } else if let Some(holding) = worker.held.get_mut(&key) {
                holding.confirmed = sent;
            }
        }
        for holding in cancelled {
            self.settle(index, &holding.lease, Outcome::Cancelled, Vec::new());
        }
    }

    fn held(&self, index: usize) -> Vec<Held> {
        let held = self.workers[index].held.iter();
        held.map(|(&(id, token), h)| Held {
            id,
            token,
            started: h.calling,
        })
        .collect()
    }

    fn crash_or_stop(&mut self) {
        let index = self.below(self.workers.len());
        let is_graceful = self.chance(40);
        self.note(&format!("end of w{index}, graceful {is_graceful}"));
        if is_graceful && self.net() != Net::LostBefore {
            let held = self.held(index);
            block_on(self.store.release(shard(), &held)).expect("release");
        }
        self.workers.remove(index);
        self.add_worker();
    }

    fn freeze(&mut self) {
        let index = self.below(self.workers.len());
        let ms = [500, 6000, 17_000, 40_000][self.below(4)];
        self.note(&format!("freeze w{index} for {ms}"));
        self.workers[index].frozen_until = self.clock.monotonic() + Duration::from_millis(ms);
    }

    // Operators

    fn cancel(&mut self) {
        let ids = self.observer.ids();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.below(ids.len())];
        self.note(&format!("cancel {id}"));
        block_on(self.store.cancel(&id, Bytes::new())).expect("cancel");
    }

    fn redrive(&mut self) {
        let dead = self.observer.dead();
        if dead.is_empty() {
            return;
        }
        let (old, new) = (dead[self.below(dead.len())], self.fresh_id());
        self.note(&format!("redrive {old} as {new}"));
        for _ in 0..=self.below(2) {
            block_on(
                self.store
                    .redrive(&old, &new, "shared".into(), Bytes::new()),
            )
            .expect("redrive");
        }
        self.plans
            .insert(new, self.plans.get(&old).copied().unwrap_or_default());
        self.accepted.insert(new);
    }

    fn some_lane(&self) -> Lane {
        match self.below(QUEUES.len() + FLOWS.len()) {
            i if i < QUEUES.len() => queue(QUEUES[i].0),
            i => flow(FLOWS[i - QUEUES.len()].0),
        }
    }

    fn pause_or_resume(&mut self) {
        let (lane, paused) = (self.some_lane(), self.chance(40));
        self.note(&format!("paused {paused} {lane}"));
        let change = LaneChange {
            paused: Some(paused),
            ..LaneChange::default()
        };
        block_on(self.store.set_lane(shard(), &lane, change)).expect("set a lane");
    }

    fn restart_window(&mut self) {
        let lane = flow(FLOWS[self.below(FLOWS.len())].0);
        self.note(&format!("restart the window of {lane}"));
        let change = LaneChange {
            restart_window: true,
            ..LaneChange::default()
        };
        block_on(self.store.set_lane(shard(), &lane, change)).expect("set a lane");
        self.observer.window_restarted(lane.as_str());
    }

    fn delete_queue(&mut self) {
        let (name, cap) = QUEUES[self.below(QUEUES.len())];
        self.note(&format!("delete queue {name}"));
        block_on(self.store.delete_queue(shard(), &queue(name))).expect("delete a queue");
        self.check();
        let change = LaneChange {
            cap: Some(cap),
            ..LaneChange::default()
        };
        block_on(self.store.set_lane(shard(), &queue(name), change)).expect("set a queue");
    }

    fn sweep(&mut self) {
        let taken = block_on(self.store.sweep_trash(shard(), 4)).expect("sweep");
        self.has_changed |= taken > 0;
    }

    fn tick(&mut self) {
        let expected_ms = self.schedule_due;
        let next_ms = (expected_ms + 60_000).max(self.clock.now_ms() / 60_000 * 60_000 + 60_000);
        let tick = Tick {
            schedule: "s".to_owned(),
            expected_ms,
            next_ms,
            id: self.fresh_id(),
            envelope: "tick".into(),
            body_key: "sched".to_owned(),
            lane: queue("a"),
            host: HOSTS[0].to_owned(),
            retries: 1,
            size: 100,
            delay: Duration::ZERO,
            event: Bytes::new(),
        };
        match block_on(self.store.tick_schedule(shard(), &tick)) {
            Ok(Ticked::Fired) => {
                self.note(&format!("tick {}", tick.id));
                self.schedule_due = next_ms;
                self.accepted.insert(tick.id);
                let again = Tick {
                    id: self.fresh_id(),
                    ..tick
                };
                let second = block_on(self.store.tick_schedule(shard(), &again));
                if second == Ok(Ticked::Fired) {
                    self.broken
                        .push("a schedule fired twice for one due time".to_owned());
                }
            }
            Ok(_) => {}
            Err(HostError::Full(_)) if self.is_full => {}
            Err(error) => self.broken.push(format!("tick: {error}")),
        }
    }

    fn complete(&mut self) {
        let name = format!("op{}:t", self.below(8));
        if self.is_full {
            return;
        }
        if self.chance(30) {
            block_on(self.store.open_completion(shard(), &name)).expect("open");
            return;
        }
        let result = Bytes::from(self.random.next_u64().to_string());
        let answer = block_on(self.store.complete(shard(), &name, result.clone()));
        let known = self.completions.get(&name).cloned();
        match (answer.expect("complete"), known) {
            (Completion::Won, None) => {
                self.completions.insert(name, result);
            }
            (Completion::Won, Some(_)) => self.broken.push(format!("two results for {name}")),
            (Completion::Lost(first), known) if known.as_ref() != Some(&first) => {
                self.broken.push(format!("another result for {name}"));
            }
            _ => {}
        }
    }

    // The machine

    fn step_clock(&mut self) {
        let ms = [-60_000, -5000, -1000, 1000, 5000, 60_000][self.below(6)];
        self.note(&format!("clock {ms}"));
        self.clock.step_wall(ms);
    }

    fn toggle_full(&mut self) {
        if !self.may_fill {
            return;
        }
        self.is_full = !self.is_full;
        self.note(&format!("full {}", self.is_full));
        self.embedded.set_full(self.is_full);
    }

    /// The store comes back empty: what it held is lost, the workers go on.
    fn empty(&mut self) {
        self.note("emptied");
        run(&*self.host, &["FLUSHALL"]);
        self.accepted.clear();
        self.emptied += 1;
        self.completions.clear();
        self.observer.emptied();
        for worker in &mut self.workers {
            worker.contact.lost();
        }
        self.embedded.set_full(false);
        self.set_up();
        self.embedded.set_full(self.is_full);
    }

    /// A replica takes over that had not received the last operations.
    fn fail_over(&mut self) {
        if !self.may_fail_over || self.snapshots.is_empty() {
            return;
        }
        let snapshot = self.snapshots.swap_remove(self.below(self.snapshots.len()));
        self.snapshots.clear();
        self.note("failover");
        self.embedded.restore(snapshot.keyspace);
        self.schedule_due = snapshot.schedule_due;
        self.completions = snapshot.completions;
        self.emptied += 1;
        self.observer.fell_back(View::read(&*self.embedded, PREFIX));
        let observer = &self.observer;
        self.accepted
            .retain(|id| observer.knows(id) || observer.has_ended(id));
        for worker in &mut self.workers {
            worker.contact.lost();
        }
    }

    fn keep_snapshot(&mut self) {
        if !self.may_fail_over || !self.chance(6) {
            return;
        }
        if self.snapshots.len() == SNAPSHOTS_MAX {
            self.snapshots.remove(0);
        }
        self.snapshots.push(Snapshot {
            keyspace: self.embedded.snapshot(),
            schedule_due: self.schedule_due,
            completions: self.completions.clone(),
        });
    }

    /// The auditor leaves a healthy store alone, whatever else is going on.
    fn audit(&mut self) {
        let walk = self.walk.get_or_insert_default();
        let page = block_on(self.store.audit(shard(), walk.0, &mut walk.1)).expect("a page");
        walk.0 = page.cursor;
        if page.audited.repaired + page.audited.unreadable > 0 {
            self.broken.push(format!(
                "the auditor repaired a healthy store: {:?}",
                page.audited
            ));
        }
        if page.cursor == 0 {
            let (_, seen) = self.walk.take().expect("a walk");
            let counts = self.store.recount(shard(), &seen, &mut self.differences);
            let changed = block_on(counts).expect("a recount");
            if changed > 0 {
                self.broken.push(format!(
                    "the auditor changed {changed} counts that were right"
                ));
            }
        }
    }

    fn delete_dead_letter(&mut self) {
        let dead = self.observer.dead();
        if !dead.is_empty() {
            let id = dead[self.below(dead.len())];
            self.note(&format!("delete dead letter {id}"));
            block_on(self.store.delete_dead_letter(&id)).expect("delete");
        }
    }

    /// Everything works again: whatever was accepted must end.
    pub fn drain(&mut self) {
        self.embedded.set_full(false);
        self.is_full = false;
        self.may_fail_over = false;
        self.pending.clear();
        self.late.clear();
        for worker in &mut self.workers {
            worker.frozen_until = Duration::ZERO;
        }
        for (name, _) in QUEUES {
            self.resume(&queue(name));
        }
        for (name, _) in FLOWS {
            self.resume(&flow(name));
        }
        for round in 0..6000 {
            if !self.broken.is_empty() {
                return;
            }
            if self.observer.is_idle() && self.workers.iter().all(|w| w.unsettled.is_empty()) {
                return self.after_drain();
            }
            for index in 0..self.workers.len() {
                self.drain_worker(index);
            }
            self.sweep();
            self.clock
                .advance(Duration::from_millis(if round > 20 { 4500 } else { 200 }));
        }
        self.broken
            .push(format!("not drained: {:?}", self.observer.live()));
    }

    fn resume(&self, lane: &Lane) {
        let change = LaneChange {
            paused: Some(false),
            ..LaneChange::default()
        };
        block_on(self.store.set_lane(shard(), lane, change)).expect("set a lane");
    }

    fn drain_worker(&mut self, index: usize) {
        self.exchange_surely(index);
        if std::mem::take(&mut self.has_changed) {
            self.check();
        }
        for _ in 0..8 {
            self.start_call();
        }
        while self.workers[index].held.values().any(|h| h.calling) {
            self.end_call_of(index, 80);
        }
        self.renew(index);
    }

    fn exchange_surely(&mut self, index: usize) {
        let before = self.late.len();
        self.exchange(index);
        if self.late.len() > before {
            self.deliver_late();
        }
    }

    /// Nothing accepted is missing an end, and once every retention is over nothing is left.
    fn after_drain(&mut self) {
        for id in &self.accepted {
            if !self.observer.has_ended(id) {
                self.broken.push(format!("accepted and lost: {id}"));
            }
        }
        self.clock.advance(Duration::from_hours(31 * 24));
        for _ in 0..60 {
            self.clock.advance(Duration::from_secs(1));
            self.exchange_surely(0);
        }
        run(&*self.host, &["DEL", "hs:{0}:b:sched"]);
        let mut view = View::read(&*self.embedded, PREFIX);
        if let Some(users) = view.hashes.get_mut("rc") {
            // The schedule itself is the last user of its body.
            users.retain(|key, count| key != "sched" || count != "1");
        }
        let mut left: Vec<String> = view.lists.keys().cloned().collect();
        left.extend(view.records.keys().cloned());
        left.extend(view.bodies.iter().map(|id| format!("b:{id}")));
        left.extend(view.responses.iter().map(|id| format!("r:{id}")));
        for hash in ["st", "inf", "hi", "rc"] {
            left.extend(
                view.hashes
                    .get(hash)
                    .into_iter()
                    .flatten()
                    .map(|(f, v)| format!("{hash} {f} {v}")),
            );
        }
        for zset in ["d", "l", "x", "tm", "fp", "hq"] {
            left.extend(
                view.zset(zset)
                    .map(|(member, _)| format!("{zset} {member}")),
            );
        }
        if !left.is_empty() {
            self.broken.push(format!("left behind: {left:?}"));
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
