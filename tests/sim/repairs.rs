//! Half states: made by hand, found and repaired by the auditor, so that every accepted message
//! still ends.

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::message::{Lane, MessageId, Shard, When};
use hookstash_shared::store::{DeathRange, LaneChange};

use super::bench::{Bench, host_lane, queue, success};
use super::view::block_on;

const YEAR: Duration = Duration::from_hours(365 * 24);

/// Breaks the state of a message in its lane, and expects the auditor to bring it back.
fn repaired_after(lane: Lane, leased: u32, damage: impl FnOnce(&Bench, MessageId)) {
    let bench = Bench::new();
    let id = bench.publish(lane, When::Now);
    bench.exchange(&[], leased);
    assert_eq!(bench.broken(), Vec::<String>::new());
    damage(&bench, id);
    assert_ne!(
        bench.broken(),
        Vec::<String>::new(),
        "the damage breaks a law"
    );
    assert!(bench.audit() > 0);
    assert_eq!(bench.broken(), Vec::<String>::new());
    assert_eq!(bench.deliver_all(), [id]);
}

#[test]
fn f15_a_leased_message_without_a_lease_is_recovered() {
    repaired_after(host_lane(), 1, |bench, id| {
        bench.command(&["ZREM", "hs:{0}:l", id.as_str()]);
    });
}

#[test]
fn f15_a_delayed_message_without_a_due_time_is_sent() {
    let bench = Bench::new();
    let id = bench.publish(host_lane(), When::After(Duration::from_mins(1)));
    bench.command(&["ZREM", "hs:{0}:d", id.as_str()]);
    assert_ne!(bench.broken(), Vec::<String>::new());
    assert!(bench.audit() > 0);
    assert_eq!(bench.deliver_all(), [id]);
}

#[test]
fn f15_a_waiting_message_that_no_lane_lists_is_listed_again() {
    repaired_after(host_lane(), 0, |bench, _| {
        bench.command(&["DEL", "hs:{0}:ln:h:a.test"]);
    });
}

#[test]
fn f15_a_runnable_lane_outside_the_ring_is_put_back() {
    repaired_after(host_lane(), 0, |bench, _| {
        bench.command(&["DEL", "hs:{0}:run"]);
    });
}

#[test]
fn f15_a_count_that_blocks_a_queue_is_counted_again() {
    repaired_after(queue(), 0, |bench, _| {
        bench.command(&["DEL", "hs:{0}:run"]);
        bench.command(&["HSET", "hs:{0}:inf", "q:orders", "1"]);
        bench.command(&["HSET", "hs:{0}:st", "q:orders", "C"]);
    });
}

#[test]
fn f15_a_record_that_cannot_be_read_becomes_a_dead_letter_and_blocks_nobody() {
    let bench = Bench::new();
    let bad = bench.publish(queue(), When::Now);
    let good = bench.publish(queue(), When::Now);
    bench.command(&["HSET", "hs:{0}:m", bad.as_str(), "garbage"]);
    assert_eq!(bench.exchange(&[], 5).counters.unreadable, 1);
    assert!(bench.audit() > 0);
    assert_eq!(bench.deliver_all(), [good]);
    let page = block_on(bench.store.deaths(&DeathRange::default(), 10)).expect("a page");
    assert_eq!(
        page.found.iter().map(|death| death.id).collect::<Vec<_>>(),
        [bad]
    );
}

#[test]
fn a_message_whose_envelope_is_missing_is_buried_and_blocks_nobody() {
    let bench = Bench::new();
    let bad = bench.publish(queue(), When::Now);
    let good = bench.publish(queue(), When::Now);
    bench.command(&["DEL", &format!("hs:{{0}}:b:{bad}")]);
    let exchanged = bench.exchange(&[], 5);
    assert_eq!((exchanged.counters.buried, exchanged.leases.len()), (1, 1));
    bench.exchange(&[success(&exchanged.leases[0])], 0);
    assert_eq!(exchanged.leases[0].id, good);
}

#[test]
fn f15_a_message_that_its_lane_lists_twice_is_leased_once() {
    let bench = Bench::new();
    let id = bench.publish(host_lane(), When::Now);
    bench.command(&["RPUSH", "hs:{0}:ln:h:a.test", id.as_str()]);
    let exchanged = bench.exchange(&[], 5);
    assert_eq!((exchanged.counters.skipped, exchanged.leases.len()), (1, 1));
    bench.exchange(&[success(&exchanged.leases[0])], 0);
    assert_eq!(bench.broken(), Vec::<String>::new());
}

#[test]
fn a_healthy_store_is_left_alone() {
    let bench = Bench::new();
    bench.publish(queue(), When::Now);
    bench.publish(host_lane(), When::After(YEAR));
    bench.exchange(&[], 1);
    assert_eq!(bench.audit(), 0);
}

#[test]
fn a_message_delayed_by_a_year_still_has_its_body() {
    let bench = Bench::new();
    let id = bench.publish(host_lane(), When::After(YEAR));
    bench
        .clock
        .advance(YEAR.saturating_sub(Duration::from_secs(1)));
    assert!(bench.exchange(&[], 5).leases.is_empty());
    bench.clock.advance(Duration::from_secs(2));
    let leases = bench.exchange(&[], 5).leases;
    let found = block_on(bench.store.envelopes(Shard::default(), &leases)).expect("envelopes");
    assert_eq!(found, [(Some(Bytes::from("envelope")), None)]);
    assert_eq!(leases[0].id, id);
}

#[test]
fn a_message_in_a_queue_paused_for_a_month_still_has_its_body() {
    let bench = Bench::new();
    let paused = |paused| LaneChange {
        paused: Some(paused),
        ..LaneChange::default()
    };
    let set = |change| block_on(bench.store.set_lane(Shard::default(), &queue(), change));
    set(paused(true)).expect("pause");
    let id = bench.publish(queue(), When::Now);
    for _ in 0..30 {
        bench.clock.advance(Duration::from_hours(24));
        assert!(bench.exchange(&[], 5).leases.is_empty());
    }
    set(paused(false)).expect("resume");
    let leases = bench.exchange(&[], 5).leases;
    let found = block_on(bench.store.envelopes(Shard::default(), &leases)).expect("envelopes");
    assert_eq!(found, [(Some(Bytes::from("envelope")), None)]);
    assert_eq!(leases[0].id, id);
}
