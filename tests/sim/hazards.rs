//! Sequences that once broke a promise.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::message::{Lane, MessageId, Shard, Shards, When};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{
    Accepted, AuditWalk, Child, Completion, CompletionKey, Enqueue, EnqueueGroup, Exchange, Fair,
    Held, LaneLimits, Lease, Opening, Outcome, Redriven, Settlement, Withdrawn,
};

use super::bench::{Bench, NOW_MS, host_lane, queue, success};
use super::view::{View, block_on};
use super::world::PREFIX;

const DAY: Duration = Duration::from_hours(24);

fn flow() -> Lane {
    Lane::flow(b"k").expect("a flow key")
}

fn retry(lease: &Lease, after: Duration) -> Settlement {
    Settlement {
        outcome: Outcome::Retry { after },
        ..success(lease)
    }
}

fn held(lease: &Lease) -> Held {
    Held {
        id: lease.id,
        token: lease.token,
        started: true,
    }
}

fn message(bench: &Bench, lane: Lane) -> Enqueue {
    Enqueue {
        id: MessageId::new(Shard::default(), NOW_MS, &bench.random),
        envelope: "envelope".into(),
        dedup_scope: None,
        lane,
        host: "a.test".to_owned(),
        when: When::Now,
        retries: 0,
        limits: LaneLimits::default(),
        event: Bytes::new(),
    }
}

fn publish(bench: &Bench, message: &Enqueue) -> Accepted {
    let batch = std::slice::from_ref(message);
    block_on(bench.store.publish(Shard::default(), batch))
        .remove(0)
        .expect("an answer")
}

fn nothing_broken(bench: &Bench) {
    assert_eq!(bench.broken(), Vec::<String>::new());
}

#[test]
fn a_full_store_still_tells_its_number_of_shards() {
    let bench = Bench::new();
    assert_eq!(block_on(bench.store.agree_on_shards(1)), Ok(1));
    bench.host.set_full(true);
    assert_eq!(block_on(bench.store.agree_on_shards(4)), Ok(1));
}

#[test]
fn the_auditor_leaves_messages_of_a_deleted_queue_to_the_sweeper() {
    let bench = Bench::new();
    bench.publish(queue(), When::Now);
    block_on(bench.store.delete_queue(Shard::default(), &queue())).expect("delete");
    assert_eq!(bench.audit(), 0);
    nothing_broken(&bench);
    assert!(bench.exchange(&[], 5).leases.is_empty());
}

#[test]
fn a_recount_does_not_forget_a_message_that_began_to_hold_during_the_walk() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.publish(queue(), When::Now);
    }
    let mut previous = BTreeMap::new();
    for _ in 0..2 {
        let mut walk = AuditWalk::default();
        block_on(bench.store.audit(Shard::default(), 0, &mut walk)).expect("a page");
        let leases = bench.exchange(&[], 5).leases;
        bench.exchange(&[retry(&leases[0], Duration::from_mins(1))], 0);
        let changed = bench.store.recount(Shard::default(), &walk, &mut previous);
        assert_eq!(block_on(changed), Ok(0));
        nothing_broken(&bench);
        assert!(
            bench.exchange(&[], 5).leases.is_empty(),
            "the queue waits for the retry"
        );
        bench.clock.advance(Duration::from_secs(61));
        let leases = bench.exchange(&[], 5).leases;
        bench.exchange(&[success(&leases[0])], 0);
    }
}

#[test]
fn a_lane_the_auditor_woke_stands_in_the_ring_once() {
    let bench = Bench::new();
    let exchange = |settlements: &[Settlement], want| {
        let exchange = Exchange {
            settlements,
            want,
            nonce: 7,
            fair: Fair { flow: 100, host: 1 },
            upkeep: 64,
            may_recover: true,
            byte_budget: 1 << 20,
        };
        block_on(bench.store.exchange(Shard::default(), &exchange)).expect("an exchange")
    };
    bench.publish(host_lane(), When::Now);
    let busy = exchange(&[], 5).leases;
    let head = publish(&bench, &message(&bench, flow()));
    publish(&bench, &message(&bench, flow()));
    exchange(&[], 5);
    let view = View::read(&bench.host, PREFIX);
    assert_eq!(view.field("st", "f:k"), Some("H"));
    let Accepted::Message(head) = head else {
        panic!("no duplicate")
    };
    block_on(bench.store.cancel(&head, Bytes::new())).expect("cancel");
    for _ in 0..4 {
        bench.clock.advance(Duration::from_secs(10));
        block_on(bench.store.renew(Shard::default(), &[held(&busy[0])])).expect("renew");
        exchange(&[], 0);
    }
    bench.audit();
    exchange(&[success(&busy[0])], 0);
    nothing_broken(&bench);
}

