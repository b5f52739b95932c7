//! Watches the store from outside and remembers what a single view cannot show: how messages ended,
//! in which order queues started them, how often rates and caps let calls begin.

use std::collections::{BTreeMap, BTreeSet};

use hookstash_shared::message::{Event, MessageId, State, next};
use hookstash_shared::store::{Lease, Settlement};

use super::view::{Rec, View};

const FIFO_LANE: &str = "q:a";
const RATE: i64 = 3;

#[derive(Default)]
pub struct Observer {
    view: View,
    ended: BTreeSet<String>,
    entered: BTreeMap<String, u64>,
    sequence: u64,
    last_started: u64,
    started: BTreeSet<String>,
    windows: BTreeMap<String, (i64, u64)>,
    starts: BTreeMap<(String, u64), i64>,
    returned: BTreeMap<(String, u64), i64>,
    /// Windows that an operator began.
    restarted: BTreeSet<(String, u64)>,
    leased_now: Vec<Lease>,
    was_emptied: bool,
    settled: BTreeSet<(String, u64, String)>,
}

impl Observer {
    /// Leases that an exchange gave out, whether or not its reply arrived.
    pub fn leased(&mut self, leases: &[Lease]) {
        self.leased_now.extend_from_slice(leases);
    }

    /// Compares `view` with the last one; returns what is wrong.
    pub fn observe(&mut self, view: View) -> Vec<String> {
        let mut broken = Vec::new();
        for (id, record) in &self.view.records {
            match view.records.get(id) {
                Some(now) if now.state == record.state => {}
                Some(now) => {
                    broken.extend(illegal_change(id, record, now));
                    broken.extend(self.unfenced(id, record, now));
                }
                None if is_over(record.state) || self.was_emptied => {}
                None => broken.push(format!("{id} vanished while it was {}", record.state)),
            }
        }
        self.was_emptied = false;
        for (id, record) in &view.records {
            if is_over(record.state) {
                self.ended.insert(id.clone());
            }
        }
        self.note_entries(&view);
        broken.extend(self.note_starts(&view));
        self.view = view;
        broken
    }

    /// Law 3: a lease ends by a settlement with its token, or by recovery, release and cancel; those
    /// leave a trace of their own. Anything else settled with a token that was not current.
    fn unfenced(&self, id: &str, old: &Rec, new: &Rec) -> Option<String> {
        let is_ended = old.state == 'l' && new.number == old.number && new.nonce != old.nonce;
        let by_token = self
            .settled
            .contains(&(id.to_owned(), old.number, old.nonce.clone()));
        let by_flag = old.flags.contains('d') || old.flags.contains('c');
        let by_return = new.failed == old.failed && (new.state == 'w' || new.lost > old.lost);
        (is_ended && !by_token && !by_flag && !by_return)
            .then(|| format!("law 3: {id} left its lease {} as {}", old.number, new.state))
    }

    /// A settlement that an exchange carried into the store.
    pub fn settling(&mut self, settlement: &Settlement) {
        let token = settlement.token;
        self.settled.insert((
            settlement.id.to_string(),
            token.number,
            token.nonce.to_string(),
        ));
    }

    /// The store fell back to what it held a moment ago.
    pub fn fell_back(&mut self, view: View) {
        self.emptied();
        self.ended.retain(|id| {
            view.records
                .get(id)
                .is_none_or(|record| is_over(record.state))
        });
        // Whatever was leased before has had its first turn.
        let leased = view.records.iter().filter(|(_, record)| record.number > 0);
        self.started.extend(leased.map(|(id, _)| id.clone()));
        self.view = view;
        self.was_emptied = false;
    }

    pub fn knows(&self, id: &MessageId) -> bool {
        self.view.records.contains_key(id.as_str())
    }

    fn note_entries(&mut self, view: &View) {
        // Promoted and leased by one exchange: it stood before those that still wait.
        let leased = self
            .leased_now
            .iter()
            .filter(|lease| lease.lane == FIFO_LANE);
        let leased: Vec<String> = leased.map(|lease| lease.id.to_string()).collect();
        for id in leased.iter().chain(view.list(&format!("ln:{FIFO_LANE}"))) {
            self.enter(id);
        }
    }

    fn enter(&mut self, id: &str) {
        if !self.entered.contains_key(id) {
            self.sequence += 1;
            self.entered.insert(id.to_owned(), self.sequence);
        }
    }

