//! Schedules that are due, on both hosts, delivered by real workers.

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::cron::Cron;
use hookstash_shared::message::{
    Destination, Envelope, Limits, MessageId, NewMessageBuilder, Shard, State, When,
    place_schedule, random_name,
};
use hookstash_shared::random::SystemRandom;
use hookstash_shared::store::host::Step;
use hookstash_shared::store::{
    LaneChange, PutSchedule, Redriven, Schedule, SchedulePut, StoredSchedule, UrlEndpoint,
    UrlGroup, UrlGroupChange,
};
use tokio::time::Instant;

use crate::support::receiver::{Answer, Receiver};
use crate::support::stage::{SOON, Stage, message};
use crate::support::told::{bytes, callback, told};

/// Fires once a year, so that only what a test makes due is due.
const YEARLY: &str = "0 0 1 1 *";

async fn put(stage: &Stage, id: &str, message: NewMessageBuilder) -> Shard {
    put_to(stage, id, message, None).await
}

async fn put_to(stage: &Stage, id: &str, message: NewMessageBuilder, group: Option<&str>) -> Shard {
    let now_ms = stage.store.host_time(Shard::default()).await.unwrap();
    let message = message
        .schedule(id)
        .build(now_ms, &Limits::default())
        .unwrap();
    let shard = place_schedule(
        id,
        message.header().lane.as_ref(),
        None,
        stage.store.shards(),
    );
    let cron = Cron::parse(YEARLY).unwrap();
    let due_ms = cron.next_after(now_ms).unwrap();
    let mut schedule = Schedule::new(cron, now_ms, random_name("scb_", &SystemRandom));
    schedule.group = group.map(str::to_owned);
    if let When::After(delay) = message.when() {
        schedule.delay_ms = delay.as_millis().try_into().unwrap();
    }
    let put = PutSchedule {
        id: id.to_owned(),
        due_ms,
        schedule,
        envelope: message.into_envelope().encode().unwrap(),
        most: 10,
        dedup_scope: None,
    };
    let answer = stage.store.put_schedule(shard, &put).await;
    assert_eq!(answer, Ok(SchedulePut::Accepted));
    shard
}

async fn command(stage: &Stage, words: &[&str]) {
    let words = words.iter().map(|word| word.to_string().into()).collect();
    stage
        .host
        .run(vec![Step::Command(words)])
        .await
        .remove(0)
        .unwrap();
}

/// Lets the schedule be due since a second ago.
async fn make_due(stage: &Stage, shard: Shard, id: &str) {
    let now_ms = stage.store.host_time(shard).await.unwrap();
    let key = format!("hs:{{{shard}}}:sc");
    command(stage, &["ZADD", &key, &(now_ms - 1_000).to_string(), id]).await;
}

async fn found(stage: &Stage, id: &str) -> StoredSchedule {
    stage.store.find_schedule(id).await.unwrap().remove(0)
}

/// Waits until it has fired again after `before`; what it is then.
async fn wait_until_fired(stage: &Stage, id: &str, before: &[MessageId]) -> StoredSchedule {
    let deadline = Instant::now() + SOON;
    loop {
        let stored = found(stage, id).await;
        let is_new = stored.fired != before || stored.fault.is_some();
        if is_new && !(stored.fired.is_empty() && stored.fault.is_none()) {
            return stored;
        }
        assert!(Instant::now() < deadline, "{}: {stored:?}", stage.name());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_is_due_is_delivered_once_with_the_name_of_its_schedule() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::ok());
        let _workers = [stage.work(), stage.work(), stage.work()];
        let shard = put(
            &stage,
            "yearly",
            message(&receiver.url("/due")).body("hello"),
        )
        .await;
        let mut before = Vec::new();
        for round in 1..=3 {
            make_due(&stage, shard, "yearly").await;
            let stored = wait_until_fired(&stage, "yearly", &before).await;
            let now_ms = stage.store.host_time(shard).await.unwrap();
            assert_eq!(stored.fired.len(), 1);
            assert!(stored.due_ms.unwrap() > now_ms, "due again next year");
            assert!(stored.fired_ms.unwrap() <= now_ms);
            stage
                .wait_for_state(&stored.fired[0], State::Delivered)
                .await;
            let states = stage.store.message_states(&stored.fired).await.unwrap();
            assert_eq!(states, [Some(State::Delivered)]);
            let requests = receiver.wait_for(round, SOON).await;
            let last = requests.last().unwrap();
            assert_eq!(last.header("Upstash-Schedule-Id"), Some("yearly"));
            assert_eq!(
                last.header("Upstash-Message-Id"),
                Some(stored.fired[0].as_str())
            );
            assert_eq!((last.path.as_str(), last.text()), ("/due", "hello"));
            before = stored.fired;
        }
        receiver
            .expect_no_more_than(3, Duration::from_secs(2))
            .await;
    }
}

