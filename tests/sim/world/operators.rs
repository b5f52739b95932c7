//! Operators: cancels, redrives, queues, completions, the auditor.

use super::*;

impl World {
    pub(super) fn cancel(&mut self) {
        let ids = self.observer.ids();
        if ids.is_empty() {
            return;
        }
        let id = ids[self.below(ids.len())];
        self.note(&format!("cancel {id}"));
        block_on(self.store.cancel(&id, Bytes::new())).expect("cancel");
    }

    pub(super) fn redrive(&mut self) {
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

    pub(super) fn some_lane(&self) -> Lane {
        match self.below(QUEUES.len() + FLOWS.len()) {
            i if i < QUEUES.len() => queue(QUEUES[i].0),
            i => flow(FLOWS[i - QUEUES.len()].0),
        }
    }

    pub(super) fn pause_or_resume(&mut self) {
        let (lane, paused) = (self.some_lane(), self.chance(40));
        self.note(&format!("paused {paused} {lane}"));
        let change = LaneChange {
            paused: Some(paused),
            ..LaneChange::default()
        };
        block_on(self.store.set_lane(shard(), &lane, change)).expect("set a lane");
    }

    pub(super) fn restart_window(&mut self) {
        let lane = flow(FLOWS[self.below(FLOWS.len())].0);
        self.note(&format!("restart the window of {lane}"));
        let change = LaneChange {
            restart_window: true,
            ..LaneChange::default()
        };
        block_on(self.store.set_lane(shard(), &lane, change)).expect("set a lane");
        self.observer.window_restarted(lane.as_str());
    }

    pub(super) fn delete_queue(&mut self) {
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

    pub(super) fn sweep(&mut self) {
        let taken = block_on(self.store.sweep_trash(shard(), 4)).expect("sweep");
        self.has_changed |= taken > 0;
    }

    pub(super) fn complete(&mut self) {
        let name = format!("op{}", self.below(8));
        let key = CompletionKey::new(&name, "t", Shards::ONE);
        if self.is_full {
            return;
        }
        if self.chance(30) {
            block_on(self.store.open_completion(&key, Bytes::new())).expect("open");
            return;
        }
        if self.chance(10) {
            let withdrawn = block_on(self.store.withdraw_completion(&key)).expect("withdraw");
            if withdrawn == Withdrawn::Final && !self.completions.contains_key(&name) {
                self.broken.push(format!("a result of nobody for {name}"));
            }
            return;
        }
        let result = Bytes::from(self.random.next_u64().to_string());
        let answer = block_on(self.store.complete(&key, result.clone()));
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
}
