//! Workers and stores that die, stall, forget or come back: nothing is lost, nothing goes twice
//! that need not.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use hookstash_shared::clock::SystemClock;
use hookstash_shared::environment::Environment;
use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::headers::{HeaderSource, Headers};
use hookstash_shared::message::{Lane, MessageId, Shard, State};
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::faulty::FaultRates;
use hookstash_shared::store::host::{Host, HostError, Step, StepResult};
use hookstash_shared::store::{Exchange, Fair, LaneChange, Lease, Outcome, Settlement};
use hookstash_worker::Drained;

use crate::support::receiver::{Answer, Gate, Received, Receiver};
use crate::support::redis::RedisServer;
use crate::support::redis_groups::RedisCluster;
use crate::support::stage::{LEASE, SOON, Stage, message};

/// Leases one message as a worker that is going to die does.
async fn lease_and_die(stage: &Stage) -> Lease {
    let fair = Fair { flow: 10, host: 10 };
    let exchange = Exchange {
        settlements: &[],
        want: 1,
        nonce: 7,
        fair,
        upkeep: 64,
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

fn ids(requests: &[Received]) -> BTreeSet<String> {
    let id = |one: &Received| one.header("upstash-message-id").unwrap().to_owned();
    requests.iter().map(id).collect()
}

#[tokio::test]
async fn r14_a_message_without_retries_whose_worker_died_before_its_call_is_still_called() {
    for stage in Stage::both() {
        let receiver = Receiver::start();
        let id = stage
            .publish(message(&receiver.url("/r14")).retries(0))
            .await;
        lease_and_die(&stage).await;
        let _worker = stage.work();
        stage.wait_for_state(&id, State::Delivered).await;
        let requests = receiver.received();
        assert_eq!(requests.len(), 1, "{}", stage.name());
        assert_eq!(requests[0].header("upstash-retried"), Some("0"));
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
            upkeep: 64,
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
    for stage in Stage::both() {
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
    for stage in Stage::both() {
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
    for stage in Stage::both() {
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
        let requests = receiver.received();
        assert_eq!(ids_of(&requests, "/slow"), 5, "{}", stage.name());
        assert!(worker.is_healthy());
        assert_eq!(worker.drain(SOON).await, Drained::Finished);
    }
}

fn ids_of(requests: &[Received], path: &str) -> usize {
    let of_path: Vec<_> = requests
        .iter()
        .filter(|one| one.path == path)
        .cloned()
        .collect();
    ids(&of_path).len()
}

#[tokio::test]
async fn redis_killed_and_restarted_during_deliveries_loses_nothing() {
    const COUNT: usize = 300;
    let mut stage = Stage::redis(LEASE);
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
    let requests = receiver.received();
    assert_eq!(ids(&requests).len(), COUNT);
    // Only what was leased by an exchange whose reply was lost may be recovered, none is repeated.
    assert!(requests.len() <= COUNT + 8, "{} requests", requests.len());
    assert!(worker.is_healthy());
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

/// Refuses exchanges as a broken script does: all of them, or those that settle one message.
struct Refusing {
    inner: Arc<dyn Host>,
    all: AtomicBool,
    message: Mutex<Option<MessageId>>,
    refused: AtomicUsize,
}

impl Host for Refusing {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        let message = *self.message.lock().unwrap();
        let is_of_message = |arg: &Bytes| message.is_some_and(|id| arg == id.as_str());
        let is_refused = steps.iter().any(|step| match step {
            Step::Script { script, args, .. } if script.name() == "exchange" => {
                self.all.load(Ordering::SeqCst) || args.iter().any(is_of_message)
            }
            _ => false,
        });
        if is_refused {
            self.refused.fetch_add(1, Ordering::SeqCst);
            let fault = HostError::Fault("as a broken script does".to_owned());
            return Box::pin(async move { steps.iter().map(|_| Err(fault.clone())).collect() });
        }
        self.inner.run(steps)
    }

    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        self.inner.wait(key, timeout)
    }
}

#[tokio::test]
async fn a_settlement_that_the_store_refuses_for_good_does_not_hold_up_the_others() {
    const COUNT: usize = 10;
    let inner = Arc::new(EmbeddedHost::new(Arc::new(SystemClock::new())).unwrap());
    let host = Arc::new(Refusing {
        inner,
        all: AtomicBool::new(false),
        message: Mutex::new(None),
        refused: AtomicUsize::new(0),
    });
    let stage = Stage::on(Arc::clone(&host) as _, LEASE, 1);
    let gate = Gate::shut();
    let receiver = Receiver::always(Answer::ok().behind(&gate));
    let worker = stage.work();
    let all = (0..COUNT).map(|_| message(&receiver.url("/"))).collect();
    let ids = stage.publish_all(all).await;
    receiver.wait_for(COUNT, SOON).await;
    // First everything is refused: no settlement is the cause, so none is dropped.
    host.all.store(true, Ordering::SeqCst);
    *host.message.lock().unwrap() = Some(ids[0]);
    gate.open();
    while host.refused.load(Ordering::SeqCst) < 4 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!worker.is_healthy());
    host.all.store(false, Ordering::SeqCst);
    for id in &ids[1..] {
        stage.wait_for_state(id, State::Delivered).await;
    }
    assert_eq!(stage.state(&ids[0]).await, Some(State::Leased));
    assert_eq!(receiver.count(), COUNT);
    stage.wait_for_first_exchange(&worker).await;
    // The message whose settlement was dropped comes back when its lease ends.
    *host.message.lock().unwrap() = None;
    stage.wait_for_state(&ids[0], State::Delivered).await;
    assert_eq!(receiver.count(), COUNT + 1);
}

#[tokio::test]
async fn f24_a_store_that_stalls_longer_than_a_lease_repeats_no_call() {
    let stage = Stage::redis(LEASE);
    let receiver = Receiver::always(Answer::ok().after(LEASE * 3));
    let _workers = [stage.work(), stage.work()];
    let all = (0..10).map(|_| message(&receiver.url("/stall"))).collect();
    let ids = stage.publish_all(all).await;
    receiver.wait_for(10, SOON).await;
    let server = stage.redis.as_ref().unwrap();
    server.signal("STOP");
    tokio::time::sleep(LEASE + LEASE / 2).await;
    server.signal("CONT");
    for id in &ids {
        stage.wait_for_state(id, State::Delivered).await;
    }
    assert_eq!(receiver.count(), 10);
}

#[tokio::test]
async fn f15_a_leased_message_without_a_lease_is_found_and_delivered() {
    for mut stage in Stage::both() {
        stage.settings.sweep_pause = Duration::from_millis(100);
        let receiver = Receiver::start();
        let id = stage.publish(message(&receiver.url("/f15"))).await;
        lease_and_die(&stage).await;
        let forget =
            ["ZREM", "hs:{0}:l", id.as_str()].map(|word| Bytes::copy_from_slice(word.as_bytes()));
        stage.host.run(vec![Step::Command(forget.to_vec())]).await;
        let _worker = stage.work();
        stage.wait_for_state(&id, State::Delivered).await;
        assert_eq!(receiver.count(), 1, "{}", stage.name());
    }
}

#[tokio::test]
async fn messages_of_a_deleted_queue_are_swept_and_not_delivered() {
    for mut stage in Stage::both() {
        stage.settings.sweep_pause = Duration::from_millis(100);
        let receiver = Receiver::start();
        let queue = Lane::queue("doomed").unwrap();
        let paused = LaneChange {
            paused: Some(true),
            ..LaneChange::default()
        };
        stage
            .store
            .set_lane(Shard::default(), &queue, paused)
            .await
            .unwrap();
        let queued = |_| message(&receiver.url("/doomed")).queue("doomed").unwrap();
        let ids = stage.publish_all((0..20).map(queued).collect()).await;
        stage
            .store
            .delete_queue(Shard::default(), &queue)
            .await
            .unwrap();
        let _worker = stage.work();
        for id in &ids {
            while stage.state(id).await.is_some() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        assert_eq!(receiver.count(), 0, "{}", stage.name());
    }
}

#[tokio::test]
async fn f10_a_cluster_delivers_from_all_its_shards() {
    const COUNT: usize = 60;
    let cluster = RedisCluster::start(3);
    let stage = Stage::on_url(&cluster.url(), LEASE, 8);
    let receiver = Receiver::with(|request| {
        let is_first = request.header("upstash-retried") == Some("0");
        if is_first && request.path == "/retried" {
            Answer::status(503)
        } else {
            Answer::ok()
        }
    });
    let worker = stage.work();
    stage.wait_for_first_exchange(&worker).await;
    let at = |path| message(&receiver.url(path));
    let mut ids = stage
        .publish_all((0..COUNT).map(|_| at("/retried")).collect())
        .await;
    for queue in ["a", "b", "c", "d"] {
        ids.push(stage.publish(at("/queued").queue(queue).unwrap()).await);
    }
    for id in &ids {
        stage.wait_for_state(id, State::Delivered).await;
    }
    assert_eq!(receiver.count(), 2 * COUNT + 4);
    assert_eq!(worker.drain(SOON).await, Drained::Finished);
}

#[tokio::test]
async fn a_late_success_of_another_worker_counts() {
    for stage in Stage::both() {
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
        upkeep: 64,
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
    let stage = Stage::redis(LEASE);
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
    let stage = Stage::redis(Duration::from_secs(15));
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
    let stage = Stage::on_server(RedisServer::start(), LEASE, 4);
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
