//! Callbacks over crashes, lost answers, redrives and deletions: none is lost, none is made twice,
//! and the bodies that they share with their messages go when the last of them goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hookstash_shared::store::faulty::FaultRates;
use serde_json::json;

use crate::support::program::Program;
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;
use crate::support::stage::{SOON, Stage, message};
use crate::support::told::{DEVELOPMENT_KEYS, bytes, callback, told};

const QUIET: Duration = Duration::from_millis(500);

#[tokio::test]
async fn an_attempt_whose_worker_was_killed_has_one_set_of_callbacks() {
    let redis = RedisServer::start_durable();
    let is_healed = Arc::new(AtomicBool::new(false));
    let told_healed = Arc::clone(&is_healed);
    let source = Receiver::with(move |_| {
        if told_healed.load(Ordering::SeqCst) {
            Answer::status(500)
        } else {
            Answer::hang()
        }
    });
    let listener = Receiver::start();
    let to = listener.url("/");
    let front = Program::role("api", &redis, &[]).await;
    let mut worker = Program::worker(&redis, &DEVELOPMENT_KEYS).await;
    let headers = [
        ("Upstash-Retries", "0"),
        ("Upstash-Callback", to.as_str()),
        ("Upstash-Failure-Callback", to.as_str()),
    ];
    let id = front.publish(&source.url("/"), &headers, "b").await;
    source.wait_for(1, SOON).await;
    worker.kill9();
    is_healed.store(true, Ordering::SeqCst);
    let _other = Program::worker(&redis, &DEVELOPMENT_KEYS).await;
    source.wait_for(2, SOON).await;
    let requests = listener.wait_for(2, SOON).await;
    listener.expect_no_more_than(2, QUIET).await;
    let all: Vec<_> = requests.iter().map(|one| told(one, &to)).collect();
    let deaths = all.iter().filter(|told| told["dlqId"] == json!(id));
    assert_eq!(deaths.count(), 1);
    for told in &all {
        let facts = (&told["sourceMessageId"], &told["retried"], &told["status"]);
        assert_eq!(facts, (&json!(id), &json!(0), &json!(500)));
    }
}