#[test]
fn a_late_repeat_does_not_take_a_body_that_a_callback_still_names() {
    let bench = Bench::new();
    let first = Enqueue {
        dedup_scope: Some("s".to_owned()),
        ..message(&bench, host_lane())
    };
    publish(&bench, &first);
    let leases = bench.exchange(&[], 5).leases;
    let child = Child {
        id: MessageId::new(Shard::default(), NOW_MS, &bench.random),
        envelope: "callback".into(),
        body_key: Some(first.id.to_string()),
        lane: host_lane(),
        host: "a.test".to_owned(),
        retries: 1,
        size: 16,
        delay: Duration::from_hours(1),
        event: Bytes::new(),
    };
    bench.exchange(
        &[Settlement {
            children: vec![child],
            ..success(&leases[0])
        }],
        0,
    );
    bench.clock.advance(Duration::from_secs(601));
    bench.exchange(&[], 0);
    let other = Enqueue {
        dedup_scope: Some("s".to_owned()),
        ..message(&bench, host_lane())
    };
    assert_eq!(publish(&bench, &other), Accepted::Message(other.id));
    assert_eq!(publish(&bench, &first), Accepted::Duplicate(other.id));
    nothing_broken(&bench);
}

#[test]
fn a_flow_key_keeps_its_limits_while_a_delayed_message_names_it() {
    let bench = Bench::new();
    let limits = LaneLimits {
        cap: 1,
        rate: 0,
        period_ms: 0,
    };
    for _ in 0..3 {
        let when = When::After(DAY * 10);
        publish(
            &bench,
            &Enqueue {
                limits,
                when,
                ..message(&bench, flow())
            },
        );
    }
    bench.clock.advance(DAY * 8);
    let mut walk = AuditWalk::default();
    block_on(bench.store.audit(Shard::default(), 0, &mut walk)).expect("a page");
    let forget = bench
        .store
        .forget_flow_keys(Shard::default(), 0, DAY * 7, &walk);
    assert_eq!(block_on(forget).expect("a page").forgotten, 0);
    bench.clock.advance(DAY * 3);
    assert_eq!(bench.exchange(&[], 5).leases.len(), 1);
}

#[test]
fn an_unused_flow_key_is_forgotten() {
    let bench = Bench::new();
    let limits = LaneLimits {
        cap: 1,
        rate: 0,
        period_ms: 0,
    };
    publish(
        &bench,
        &Enqueue {
            limits,
            ..message(&bench, flow())
        },
    );
    bench.deliver_all();
    bench.clock.advance(DAY * 8);
    let walk = AuditWalk::default();
    let forget = bench
        .store
        .forget_flow_keys(Shard::default(), 0, DAY * 7, &walk);
    assert_eq!(block_on(forget).expect("a page").forgotten, 1);
}

#[test]
fn a_message_that_kills_whoever_reads_it_never_blocks_its_lane() {
    let bench = Bench::new();
    bench.publish(host_lane(), When::Now);
    let mut pauses = Vec::new();
    for _ in 0..11 {
        let mut leases = bench.exchange(&[], 1).leases;
        let mut waited = 0;
        while leases.is_empty() {
            bench.clock.advance(Duration::from_secs(15));
            waited += 15;
            leases = bench.exchange(&[], 1).leases;
        }
        pauses.push(waited);
        block_on(bench.store.release(Shard::default(), &[held(&leases[0])])).expect("release");
    }
    // The first loss and the eighth, which ends it, come back at once.
    assert_eq!(pauses, [0, 0, 30, 60, 120, 240, 480, 960, 0, 1920, 1920]);
}

#[test]
fn records_of_a_large_deleted_queue_do_not_pile_up() {
    let bench = Bench::new();
    for _ in 0..2000 {
        bench.publish(queue(), When::Now);
    }
    block_on(bench.store.delete_queue(Shard::default(), &queue())).expect("delete");
    while block_on(bench.store.sweep_trash(Shard::default(), 256)).expect("sweep") > 0 {}
    bench.clock.advance(Duration::from_mins(1));
    let mut calls = 0;
    while bench.exchange(&[], 8).is_behind {
        calls += 1;
    }
    assert!(calls < 100, "{calls} calls");
    assert!(View::read(&bench.host, PREFIX).records.is_empty());
}

