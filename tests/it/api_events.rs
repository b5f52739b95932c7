//! The event log over HTTP, written by real workers.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::program::{Program, SOON};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;

async fn events(program: &Program, query: &str) -> Value {
    let (status, answer) = program.call("GET", &format!("/v2/events?{query}")).await;
    assert_eq!(status, 200, "{query}: {answer}");
    answer
}

fn list(answer: &Value) -> &Vec<Value> {
    answer["events"]
        .as_array()
        .unwrap_or_else(|| panic!("{answer}"))
}

fn states(answer: &Value) -> Vec<&str> {
    list(answer)
        .iter()
        .map(|event| event["state"].as_str().unwrap())
        .collect()
}

/// Waits until the newest event of a message has this state; all of its events.
async fn until(program: &Program, id: &str, state: &str) -> Value {
    let deadline = Instant::now() + SOON;
    loop {
        let answer = events(program, &format!("messageIds={id}")).await;
        if states(&answer).first() == Some(&state) {
            return answer;
        }
        assert!(Instant::now() < deadline, "{answer}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn one_id_is_a_filter_and_a_list_of_ids_is_not(program: &Program, failed: &str) {
    for (query, expected) in [
        (format!("messageId={failed}&state=FAILED"), 1),
        (format!("messageId={failed}&label=none"), 0),
        (format!("messageIds={failed}&state=FAILED"), 5),
    ] {
        let answer = events(program, &query).await;
        assert_eq!(list(&answer).len(), expected, "{query}: {answer}");
    }
}

async fn a_message_tells_its_story(program: Program) {
    let receiver = Receiver::with(|request| match &*request.path {
        "/good" => Answer::ok(),
        _ => Answer::status(503),
    });
    let (good, bad) = (receiver.url("/good"), receiver.url("/bad"));
    let delivered = program
        .publish(&good, &[("Upstash-Label", "l1,l2")], "x")
        .await;
    let answer = until(&program, &delivered, "DELIVERED").await;
    assert_eq!(states(&answer), ["DELIVERED", "CREATED"]);
    let newest = &list(&answer)[0];
    let expected = json!({
        "time": newest["time"], "messageId": delivered, "state": "DELIVERED", "url": good,
        "method": "POST", "responseStatus": 200, "maxRetries": 3, "callerIP": "127.0.0.1",
        "label": "l1", "labels": ["l1", "l2"],
    });
    assert_eq!(newest, &expected);

    let headers = [("Upstash-Retries", "1"), ("Upstash-Retry-Delay", "50 + 0")];
    let failed = program.publish(&bad, &headers, "x").await;
    let answer = until(&program, &failed, "FAILED").await;
    assert_eq!(
        states(&answer),
        ["FAILED", "ERROR", "RETRY", "ERROR", "CREATED"]
    );
    let [last, error, retry, ..] = list(&answer).as_slice() else {
        panic!("{answer}");
    };
    for event in [last, error, retry] {
        assert_eq!(
            (&event["responseStatus"], &event["error"]),
            (&json!(503), &json!("status 503"))
        );
        assert_eq!(event["retryDelayExpr"], "50 + 0");
        assert_eq!(event["retryDelayExpression"], "50 + 0");
    }
    let (time, next) = (
        retry["time"].as_u64().unwrap(),
        retry["nextDeliveryTime"].as_u64(),
    );
    assert_eq!(next, Some(time + 50));
    assert!(error.get("nextDeliveryTime").is_none() && last.get("nextDeliveryTime").is_none());
    one_id_is_a_filter_and_a_list_of_ids_is_not(&program, &failed).await;

    let delayed = program
        .publish(&good, &[("Upstash-Delay", "1h")], "x")
        .await;
    program
        .call("DELETE", &format!("/v2/messages/{delayed}"))
        .await;
    let answer = until(&program, &delayed, "CANCELED").await;
    assert_eq!(states(&answer), ["CANCELED", "CREATED"]);

    for (query, expected) in [
        ("state=DELIVERED", 1),
        ("state=CANCELLED", 1),
        ("state=IN_PROGRESS", 3),
        ("state=CREATED&label=l2", 1),
        ("label=none", 0),
        ("path=/bad", 5),
        ("path=/bad&state=RETRY,FAILED", 2),
        ("callerIp=127.0.0.1", 9),
        ("topicName=g", 0),
        ("toDate=1", 0),
    ] {
        let answer = events(&program, query).await;
        assert_eq!(list(&answer).len(), expected, "{query}: {answer}");
        assert!(answer.get("cursor").is_none(), "{query}");
    }
    let host = good
        .trim_start_matches("http://")
        .trim_end_matches("/good")
        .to_owned();
    assert_eq!(
        list(&events(&program, &format!("host={host}")).await).len(),
        9
    );
    assert_eq!(
        list(&events(&program, &format!("url={bad}")).await).len(),
        5
    );
    let (_, logs) = program.call("GET", "/v2/logs?state=FAILED").await;
    assert_eq!(logs["logs"][0]["messageId"], *failed);
    pages_cover_every_event_once(&program).await;
    for query in [
        "stat=x",
        "state=DONE",
        "dlqIds=x",
        "responseStatus=1",
        "count=0",
        "cursor=5",
    ] {
        let (status, answer) = program.call("GET", &format!("/v2/events?{query}")).await;
        assert_eq!(status, 400, "{query}: {answer}");
    }
}

async fn pages_cover_every_event_once(program: &Program) {
    let all = events(program, "count=1000").await;
    let expected: Vec<String> = list(&all).iter().map(Value::to_string).collect();
    assert_eq!(expected.len(), 9);
    let times: Vec<u64> = list(&all)
        .iter()
        .map(|event| event["time"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    for (order, count) in [("latestFirst", 1), ("latestFirst", 4), ("earliestFirst", 2)] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let query = format!("count={count}&order={order}&cursor={cursor}");
            let page = events(program, &query).await;
            assert!(list(&page).len() <= count, "{page}");
            seen.extend(list(&page).iter().map(Value::to_string));
            match page.get("cursor").and_then(Value::as_str) {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        if order == "earliestFirst" {
            seen.reverse();
        }
        assert_eq!(seen, expected, "{order} by {count}");
    }
}

#[tokio::test]
async fn a_message_tells_its_story_on_the_embedded_host() {
    a_message_tells_its_story(Program::dev(&[], &[]).await).await;
}

#[tokio::test]
async fn a_message_tells_its_story_on_redis_with_several_shards() {
    let redis = RedisServer::start();
    a_message_tells_its_story(Program::serve(&redis, &[("HOOKSTASH_SHARDS", "4")]).await).await;
}

#[tokio::test]
async fn a_page_of_events_looks_at_two_thousand_entries_and_goes_on_from_its_cursor() {
    let redis = RedisServer::start();
    let program = Program::role("api", &redis, &[]).await;
    let first = program
        .publish("https://h/", &[("Upstash-Label", "rare")], "x")
        .await;
    // Entries as the scripts write them, 25 events each.
    let mut connection = redis.connection();
    let event = r#"{"u":"https://h/","l":["usual"],"r":3}"#;
    let one = format!("msg_0000000000000000000000000001|n|{}|{event}", event.len());
    let packed = one.repeat(25);
    for _ in 0..200 {
        redis::cmd("XADD")
            .arg("hs:{0}:log")
            .arg("*")
            .arg("e")
            .arg(&packed)
            .exec(&mut connection)
            .unwrap();
    }
    let (mut cursor, mut found, mut pages) = (String::new(), BTreeSet::new(), 0);
    loop {
        redis::cmd("CONFIG")
            .arg("RESETSTAT")
            .exec(&mut connection)
            .unwrap();
        let page = events(&program, &format!("label=rare&cursor={cursor}")).await;
        let info: String = redis::cmd("INFO")
            .arg("commandstats")
            .query(&mut connection)
            .unwrap();
        let read = info
            .lines()
            .find(|line| line.starts_with("cmdstat_xrevrange:"))
            .unwrap();
        assert!(
            read.contains("calls=1,") || read.contains("calls=2,"),
            "{read}"
        );
        found.extend(
            list(&page)
                .iter()
                .map(|event| event["messageId"].as_str().unwrap().to_owned()),
        );
        pages += 1;
        match page.get("cursor").and_then(Value::as_str) {
            Some(next) => next.clone_into(&mut cursor),
            None => break,
        }
    }
    assert_eq!(found, BTreeSet::from([first.clone()]));
    assert_eq!(pages, 3, "5,001 events");
    let story = events(&program, &format!("messageIds={first}")).await;
    assert_eq!(
        states(&story),
        ["CREATED"],
        "the log is read from its creation on"
    );
}
