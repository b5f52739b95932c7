//! A run: publishers and operators, worker processes that are started again when they end, and what
//! is watched over while time passes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use hookstash_shared::clock::Clock;
use hookstash_shared::message::{
    Destination, Envelope, Lane, Limits, MessageId, NewMessage, NewMessageBuilder, RetryDelay,
    Shard, Shards,
};
use hookstash_shared::random::Random;
use hookstash_shared::store::faulty::FaultRates;
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Accepted, Enqueue, LaneChange, Redriven, Retention, Store};
use hookstash_worker::Drained;
use tokio::time::Instant;

use super::caller::Answer;
use super::ground::Ground;
use super::ledger::Sent;
use super::process::Process;
use super::tap::Tap;
use super::wire::SILENCE;
use super::{LEASE, RENEW};

/// How long after an outage every worker exchanges again: 5 s less the time between two looks.
const BACK_WITHIN: Duration = Duration::from_millis(4_800);
/// How long a drained worker may keep a lease whose call has not started.
const BACK_AT_ONCE: Duration = Duration::from_secs(1);
/// How long a killed process stays away.
const RESTART: Duration = Duration::from_secs(1);
/// A run in which everything works again ends within this time: a message that was lost seven
/// times pauses for half an hour.
const END_WITHIN: Duration = Duration::from_hours(6);
/// Queues with their caps.
pub const QUEUES: [(&str, u32); 2] = [("a", 1), ("b", 2)];

pub type Builder = NewMessageBuilder;

pub struct Scene {
    pub ground: Arc<Ground>,
    pub processes: Vec<Process>,
    pub slots: usize,
    pub store: Store,
    made: usize,
    restart_at: Vec<Instant>,
    /// Whether calls to the store fail by chance.
    has_faults: bool,
    /// Ends of outages that are still to be looked at.
    back_at: Option<Instant>,
    /// How the processes that ended by themselves ended.
    pub ends: Vec<Drained>,
    /// Whether an end must be clean: every call settled, nothing cut.
    pub must_finish: bool,
    started: Instant,
}

impl Scene {
    pub async fn new(ground: Arc<Ground>, workers: usize, slots: usize) -> Self {
        let tap = Tap::new(Arc::clone(&ground), None);
        let store = Store::new(
            Arc::new(tap),
            "hs",
            Shards::ONE,
            LEASE,
            Retention::default(),
        );
        let mut scene = Self {
            ground,
            processes: Vec::new(),
            slots,
            store,
            made: 0,
            restart_at: Vec::new(),
            has_faults: false,
            back_at: None,
            ends: Vec::new(),
            must_finish: false,
            started: Instant::now(),
        };
        scene.set_up().await;
        for _ in 0..workers {
            scene.start_process();
        }
        scene
    }

    /// Queues with their caps.
    pub async fn set_up(&self) {
        for (name, cap) in QUEUES {
            let lane = Lane::queue(name).expect("a queue");
            let change = LaneChange {
                cap: Some(cap),
                ..LaneChange::default()
            };
            let set = self.store.set_lane(Shard::default(), &lane, change).await;
            assert!(matches!(set, Ok(()) | Err(HostError::Full(_))), "{set:?}");
        }
    }

    pub fn start_process(&mut self) {
        let process = Process::start(&self.ground, self.made, self.slots);
        self.made += 1;
        self.processes.push(process);
    }

    /// From now on the calls of the processes that run fare like this.
    pub fn set_faults(&mut self, rates: FaultRates) {
        let each = [
            rates.lose_before,
            rates.lose_after,
            rates.refuse,
            rates.delay,
        ];
        self.has_faults = each.iter().any(|rate| *rate > 0);
        self.processes
            .iter()
            .for_each(|process| process.faults.set_rates(rates));
    }

    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Publishes, unless the store is full.
    pub async fn publish(
        &self,
        path: &str,
        body: Bytes,
        answers: &[Answer],
        make: impl FnOnce(NewMessageBuilder) -> NewMessageBuilder,
    ) -> MessageId {
        let url = format!("http://{path}");
        let destination = Destination::parse(&url).expect("a URL");
        let builder = NewMessage::to(destination)
            .body(body.clone())
            .retry_delay(RetryDelay::parse("1000").expect("an expression"))
            .timeout(Duration::from_secs(50));
        let message = make(builder)
            .build(self.ground.clock.now_ms(), &Limits::default())
            .expect("a message");
        let id = MessageId::new(
            Shard::default(),
            self.ground.clock.now_ms(),
            &self.ground.random,
        );
        let cap = message.header().flow.and_then(|flow| flow.parallelism);
        let lane = message.lane().as_str().to_owned();
        let queue = QUEUES.iter().find(|(name, _)| lane == format!("q:{name}"));
        let cap = cap.or(queue.map(|(_, cap)| *cap)).unwrap_or(u32::MAX);
        let sent = Sent {
            url,
            body,
            lane: lane.clone(),
            cap: usize::try_from(cap).expect("32 bits"),
            answers: answers.to_vec(),
            is_told: message.header().callback.is_some(),
        };
        self.ground.ledger().sent.insert(id, sent);
        let message = Enqueue::new(id, message).expect("an envelope");
        let accepted = self.store.publish(Shard::default(), &[message]).await;
        self.ground
            .note(format!("publish {id} {lane} {answers:?} {accepted:?}"));
        match &accepted[..] {
            [Ok(Accepted::Message(_))] => {
                self.ground.ledger().accepted.insert(id);
            }
            [Err(HostError::Full(_))] => {}
            other => self.ground.breaks(format!("publish: {other:?}")),
        }
        id
    }

