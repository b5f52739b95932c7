//! FIFO queues with real workers: what arrives, in which order, and how much of it at one time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use hookstash_shared::message::{Lane, MessageId, Shard, State};
use hookstash_shared::store::LaneChange;
use tokio::time::Instant;

use crate::support::program::{self, Program};
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::redis::RedisServer;
use crate::support::stage::{SOON, Stage, message};

fn lane(name: &str) -> Lane {
    Lane::queue(name).expect("a queue name")
}

async fn set(stage: &Stage, queue: &str, change: LaneChange) {
    let set = stage
        .store
        .set_lane(Shard::default(), &lane(queue), change)
        .await;
    set.expect("a queue is set");
}

fn paused(is_paused: bool) -> LaneChange {
    LaneChange {
        paused: Some(is_paused),
        ..LaneChange::default()
    }
}

fn parallelism(cap: u32) -> LaneChange {
    LaneChange {
        cap: Some(cap),
        ..LaneChange::default()
    }
}

/// The queue and the number of a message, from its body `queue number`.
fn named(request: &Received) -> (String, usize) {
    let (queue, number) = request.text().split_once(' ').expect("two words");
    (queue.to_owned(), number.parse().expect("a number"))
}

/// `count` messages into each queue, mixed, in one call; their ids by queue.
async fn fill(
    stage: &Stage,
    url: &str,
    queues: &[&str],
    count: usize,
) -> BTreeMap<String, Vec<MessageId>> {
    let mut messages = Vec::new();
    for number in 0..count {
        for queue in queues {
            let message = message(url).retries(5).body(format!("{queue} {number}"));
            messages.push(message.queue(queue).expect("a queue name"));
        }
    }
    let ids = stage.publish_all(messages).await;
    let mut by_queue: BTreeMap<String, Vec<MessageId>> = BTreeMap::new();
    for (index, id) in ids.into_iter().enumerate() {
        let queue = queues[index % queues.len()].to_owned();
        by_queue.entry(queue).or_default().push(id);
    }
    by_queue
}

/// The numbers in the order in which they came, by queue.
fn arrivals(requests: &[Received]) -> BTreeMap<String, Vec<usize>> {
    let mut by_queue: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for request in requests {
        let (queue, number) = named(request);
        by_queue.entry(queue).or_default().push(number);
    }
    by_queue
}

#[tokio::test]
async fn order_is_kept_under_retries_and_one_queue_does_not_wait_for_another() {
    const COUNT: usize = 12;
    for stage in Stage::both() {
        // Every third fails twice before it succeeds.
        let attempts: Mutex<BTreeMap<(String, usize), usize>> = Mutex::default();
        let receiver = Receiver::with(move |request| {
            let (queue, number) = named(request);
            let mut attempts = attempts.lock().unwrap();
            let attempt = attempts.entry((queue, number)).or_default();
            *attempt += 1;
            Answer::status(if number % 3 == 0 && *attempt <= 2 {
                500
            } else {
                200
            })
        });
        let stuck = Receiver::always(Answer::status(500));
        let blocked = message(&stuck.url("/")).retries(0).body("blocked 0");
        let blocked =
            blocked.retry_delay(hookstash_shared::message::RetryDelay::parse("60000").unwrap());
        stage
            .publish(blocked.retries(5).queue("blocked").unwrap())
            .await;
        let ids = fill(&stage, &receiver.url("/"), &["a", "b", "c"], COUNT).await;
        let worker = stage.work();
        let requests = receiver
            .wait_for(3 * (COUNT + 2 * COUNT / 3), SOON * 2)
            .await;
        let expected: Vec<usize> = (0..COUNT)
            .flat_map(|n| std::iter::repeat_n(n, if n % 3 == 0 { 3 } else { 1 }))
            .collect();
        for (queue, order) in arrivals(&requests) {
            assert_eq!(order, expected, "{}: {queue}", stage.name());
        }
        for id in ids.values().flatten() {
            stage.wait_for_state(id, State::Delivered).await;
        }
        stuck.expect_no_more_than(1, Duration::ZERO).await;
        worker.stop_now().await;
    }
}

