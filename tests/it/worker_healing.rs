//! Workers and stores that die, stall, forget or come back: nothing is lost, nothing goes twice
//! that need not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::environment::Environment;
use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::headers::{HeaderSource, Headers};
use hookstash_shared::message::{MessageId, Shard, State};
use hookstash_shared::store::faulty::FaultRates;
use hookstash_shared::store::{Exchange, Fair, Lease, Outcome, Settlement};
use hookstash_worker::Drained;

use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::redis::RedisServer;
use crate::support::stage::{LEASE, SOON, Stage, message};

/// Leases one message as a worker that is going to die does.
async fn lease_and_die(stage: &Stage) -> Lease {
    let fair = Fair { flow: 10, host: 10 };
    let exchange = Exchange {
        settlements: &[],
        want: 1,
        nonce: 7,
        fair,
        may_recover: true,
        byte_budget: 1 << 20,
    };
    let answer = stage
        .store
        .exchange(Shard::default(), &exchange)
        .await
        .expect("an answer");
    answer.leases.into_iter().next().expect("a lease")
}

fn ids(received: &[Received]) -> BTreeSet<String> {
    let id = |one: &Received| one.header("upstash-message-id").unwrap().to_owned();
    received.iter().map(id).collect()
}

#[tokio::test]
async fn r14_a_message_without_retries_whose_worker_died_before_its_call_is_still_called() {
    for stage in Stage::both().await {
        let receiver = Receiver::start();
        let id = stage
            .publish(message(&receiver.url("/r14")).retries(0))
            .await;
        lease_and_die(&stage).await;
        let _worker = stage.work();
        stage.wait_for_state(&id, State::Delivered).await;
        let received = receiver.received();
        assert_eq!(received.len(), 1, "{}", stage.name());
        assert_eq!(received[0].header("upstash-retried"), Some("0"));
    }
}