#[test]
fn a_group_is_accepted_whole_and_its_body_goes_with_its_last_member() {
    let bench = Bench::new();
    let members: Vec<Enqueue> = (0..3).map(|_| message(&bench, host_lane())).collect();
    let group = EnqueueGroup {
        body_key: "group1".to_owned(),
        body: "body".into(),
        members,
    };
    for _ in 0..2 {
        assert_eq!(publish_group(&bench, &group), accepted(&group));
    }
    nothing_broken(&bench);
    let leases = bench.exchange(&[], 5).leases;
    let found = block_on(bench.store.envelopes(Shard::default(), &leases)).expect("envelopes");
    assert_eq!(
        found,
        vec![(Some("envelope".into()), Some("body".into())); 3]
    );
    let settled: Vec<Settlement> = leases.iter().map(success).collect();
    bench.exchange(&settled, 0);
    bench.clock.advance(Duration::from_secs(61));
    bench.exchange(&[], 0);
    assert!(View::read(&bench.host, PREFIX).bodies.is_empty());
}

fn publish_group(bench: &Bench, group: &EnqueueGroup) -> Vec<Accepted> {
    block_on(bench.store.publish_group(Shard::default(), group)).expect("an answer")
}

fn accepted(group: &EnqueueGroup) -> Vec<Accepted> {
    let members = group.members.iter();
    members.map(|member| Accepted::Message(member.id)).collect()
}

fn scoped_group(bench: &Bench, name: &str, scopes: &[&str]) -> EnqueueGroup {
    let member = |scope: &&str| Enqueue {
        dedup_scope: Some(format!(":x:{scope}")),
        ..message(bench, host_lane())
    };
    EnqueueGroup {
        body_key: name.to_owned(),
        body: "body".into(),
        members: scopes.iter().map(member).collect(),
    }
}

#[test]
fn a_member_that_is_a_duplicate_is_no_user_of_the_body() {
    let bench = Bench::new();
    let first = scoped_group(&bench, "g1", &["a", "b"]);
    let second = scoped_group(&bench, "g2", &["a", "b", "c", "d"]);
    let third = scoped_group(&bench, "g3", &["a", "b"]);
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| second.members[n].id);
    let mixed = vec![
        Accepted::Duplicate(first.members[0].id),
        Accepted::Duplicate(first.members[1].id),
        Accepted::Message(c),
        Accepted::Message(d),
    ];
    for _ in 0..2 {
        assert_eq!(publish_group(&bench, &first), accepted(&first));
        assert_eq!(publish_group(&bench, &second), mixed);
        assert_eq!(publish_group(&bench, &third), mixed[..2]);
    }
    nothing_broken(&bench);
    let bodies = View::read(&bench.host, PREFIX).bodies;
    for gone in [a.as_str(), b.as_str(), "g3"] {
        assert!(!bodies.contains(gone), "{gone} is left behind");
    }
    assert_eq!(bodies.len(), 6, "{bodies:?}");
    let leases = bench.exchange(&[], 9).leases;
    assert_eq!(leases.len(), 4);
    let settled: Vec<Settlement> = leases.iter().map(success).collect();
    bench.exchange(&settled, 0);
    bench.clock.advance(Duration::from_secs(61));
    bench.exchange(&[], 0);
    let view = View::read(&bench.host, PREFIX);
    assert!(view.bodies.is_empty(), "{:?}", view.bodies);
    // A repeat whose members have ended and are forgotten is told what became of them.
    bench.clock.advance(Duration::from_secs(20));
    bench.exchange(&[], 0);
    assert_eq!(publish_group(&bench, &second), mixed);
    assert!(View::read(&bench.host, PREFIX).bodies.is_empty());
}

#[test]
fn a_repeat_of_a_group_accepts_what_was_not_accepted_and_shares_the_body() {
    let bench = Bench::new();
    let mut group = scoped_group(&bench, "g1", &["a", "b"]);
    let late = group.members.split_off(1);
    assert_eq!(publish_group(&bench, &group).len(), 1);
    group.members.extend(late);
    assert_eq!(publish_group(&bench, &group), accepted(&group));
    nothing_broken(&bench);
    for left in [1, 0] {
        let leases = bench.exchange(&[], 1).leases;
        bench.exchange(&[success(&leases[0])], 0);
        bench.clock.advance(Duration::from_secs(61));
        bench.exchange(&[], 0);
        let bodies = View::read(&bench.host, PREFIX).bodies;
        assert_eq!(bodies.len(), 2 * left, "{bodies:?}");
    }
}