#[tokio::test]
async fn messages_outlive_their_schedule_with_their_body_and_can_be_redriven() {
    for stage in Stage::both() {
        let receiver = Receiver::answering(vec![Answer::status(500), Answer::ok()]);
        let _worker = stage.work();
        let url = receiver.url("/");
        let shard = put(&stage, "s", message(&url).body("kept").retries(0)).await;
        make_due(&stage, shard, "s").await;
        let stored = wait_until_fired(&stage, "s", &[]).await;
        let id = stored.fired[0];
        stage.wait_for_death(&id).await;
        assert_eq!(
            stage.store.remove_schedule(shard, "s", None).await,
            Ok(true)
        );
        let dead = stage.store.message(&id).await.unwrap().unwrap();
        assert!(dead.shared_body.is_some(), "its body is still there");
        let new = MessageId::new(shard, 1, &SystemRandom);
        let (envelope, event) = (dead.envelope.clone(), Bytes::new());
        let redriven = stage.store.redrive(&id, &new, envelope, event).await;
        assert_eq!(redriven, Ok(Redriven::Accepted));
        let requests = receiver.wait_for(2, SOON).await;
        assert_eq!(requests[1].text(), "kept");
        assert_eq!(requests[1].header("Upstash-Schedule-Id"), Some("s"));
        stage.wait_for_state(&new, State::Delivered).await;
    }
}

#[tokio::test]
async fn a_message_of_a_schedule_waits_in_its_queue_and_leaves_its_settings_alone() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::ok());
        let _worker = stage.work();
        let queued = message(&receiver.url("/q")).queue("q").unwrap();
        let lane = hookstash_shared::message::Lane::queue("q").unwrap();
        let shard = put(&stage, "s", queued).await;
        let change = LaneChange {
            cap: Some(7),
            paused: Some(true),
            ..LaneChange::default()
        };
        stage.store.set_lane(shard, &lane, change).await.unwrap();
        make_due(&stage, shard, "s").await;
        let stored = wait_until_fired(&stage, "s", &[]).await;
        stage.wait_for_state(&stored.fired[0], State::Ready).await;
        receiver
            .expect_no_more_than(0, Duration::from_millis(300))
            .await;
        let resumed = LaneChange {
            paused: Some(false),
            ..LaneChange::default()
        };
        stage.store.set_lane(shard, &lane, resumed).await.unwrap();
        receiver.wait_for(1, SOON).await;
        let key = format!("hs:{{{shard}}}:cfg");
        let words = ["HGET", &key, "q:q"].map(|word| word.to_owned().into());
        let cap = stage
            .host
            .run(vec![Step::Command(words.into())])
            .await
            .remove(0);
        assert!(format!("{cap:?}").contains("7|0|0|0"), "{cap:?}");
    }
}

#[tokio::test]
async fn a_schedule_whose_message_is_missing_says_so_and_holds_up_no_other() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::ok());
        let shard = put(&stage, "broken", message(&receiver.url("/broken"))).await;
        put(&stage, "unreadable", message(&receiver.url("/unreadable"))).await;
        put(&stage, "well", message(&receiver.url("/well"))).await;
        let broken = found(&stage, "broken").await;
        let body = format!("hs:{{{shard}}}:b:{}", broken.schedule.body_key);
        command(&stage, &["DEL", &body]).await;
        let definitions = format!("hs:{{{shard}}}:sd");
        command(&stage, &["HSET", &definitions, "unreadable", "{}"]).await;
        // A due time that nothing belongs to.
        make_due(&stage, shard, "nobody").await;
        for id in ["broken", "unreadable", "well"] {
            make_due(&stage, shard, id).await;
        }
        let _worker = stage.work();
        let requests = receiver.wait_for(1, SOON).await;
        assert_eq!(requests[0].path, "/well");
        let broken = wait_until_fired(&stage, "broken", &[]).await;
        let fault = broken.fault.unwrap();
        assert!(fault.contains("create the schedule again"), "{fault}");
        assert!(broken.fired.is_empty() && broken.fired_ms.is_none());
        let now_ms = stage.store.host_time(shard).await.unwrap();
        assert!(broken.due_ms.unwrap() > now_ms);
        let due = stage.store.first_due(shard, 10).await.unwrap();
        let left: Vec<&str> = due.first.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        receiver
            .expect_no_more_than(1, Duration::from_millis(300))
            .await;
    }
}

