//! Schedules of a store with several shards: moves that are cut off, shards that cannot be reached,
//! and definitions that cannot be read.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use hookstash_shared::clock::SystemClock;
use hookstash_shared::cron::Cron;
use hookstash_shared::message::{
    Destination, Lane, Limits, Shard, shard_of_lane, shard_of_url_group,
};
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::host::{Host, HostError, Step, StepResult};
use hookstash_shared::store::{
    Definition, PutSchedule, Schedule, SchedulePut, Store, UrlEndpoint, UrlGroup, UrlGroupChange,
};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use crate::support::front_door::{FrontDoor, answered, state_on};
use crate::support::receiver::{Answer, Receiver};
use crate::support::stage::{LEASE, SOON, Stage, message};

/// Fires once a year, so that only what a test makes due is due.
const YEARLY: &str = "0 0 1 1 *";

/// An embedded store of which a shard can be cut off, and where removals can be made to wait.
struct Gates {
    inner: EmbeddedHost,
    cut_off: Mutex<Option<Shard>>,
    removals: Semaphore,
    /// Told when a removal waits; dropped when the wait is given up or over.
    waiting: Mutex<Option<oneshot::Sender<oneshot::Receiver<()>>>>,
}

impl Gates {
    fn open() -> Arc<Self> {
        Arc::new(Self {
            inner: EmbeddedHost::new(Arc::new(SystemClock::new())).unwrap(),
            cut_off: Mutex::new(None),
            removals: Semaphore::new(Semaphore::MAX_PERMITS),
            waiting: Mutex::new(None),
        })
    }

    fn cut_off(&self, shard: Option<Shard>) {
        *self.cut_off.lock().unwrap() = shard;
    }
}

fn is_of_shard(step: &Step, shard: Shard) -> bool {
    let part = format!("{{{shard}}}");
    let words = match step {
        Step::Command(words) => words,
        Step::Script { keys, .. } => keys,
    };
    let has_part = |word: &Bytes| String::from_utf8_lossy(word).contains(&part);
    words.iter().take(2).any(has_part)
}

fn is_removal(step: &Step) -> bool {
    matches!(step, Step::Script { script, .. } if script.name() == "remove_schedule")
}

impl Host for Gates {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        Box::pin(async move {
            let cut_off = *self.cut_off.lock().unwrap();
            if cut_off.is_some_and(|shard| steps.iter().any(|step| is_of_shard(step, shard))) {
                let refusal = HostError::RetryLater("cut off".to_owned());
                return vec![Err(refusal); steps.len()];
            }
            if steps.iter().any(is_removal) {
                let (ended, end) = oneshot::channel();
                if let Some(waiting) = self.waiting.lock().unwrap().take() {
                    waiting.send(end).unwrap();
                }
                drop(self.removals.acquire().await);
                drop(ended);
            }
            self.inner.run(steps).await
        })
    }

    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        self.inner.wait(key, timeout)
    }
}

/// Puts a copy of `id` into `shard`, with the time and the body key that make its age.
async fn put(store: &Store, shard: Shard, id: &str, age: (u64, &str), url: &str) {
    put_to(store, shard, id, age, url, None).await;
}

async fn put_to(
    store: &Store,
    shard: Shard,
    id: &str,
    (created_ms, key): (u64, &str),
    url: &str,
    group: Option<&str>,
) {
    let now_ms = store.host_time(shard).await.unwrap();
    let message = message(url).schedule(id).build(now_ms, &Limits::default());
    let cron = Cron::parse(YEARLY).unwrap();
    let due_ms = cron.next_after(now_ms).unwrap();
    let mut schedule = Schedule::new(cron, created_ms, key.to_owned());
    schedule.group = group.map(str::to_owned);
    let put = PutSchedule {
        id: id.to_owned(),
        schedule,
        envelope: message.unwrap().into_envelope().encode().unwrap(),
        due_ms,
        most: 10,
        dedup_scope: None,
    };
    let answer = store.put_schedule(shard, &put).await;
    assert_eq!(answer, Ok(SchedulePut::Accepted));
}

async fn command(host: &dyn Host, words: &[&str]) {
    let words = words.iter().map(|word| word.to_string().into()).collect();
    let mut results = host.run(vec![Step::Command(words)]).await;
    results.remove(0).unwrap();
}

/// Lets schedules be due since a second ago.
async fn make_due(stage: &Stage, shard: Shard, ids: &[&str]) {
    let due = stage.store.host_time(shard).await.unwrap() - 1_000;
    let (key, due) = (format!("hs:{{{shard}}}:sc"), due.to_string());
    let mut words = vec!["ZADD", key.as_str()];
    words.extend(ids.iter().flat_map(|id| [due.as_str(), id]));
    command(&*stage.host, &words).await;
}

