//! A dead letter that is sent again with other options.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};

use crate::support::front_door::{Answered, FrontDoor, answered};
use crate::support::program::{Program, read};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;
use crate::support::told::DEVELOPMENT_KEYS;

async fn kill(door: &FrontDoor) {
    assert_eq!(door.kill(500, &HeaderMap::new(), &Bytes::new()).await, 1);
}

async fn redrive(door: &FrontDoor, id: &str, options: &[(&str, &str)]) -> Answered {
    let path = format!("/v2/dlq/retry/{id}");
    let request = options
        .iter()
        .fold(door.request("POST", &path), |request, (name, value)| {
            request.header(*name, *value)
        });
    answered(request).await
}

#[tokio::test]
async fn options_replace_those_of_the_letter_and_all_else_stays() {
    let door = FrontDoor::embedded().await;
    let given = [
        ("Upstash-Retries", "0"),
        ("Upstash-Forward-X-A", "1"),
        ("Upstash-Forward-X-B", "1"),
        ("Upstash-Label", "old"),
        ("Upstash-Callback", "https://old/"),
        ("Upstash-Failure-Callback", "https://stays/"),
    ];
    let mut id = door.publish("https://h/p?q", &given, "body").await.id();
    let options = [
        ("Upstash-Method", "PUT"),
        ("Upstash-Retries", "5"),
        ("Upstash-Retry-Delay", "1000"),
        ("Upstash-Timeout", "30s"),
        ("Upstash-Label", "new"),
        ("Upstash-Forward-X-A", "2"),
        ("Upstash-Callback", "https://new/"),
        ("Upstash-Callback-Forward-X-C", "3"),
    ];
    // Twice: the second time the body lies with an older letter.
    for _ in 0..2 {
        kill(&door).await;
        let answer = redrive(&door, id.as_str(), &options).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        id = answer.id();
        let shown = door.call("GET", &format!("/v2/messages/{id}")).await.json;
        for (key, value) in [
            ("url", json!("https://h/p?q")),
            ("body", json!("body")),
            ("method", json!("PUT")),
            ("maxRetries", json!(5)),
            ("retryDelayExpression", json!("1000")),
            ("timeout", json!(30_000)),
            ("labels", json!(["new"])),
            ("header", json!({ "X-B": ["1"], "X-A": ["2"] })),
            ("callback", json!("https://new/")),
            ("callbackHeader", json!({ "X-C": ["3"] })),
            ("failureCallback", json!("https://stays/")),
        ] {
            assert_eq!(shown[key], value, "{key}");
        }
    }
    // And once without options, which changes nothing.
    kill(&door).await;
    let answer = redrive(&door, id.as_str(), &[("Upstash-Telemetry-Sdk", "x")]).await;
    let path = format!("/v2/messages/{}", answer.id());
    let shown = door.call("GET", &path).await.json;
    assert_eq!(
        (&shown["body"], &shown["maxRetries"]),
        (&json!("body"), &json!(5))
    );
}

#[tokio::test]
async fn a_letter_is_sent_again_later_and_keeps_its_retries() {
    let door = FrontDoor::embedded().await;
    let retries = [("Upstash-Retries", "7")];
    let old = door.publish("https://h/", &retries, "b").await.id();
    kill(&door).await;
    let path = format!("/v2/dlq/retry/{old}?upstash-delay=1h");
    let new = door.call("POST", &path).await.id();
    let shown = door.call("GET", &format!("/v2/messages/{new}")).await.json;
    let due = shown["notBefore"].as_u64().unwrap() - new.created_ms();
    assert!((3_590_000..=3_610_000).contains(&due), "{due}");
    assert_eq!(shown["maxRetries"], json!(7));
    let leased = door.lease().await;
    assert!(
        leased.iter().all(|shard| shard.leases.is_empty()),
        "it waits"
    );
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused_by_name_and_the_letter_stays() {
    let door = FrontDoor::embedded().await;
    let id = door.publish("https://h/p", &[], "x").await.id();
    kill(&door).await;
    for (name, value, status) in [
        ("Upstash-Queue-Name", "q", 400),
        ("Upstash-Deduplication-Id", "x", 400),
        ("Upstash-Content-Based-Deduplication", "true", 400),
        ("Upstash-Redact-Fields", "body", 400),
        ("Upstash-Header-Forward", "true", 400),
        ("Upstash-Unheard-Of", "x", 400),
        ("Upstash-Retries", "-1", 400),
        ("Upstash-Retries", "1001", 400),
        ("Upstash-Callback", "http://127.0.0.1/", 400),
        ("Upstash-Callback-Retries", "1", 400),
        ("Upstash-Cron", "* * * * *", 400),
        ("Upstash-Workflow-Runid", "x", 501),
    ] {
        let refused = redrive(&door, id.as_str(), &[(name, value)]).await;
        assert_eq!(refused.status, status, "{name}: {refused:?}");
        assert!(refused.error().contains(name), "{name}: {refused:?}");
    }
    let several = door.request("POST", "/v2/dlq/retry");
    let refused = answered(several.header("Upstash-Retries", "1")).await;
    assert_eq!(refused.status, 501);
    assert!(refused.error().contains("Upstash-Retries"), "{refused:?}");
    let found = door.call("GET", &format!("/v2/dlq/{id}")).await;
    assert_eq!(found.status, 200);
}

#[tokio::test]
async fn options_that_the_callbacks_of_the_letter_cannot_have_are_refused_and_it_stays() {
    let door = FrontDoor::embedded().await;
    let given = [
        ("Upstash-Queue-Name", "q"),
        ("Upstash-Callback", "https://callback/"),
    ];
    let id = door.publish("https://h/p", &given, "x").await.id();
    kill(&door).await;
    let delayed = [
        ("Upstash-Callback", "https://callback/"),
        ("Upstash-Callback-Delay", "1h"),
    ];
    let refused = redrive(&door, id.as_str(), &delayed).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.error().contains("stop the queue"), "{refused:?}");
    // An unknown option alone changes nothing.
    let answer = redrive(&door, id.as_str(), &[("Upstash-Callback-X-Foo", "1")]).await;
    let path = format!("/v2/messages/{}", answer.id());
    let shown = door.call("GET", &path).await.json;
    assert_eq!(shown["callback"], "https://callback/");
}