    pub async fn cancel(&self, id: MessageId) {
        self.ground.ledger().cancelled.insert(id);
        let cancelled = self.store.cancel(&id, Bytes::new()).await;
        self.ground.note(format!("cancel {id} {cancelled:?}"));
    }

    /// Redrives some dead letter; it will be delivered.
    pub async fn redrive(&self) {
        let dead = self.ground.ledger().observer.dead();
        if dead.is_empty() {
            return;
        }
        let old = dead[self.below(dead.len())];
        let random = &self.ground.random;
        let new = MessageId::new(Shard::default(), self.ground.clock.now_ms(), random);
        {
            let mut ledger = self.ground.ledger();
            let sent = ledger.sent.get(&old).expect("it was published");
            let again = Sent {
                url: sent.url.clone(),
                body: sent.body.clone(),
                lane: sent.lane.clone(),
                cap: sent.cap,
                answers: vec![Answer::Status(200, 5)],
                is_told: sent.is_told,
            };
            ledger.sent.insert(new, again);
        }
        let letter = self.store.dead_letter(&old).await;
        let Ok(Some(letter)) = letter else {
            return self.ground.note(format!("redrive {old}: {letter:?}"));
        };
        let mut shared = Envelope::decode(&letter.envelope).expect("an envelope");
        shared.header.body_of = Some(old.to_string());
        let shared = shared.encode().expect("an envelope");
        let redriven = self.store.redrive(&old, &new, shared, Bytes::new()).await;
        self.ground
            .note(format!("redrive {old} as {new}: {redriven:?}"));
        // An emptied store has no such letter any more.
        if redriven == Ok(Redriven::Accepted) {
            self.ground.ledger().accepted.insert(new);
        }
    }

    pub fn below(&self, below: usize) -> usize {
        let drawn = self.ground.random.below(below as u64);
        usize::try_from(drawn).expect("small")
    }

