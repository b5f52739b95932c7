//! What was promised and what was seen, and the laws between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::Clock;
use hookstash_shared::http::Request;
use hookstash_shared::message::MessageId;
use hookstash_shared::store::host::Reply;
use hookstash_shared::store::{LOST_MAX, Lease, LeaseToken, Settlement};

use super::LEASE;
use super::callbacks::Made;
use super::caller::Answer;
use super::ground::Ground;
use super::schedules::Firing;
use super::tap::{number, text};
use crate::laws;
use crate::observer::Observer;
use crate::view::{Rec, View};

const PREFIX: &str = "hs:{0}:";
/// Workers of one run.
const WAITERS_MAX: usize = 3;

/// A message, as it was published.
pub struct Sent {
    pub url: String,
    pub body: Bytes,
    pub lane: String,
    /// Most calls of its lane at one time.
    pub cap: usize,
    /// What the receiver does with its first call, its second, and so on; the last stays.
    pub answers: Vec<Answer>,
    /// Whether it has callbacks of both kinds.
    pub is_told: bool,
}

/// A call that the receiver has taken.
pub struct Received {
    id: MessageId,
    worker: usize,
    token: LeaseToken,
    answered_at: Duration,
    is_over: bool,
    /// Since when its lease is another's while nothing hinders its worker.
    stale_since: Option<Duration>,
}

/// What the laws may demand in this run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strictness {
    /// No message is sent a second time but after a failure.
    NothingTwice,
    /// A lost worker may have sent what is sent again, but no two hold one message.
    Losses,
    /// A worker may go on with a lease that it has lost without knowing.
    Zombies,
}

pub struct Ledger {
    pub strictness: Strictness,
    pub observer: Observer,
    pub trace: Vec<String>,
    pub broken: Vec<String>,
    pub sent: BTreeMap<MessageId, Sent>,
    pub accepted: BTreeSet<MessageId>,
    pub cancelled: BTreeSet<MessageId>,
    /// Due times of schedules, as they were fired.
    pub firings: Vec<Firing>,
    pub callbacks: Made,
    /// Answers with a success; any other end of a call.
    succeeded: BTreeSet<MessageId>,
    failed: BTreeSet<MessageId>,
    /// How often each was received since the store was last emptied.
    pub calls: BTreeMap<MessageId, u32>,
    received: Vec<Received>,
    given: BTreeMap<MessageId, (usize, LeaseToken)>,
    given_at: BTreeMap<MessageId, Duration>,
    held_before: BTreeSet<(MessageId, LeaseToken)>,
    /// When each worker last exchanged.
    pub exchanged_at: BTreeMap<usize, Duration>,
    /// Set until somebody looks.
    pub is_emptied: bool,
    pub view: View,
    ended: BTreeMap<MessageId, Rec>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            strictness: Strictness::NothingTwice,
            observer: Observer::default(),
            trace: Vec::new(),
            broken: Vec::new(),
            sent: BTreeMap::new(),
            accepted: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            firings: Vec::new(),
            callbacks: Made::default(),
            succeeded: BTreeSet::new(),
            failed: BTreeSet::new(),
            calls: BTreeMap::new(),
            received: Vec::new(),
            given: BTreeMap::new(),
            given_at: BTreeMap::new(),
            held_before: BTreeSet::new(),
            exchanged_at: BTreeMap::new(),
            is_emptied: false,
            view: View::default(),
            ended: BTreeMap::new(),
        }
    }
}

impl Ledger {
    /// The store lost all it held.
    pub fn emptied(&mut self) {
        self.observer.emptied();
        self.accepted.clear();
        self.callbacks.emptied();
        self.is_emptied = true;
        self.calls.clear();
        self.view = View::default();
    }

    /// Calls that are under way at `now`, as the receiver sees it.
    fn live(&self, now: Duration) -> impl Iterator<Item = &Received> {
        self.received
            .iter()
            .filter(move |call| !call.is_over && now < call.answered_at)
    }

    /// Whether a call of `id` is under way at `now`.
    pub fn is_calling(&self, id: &MessageId, now: Duration) -> bool {
        self.live(now).any(|call| call.id == *id)
    }

    /// Since when `worker` makes a call whose lease it has lost; counted anew while it
    /// `is_hindered` from hearing of it.
    pub fn stale_since(
        &mut self,
        worker: usize,
        now: Duration,
        is_hindered: bool,
    ) -> Option<Duration> {
        let mut received = std::mem::take(&mut self.received);
        let mut oldest = None;
        for call in received.iter_mut().filter(|call| call.worker == worker) {
            let is_live = !call.is_over && now < call.answered_at;
            let is_stale = is_live && !is_hindered && !self.is_current(&call.id, call.token);
            call.stale_since = is_stale.then(|| call.stale_since.unwrap_or(now));
            oldest = oldest.into_iter().chain(call.stale_since).min();
        }
        self.received = received;
        oldest
    }

