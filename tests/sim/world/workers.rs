//! Workers: exchanges, calls, settlements, renewals, ends.

use super::*;

impl World {
    pub(super) fn is_frozen(&self, worker: usize) -> bool {
        self.workers[worker].frozen_until > self.clock.monotonic()
    }

    pub(super) fn exchange(&mut self, index: usize) {
        if self.is_frozen(index) {
            return;
        }
        let net = self.net();
        let sent = self.clock.monotonic();
        let live: u64 = self.workers.iter().map(|w| w.slots).sum();
        let nonce = u32::try_from(self.random.below(1 << 32)).expect("32 bits");
        // Often none, as under load, and little of it.
        let upkeep = [0, 0, 2, 64][usize::try_from(self.random.below(4)).expect("small")];
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
            upkeep,
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
        self.broken.extend(laws::broken_after(
            &exchanged,
            &View::read(&self.embedded, PREFIX),
        ));
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

    pub(super) fn deliver_late(&mut self) {
        if let Some((number, sent, life, exchanged)) = self.late.pop_front() {
            self.note(&format!("late reply for w{number}"));
            self.take(number, sent, life, exchanged);
        }
    }

    pub(super) fn take(&mut self, number: usize, sent: Duration, life: u32, exchanged: Exchanged) {
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

    pub(super) fn start_call(&mut self) {
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

    pub(super) fn settle_dead(&mut self, index: usize, lease: &Lease) {
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

    pub(super) fn settle(
        &mut self,
        index: usize,
        lease: &Lease,
        outcome: Outcome,
        children: Vec<Child>,
    ) {
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

    pub(super) fn children(&mut self, lease: &Lease, count: u8) -> Vec<Child> {
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

    pub(super) fn end_call(&mut self, success_percent: Option<u64>) {
        let index = self.below(self.workers.len());
        self.end_call_of(index, success_percent.unwrap_or(50));
    }

    pub(super) fn end_call_of(&mut self, index: usize, success_percent: u64) {
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

    pub(super) fn renew_all(&mut self) {
        for index in 0..self.workers.len() {
            if !self.is_frozen(index) {
                self.renew(index);
            }
        }
    }

    pub(super) fn renew(&mut self, index: usize) {
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

    pub(super) fn held(&self, index: usize) -> Vec<Held> {
        let held = self.workers[index].held.iter();
        held.map(|(&(id, token), h)| Held {
            id,
            token,
            started: h.calling,
        })
        .collect()
    }

    pub(super) fn crash_or_stop(&mut self) {
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

    pub(super) fn freeze(&mut self) {
        let index = self.below(self.workers.len());
        let ms = [500, 6000, 17_000, 40_000][self.below(4)];
        self.note(&format!("freeze w{index} for {ms}"));
        self.workers[index].frozen_until = self.clock.monotonic() + Duration::from_millis(ms);
    }
}
