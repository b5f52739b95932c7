//! A store on the embedded host with a manual clock, for single cases.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::ManualClock;
use hookstash_shared::message::{Lane, MessageId, Shard, Shards, When};
use hookstash_shared::random::SeededRandom;
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::{
    Accepted, AuditWalk, Enqueue, Exchange, Exchanged, Fair, LaneLimits, Lease, Outcome, Retention,
    Settlement, Store,
};

use super::laws;
use super::view::{View, block_on, run};
use super::world::{LEASE, PREFIX};

pub const NOW_MS: u64 = 1_800_000_000_000;

/// A store with its clock.
pub struct Bench {
    pub clock: Arc<ManualClock>,
    pub host: Arc<EmbeddedHost>,
    pub store: Store,
    pub random: SeededRandom,
}

impl Bench {
    pub fn new() -> Self {
        let clock = Arc::new(ManualClock::at(NOW_MS));
        let host = Arc::new(EmbeddedHost::new(clock.clone()).expect("the host starts"));
        let store = Store::new(host.clone(), "hs", Shards::ONE, LEASE, Retention::default());
        Self {
            clock,
            host,
            store,
            random: SeededRandom::new(1),
        }
    }

    pub fn publish(&self, lane: Lane, when: When) -> MessageId {
        let id = MessageId::new(Shard::default(), NOW_MS, &self.random);
        let message = Enqueue {
            id,
            envelope: "envelope".into(),
            dedup_scope: None,
            lane,
            host: "a.test".to_owned(),
            when,
            retries: 2,
            limits: LaneLimits::default(),
            event: Bytes::new(),
        };
        let answers = block_on(self.store.publish(Shard::default(), &[message]));
        assert_eq!(answers, [Ok(Accepted::Message(id))]);
        id
    }

    pub fn exchange(&self, settlements: &[Settlement], want: u32) -> Exchanged {
        let exchange = Exchange {
            settlements,
            want,
            nonce: 7,
            fair: Fair {
                flow: 100,
                host: 100,
            },
            upkeep: 64,
            may_recover: true,
            byte_budget: 1 << 20,
        };
        block_on(self.store.exchange(Shard::default(), &exchange)).expect("an exchange")
    }

    pub fn command(&self, words: &[&str]) {
        run(&*self.host, words);
    }

    /// Whole walks of the auditor, enough for a recount to trust what it sees.
    pub fn audit(&self) -> u64 {
        let (mut repaired, mut previous) = (0, BTreeMap::new());
        for _ in 0..3 {
            let mut holders = AuditWalk::default();
            let mut cursor = 0;
            loop {
                let page = block_on(self.store.audit(Shard::default(), cursor, &mut holders));
                let page = page.expect("a page");
                repaired += page.audited.repaired + page.audited.unreadable;
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            let changed = self
                .store
                .recount(Shard::default(), &holders, &mut previous);
            repaired += block_on(changed).expect("a recount");
        }
        repaired
    }

    pub fn broken(&self) -> Vec<String> {
        laws::broken(&View::read(&self.host, PREFIX))
    }

    /// Leases and delivers until nothing is left; the ids that were delivered.
    pub fn deliver_all(&self) -> Vec<MessageId> {
        let mut delivered = Vec::new();
        for _ in 0..50 {
            let leases = self.exchange(&[], 10).leases;
            let settled: Vec<Settlement> = leases.iter().map(success).collect();
            delivered.extend(settled.iter().map(|s| s.id));
            self.exchange(&settled, 0);
            self.clock.advance(Duration::from_secs(5));
        }
        delivered
    }
}

pub fn success(lease: &Lease) -> Settlement {
    Settlement {
        id: lease.id,
        token: lease.token,
        outcome: Outcome::Delivered,
        event: Bytes::new(),
        children: Vec::new(),
    }
}

pub fn host_lane() -> Lane {
    Lane::host("a.test").expect("a host lane")
}

pub fn queue() -> Lane {
    Lane::queue("orders").expect("a queue")
}