    fn is_current(&self, id: &MessageId, token: LeaseToken) -> bool {
        let record = self.view.records.get(id.as_str());
        record.is_some_and(|record| holds(record, token))
    }

    /// The leases of `worker` for which no call is under way at `now`.
    pub fn idle_leases(&self, worker: usize, now: Duration) -> Vec<MessageId> {
        let calling: BTreeSet<MessageId> = self.live(now).map(|call| call.id).collect();
        let held = self.given.iter().filter(|(id, (holder, token))| {
            *holder == worker && self.is_current(id, *token) && !calling.contains(id)
        });
        held.map(|(id, _)| *id).collect()
    }

    /// Whether everything has ended and nobody calls.
    pub fn is_idle(&self, now: Duration) -> bool {
        self.observer.is_idle() && self.live(now).next().is_none()
    }

    /// What is wrong when all has ended.
    pub fn ends(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for id in &self.accepted {
            if !self.observer.has_ended(id) {
                broken.push(format!("accepted and lost: {id}"));
            }
        }
        for (id, record) in &self.ended {
            let is_worn_out = record.lost >= LOST_MAX;
            let wrong = match record.state {
                'k' if !self.succeeded.contains(id) => "delivered without a success",
                'x' if !self.failed.contains(id) && !is_worn_out => "dead without a failure",
                'c' if !self.cancelled.contains(id) => "cancelled and nobody asked for it",
                _ => continue,
            };
            broken.push(format!("{id} is {wrong}"));
        }
        broken
    }
}

fn holds(record: &Rec, token: LeaseToken) -> bool {
    record.state == 'l' && record.number == token.number && record.nonce == token.nonce.to_string()
}

impl Ground {
    /// Checks the laws of the store if something changed since the last time.
    pub fn check_if_changed(&self) {
        let effects = self.embedded.take_effects();
        let changes = |word: &[Bytes]| word.len() < 2 || !word[1].ends_with(b":hb");
        if effects.iter().flatten().any(|words| changes(words)) {
            self.check();
        }
    }

    fn check(&self) {
        let view = View::read(&self.embedded, PREFIX);
        let mut broken = laws::broken(&view);
        // A waiter that leaves gives back the token in its hand, beside what came meanwhile.
        if view.tokens <= 2 + WAITERS_MAX {
            broken.retain(|line| !line.starts_with("wake-up"));
        }
        let mut ledger = self.ledger();
        for (id, record) in &view.records {
            if matches!(record.state, 'k' | 'x' | 'c') {
                let id = id.parse().expect("an id");
                ledger.ended.insert(id, record.clone());
            }
        }
        broken.extend(ledger.callbacks_entered(&view));
        ledger.view = view.clone();
        broken.extend(ledger.observer.observe(view));
        drop(ledger);
        for line in broken {
            self.breaks(line);
        }
    }

    /// An exchange of `worker` took effect.
    pub fn exchanged(&self, worker: usize, settlements: &[Settlement], leases: &[Lease]) {
        let now = self.clock.monotonic();
        for settlement in settlements {
            let outcome = &settlement.outcome;
            let (id, token) = (settlement.id, settlement.token);
            self.note(format!(
                "w{worker} settles {id} {} {outcome:?}",
                token.number
            ));
            let mut ledger = self.ledger();
            ledger.observer.settling(settlement);
            let mut broken = ledger.made(settlement);
            let is_known = ledger.held_before.contains(&(id, token));
            drop(ledger);
            if !is_known {
                broken.push(format!("{id} was settled under a lease that nobody had"));
            }
            for line in broken {
                self.breaks(line);
            }
        }
        for lease in leases {
            let (id, token) = (lease.id, lease.token);
            self.note(format!(
                "w{worker} leases {id} {} lost {}",
                token.number, lease.lost
            ));
            let mut ledger = self.ledger();
            ledger.given.insert(id, (worker, token));
            ledger.given_at.insert(id, now);
            ledger.held_before.insert((id, token));
        }
        let mut ledger = self.ledger();
        ledger.observer.leased(leases);
        ledger.exchanged_at.insert(worker, now);
    }

    /// A release of `worker` took effect: one that says "not started" speaks the truth.
    pub fn released(&self, worker: usize, args: &[Bytes], reply: &Reply) {
        let now = self.clock.monotonic();
        for held in args[1..].chunks(4) {
            let id: MessageId = text(&held[0]).parse().expect("an id");
            let is_started = text(&held[3]) == "1";
            self.note(format!(
                "w{worker} releases {id} started {is_started} {reply:?}"
            ));
            let ledger = self.ledger();
            let number = number(&held[1]);
            let was_called = ledger
                .received
                .iter()
                .any(|call| call.id == id && call.token.number == number && call.worker == worker);
            let is_calling = ledger
                .live(now)
                .any(|call| call.id == id && call.token.number == number && call.worker == worker);
            drop(ledger);
            if was_called && !is_started {
                self.breaks(format!(
                    "{id} was handed back as not started and was called"
                ));
            }
            if is_calling {
                self.breaks(format!("{id} was handed back while its call goes on"));
            }
        }
    }

