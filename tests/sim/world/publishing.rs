//! Publishers: new messages, and repeats of unclear calls.

use super::*;

impl World {
    pub(super) fn publish_new(&mut self) {
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

    pub(super) fn publish_again(&mut self) {
        let Some(pending) = self.pending.pop_front() else {
            return;
        };
        if self.clock.monotonic() <= pending.until {
            self.publish(pending);
        }
    }

    pub(super) fn publish(&mut self, pending: Pending) {
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

    pub(super) fn keep_pending(&mut self, pending: Pending) {
        if self.pending.len() < PENDING_MAX {
            self.pending.push_back(pending);
        }
    }
}