/// The shards where `id` is, once they are so many.
async fn wait_for_copies(store: &Store, id: &str, count: usize) -> Vec<Shard> {
    let deadline = Instant::now() + SOON;
    loop {
        let found = store.find_schedule(id).await.unwrap();
        if found.len() == count {
            return found.iter().map(|stored| stored.shard).collect();
        }
        assert!(Instant::now() < deadline, "{found:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn two_shards(store: &Store) -> (Shard, Shard) {
    let mut shards = store.shards().iter();
    (shards.next().unwrap(), shards.next().unwrap())
}

/// A queue whose schedules are in `shard`.
fn queue_in(store: &Store, shard: Shard) -> String {
    let queues = (0..).map(|number| format!("q{number}"));
    let is_there = |queue: &String| shard_of_lane(&Lane::queue(queue).unwrap(), store.shards());
    queues
        .into_iter()
        .find(|queue| is_there(queue) == shard)
        .unwrap()
}

fn put_request(door: &FrontDoor, queue: &str) -> reqwest::RequestBuilder {
    door.request("POST", "/v2/schedules/https://h")
        .header("Upstash-Cron", YEARLY)
        .header("Upstash-Schedule-Id", "s")
        .header("Upstash-Queue-Name", queue)
}

#[tokio::test]
async fn a_move_is_carried_through_when_its_caller_goes_away_in_between() {
    let host = Gates::open();
    let state = state_on(Arc::clone(&host) as _, Arc::new(SystemClock::new()));
    let door = FrontDoor::open(state).await;
    let store = &door.state.store;
    let (from, to) = two_shards(store);
    let first = answered(put_request(&door, &queue_in(store, from))).await;
    assert_eq!(first.status, 200, "{first:?}");
    host.removals.forget_permits(Semaphore::MAX_PERMITS);
    let (waiting, waits) = oneshot::channel();
    *host.waiting.lock().unwrap() = Some(waiting);
    let caller = tokio::spawn(put_request(&door, &queue_in(store, to)).send());
    let end = tokio::time::timeout(SOON, waits).await.unwrap().unwrap();
    caller.abort();
    // Its connection is closed; a removal that belonged to it would be given up.
    let given_up = tokio::time::timeout(Duration::from_secs(1), end).await;
    assert!(given_up.is_err(), "the removal goes on");
    host.removals.add_permits(1_000);
    assert_eq!(wait_for_copies(store, "s", 1).await, [to]);
}

#[tokio::test]
async fn a_put_is_newer_than_what_it_replaces_whatever_the_clocks_say() {
    let host = Gates::open();
    let state = state_on(Arc::clone(&host) as _, Arc::new(SystemClock::new()));
    let door = FrontDoor::open(state).await;
    let store = &door.state.store;
    let (from, to) = two_shards(store);
    let ahead_ms = store.host_time(from).await.unwrap() + 3_600_000;
    put(store, from, "s", (ahead_ms, "scb_old"), "https://h").await;
    let moved = answered(put_request(&door, &queue_in(store, to))).await;
    assert_eq!(moved.status, 200, "{moved:?}");
    let found = store.find_schedule("s").await.unwrap();
    assert_eq!((found.len(), found[0].shard), (1, to));
    assert_eq!(found[0].schedule.created_ms, ahead_ms + 1);
}

#[tokio::test]
async fn of_two_copies_the_newest_fires_and_the_other_is_removed() {
    // Of two puts of one millisecond all who look see the same one as the newest.
    for (first, second, newest) in [
        ((1, "scb_b"), (2, "scb_a"), 1),
        ((1, "scb_b"), (1, "scb_a"), 0),
    ] {
        let receiver = Receiver::always(Answer::ok());
        let stage = Stage::on(Gates::open(), LEASE, 2);
        let shards: Vec<Shard> = stage.store.shards().iter().collect();
        for (shard, age) in shards.iter().zip([first, second]) {
            let url = receiver.url(&format!("/{shard}"));
            put(&stage.store, *shard, "s", age, &url).await;
        }
        let (newest, older) = (shards[newest], shards[1 - newest]);
        make_due(&stage, older, &["s"]).await;
        let _workers = [stage.work(), stage.work()];
        assert_eq!(wait_for_copies(&stage.store, "s", 1).await, [newest]);
        make_due(&stage, newest, &["s"]).await;
        let requests = receiver.wait_for(1, SOON).await;
        assert_eq!(requests[0].path, format!("/{newest}"));
        receiver
            .expect_no_more_than(1, Duration::from_millis(500))
            .await;
    }
}

#[tokio::test]
async fn of_two_copies_the_newest_is_resumed() {
    let door = FrontDoor::embedded().await;
    let store = &door.state.store;
    let (first, second) = two_shards(store);
    // Of one time; the body key decides.
    for (shard, key) in [(first, "scb_a"), (second, "scb_b")] {
        put(store, shard, "s", (1, key), "https://h").await;
    }
    assert_eq!(
        door.call("PATCH", "/v2/schedules/s/pause").await.status,
        200
    );
    assert_eq!(
        door.call("PATCH", "/v2/schedules/s/resume").await.status,
        200
    );
    let found = store.find_schedule("s").await.unwrap();
    let shown: Vec<_> = found.iter().map(|one| (one.shard, one.is_paused)).collect();
    assert_eq!(shown, [(second, false), (first, true)]);
}

#[tokio::test]
async fn a_schedule_that_is_put_again_is_not_put_aside_for_what_was_there_before() {
    for stage in Stage::both() {
        let (store, shard) = (&stage.store, Shard::default());
        let (definitions, due) = (format!("hs:{{{shard}}}:sd"), format!("hs:{{{shard}}}:sc"));
        put(store, shard, "s", (0, "scb_1"), "https://h").await;
        command(&*stage.host, &["HSET", &definitions, "s", "{}"]).await;
        command(&*stage.host, &["ZADD", &due, "1", "gone"]).await;
        let read = store.definitions(shard, &["s", "gone"]).await.unwrap();
        let stored = Bytes::from_static(b"{}");
        assert_eq!(read, [Definition::Unreadable(stored), Definition::Gone]);
        for id in ["s", "gone"] {
            let key = format!("scb_2{id}");
            put(store, shard, id, (0, &key), "https://h").await;
        }
        assert_eq!(store.pause_unreadable(shard, "s", b"{}").await, Ok(false));
        store.remove_undefined(shard, "gone").await.unwrap();
        for id in ["s", "gone"] {
            let found = store.find_schedule(id).await.unwrap();
            assert!(found.len() == 1 && !found[0].is_paused, "{found:?}");
            assert!(found[0].due_ms.is_some(), "{found:?}");
        }
        // What still is as it was read is put aside, also where its state is missing.
        command(&*stage.host, &["HSET", &definitions, "s", "{}"]).await;
        command(&*stage.host, &["HSET", &definitions, "bare", "{}"]).await;
        command(&*stage.host, &["ZADD", &due, "1", "bare"]).await;
        assert_eq!(store.pause_unreadable(shard, "s", b"{}").await, Ok(true));
        store.pause_unreadable(shard, "bare", b"{}").await.unwrap();
        let left = store.first_due(shard, 10).await.unwrap().first;
        assert!(left.iter().all(|(id, _)| id == "gone"), "{left:?}");
    }
}

#[tokio::test]
async fn a_url_group_that_cannot_be_reached_holds_up_no_other_schedule() {
    let host = Gates::open();
    let receiver = Receiver::always(Answer::ok());
    let stage = Stage::on(Arc::clone(&host) as _, LEASE, 2);
    let store = &stage.store;
    let far = shard_of_url_group("g", store.shards());
    let near = store.shards().iter().find(|shard| *shard != far).unwrap();
    let mut group = UrlGroup::new(1);
    group.endpoints = vec![UrlEndpoint {
        url: Destination::parse(&receiver.url("/group")).unwrap(),
        name: None,
    }];
    let replaced = store.replace_url_group("g", None, &group).await;
    assert_eq!(replaced, Ok(UrlGroupChange::Replaced));
    let url = receiver.url("/group");
    put_to(store, near, "grouped", (0, "scb_1"), &url, Some("g")).await;
    put(store, near, "well", (0, "scb_2"), &receiver.url("/well")).await;
    let worker = stage.work();
    stage.wait_for_first_exchange(&worker).await;
    host.cut_off(Some(far));
    make_due(&stage, near, &["grouped", "well"]).await;
    assert_eq!(receiver.wait_for(1, SOON).await[0].path, "/well");
    host.cut_off(None);
    assert_eq!(receiver.wait_for(2, SOON).await[1].path, "/group");
}

#[tokio::test]
async fn a_schedule_that_cannot_be_read_can_be_deleted() {
    let host = Gates::open();
    let state = state_on(Arc::clone(&host) as _, Arc::new(SystemClock::new()));
    let door = FrontDoor::open(state).await;
    let store = &door.state.store;
    let (_, shard) = two_shards(store);
    put(store, shard, "s", (0, "scb_1"), "https://h").await;
    let key = format!("hs:{{{shard}}}:sd");
    command(&*host, &["HSET", &key, "s", "{}"]).await;
    assert_eq!(door.call("DELETE", "/v2/schedules/s").await.status, 200);
    assert_eq!(store.count_schedules().await.unwrap(), [0; 4]);
    let body = store.schedule_envelope(shard, "scb_1").await;
    assert_eq!(body, Ok(None), "nor is its message left");
    assert_eq!(door.call("DELETE", "/v2/schedules/s").await.status, 404);
}