    /// A call that began at `begun` arrives at the receiver: its number, and what is done with it.
    pub fn arrives(
        &self,
        worker: usize,
        begun: Duration,
        request: &Request<'_>,
    ) -> (usize, Answer) {
        let header = |name: &str| {
            let value = request.headers.get(name).expect("a header");
            value.to_str().expect("text").to_owned()
        };
        let id: MessageId = header("upstash-message-id").parse().expect("an id");
        let retried: u32 = header("upstash-retried").parse().expect("a number");
        self.note(format!("w{worker} calls {id} retried {retried}"));
        let now = self.clock.monotonic();
        let mut broken = Vec::new();
        let mut guard = self.ledger();
        let ledger = &mut *guard;
        let (call, answer) = {
            let sent = ledger.sent.get(&id).expect("it was published");
            if sent.body != request.body || sent.url != request.url {
                broken.push(format!("{id} was sent with another body or URL"));
            }
            let given = ledger.given.get(&id).copied();
            let token = match given {
                Some((holder, token)) if holder == worker => token,
                _ => LeaseToken {
                    number: 0,
                    nonce: 0,
                },
            };
            let is_current = ledger.is_current(&id, token);
            let may_be_stale = ledger.strictness == Strictness::Zombies;
            let given_at = ledger.given_at.get(&id).copied().unwrap_or_default();
            if is_current && begun.saturating_sub(given_at) >= LEASE {
                broken.push(format!("{id} was called under a lease of {given_at:?}"));
            }
            if !is_current && !may_be_stale {
                broken.push(format!("{id} was called without a lease"));
            }
            broken.extend(ledger.starts_early(&id));
            let count = ledger.calls.entry(id).or_default();
            *count += 1;
            let count = *count;
            if let Some(record) = ledger.view.records.get(id.as_str()) {
                let losses = match ledger.strictness {
                    Strictness::NothingTwice => 0,
                    Strictness::Losses | Strictness::Zombies => record.lost,
                };
                if count > record.failed + 1 + losses {
                    broken.push(format!(
                        "{id} was received {count} times, failed {} and lost {}",
                        record.failed, record.lost
                    ));
                }
                if is_current && retried != record.failed {
                    broken.push(format!(
                        "{id} says retried {retried}, not {}",
                        record.failed
                    ));
                }
            }
            ledger.received.push(Received {
                id,
                worker,
                token,
                answered_at: Duration::MAX,
                is_over: false,
                stale_since: None,
            });
            let sent = ledger.sent.get(&id).expect("it was published");
            let index = usize::try_from(count - 1)
                .expect("few")
                .min(sent.answers.len() - 1);
            let answer = sent.answers[index];
            let last = ledger.received.len() - 1;
            ledger.received[last].answered_at = now + answer.takes();
            let of_lane = |call: &&Received| {
                ledger
                    .sent
                    .get(&call.id)
                    .is_some_and(|other| other.lane == sent.lane)
            };
            let live: Vec<_> = ledger.live(now).filter(of_lane).collect();
            let stale = live
                .iter()
                .filter(|call| !ledger.is_current(&call.id, call.token))
                .count();
            let excused = if may_be_stale { stale } else { 0 };
            if live.len() > sent.cap + excused {
                let (count, cap) = (live.len(), sent.cap);
                broken.push(format!(
                    "{} has {count} calls under way, cap {cap}",
                    sent.lane
                ));
            }
            (last, answer)
        };
        drop(guard);
        for line in broken {
            self.breaks(line);
        }
        (call, answer)
    }

    /// The receiver has answered.
    pub fn answered(&self, call: usize, answer: Answer) {
        let mut ledger = self.ledger();
        let id = ledger.received[call].id;
        ledger.received[call].is_over = true;
        if answer.is_success() {
            ledger.succeeded.insert(id);
        } else {
            ledger.failed.insert(id);
        }
        drop(ledger);
        self.note(format!("{id} is answered {answer:?}"));
    }

    /// The sender is gone, or has closed the call.
    pub fn call_dropped(&self, call: usize) {
        let mut ledger = self.ledger();
        let received = &mut ledger.received[call];
        if !received.is_over {
            received.is_over = true;
            let id = received.id;
            // No answer in time, or a sender that was killed.
            ledger.failed.insert(id);
        }
    }
}
