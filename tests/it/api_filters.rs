//! Filters and order of the dead-letter queue over HTTP.

use std::collections::BTreeSet;

use bytes::Bytes;
use hookstash_producer::publish::PATIENCE_MAX;
use hookstash_shared::message::{Destination, GroupEndpoint, Limits, NewMessage};
use http::HeaderMap;
use serde_json::Value;

use crate::support::front_door::{FrontDoor, embedded_state, redis_state};
use crate::support::redis::RedisServer;

/// Letters of three labels, hosts and statuses, one after the other.
async fn scene() -> (FrontDoor, Vec<String>) {
    let door = FrontDoor::embedded().await;
    let mut ids = Vec::new();
    for (url, label, status) in [
        ("https://a/p?x=1,2", "red", 500),
        ("https://b:8443/q", "red,round", 404),
        ("https://b:8443/q", "blue", 410),
        ("https://c/r", "", 503),
    ] {
        let headers: &[(&str, &str)] = if label.is_empty() {
            &[]
        } else {
            &[("Upstash-Label", label)]
        };
        ids.push(door.publish(url, headers, "x").await.id().to_string());
        assert_eq!(door.kill(status, &HeaderMap::new(), &Bytes::new()).await, 1);
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    (door, ids)
}

fn ids(page: &Value) -> Vec<String> {
    let letters = page["messages"]
        .as_array()
        .unwrap_or_else(|| panic!("{page}"));
    let id = |letter: &Value| letter["dlqId"].as_str().unwrap().to_owned();
    letters.iter().map(id).collect()
}

#[tokio::test]
async fn dead_letters_are_filtered_by_every_key() {
    let (door, all) = scene().await;
    for (query, expected) in [
        ("label=red", vec![1, 0]),
        ("label=round,blue", vec![2, 1]),
        ("label=round&label=blue", vec![2, 1]),
        ("label=red&responseStatus=404", vec![1]),
        ("responseStatus=500,503", vec![3, 0]),
        ("url=https://b:8443/q", vec![2, 1]),
        ("url=https://a/p?x%3D1,2", vec![0]),
        ("url=https://a/p?x%3D1", vec![]),
        ("url=https://c/r,https://a/p?x%3D1,2", vec![3, 0]),
        ("callerIp=127.0.0.1", vec![3, 2, 1, 0]),
        ("callerIP=10.0.0.1", vec![]),
        ("queueName=q", vec![]),
        ("flowControlKey=k", vec![]),
        ("topicName=g", vec![]),
        ("urlGroup=g", vec![]),
        ("scheduleId=s", vec![]),
        ("order=earliestFirst", vec![0, 1, 2, 3]),
        ("order=earliestFirst&label=red", vec![0, 1]),
        ("order=latestFirst&responseStatus=410", vec![2]),
        ("fromDate=0&toDate=1", vec![]),
        ("fromDate=0", vec![3, 2, 1, 0]),
    ] {
        let page = door.call("GET", &format!("/v2/dlq?{query}")).await;
        assert_eq!(page.status, 200, "{query}: {page:?}");
        let expected: Vec<&String> = expected
            .into_iter()
            .map(|index: usize| &all[index])
            .collect();
        assert_eq!(
            ids(&page.json).iter().collect::<Vec<_>>(),
            expected,
            "{query}"
        );
        assert!(page.json.get("cursor").is_none(), "{query}");
    }
}

#[tokio::test]
async fn dead_letters_are_found_by_their_ids_and_by_time() {
    let (door, all) = scene().await;
    let (first, second) = (&all[0], &all[1]);
    for query in [
        format!("dlqIds={first}&dlqIds={second}"),
        format!("messageIds={first},{second},msg_00000000000000000000000000zz"),
        format!("dlqIds={second},{first},1725323658779-0&label=nothing"),
    ] {
        let page = door.call("GET", &format!("/v2/dlq?{query}")).await.json;
        assert_eq!(ids(&page), [second.clone(), first.clone()], "{query}");
    }
    let died_at = |index: usize| {
        let door = &door;
        let path = format!("/v2/dlq/{}", all[index]);
        async move {
            door.call("GET", &path).await.json["diedAt"]
                .as_u64()
                .unwrap()
        }
    };
    let (from, to) = (died_at(1).await, died_at(2).await);
    for (order, expected) in [("latestFirst", [2, 1]), ("earliestFirst", [1, 2])] {
        let query = format!("fromDate={from}&toDate={to}&order={order}");
        let page = door.call("GET", &format!("/v2/dlq?{query}")).await.json;
        assert_eq!(
            ids(&page),
            expected.map(|index| all[index].clone()),
            "{query}"
        );
    }
}

#[tokio::test]
async fn filtered_pages_cover_each_letter_once_in_both_orders() {
    let door = FrontDoor::embedded().await;
    let mut wanted = BTreeSet::new();
    for n in 0..30 {
        let label = if n % 3 == 0 { "third" } else { "other" };
        let id = door
            .publish("https://h/", &[("Upstash-Label", label)], "x")
            .await
            .id();
        if label == "third" {
            wanted.insert(id.to_string());
        }
    }
    let mut died = 0;
    while died < 30 {
        died += door.kill(500, &HeaderMap::new(), &Bytes::new()).await;
    }
    for order in ["latestFirst", "earliestFirst"] {
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        loop {
            let query = format!("label=third&count=3&order={order}&cursor={cursor}");
            let page = door.call("GET", &format!("/v2/dlq?{query}")).await.json;
            seen.extend(ids(&page));
            match page.get("cursor").and_then(Value::as_str) {
                Some(next) => next.clone_into(&mut cursor),
                None => break,
            }
        }
        assert_eq!(seen.len(), 10, "{order}");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), wanted, "{order}");
    }
}