    /// Lets `time` pass, and looks after the processes meanwhile.
    pub async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until && !self.is_broken() {
            let step = (until - Instant::now()).min(Duration::from_millis(200));
            tokio::time::sleep(step).await;
            self.look().await;
        }
    }

    pub fn is_broken(&self) -> bool {
        !self.ground.ledger().broken.is_empty()
    }

    /// Takes away the processes that have ended, starts new ones, and checks what is promised of
    /// running ones.
    async fn look(&mut self) {
        let now = Instant::now();
        let mut index = 0;
        while index < self.processes.len() {
            let process = &self.processes[index];
            self.bounded(process);
            self.zombies_end(process);
            self.unstarted_are_back(process);
            let ended = process.running.ended().now_or_never();
            if process.control.is_dead() {
                self.ground
                    .note(format!("w{} is dead", process.control.number));
            } else if let Some(end) = ended {
                self.ended_well(process, end);
                self.ends.push(end);
            } else {
                index += 1;
                continue;
            }
            self.processes.remove(index);
            self.restart_at.push(now + RESTART);
        }
        let due = self.restart_at.iter().filter(|at| **at <= now).count();
        self.restart_at.retain(|at| *at > now);
        for _ in 0..due {
            self.start_process();
        }
        if self.is_emptied() {
            self.set_up().await;
        }
        self.all_are_back(now);
    }

    fn is_emptied(&self) -> bool {
        std::mem::take(&mut self.ground.ledger().is_emptied)
    }

    /// Settlements that are kept stay bounded.
    fn bounded(&self, process: &Process) {
        let unanswered = process.running.load().unanswered;
        if unanswered >= 3 * self.slots {
            self.ground
                .breaks(format!("{unanswered} settlements are kept"));
        }
    }

    /// A worker that runs drops a call whose lease it has lost at its next beat.
    fn zombies_end(&self, process: &Process) {
        let control = &process.control;
        let is_hindered = self.has_faults
            || self.back_at.is_some()
            || self.ground.outage().is_some()
            || control.is_dead()
            || control.was_hindered(Instant::now());
        let now = self.ground.clock.monotonic();
        let mut ledger = self.ground.ledger();
        let oldest = ledger.stale_since(control.number, now, is_hindered);
        drop(ledger);
        if oldest.is_some_and(|since| now.saturating_sub(since) > RENEW + BACK_AT_ONCE) {
            let number = control.number;
            self.ground
                .breaks(format!("w{number} goes on with a lease that it has lost"));
        }
    }

    /// A drained worker holds no lease but those of running calls.
    fn unstarted_are_back(&self, process: &Process) {
        let at = *process.control.drained_at.lock().expect("no panic");
        let Some(at) = at.filter(|at| at.elapsed() >= BACK_AT_ONCE) else {
            return;
        };
        let now = self.ground.clock.monotonic();
        let is_calm = self.must_finish && at.elapsed() < BACK_AT_ONCE * 2;
        let held = self
            .ground
            .ledger()
            .idle_leases(process.control.number, now);
        if is_calm && !held.is_empty() {
            self.ground
                .breaks(format!("drained and still held: {held:?}"));
        }
    }

    /// An ended worker holds nothing, and says so only when all was settled.
    fn ended_well(&self, process: &Process, end: Drained) {
        let number = process.control.number;
        self.ground.note(format!("w{number} ended: {end:?}"));
        let load = process.running.load();
        let held = process.running.in_flight();
        let is_free = load.slots_free == self.slots
            && u64::try_from(load.body_bytes_free) == Ok(self.ground.body_budget);
        // Leases that are still taken in while the store is away end by themselves.
        let control = &process.control;
        let is_served = !self.has_faults
            && self.ground.outage().is_none()
            && !control.was_hindered(Instant::now() - LEASE);
        let is_clean = is_free || (end != Drained::Finished && !is_served);
        if held > 0 || !is_clean || (end == Drained::Finished && load.unanswered > 0) {
            self.ground.breaks(format!(
                "w{number} ended as {end:?} with {held} held, {load:?}"
            ));
        }
        if self.must_finish && end != Drained::Finished {
            self.ground.breaks(format!("w{number} ended as {end:?}"));
        }
    }

    /// Every worker that could exchanges again soon after an outage.
    fn all_are_back(&mut self, now: Instant) {
        self.back_at = self.ground.take_outage().or(self.back_at);
        let Some(back_at) = self.back_at else {
            return;
        };
        if now < back_at + BACK_WITHIN {
            return;
        }
        self.back_at = None;
        if self.has_faults || self.ground.outage().is_some() {
            return;
        }
        for process in &self.processes {
            let control = &process.control;
            let is_running = control.drained_at.lock().expect("no panic").is_none();
            let could = control.started_at <= back_at && !control.was_hindered(back_at);
            let since_start = self.ground.clock.monotonic().saturating_sub(now - back_at);
            let ledger = self.ground.ledger();
            let last = ledger.exchanged_at.get(&control.number).copied();
            drop(ledger);
            if is_running && could && last.is_none_or(|last| last < since_start) {
                let number = control.number;
                self.ground
                    .breaks(format!("w{number} is not back after the outage: {last:?}"));
            }
        }
    }

    /// Everything works again: all that was accepted ends, all room is free, and a graceful end is
    /// clean.
    pub async fn finish(&mut self) {
        self.ground.note("everything works again");
        self.ground.embedded.set_full(false);
        self.ground.calm();
        self.set_faults(FaultRates::default());
        for process in &self.processes {
            *process.control.cut_until.lock().expect("no panic") = None;
        }
        let mut waited = Duration::ZERO;
        while !self.is_at_rest() && !self.is_broken() {
            if waited > END_WITHIN {
                let live = format!("{:?}", self.ground.ledger().observer.live());
                return self.ground.breaks(format!("not ended: {live}"));
            }
            let step = if waited < Duration::from_mins(1) {
                Duration::from_millis(200)
            } else {
                Duration::from_secs(5)
            };
            self.pass(step).await;
            waited += step;
        }
        // What still waits for a store that was silent ends first.
        self.pass(SILENCE).await;
        self.must_finish = true;
        for process in &self.processes {
            process.control.drain();
        }
        self.pass(Duration::from_millis(800)).await;
        let is_over = self.processes.is_empty();
        if !self.is_broken() && !is_over {
            self.ground.breaks("a worker at rest does not end");
        }
        if self.is_broken() {
            return;
        }
        let broken = self.ground.ledger().ends();
        for line in broken {
            self.ground.breaks(line);
        }
    }

    fn is_at_rest(&self) -> bool {
        let now = self.ground.clock.monotonic();
        let is_free = |process: &Process| {
            let load = process.running.load();
            load.slots_free == self.slots
                && load.unanswered == 0
                && u64::try_from(load.body_bytes_free) == Ok(self.ground.body_budget)
                && process.running.in_flight() == 0
        };
        !self.processes.is_empty()
            && self.restart_at.is_empty()
            && self.back_at.is_none()
            && self.processes.iter().all(is_free)
            && !self
                .processes
                .iter()
                .any(|process| process.control.is_frozen())
            && self.ground.ledger().is_idle(now)
    }

    /// What reached the store since this was last asked.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.ground.take_counts()
    }
}
