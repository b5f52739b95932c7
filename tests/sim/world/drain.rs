//! The end of a world: everything works again, and whatever was accepted must end.

use super::*;

impl World {
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

    pub(super) fn resume(&self, lane: &Lane) {
        let change = LaneChange {
            paused: Some(false),
            ..LaneChange::default()
        };
        block_on(self.store.set_lane(shard(), lane, change)).expect("set a lane");
    }

    pub(super) fn drain_worker(&mut self, index: usize) {
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

    pub(super) fn exchange_surely(&mut self, index: usize) {
        let before = self.late.len();
        self.exchange(index);
        if self.late.len() > before {
            self.deliver_late();
        }
    }

    /// Nothing accepted is missing an end, and once every retention is over nothing is left.
    pub(super) fn after_drain(&mut self) {
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
        self.remove_schedule();
        let view = View::read(&self.embedded, PREFIX);
        let mut left: Vec<String> = view.lists.keys().cloned().collect();
        left.extend(view.records.keys().cloned());
        left.extend(view.bodies.iter().map(|id| format!("b:{id}")));
        left.extend(view.responses.iter().map(|id| format!("r:{id}")));
        for hash in ["st", "inf", "hi", "rc", "sd", "sf"] {
            left.extend(
                view.hashes
                    .get(hash)
                    .into_iter()
                    .flatten()
                    .map(|(f, v)| format!("{hash} {f} {v}")),
            );
        }
        for zset in ["d", "l", "x", "tm", "fp", "hq", "sc"] {
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