    /// Counts leases against the rate of their lane's window, and what came back uncalled.
    fn note_starts(&mut self, view: &View) -> Vec<String> {
        let mut broken = Vec::new();
        for lane in ["f:f1", "f:f3"] {
            let start = view
                .field("win", lane)
                .and_then(|w| w.split('|').next()?.parse().ok());
            let entry = self.windows.entry(lane.to_owned()).or_insert((0, 0));
            if let Some(start) = start.filter(|start| *start != entry.0) {
                // A start that moved back follows the clock: it is still the same window.
                *entry = (start, entry.1 + u64::from(start > entry.0));
            }
            let key = (lane.to_owned(), entry.1);
            for (id, old) in &self.view.records {
                let new = view.records.get(id);
                let is_back = new.is_some_and(|new| {
                    new.failed == old.failed && (new.state == 'w' || new.number > old.number)
                });
                if old.lane == lane && old.state == 'l' && is_back {
                    *self.returned.entry(key.clone()).or_default() += 1;
                }
            }
        }
        for lease in std::mem::take(&mut self.leased_now) {
            if let Some((_, generation)) = self.windows.get(&lease.lane) {
                *self
                    .starts
                    .entry((lease.lane.clone(), *generation))
                    .or_default() += 1;
            }
            if lease.lane == FIFO_LANE {
                broken.extend(self.note_fifo(lease.id.as_str()));
            }
        }
        for (key, starts) in &self.starts {
            let returned = self.returned.get(key).copied().unwrap_or(0);
            // What had been admitted when an operator restarted the window starts besides.
            let admitted = if self.restarted.contains(key) {
                RATE
            } else {
                0
            };
            if *starts > RATE + admitted + returned {
                broken.push(format!(
                    "rate: {key:?} started {starts}, {returned} came back"
                ));
            }
        }
        broken
    }

    fn note_fifo(&mut self, id: &str) -> Option<String> {
        if !self.started.insert(id.to_owned()) {
            return None;
        }
        let sequence = self.entered.get(id).copied()?;
        let is_behind = sequence < self.last_started;
        self.last_started = self.last_started.max(sequence);
        is_behind.then(|| format!("fifo: {id} entered as {sequence}, a later one came first"))
    }

    /// A call began: law 4, and no more current calls than the lane's cap.
    pub fn called(&mut self, lease: &Lease, attempts: u64) -> Option<String> {
        let record = self.view.records.get(lease.id.as_str())?;
        let allowed = u64::from(record.retries) + 1 + u64::from(record.lost);
        (attempts > allowed).then(|| {
            format!(
                "law 4: {} attempts of {}, allowed {allowed}",
                attempts, lease.id
            )
        })
    }

    pub fn window_restarted(&mut self, lane: &str) {
        if let Some(entry) = self.windows.get_mut(lane) {
            *entry = (-1, entry.1 + 1);
            // Its start is seen as a change once more.
            self.restarted.insert((lane.to_owned(), entry.1 + 1));
        }
    }

    pub fn emptied(&mut self) {
        self.was_emptied = true;
        self.entered.clear();
        self.last_started = 0;
        self.started.clear();
        self.starts.clear();
        self.returned.clear();
    }

    pub fn retries(&self, id: &MessageId) -> Option<u32> {
        self.view
            .records
            .get(id.as_str())
            .map(|record| record.retries)
    }

    pub fn ids(&self) -> Vec<MessageId> {
        self.view
            .records
            .keys()
            .filter_map(|id| id.parse().ok())
            .collect()
    }

    pub fn dead(&self) -> Vec<MessageId> {
        self.view
            .zset("x")
            .filter_map(|(id, _)| id.parse().ok())
            .collect()
    }

    pub fn has_ended(&self, id: &MessageId) -> bool {
        self.ended.contains(id.as_str())
    }

    pub fn live(&self) -> Vec<(&String, &Rec)> {
        self.view
            .records
            .iter()
            .filter(|(_, record)| !is_over(record.state))
            .collect()
    }

    pub fn is_idle(&self) -> bool {
        self.live().is_empty() && self.view.list("trash").is_empty()
    }
}

/// No path of legal transitions leads from the old state to the new one.
fn illegal_change(id: &str, old: &Rec, new: &Rec) -> Option<String> {
    if new.state == 'g' {
        let is_redrive = old.state == 'x' || old.state == 'g';
        return (!is_redrive).then(|| format!("{id} was redriven while {}", old.state));
    }
    let (old_state, new_state) = (State::from_code(old.state)?, State::from_code(new.state)?);
    let mut reached = vec![old_state];
    let mut index = 0;
    while let Some(&state) = reached.get(index) {
        for event in Event::ALL {
            if let Some(state) = next(state, event).filter(|state| !reached.contains(state)) {
                reached.push(state);
            }
        }
        index += 1;
    }
    let is_reached = reached.contains(&new_state);
    let is_deleted = old_state == State::Dead && new_state == State::Cancelled;
    (!is_reached && !is_deleted).then(|| format!("{id} went from {old_state:?} to {new_state:?}"))
}

fn is_over(state: char) -> bool {
    matches!(state, 'k' | 'x' | 'c' | 'g')
}