#[test]
fn a_group_without_its_body_is_not_accepted_in_part() {
    let bench = Bench::new();
    let group = scoped_group(&bench, "g1", &["a", "b"]);
    bench.host.set_full(true);
    let refused = block_on(bench.store.publish_group(Shard::default(), &group));
    assert!(matches!(refused, Err(HostError::Full(_))), "{refused:?}");
    bench.host.set_full(false);
    assert!(View::read(&bench.host, PREFIX).records.is_empty());
    assert_eq!(publish_group(&bench, &group), accepted(&group));
}

#[test]
fn a_completion_is_won_once_and_its_expiry_reopens_nothing() {
    let bench = Bench::new();
    let key = CompletionKey::new("op", "1", Shards::ONE);
    let complete =
        |text: &'static str| block_on(bench.store.complete(&key, text.into())).expect("an answer");
    assert_eq!(complete("early"), Completion::Unknown);
    let open = bench.store.open_completion(&key, "what it is".into());
    block_on(open).expect("open");
    assert_eq!(complete("first"), Completion::Won);
    assert_eq!(complete("second"), Completion::Lost("first".into()));
    for _ in 0..4 {
        bench.clock.advance(DAY * 10);
        assert_ne!(complete("late"), Completion::Won);
    }
}

#[test]
fn a_placeholder_is_not_opened_beside_a_result_that_outlives_it() {
    let bench = Bench::new();
    let key = CompletionKey::new("op", "1", Shards::ONE);
    let store = &bench.store;
    let open = || block_on(store.open_completion(&key, "context".into())).expect("open");
    let complete = |text: &'static str| block_on(store.complete(&key, text.into())).expect("done");
    open();
    assert_eq!(complete("first"), Completion::Won);
    // Between the end of the placeholder and that of its result.
    bench.clock.advance(DAY * 30 + Duration::from_secs(30));
    open();
    assert_eq!(block_on(store.placeholder(&key)), Ok(None));
    assert_eq!(complete("second"), Completion::Unknown);
    // It is not there for ever either: a new one may be opened when nothing is left.
    bench.clock.advance(Duration::from_mins(1));
    assert_eq!(complete("third"), Completion::Unknown);
    open();
    assert_eq!(complete("fourth"), Completion::Won);
}

#[test]
fn a_placeholder_is_withdrawn_while_it_is_empty_and_only_then() {
    let bench = Bench::new();
    let key = CompletionKey::new("op", "1", Shards::ONE);
    let store = &bench.store;
    let open = || block_on(store.open_completion(&key, "context".into())).expect("open");
    let complete = |text: &'static str| block_on(store.complete(&key, text.into())).expect("done");
    let withdraw = || block_on(store.withdraw_completion(&key)).expect("withdrawn");
    open();
    assert_eq!(withdraw(), Withdrawn::Gone);
    assert_eq!(complete("late"), Completion::Unknown);
    open();
    assert_eq!(complete("first"), Completion::Won);
    assert_eq!(withdraw(), Withdrawn::Final);
    let kept = block_on(store.placeholder(&key)).expect("read");
    let kept = kept.expect("it is there");
    assert_eq!(kept.context, "context");
    assert_eq!(kept.result.as_deref(), Some(&b"first"[..]));
}

#[test]
fn a_placeholder_that_is_closed_is_named_until_it_is_withdrawn() {
    let bench = Bench::new();
    let store = &bench.store;
    let key = CompletionKey::new("op", "1", Shards::ONE);
    let named = || block_on(store.open_completions("op")).expect("read");
    let open = || block_on(store.open_completion(&key, "context".into())).expect("open");
    let complete = |text: &'static str| block_on(store.complete(&key, text.into())).expect("done");
    let close = || block_on(store.close_completion(&key)).expect("closed");
    open();
    for _ in 0..2 {
        assert_eq!(close(), Withdrawn::Gone);
        assert_eq!(complete("late"), Completion::Unknown);
        assert_eq!(named(), ["1"]);
    }
    let withdrawn = block_on(store.withdraw_completion(&key));
    assert_eq!(withdrawn, Ok(Withdrawn::Gone));
    assert_eq!(named(), Vec::<String>::new());
    open();
    assert_eq!(complete("first"), Completion::Won);
    assert_eq!(close(), Withdrawn::Final);
    assert_eq!(complete("second"), Completion::Lost("first".into()));
    assert_eq!(named(), Vec::<String>::new());
}