#[tokio::test]
async fn what_is_no_filter_is_refused_rather_than_ignored() {
    let door = FrontDoor::embedded().await;
    for (query, status) in [
        ("labeel=x", 400),
        ("host=h", 400),
        ("state=FAILED", 400),
        ("count=0", 400),
        ("count=x", 400),
        ("cursor=7", 400),
        ("label=", 400),
        ("fromDate=now", 400),
        ("order=sideways", 400),
        ("callerIp=me", 400),
        ("trimBody=1", 501),
    ] {
        let answer = door.call("GET", &format!("/v2/dlq?{query}")).await;
        assert_eq!(answer.status, status, "{query}: {answer:?}");
        let key = query.split('=').next().unwrap();
        assert!(answer.error().contains(key), "{query}: {}", answer.error());
    }
}

#[tokio::test]
async fn groups_schedules_keys_and_queues_are_found_among_dead_letters_and_events() {
    let redis = RedisServer::start();
    for state in [embedded_state(), redis_state(&redis.url())] {
        let door = FrontDoor::open(state).await;
        let to = |url: &str| NewMessage::to(Destination::parse(url).unwrap());
        let endpoint = GroupEndpoint {
            group: "group".to_owned(),
            name: Some("first".to_owned()),
        };
        let member = Destination::parse("https://a/").unwrap();
        let messages = [
            to("https://a/").to_endpoint(member, endpoint),
            to("https://b/").schedule("schedule"),
            to("https://c/")
                .flow_control(b"key", Some(1), None, None)
                .unwrap(),
            to("https://d/").queue("queue").unwrap(),
            to("https://e/"),
        ];
        let mut all = Vec::new();
        for message in messages {
            let message = message.build(0, &Limits::default()).unwrap();
            let published = door.state.publisher.publish(message, PATIENCE_MAX).await;
            all.push(published.unwrap().id.to_string());
        }
        let dead = door.kill(500, &HeaderMap::new(), &Bytes::new()).await;
        assert_eq!(dead, all.len());
        for (filter, expected) in [
            ("topicName=group", vec![0]),
            ("urlGroup=other,group", vec![0]),
            ("topicName=first", vec![]),
            ("scheduleId=schedule", vec![1]),
            ("scheduleId=schedule&topicName=group", vec![]),
            ("flowControlKey=key", vec![2]),
            ("queueName=queue", vec![3]),
            ("queueName=queue&queueName=key", vec![3]),
        ] {
            let expected: Vec<&String> = expected.iter().map(|&n: &usize| &all[n]).collect();
            let letters = door.call("GET", &format!("/v2/dlq?{filter}")).await.json;
            assert_eq!(
                ids(&letters).iter().collect::<Vec<_>>(),
                expected,
                "{filter}"
            );
            let path = format!("/v2/events?state=CREATED&{filter}");
            let events = door.call("GET", &path).await.json;
            let events = events["events"].as_array().unwrap();
            let found: Vec<&str> = events
                .iter()
                .map(|one| one["messageId"].as_str().unwrap())
                .collect();
            assert_eq!(found, expected, "{filter}");
        }
    }
}