#[tokio::test]
async fn settlements_that_are_sent_again_make_no_second_callback() {
    const COUNT: usize = 40;
    let stage = Stage::embedded(Duration::from_secs(1));
    let source = Receiver::with(|request| match request.header("upstash-retried") {
        Some("0") => Answer::status(500),
        _ => Answer::ok(),
    });
    let listener = Receiver::start();
    let to = listener.url("/");
    let _worker = stage.work();
    let all = (0..COUNT).map(|_| message(&source.url("/")).callback(callback(&to)));
    let faults = stage.faults.as_ref().unwrap();
    let ids = stage.publish_all(all.collect()).await;
    faults.set_rates(FaultRates {
        lose_before: 1_500,
        lose_after: 3_000,
        ..FaultRates::default()
    });
    source.wait_for(2 * COUNT, SOON).await;
    listener.wait_for(COUNT, SOON).await;
    faults.set_rates(FaultRates::default());
    let expected: BTreeSet<_> = ids
        .iter()
        .flat_map(|id| [(id.to_string(), 0), (id.to_string(), 1)])
        .collect();
    let deadline = tokio::time::Instant::now() + SOON;
    loop {
        let mut made: BTreeMap<(String, u64), BTreeSet<String>> = BTreeMap::new();
        for request in listener.received() {
            let own = request.header("upstash-message-id").unwrap().to_owned();
            let story = told(&request, &to);
            let of = story["sourceMessageId"].as_str().unwrap().to_owned();
            let attempt = (of, story["retried"].as_u64().unwrap());
            made.entry(attempt).or_default().insert(own);
        }
        assert!(made.values().all(|own| own.len() == 1), "{made:?}");
        if made.keys().cloned().collect::<BTreeSet<_>>() == expected {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{} are told",
            made.len()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_redriven_message_keeps_its_callbacks() {
    let is_healed = Arc::new(AtomicBool::new(false));
    let told_healed = Arc::clone(&is_healed);
    let source = Receiver::with(move |_| {
        if told_healed.load(Ordering::SeqCst) {
            Answer::ok()
        } else {
            Answer::status(500)
        }
    });
    let listener = Receiver::start();
    let to = listener.url("/");
    let program = Program::dev(&[], &[]).await;
    let headers = [("Upstash-Retries", "0"), ("Upstash-Callback", to.as_str())];
    let mut olds = Vec::new();
    for _ in 0..2 {
        olds.push(program.publish(&source.url("/"), &headers, "b").await);
    }
    program.wait_for_dead(2).await;
    listener.wait_for(2, SOON).await;
    is_healed.store(true, Ordering::SeqCst);
    let (status, one) = program
        .call("POST", &format!("/v2/dlq/retry/{}", olds[0]))
        .await;
    assert_eq!(status, 201, "{one}");
    let path = format!("/v2/dlq/retry?dlqIds={}", olds[1]);
    let (status, many) = program.call("POST", &path).await;
    assert_eq!(status, 201, "{many}");
    let news = [&one["messageId"], &many["responses"][0]["messageId"]];
    let requests = listener.wait_for(4, SOON).await;
    for request in &requests[2..] {
        let story = told(request, &to);
        assert!(news.contains(&&story["sourceMessageId"]), "{story}");
        assert_eq!(story["status"], json!(200));
        assert_eq!(bytes(&story, "sourceBody"), b"b");
    }
}

#[tokio::test]
async fn the_body_that_callbacks_share_goes_with_the_last_that_uses_it() {
    const COUNT: usize = 3;
    let redis = RedisServer::start();
    let receiver = Receiver::always(Answer::status(500));
    let (source, to) = (receiver.url("/source"), receiver.url("/told"));
    let program = Program::serve(&redis, &DEVELOPMENT_KEYS).await;
    let headers = [
        ("Upstash-Retries", "0"),
        ("Upstash-Failure-Callback", to.as_str()),
    ];
    for _ in 0..COUNT {
        program.publish(&source, &headers, "shared").await;
    }
    program.wait_for_dead(2 * COUNT).await;
    let keys = |pattern: &str| -> BTreeSet<String> { redis.cli(&["KEYS", pattern]) };
    let users = || -> Vec<String> { redis.cli(&["HVALS", "hs:{0}:rc"]) };
    assert_eq!(keys("hs:{0}:b:*").len(), 2 * COUNT);
    assert_eq!(users(), ["2"; COUNT]);

    // Messages and callbacks are sent again. The messages fail again and make callbacks anew.
    let stories = || -> Vec<Vec<u8>> {
        let requests = receiver.received().into_iter();
        let told = requests.filter(|request| request.path == "/told");
        told.map(|request| request.body).collect()
    };
    let before = stories();
    let (status, answer) = program.call("POST", "/v2/dlq/retry").await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(
        answer["responses"].as_array().map(Vec::len),
        Some(2 * COUNT)
    );
    program.wait_for_dead(3 * COUNT).await;
    let after = stories();
    assert_eq!(after.len(), 3 * COUNT);
    for story in &before {
        let count = after.iter().filter(|other| *other == story).count();
        assert_eq!(count, 2, "a redriven callback tells the same bytes");
    }
    assert_eq!(users(), ["3"; COUNT]);

    // One by one, the callbacks of all times go first or last.
    let dead = program.dead().await;
    let (first, rest) = dead.split_at(COUNT);
    for id in first {
        let (status, _) = program.call("DELETE", &format!("/v2/dlq/{id}")).await;
        assert_eq!(status, 200);
    }
    let (status, answer) = program.call("DELETE", "/v2/dlq").await;
    assert_eq!((status, &answer["deleted"]), (200, &json!(rest.len())));
    assert_eq!(keys("hs:{0}:b:*"), BTreeSet::new());
    assert_eq!(keys("hs:{0}:r:*"), BTreeSet::new());
    assert_eq!(users(), Vec::<String>::new());
}