#[test]
fn nothing_is_opened_for_an_operation_that_was_stopped() {
    let bench = Bench::new();
    let store = &bench.store;
    let key = |message: &str| CompletionKey::new("o:p%", message, Shards::ONE);
    let open = |message: &str| {
        let key = key(message);
        block_on(store.open_completion(&key, "context".into())).expect("an answer")
    };
    let is_stopped =
        |operation: &str| block_on(store.are_completions_stopped(operation)).expect("an answer");
    assert_eq!(open("before"), Opening::Open);
    block_on(store.stop_completions("o:p%")).expect("stopped");
    assert!(is_stopped("o:p%") && !is_stopped("o"));
    for message in ["before", "after"] {
        assert_eq!(open(message), Opening::Stopped);
    }
    // What was open before is not touched.
    assert_eq!(block_on(store.placeholder(&key("after"))), Ok(None));
    let named = block_on(store.open_completions("o:p%")).expect("read");
    assert_eq!(named, ["before"]);
    let won = block_on(store.complete(&key("before"), "first".into()));
    assert_eq!(won, Ok(Completion::Won));
    // It is not remembered for ever.
    bench.clock.advance(DAY * 30 + Duration::from_secs(1));
    assert!(!is_stopped("o:p%"));
}

#[test]
fn an_operation_knows_its_placeholders_until_they_have_a_result_or_are_withdrawn() {
    let bench = Bench::new();
    let store = &bench.store;
    let key = |message: &str| CompletionKey::new("o:p%", message, Shards::ONE);
    let known = || block_on(store.open_completions("o:p%")).expect("read");
    let messages = ["a:b", "%3A", "%25", ":final"];
    for message in messages.iter().chain(&messages) {
        block_on(store.open_completion(&key(message), "context".into())).expect("open");
        bench.clock.advance(Duration::from_millis(1));
    }
    assert_eq!(known(), messages, "longest open first");
    block_on(store.complete(&key("a:b"), "first".into())).expect("done");
    block_on(store.withdraw_completion(&key("%25"))).expect("withdrawn");
    // Neither is opened once more by a repeat that comes late.
    block_on(store.open_completion(&key("a:b"), "context".into())).expect("open");
    assert_eq!(known(), ["%3A", ":final"]);
    assert_eq!(block_on(store.open_completions("o")), Ok(vec![]));
    for message in ["%3A", ":final"] {
        block_on(store.withdraw_completion(&key(message))).expect("withdrawn");
    }
    assert_eq!(known(), Vec::<String>::new());
}

#[test]
fn a_lane_with_a_large_head_gets_its_turn_beside_one_that_fills_every_batch() {
    const BUDGET: usize = 1_000;
    let bench = Bench::new();
    let sized = |host: &str, bytes: usize| Enqueue {
        envelope: vec![b'x'; bytes].into(),
        host: host.to_owned(),
        ..message(&bench, Lane::host(host).expect("a host"))
    };
    for _ in 0..40 {
        publish(&bench, &sized("a.test", BUDGET / 10));
    }
    let large = sized("b.test", BUDGET / 2 + 1);
    publish(&bench, &large);
    let mut leased = Vec::new();
    for _ in 0..2 {
        let exchange = Exchange {
            settlements: &[],
            want: 16,
            nonce: 7,
            fair: Fair {
                flow: 100,
                host: 100,
            },
            upkeep: 64,
            may_recover: true,
            byte_budget: BUDGET as u64,
        };
        let answer = block_on(bench.store.exchange(Shard::default(), &exchange));
        leased.extend(answer.expect("an exchange").leases);
        nothing_broken(&bench);
    }
    assert!(leased.iter().any(|lease| lease.id == large.id));
}

#[test]
fn a_message_redriven_into_a_deleted_queue_makes_the_queue_again() {
    let bench = Bench::new();
    bench.publish(queue(), When::Now);
    let lease = bench.exchange(&[], 1).leases.remove(0);
    let dead = Settlement {
        outcome: Outcome::Dead {
            response: Bytes::new(),
        },
        ..success(&lease)
    };
    bench.exchange(&[dead], 0);
    block_on(bench.store.delete_queue(Shard::default(), &queue())).expect("delete");
    let new = MessageId::new(Shard::default(), NOW_MS, &bench.random);
    let redriven = bench
        .store
        .redrive(&lease.id, &new, "envelope".into(), Bytes::new());
    assert_eq!(block_on(redriven), Ok(Redriven::Accepted));
    let state = block_on(bench.store.lane_state(&queue())).expect("an answer");
    assert_eq!(state.map(|state| state.limits.cap), Some(1));
    nothing_broken(&bench);
}