#[tokio::test]
async fn a_callback_of_a_scheduled_message_tells_its_schedule_and_the_body_they_share() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::ok());
        let _worker = stage.work();
        let url = receiver.url("/told");
        let message = message(&receiver.url("/"))
            .body("shared")
            .callback(callback(&url));
        let shard = put(&stage, "s", message).await;
        make_due(&stage, shard, "s").await;
        let requests = receiver.wait_for(2, SOON).await;
        let called = requests
            .iter()
            .find(|request| request.path == "/told")
            .unwrap();
        let told = told(called, &url);
        assert_eq!(told["scheduleId"], "s");
        assert_eq!(bytes(&told, "sourceBody"), b"shared");
        let fired = found(&stage, "s").await.fired;
        assert_eq!(told["sourceMessageId"], fired[0].as_str());
    }
}

#[tokio::test]
async fn the_endpoints_of_a_url_group_are_those_of_the_firing() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::ok());
        let _worker = stage.work();
        let endpoint = |path: &str| UrlEndpoint {
            url: Destination::parse(&receiver.url(path)).unwrap(),
            name: Some(path.trim_start_matches('/').to_owned()),
        };
        let mut group = UrlGroup::new(1);
        group.endpoints = vec![endpoint("/a"), endpoint("/b")];
        let replaced = stage.store.replace_url_group("g", None, &group).await;
        assert_eq!(replaced, Ok(UrlGroupChange::Replaced));
        let shard = put_to(
            &stage,
            "s",
            message(&receiver.url("/a")).body("x"),
            Some("g"),
        )
        .await;
        make_due(&stage, shard, "s").await;
        let first = wait_until_fired(&stage, "s", &[]).await;
        assert_eq!(first.fired.len(), 2);
        let requests = receiver.wait_for(2, SOON).await;
        let mut paths: Vec<&str> = requests.iter().map(|one| one.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/a", "/b"]);
        for request in &requests {
            assert_eq!(request.header("Upstash-Topic-Name"), Some("g"));
            assert_eq!(request.text(), "x");
        }
        let stored = stage.store.url_group("g").await.unwrap();
        let empty = UrlGroup::new(1);
        let replaced = stage
            .store
            .replace_url_group("g", stored.as_ref(), &empty)
            .await;
        assert_eq!(replaced, Ok(UrlGroupChange::Replaced));
        make_due(&stage, shard, "s").await;
        let deadline = Instant::now() + SOON;
        while found(&stage, "s").await.fault.as_deref() != Some("the URL group has no endpoints") {
            assert!(Instant::now() < deadline, "{:?}", found(&stage, "s").await);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(
            found(&stage, "s").await.fired,
            first.fired,
            "the last that made any"
        );
        receiver
            .expect_no_more_than(2, Duration::from_millis(200))
            .await;
    }
}

#[tokio::test]
async fn a_delay_counts_from_the_firing() {
    const HOUR_MS: u64 = 3_600_000;
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::ok());
        let _worker = stage.work();
        let later = message(&receiver.url("/")).when(When::After(Duration::from_hours(1)));
        let shard = put(&stage, "s", later).await;
        make_due(&stage, shard, "s").await;
        let stored = wait_until_fired(&stage, "s", &[]).await;
        let waiting = stage
            .store
            .message(&stored.fired[0])
            .await
            .unwrap()
            .unwrap();
        assert_eq!(waiting.record.state, State::Delayed);
        assert_eq!(waiting.due_ms.unwrap(), stored.fired_ms.unwrap() + HOUR_MS);
        let envelope = Envelope::decode(&waiting.envelope).unwrap();
        let shown_ms = envelope.header.not_before_ms.unwrap();
        let apart_ms = shown_ms.abs_diff(waiting.due_ms.unwrap());
        assert!(apart_ms < 60_000, "shown {apart_ms} ms apart");
    }
}

#[tokio::test]
async fn a_paused_schedule_is_not_due() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::ok());
        let shard = put(&stage, "s", message(&receiver.url("/"))).await;
        make_due(&stage, shard, "s").await;
        assert_eq!(stage.store.pause_schedule(shard, "s").await, Ok(true));
        let worker = stage.work();
        stage.wait_for_first_exchange(&worker).await;
        receiver
            .expect_no_more_than(0, Duration::from_secs(1))
            .await;
        let paused = found(&stage, "s").await;
        assert!(paused.is_paused && paused.due_ms.is_none() && paused.fired.is_empty());
    }
}