#[tokio::test]
async fn a_message_that_kills_its_workers_dies_without_another_call() {
    let stage = Stage::embedded(Duration::from_millis(2));
    let receiver = Receiver::start();
    let id = stage.publish(message(&receiver.url("/poison"))).await;
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let fair = Fair { flow: 10, host: 10 };
        let exchange = Exchange {
            settlements: &[],
            want: 1,
            nonce: 7,
            fair,
            may_recover: true,
            byte_budget: 1 << 20,
        };
        let answer = stage
            .store
            .exchange(Shard::default(), &exchange)
            .await
            .unwrap();
        if answer.leases.first().is_some_and(|lease| lease.lost == 7) {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A worker with a sane lease time takes it over.
    let mut patient = Stage::embedded(LEASE);
    patient.store = hookstash_shared::store::Store::new(
        Arc::clone(stage.faults.as_ref().unwrap()) as _,
        "hs",
        stage.store.shards(),
        LEASE,
        hookstash_shared::store::Retention::default(),
    );
    let _worker = patient.work();
    let last = patient.wait_for_death(&id).await;
    assert_eq!(last.class(), Some(ErrorClass::WorkerLost));
    assert_eq!(receiver.count(), 0);
}

#[tokio::test]
async fn r04_messages_overdue_at_the_start_are_attempted_at_once() {
    for stage in Stage::both().await {
        let receiver = Receiver::always(Answer::status(500).header("retry-after", "1"));
        let first = stage.work();
        let all = (0..50).map(|_| message(&receiver.url("/r04"))).collect();
        let ids = stage.publish_all(all).await;
        receiver.wait_for(50, SOON).await;
        for id in &ids {
            stage.wait_for_state(id, State::Delayed).await;
        }
        assert_eq!(first.drain(SOON).await, Drained::Finished);
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert_eq!(receiver.count(), 50, "{}", stage.name());
        let _second = stage.work();
        receiver.wait_for(100, Duration::from_secs(2)).await;
    }
}

#[tokio::test]
async fn f24_a_receiver_slower_than_the_lease_is_called_once() {
    for stage in Stage::both().await {
        let slow = Answer::ok().after(LEASE * 3);
        let receiver = Receiver::always(slow);
        let (_one, _other) = (stage.work(), stage.work());
        let id = stage.publish(message(&receiver.url("/f24"))).await;
        stage.wait_for_state(&id, State::Delivered).await;
        assert_eq!(
            (receiver.count(), stage.reports().len()),
            (1, 1),
            "{}",
            stage.name()
        );
    }
}

#[tokio::test]
async fn a_delivery_that_panics_is_an_attempt_that_failed() {
    struct Panicking;
    impl Environment for Panicking {
        fn get(&self, name: &str) -> Option<String> {
            assert_ne!(name, "BOOM", "as a defect would");
            None
        }
        fn names(&self) -> Vec<String> {
            Vec::new()
        }
    }
    let mut stage = Stage::embedded(LEASE);
    stage.environment = Arc::new(Panicking);
    let receiver = Receiver::start();
    let worker = stage.work();
    let mut headers = Headers::default();
    let text = "${BOOM}".to_owned();
    let source = HeaderSource::Template {
        text,
        allowed_env_vars: vec!["BOOM".to_owned()],
    };
    headers.append(b"x-boom", source).unwrap();
    let id = stage
        .publish(message(&receiver.url("/")).headers(headers).retries(2))
        .await;
    let last = stage.wait_for_death(&id).await;
    assert_eq!(last.class(), Some(ErrorClass::Configuration));
    assert_eq!(last.error(), "the delivery panicked");
    assert_eq!(stage.reports().len(), 3);
    let fine = stage.publish(message(&receiver.url("/"))).await;
    stage.wait_for_state(&fine, State::Delivered).await;
    assert!(worker.is_healthy());
}

#[tokio::test]
async fn a_dead_delivery_thread_is_started_again_and_its_messages_come_back() {
    for stage in Stage::both().await {
        let is_armed = Arc::new(AtomicBool::new(true));
        let slow = Answer::ok().after(Duration::from_millis(300));
        let receiver = Receiver::with(move |request| match request.path.as_str() {
            "/quick" => Answer::ok(),
            _ => slow.clone(),
        });
        let mut parts = stage.parts();
        parts.settings.threads = 1;
        parts.observer = Some(Arc::new(move |_| {
            // Outside of what is caught for a delivery, so the whole thread dies.
            assert!(!is_armed.swap(false, Ordering::SeqCst), "as a defect would");
        }));
        let worker = hookstash_worker::start(parts).unwrap();
        let slow = (0..5).map(|_| message(&receiver.url("/slow"))).collect();
        let ids = stage.publish_all(slow).await;
        receiver.wait_for(5, SOON).await;
        stage.publish(message(&receiver.url("/quick"))).await;
        for id in &ids {
            stage.wait_for_state(id, State::Delivered).await;
        }
        let received = receiver.received();
        assert_eq!(ids_of(&received, "/slow"), 5, "{}", stage.name());
        assert!(worker.is_healthy());
        assert_eq!(worker.drain(SOON).await, Drained::Finished);
    }
}

fn ids_of(received: &[Received], path: &str) -> usize {
    let of_path: Vec<_> = received
        .iter()
        .filter(|one| one.path == path)
        .cloned()
        .collect();
    ids(&of_path).len()
}

#[tokio::test]
async fn redis_killed_and_restarted_during_deliveries_loses_nothing() {
    const COUNT: usize = 300;
    let mut stage = Stage::redis(LEASE).await;
    let receiver = Receiver::always(Answer::ok().after(Duration::from_millis(20)));
    stage.settings.slots = 8;
    let worker = stage.work();
    let all = (0..COUNT)
        .map(|_| message(&receiver.url("/kill")))
        .collect();
    let published = stage.publish_all(all).await;
    receiver.wait_for(40, SOON).await;
    stage.redis.as_mut().unwrap().kill9();
    tokio::time::sleep(LEASE).await;
    let running = receiver.count();
    assert!(running < COUNT && !worker.is_healthy());
    stage.redis.as_mut().unwrap().restart();
    for id in &published {
        stage.wait_for_state(id, State::Delivered).await;
    }
    let received = receiver.received();
    assert_eq!(ids(&received).len(), COUNT);
    // Only what was leased by an exchange whose reply was lost may be recovered, none is repeated.
    assert!(received.len() <= COUNT + 8, "{} requests", received.len());
    assert!(worker.is_healthy());
}

#[tokio::test]
async fn f01_redis_that_comes_back_empty_is_used_again() {
    let stage = Stage::on_server(RedisServer::start(), LEASE, 1).await;
    let mut stage = stage;
    let receiver = Receiver::start();
    let worker = stage.work();
    let before = stage.publish(message(&receiver.url("/before"))).await;
    stage.wait_for_state(&before, State::Delivered).await;
    stage.redis.as_mut().unwrap().restart();
    let after = stage.publish(message(&receiver.url("/after"))).await;
    receiver.wait_for(2, Duration::from_secs(8)).await;
    stage.wait_for_state(&after, State::Delivered).await;
    assert!(worker.is_healthy());
}

#[tokio::test]
async fn f02_waits_that_are_cut_or_unblocked_and_scripts_that_are_flushed_stop_nothing() {
    let stage = Stage::redis(LEASE).await;
    let server = stage.redis.as_ref().unwrap();
    let receiver = Receiver::start();
    let _worker = stage.work();
    for round in 0..6 {
        match round % 3 {
            0 => drop(server.try_cli::<()>(&["SCRIPT", "FLUSH"])),
            1 => drop(server.try_cli::<i64>(&["CLIENT", "KILL", "TYPE", "normal"])),
            _ => {
                let clients: String = server.cli(&["CLIENT", "LIST"]);
                let waiting = clients.lines().filter(|line| line.contains("cmd=blpop"));
                for line in waiting {
                    let id = line.split(' ').next().unwrap().trim_start_matches("id=");
                    drop(server.try_cli::<i64>(&["CLIENT", "UNBLOCK", id, "ERROR"]));
                }
            }
        }
        stage.publish(message(&receiver.url("/f02"))).await;
        receiver.wait_for(round + 1, Duration::from_secs(5)).await;
    }
    receiver
        .expect_no_more_than(6, Duration::from_millis(200))
        .await;
}

#[tokio::test]
async fn f15_a_store_that_loses_replies_and_forgets_scripts_ends_with_every_message_delivered() {
    const COUNT: usize = 200;
    let mut stage = Stage::embedded(LEASE);
    stage.settings.batch = 8;
    let receiver = Receiver::with(|request| {
        let is_first = request.header("upstash-retried") == Some("0");
        if is_first {
            Answer::status(500)
        } else {
            Answer::ok()
        }
    });
    let all = (0..COUNT)
        .map(|_| message(&receiver.url("/f15")).retries(9))
        .collect();
    let ids = stage.publish_all(all).await;
    let faults = stage.faults.as_ref().unwrap();
    faults.set_rates(FaultRates {
        lose_before: 500,
        lose_after: 500,
        refuse: 500,
        forget_scripts: 500,
        delay: 500,
        delay_max: Duration::from_millis(20),
        ..FaultRates::default()
    });
    let worker = stage.work();
    tokio::time::sleep(Duration::from_secs(4)).await;
    faults.set_rates(FaultRates::default());
    for id in &ids {
        stage.wait_for_state(id, State::Delivered).await;
    }
    assert_eq!(self::ids(&receiver.received()).len(), COUNT);
    assert_eq!(worker.drain(SOON).await, Drained::Finished);
}

#[tokio::test]
async fn a_settlement_that_the_store_refuses_for_good_does_not_hold_up_the_others() {
    let stage = Stage::redis(LEASE).await;
    let receiver = Receiver::start();
    let worker = stage.work();
    stage.wait_for_first_exchange(&worker).await;
    // A wrong type under the name of its response makes the script of this settlement fail.
    let bad = Receiver::with(|_| Answer::status(410).after(Duration::from_millis(300)));
    let id = stage.publish(message(&bad.url("/bad"))).await;
    bad.wait_for(1, SOON).await;
    let server = stage.redis.as_ref().unwrap();
    let record: String = server.cli(&["HGET", "hs:{0}:m", id.as_str()]);
    // A lane whose list is no list: the end of this message cannot wake it.
    let lane = record.split('|').nth(10).unwrap().to_owned();
    let () = server.cli(&["SET", &format!("hs:{{0}}:ln:{lane}"), "no list"]);
    let others = (0..20).map(|_| message(&receiver.url("/good"))).collect();
    let others = stage.publish_all(others).await;
    for other in &others {
        stage.wait_for_state(other, State::Delivered).await;
    }
    assert_eq!(worker.drain(SOON).await, Drained::Finished);
}

#[tokio::test]
async fn a_late_success_of_another_worker_counts() {
    for stage in Stage::both().await {
        let receiver = Receiver::always(Answer::status(500).after(Duration::from_secs(1)));
        let id = stage.publish(message(&receiver.url("/late"))).await;
        let lease = lease_and_die(&stage).await;
        let _worker = stage.work();
        receiver.wait_for(1, SOON).await;
        settle_delivered(&stage, &id, &lease).await;
        stage.wait_for_state(&id, State::Delivered).await;
        receiver
            .expect_no_more_than(1, Duration::from_millis(300))
            .await;
    }
}

async fn settle_delivered(stage: &Stage, id: &MessageId, lease: &Lease) {
    let settlement = Settlement {
        id: *id,
        token: lease.token,
        outcome: Outcome::Delivered,
        event: Bytes::from_static(b"{}"),
        children: Vec::new(),
    };
    let exchange = Exchange {
        settlements: &[settlement],
        want: 0,
        nonce: 8,
        fair: Fair { flow: 1, host: 1 },
        may_recover: false,
        byte_budget: 0,
    };
    stage
        .store
        .exchange(Shard::default(), &exchange)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_worker_with_another_number_of_shards_leases_nothing_and_says_so() {
    let stage = Stage::redis(LEASE).await;
    stage.store.agree_on_shards(4).await.unwrap();
    let receiver = Receiver::start();
    let worker = stage.work();
    let id = stage.publish(message(&receiver.url("/shards"))).await;
    receiver
        .expect_no_more_than(0, Duration::from_millis(500))
        .await;
    assert!(!worker.is_healthy());
    assert_eq!(stage.state(&id).await, Some(State::Ready));
}

#[tokio::test]
async fn an_idle_worker_asks_the_store_for_next_to_nothing() {
    let stage = Stage::redis(Duration::from_secs(15)).await;
    let worker = stage.work();
    let server = stage.redis.as_ref().unwrap();
    stage.wait_for_first_exchange(&worker).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let commands = || -> u64 {
        let info: String = server.cli(&["INFO", "stats"]);
        let line = info
            .lines()
            .find(|line| line.starts_with("total_commands_processed:"));
        line.unwrap()
            .split(':')
            .nth(1)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    let before = commands();
    tokio::time::sleep(Duration::from_secs(8)).await;
    // Commands inside scripts count too: at most three looks, three beats and two waits.
    let asked = commands() - before;
    assert!(asked < 120, "{asked} commands in 8 s");
    drop(worker);
}

#[tokio::test]
async fn two_workers_on_several_shards_deliver_each_message_once() {
    const COUNT: usize = 400;
    let stage = Stage::on_server(RedisServer::start(), LEASE, 4).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let receiver = Receiver::with(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Answer::ok()
    });
    let workers = [stage.work(), stage.work()];
    let all = (0..COUNT)
        .map(|_| message(&receiver.url("/many")))
        .collect();
    let ids = stage.publish_all(all).await;
    for id in &ids {
        stage.wait_for_state(id, State::Delivered).await;
    }
    assert_eq!(calls.load(Ordering::SeqCst), COUNT);
    for worker in workers {
        assert_eq!(worker.drain(SOON).await, Drained::Finished);
    }
    let shards: BTreeSet<u16> = ids.iter().map(|id| id.shard().index()).collect();
    assert_eq!(shards.len(), 4);
}