#[tokio::test]
async fn a_callback_and_its_message_are_sent_again_with_other_headers_and_leave_nothing_behind() {
    let redis = RedisServer::start();
    let receiver = Receiver::always(Answer::status(500));
    let (source, to) = (receiver.url("/source"), receiver.url("/told"));
    let program = Program::serve(&redis, &DEVELOPMENT_KEYS).await;
    let headers = [
        ("Upstash-Retries", "0"),
        ("Upstash-Failure-Callback", to.as_str()),
    ];
    let id = program.publish(&source, &headers, "shared").await;
    // One without a body has nothing to share.
    program.publish(&source, &headers, "").await;
    let dead = program.wait_for_dead(4).await;
    let first_stories = bodies(&receiver, "/told");
    for letter in &dead {
        let retry = format!("{}/v2/dlq/retry/{letter}", program.base);
        let request = reqwest::Client::new()
            .post(retry)
            .bearer_auth(&program.token)
            .header("Upstash-Forward-X-Again", "1");
        let (status, answer) = read(request).await;
        assert_eq!(status, 201, "{answer}");
    }
    // The messages have died again and made callbacks anew.
    program.wait_for_dead(6).await;
    let again = receiver.received().into_iter();
    let again = again.filter(|request| request.header("x-again") == Some("1"));
    let (sources, stories): (Vec<_>, Vec<_>) = again.partition(|one| one.path == "/source");
    let mut sent: Vec<_> = sources.into_iter().map(|one| one.body).collect();
    sent.sort();
    assert_eq!(sent, [b"".to_vec(), b"shared".to_vec()]);
    let mut told: Vec<_> = stories.into_iter().map(|one| one.body).collect();
    told.sort();
    assert_eq!(told, first_stories);
    let refused = reqwest::Client::new()
        .post(format!(
            "{}/v2/dlq/retry/{}",
            program.base,
            callback(&program, &id).await
        ))
        .bearer_auth(&program.token)
        .header("Upstash-Callback", &to);
    let (status, answer) = read(refused).await;
    assert_eq!(status, 400, "{answer}");

    let (status, answer) = program.call("DELETE", "/v2/dlq").await;
    assert_eq!((status, &answer["deleted"]), (200, &json!(6)));
    let left: BTreeSet<String> = redis.cli(&["KEYS", "hs:{0}:[br]:*"]);
    assert_eq!(left, BTreeSet::new());
    let users: Vec<String> = redis.cli(&["HVALS", "hs:{0}:rc"]);
    assert_eq!(users, Vec::<String>::new());
}

/// What came at `path`, sorted.
fn bodies(receiver: &Receiver, path: &str) -> Vec<Vec<u8>> {
    let requests = receiver.received().into_iter();
    let mut bodies: Vec<_> = requests
        .filter(|request| request.path == path)
        .map(|request| request.body)
        .collect();
    bodies.sort();
    bodies
}

/// A dead callback of the message `id`.
async fn callback(program: &Program, id: &str) -> String {
    let (_, page) = program.call("GET", "/v2/dlq").await;
    let tells = |letter: &&Value| {
        let story = letter["body"].as_str().unwrap_or_default();
        story.contains("\"dlqId\"") && story.contains(id)
    };
    let letters = page["messages"].as_array().unwrap();
    let letter = letters.iter().find(tells).expect("a dead callback");
    letter["dlqId"].as_str().unwrap().to_owned()
}