#[tokio::test]
async fn cancelled_and_dead_messages_leave_the_order_of_the_others() {
    for stage in Stage::both() {
        let receiver = Receiver::with(|request| match named(request).1 {
            4 => Answer::status(410),
            _ => Answer::ok().after(Duration::from_millis(5)),
        });
        set(&stage, "q", paused(true)).await;
        let ids = fill(&stage, &receiver.url("/"), &["q"], 12)
            .await
            .remove("q")
            .unwrap();
        let worker = stage.work();
        for number in [0, 3, 7, 11] {
            stage
                .store
                .cancel(&ids[number], bytes::Bytes::new())
                .await
                .unwrap();
        }
        receiver
            .expect_no_more_than(0, Duration::from_millis(300))
            .await;
        set(&stage, "q", paused(false)).await;
        let requests = receiver.wait_for(8, SOON).await;
        assert_eq!(
            arrivals(&requests)["q"],
            [1, 2, 4, 5, 6, 8, 9, 10],
            "{}",
            stage.name()
        );
        stage.wait_for_state(&ids[4], State::Dead).await;
        stage.wait_for_state(&ids[10], State::Delivered).await;
        receiver
            .expect_no_more_than(8, Duration::from_millis(100))
            .await;
        worker.stop_now().await;
    }
}

#[tokio::test]
async fn a_queue_paused_while_it_runs_stops_and_goes_on_where_it_stopped() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::ok().after(Duration::from_millis(10)));
        let ids = fill(&stage, &receiver.url("/"), &["q"], 30)
            .await
            .remove("q")
            .unwrap();
        let worker = stage.work();
        receiver.wait_for(5, SOON).await;
        set(&stage, "q", paused(true)).await;
        // What was leased by then may still come.
        let leased = receiver.count() + 1;
        receiver
            .expect_no_more_than(leased, Duration::from_millis(400))
            .await;
        assert!(leased < 30, "{}: it was paused too late", stage.name());
        set(&stage, "q", paused(false)).await;
        let requests = receiver.wait_for(30, SOON).await;
        let expected: Vec<usize> = (0..30).collect();
        assert_eq!(arrivals(&requests)["q"], expected, "{}", stage.name());
        stage.wait_for_state(&ids[29], State::Delivered).await;
        worker.stop_now().await;
    }
}

#[tokio::test]
async fn calls_at_one_time_never_exceed_the_parallelism_while_it_changes() {
    for stage in Stage::both() {
        let mut receivers = Vec::new();
        let first = slow_at_first(1);
        fill(&stage, &first.url("/"), &["q"], 6).await;
        // Two workers: the cap is the queue's, not a process's.
        let workers = [stage.work(), stage.work()];
        first.wait_for(6, SOON).await;
        receivers.push((1, first));
        for cap in [5, 2, 3] {
            wait_until_idle(&stage, "q").await;
            set(&stage, "q", parallelism(cap)).await;
            let receiver = slow_at_first(cap as usize);
            fill(&stage, &receiver.url("/"), &["q"], 8 * cap as usize).await;
            receiver.wait_for(8 * cap as usize, SOON).await;
            receivers.push((cap as usize, receiver));
        }
        for (cap, receiver) in &receivers {
            let most = receiver.active_max();
            assert_eq!(most, *cap, "{}: calls with parallelism {cap}", stage.name());
        }
        // An upsert while it runs: more at once from then on, and fewer after the next.
        let receiver = Receiver::always(Answer::ok().after(Duration::from_millis(50)));
        wait_until_idle(&stage, "q").await;
        set(&stage, "q", parallelism(1)).await;
        fill(&stage, &receiver.url("/"), &["q"], 40).await;
        receiver.wait_for(3, SOON).await;
        assert_eq!(receiver.active_max(), 1, "{}", stage.name());
        set(&stage, "q", parallelism(4)).await;
        receiver.wait_for(40, SOON).await;
        let most = receiver.active_max();
        assert!((2..=4).contains(&most), "{}: {most}", stage.name());
        for worker in &workers {
            worker.stop_now().await;
        }
    }
}

/// Takes its time for so many calls that these are under way together, if they are let.
fn slow_at_first(calls: usize) -> Receiver {
    let slow = vec![Answer::ok().after(Duration::from_secs(1)); calls];
    let quick = Answer::ok().after(Duration::from_millis(20));
    Receiver::answering([slow, vec![quick]].concat())
}

