//! The machine: its clock, its memory, its loss of data.

use super::*;

impl World {
    pub(super) fn step_clock(&mut self) {
        let ms = [-60_000, -5000, -1000, 1000, 5000, 60_000][self.below(6)];
        self.note(&format!("clock {ms}"));
        self.clock.step_wall(ms);
    }

    pub(super) fn toggle_full(&mut self) {
        if !self.may_fill {
            return;
        }
        self.is_full = !self.is_full;
        self.note(&format!("full {}", self.is_full));
        self.embedded.set_full(self.is_full);
    }

    /// The store comes back empty: what it held is lost, the workers go on.
    pub(super) fn empty(&mut self) {
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
    pub(super) fn fail_over(&mut self) {
        if !self.may_fail_over || self.snapshots.is_empty() {
            return;
        }
        let snapshot = self.snapshots.swap_remove(self.below(self.snapshots.len()));
        self.snapshots.clear();
        self.note("failover");
        self.embedded.restore(snapshot.keyspace);
        self.schedule = snapshot.schedule;
        self.completions = snapshot.completions;
        self.emptied += 1;
        self.observer.fell_back(View::read(&self.embedded, PREFIX));
        let observer = &self.observer;
        self.accepted
            .retain(|id| observer.knows(id) || observer.has_ended(id));
        for worker in &mut self.workers {
            worker.contact.lost();
        }
    }

    pub(super) fn keep_snapshot(&mut self) {
        if !self.may_fail_over || !self.chance(6) {
            return;
        }
        if self.snapshots.len() == SNAPSHOTS_MAX {
            self.snapshots.remove(0);
        }
        self.snapshots.push(Snapshot {
            keyspace: self.embedded.snapshot(),
            schedule: self.schedule.clone(),
            completions: self.completions.clone(),
        });
    }

    /// The auditor leaves a healthy store alone, whatever else is going on.
    pub(super) fn audit(&mut self) {
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

    pub(super) fn delete_dead_letter(&mut self) {
        let dead = self.observer.dead();
        if !dead.is_empty() {
            let id = dead[self.below(dead.len())];
            self.note(&format!("delete dead letter {id}"));
            block_on(self.store.delete_dead_letter(&id)).expect("delete");
        }
    }
}
