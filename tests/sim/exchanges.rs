//! Single exchanges: what comes along with leases, what is left to the next one, who is woken.

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::message::{MessageId, Shard, When};
use hookstash_shared::store::{Enqueue, Exchange, Exchanged, Fair, LaneLimits, Settlement};

use super::bench::{Bench, NOW_MS, host_lane, success};
use super::view::{View, block_on};
use super::world::PREFIX;

fn exchange(bench: &Bench, settlements: &[Settlement], fair: u64, upkeep: u32) -> Exchanged {
    let exchange = Exchange {
        settlements,
        want: 16,
        nonce: 7,
        fair: Fair {
            flow: fair,
            host: fair,
        },
        upkeep,
        may_recover: true,
        byte_budget: 1 << 20,
    };
    block_on(bench.store.exchange(Shard::default(), &exchange)).expect("an exchange")
}

fn publish_sized(bench: &Bench, bytes: usize) -> (MessageId, Bytes) {
    let id = MessageId::new(Shard::default(), NOW_MS, &bench.random);
    let envelope = Bytes::from(vec![b'x'; bytes]);
    let message = Enqueue {
        id,
        envelope: envelope.clone(),
        dedup_scope: None,
        lane: host_lane(),
        host: "a.test".to_owned(),
        when: When::Now,
        retries: 2,
        limits: LaneLimits::default(),
        event: Bytes::new(),
    };
    for answer in block_on(bench.store.publish(Shard::default(), &[message])) {
        answer.expect("accepted");
    }
    (id, envelope)
}

#[test]
fn small_envelopes_come_along_with_their_leases_and_all_others_are_found() {
    let bench = Bench::new();
    let published: Vec<_> = [10, 4_000, 4_200, 10, 100_000]
        .map(|bytes| publish_sized(&bench, bytes))
        .into();
    let leases = exchange(&bench, &[], 100, 0).leases;
    let came: Vec<bool> = leases
        .iter()
        .map(|lease| lease.envelope.is_some())
        .collect();
    assert_eq!(came, [true, true, false, true, false]);
    let found = block_on(bench.store.envelopes(Shard::default(), &leases)).expect("envelopes");
    for ((lease, found), (id, envelope)) in leases.iter().zip(found).zip(published) {
        assert_eq!((lease.id, found), (id, (Some(envelope), None)));
    }
    assert_eq!(bench.broken(), Vec::<String>::new());
}

#[test]
fn a_message_that_lost_its_envelope_is_buried_whatever_its_size_was() {
    for bytes in [10, 100_000] {
        let bench = Bench::new();
        let (lost, _) = publish_sized(&bench, bytes);
        let (kept, _) = publish_sized(&bench, bytes);
        bench.command(&["DEL", &format!("hs:{{0}}:b:{lost}")]);
        let answer = exchange(&bench, &[], 100, 0);
        let leased: Vec<MessageId> = answer.leases.iter().map(|lease| lease.id).collect();
        assert_eq!((leased, answer.counters.buried), (vec![kept], 1));
    }
}

#[test]
fn a_lane_parked_for_want_of_room_wakes_another_worker_even_if_the_parker_takes_a_token() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.publish(host_lane(), When::Now);
    }
    for worker in ["parker", "other"] {
        let life = Duration::from_secs(15);
        block_on(bench.store.heartbeat(Shard::default(), worker, 8, life)).expect("a heartbeat");
    }
    bench.command(&["DEL", "hs:{0}:w"]);
    assert_eq!(exchange(&bench, &[], 1, 0).leases.len(), 1);
    assert_eq!(View::read(&bench.host, PREFIX).tokens, 2);
    bench.command(&["LPOP", "hs:{0}:w"]);
    assert!(exchange(&bench, &[], 1, 0).leases.is_empty());
    assert_eq!(View::read(&bench.host, PREFIX).tokens, 1);
    assert_eq!(exchange(&bench, &[], 2, 0).leases.len(), 1);
}

#[test]
fn a_lane_parked_by_the_only_worker_wakes_nobody() {
    let bench = Bench::new();
    bench.publish(host_lane(), When::Now);
    bench.publish(host_lane(), When::Now);
    bench.command(&["DEL", "hs:{0}:w"]);
    assert_eq!(exchange(&bench, &[], 1, 0).leases.len(), 1);
    assert_eq!(View::read(&bench.host, PREFIX).tokens, 0);
}

#[test]
fn upkeep_is_left_to_another_exchange_and_loses_nothing() {
    let bench = Bench::new();
    bench.publish(host_lane(), When::Now);
    bench.publish(host_lane(), When::Now);
    let leases = exchange(&bench, &[], 100, 0).leases;
    exchange(&bench, &[success(&leases[0])], 100, 0);
    bench.clock.advance(Duration::from_secs(61));
    let due_ms = exchange(&bench, &[], 100, 0).next_due_ms.expect("a lease");
    assert!(
        due_ms < NOW_MS + 61_000,
        "the lease is over and still there"
    );
    let view = View::read(&bench.host, PREFIX);
    assert_eq!((view.records.len(), view.bodies.len()), (2, 2));
    let answer = exchange(&bench, &[], 100, 64);
    assert_eq!((answer.counters.recovered, answer.leases.len()), (1, 1));
    let view = View::read(&bench.host, PREFIX);
    assert_eq!((view.records.len(), view.bodies.len()), (1, 1));
    assert!(!answer.is_behind);
    assert_eq!(bench.broken(), Vec::<String>::new());
}

#[test]
fn upkeep_goes_no_further_than_it_is_told() {
    let bench = Bench::new();
    for _ in 0..10 {
        bench.publish(host_lane(), When::Now);
    }
    let leases = exchange(&bench, &[], 100, 0).leases;
    let settled: Vec<Settlement> = leases.iter().map(success).collect();
    exchange(&bench, &settled, 100, 0);
    bench.clock.advance(Duration::from_secs(61));
    for (left, is_behind) in [(6, true), (2, true), (0, false)] {
        assert_eq!(exchange(&bench, &[], 100, 4).is_behind, is_behind);
        assert_eq!(View::read(&bench.host, PREFIX).records.len(), left);
    }
}