/// Waits until nothing of the queue waits or runs.
async fn wait_until_idle(stage: &Stage, queue: &str) {
    let deadline = Instant::now() + SOON;
    loop {
        let lag = stage
            .store
            .queue(&lane(queue))
            .await
            .unwrap()
            .expect("a queue")
            .lag;
        let word = |text: &str| bytes::Bytes::copy_from_slice(text.as_bytes());
        let key = stage.store.keys().of_shard(Shard::default(), "inf");
        let step = hookstash_shared::store::host::Step::Command(vec![
            word("HEXISTS"),
            key,
            word(&format!("q:{queue}")),
        ]);
        let busy = stage.host.run(vec![step]).await.remove(0).unwrap();
        if lag == 0 && busy == hookstash_shared::store::host::Reply::Int(0) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{}: {lag} wait, {busy:?}",
            stage.name()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn order_is_kept_when_workers_are_killed() {
    const COUNT: usize = 40;
    let redis = RedisServer::start_durable();
    let receiver = Receiver::always(Answer::ok().after(Duration::from_millis(20)));
    let front = Program::role("api", &redis, &[]).await;
    let url = receiver.url("/");
    for number in 0..COUNT {
        for queue in ["a", "b"] {
            let headers = [("Upstash-Queue-Name", queue)];
            front
                .publish(&url, &headers, format!("{queue} {number}"))
                .await;
        }
    }
    let mut worker = Program::worker(&redis, &[]).await;
    for killed in [10, 30, 50] {
        receiver.wait_for(killed, program::SOON).await;
        worker.kill9();
        worker = Program::worker(&redis, &[]).await;
    }
    let deadline = Instant::now() + program::SOON;
    while distinct(&receiver) < 2 * COUNT {
        assert!(Instant::now() < deadline, "{} came", distinct(&receiver));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for (queue, order) in arrivals(&receiver.received()) {
        // A message that a killed worker was sending comes again before its successor comes.
        assert!(order.is_sorted(), "{queue}: {order:?}");
        assert!(order.len() <= COUNT + 3, "{queue}: {order:?}");
        let all: BTreeSet<usize> = order.iter().copied().collect();
        assert_eq!(all.len(), COUNT, "{queue}: {order:?}");
    }
    assert_eq!(front.dead().await, Vec::<String>::new());
}

fn distinct(receiver: &Receiver) -> usize {
    let requests = receiver.received();
    requests.iter().map(named).collect::<BTreeSet<_>>().len()
}

#[tokio::test]
async fn a_deleted_queue_delivers_what_had_begun_and_cancels_what_waited() {
    let redis = RedisServer::start_durable();
    let receiver = Receiver::always(Answer::ok().after(Duration::from_millis(500)));
    let server = Program::serve(&redis, &[]).await;
    let url = receiver.url("/");
    let headers = [("Upstash-Queue-Name", "q")];
    let mut ids = Vec::new();
    for number in 0..10 {
        ids.push(server.publish(&url, &headers, format!("q {number}")).await);
    }
    receiver.wait_for(1, program::SOON).await;
    let (status, _) = server.call("DELETE", "/v2/queues/q").await;
    assert_eq!(status, 200);
    let (status, _) = server.call("GET", "/v2/queues/q").await;
    assert_eq!(status, 404);
    // Anew under the same name, and with nothing of the old one.
    server.publish(&url, &headers, "q 99").await;
    let deadline = Instant::now() + program::SOON;
    while !arrivals(&receiver.received())["q"].contains(&99) {
        assert!(Instant::now() < deadline, "the new queue does not run");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut order = arrivals(&receiver.received()).remove("q").unwrap();
    assert_eq!(order.pop(), Some(99));
    assert!(
        order.len() < ids.len(),
        "all had begun before the queue was deleted"
    );
    assert!(order.iter().copied().eq(0..order.len()), "{order:?}");
    for id in ids.iter().skip(order.len()) {
        let (status, _) = server.call("GET", &format!("/v2/messages/{id}")).await;
        assert_eq!(status, 404);
    }
    let came = order.len() + 1;
    receiver
        .expect_no_more_than(came, Duration::from_secs(1))
        .await;
}
