//! A hundred thousand dead letters: every page costs what it holds, wherever it lies.

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;
use hookstash_shared::message::{
    Destination, Envelope, LastResponse, Limits, MessageId, NewMessage, Shard,
};
use hookstash_shared::random::SeededRandom;
use hookstash_shared::store::{DeathRange, DlqCursor, Order};
use http::HeaderMap;
use serde_json::Value;

use crate::support::cost::Cost;
use crate::support::front_door::{FrontDoor, redis_state};
use crate::support::redis::RedisServer;

const LETTERS: usize = 100_000;
const SHARDS: u16 = 4;
/// Letters that died in the same millisecond, in the middle of the queue.
const TIES: std::ops::Range<usize> = 40_000..60_000;
/// One letter in so many has the rare label.
const RARE: usize = 700;
const START_MS: u64 = 1_700_000_000_000;
const BATCH: usize = 2_000;

fn envelope(label: &str) -> Bytes {
    let message = NewMessage::to(Destination::parse("https://h.example/p").unwrap());
    let message = message.labels(vec![label.to_owned()]).body("{\"a\":1}");
    let message = message.build(START_MS, &Limits::default()).unwrap();
    let (header, body) = (message.header().clone(), message.body().clone());
    Envelope { header, body }.encode().unwrap()
}

/// Puts the letters there as the scripts leave them; all in the order of their death, and the ids of
/// those with the rare label.
fn fill(redis: &RedisServer) -> (Vec<DlqCursor>, BTreeSet<MessageId>) {
    let random = SeededRandom::new(7);
    let (usual, rare) = (envelope("usual"), envelope("rare"));
    let response = LastResponse::answer(500, &HeaderMap::new(), &Bytes::from_static(b"no"), false);
    let response = response.encode().unwrap();
    let mut deaths = Vec::with_capacity(LETTERS);
    let mut rare_ids = BTreeSet::new();
    let mut connection = redis.connection();
    let letters: Vec<usize> = (0..LETTERS).collect();
    for batch in letters.chunks(BATCH) {
        let mut pipe = redis::pipe();
        for &n in batch {
            let shard = u16::try_from(n % usize::from(SHARDS)).unwrap();
            let at = if TIES.contains(&n) { TIES.start } else { n };
            let died_ms = START_MS + u64::try_from(at).unwrap();
            let id = MessageId::new(Shard::new(shard).unwrap(), died_ms, &random);
            let envelope = if n % RARE == 0 {
                rare_ids.insert(id);
                &rare
            } else {
                &usual
            };
            let record = format!("1|x|1||0|0|0||{}||h:h.example|h.example|", envelope.len());
            let key = |name: &str| format!("hs:{{{shard}}}:{name}");
            pipe.cmd("HSET")
                .arg(key("m"))
                .arg(id.as_str())
                .arg(record)
                .ignore();
            pipe.cmd("ZADD")
                .arg(key("x"))
                .arg(died_ms)
                .arg(id.as_str())
                .ignore();
            pipe.cmd("SET")
                .arg(key(&format!("b:{id}")))
                .arg(&envelope[..])
                .ignore();
            pipe.cmd("SET")
                .arg(key(&format!("r:{id}")))
                .arg(&response[..])
                .ignore();
            deaths.push(DlqCursor { died_ms, id });
        }
        pipe.exec(&mut connection).unwrap();
    }
    deaths.sort();
    (deaths, rare_ids)
}

fn ids(page: &Value) -> Vec<String> {
    let letters = page["messages"]
        .as_array()
        .unwrap_or_else(|| panic!("{page}"));
    let id = |letter: &Value| letter["dlqId"].as_str().unwrap().to_owned();
    letters.iter().map(id).collect()
}

/// The cursor of a page that ended with the entry before `from`.
fn cursor_after(newest: &[&DlqCursor], from: usize) -> String {
    match from.checked_sub(1).map(|last| newest[last]) {
        Some(last) => format!("{}-{}", last.died_ms, last.id),
        None => String::new(),
    }
}

/// Asks for a page and holds its cost under these bounds.
async fn page(
    door: &FrontDoor,
    redis: &RedisServer,
    query: &str,
    (commands_max, bytes_max): (u64, u64),
) -> Value {
    Cost::reset(redis);
    let start = Instant::now();
    let answer = door.call("GET", &format!("/v2/dlq?{query}")).await;
    let took = start.elapsed();
    let cost = Cost::now(redis);
    assert_eq!(answer.status, 200, "{query}: {answer:?}");
    println!(
        "{query}: {} commands, {} bytes, {took:?}",
        cost.commands, cost.bytes
    );
    assert!(
        cost.commands <= commands_max,
        "{query}: {} commands",
        cost.commands
    );
    assert!(cost.bytes <= bytes_max, "{query}: {} bytes", cost.bytes);
    answer.json
}

#[tokio::test]
async fn every_page_of_a_hundred_thousand_dead_letters_costs_the_page() {
    let redis = RedisServer::start();
    let (deaths, rare) = fill(&redis);
    let door = FrontDoor::open(redis_state(&redis.url())).await;
    // Warm: connections are made before anything is counted.
    door.call("GET", "/v2/dlq?count=1").await;
    let newest: Vec<&DlqCursor> = deaths.iter().rev().collect();
    let bounds = (500, 200_000);
    for from in [0, 1, 25_000, 45_000, 59_990, 99_000, 99_950] {
        let query = format!("cursor={}", cursor_after(&newest, from));
        let found = page(&door, &redis, &query, bounds).await;
        let expected: Vec<String> = newest[from..]
            .iter()
            .take(100)
            .map(|death| death.id.to_string())
            .collect();
        assert_eq!(ids(&found), expected, "after {from}");
        let is_last = from + 100 >= LETTERS;
        assert_eq!(found.get("cursor").is_none(), is_last, "after {from}");
    }
    let (from, to) = (deaths[70_000].died_ms, deaths[70_049].died_ms);
    let found = page(
        &door,
        &redis,
        &format!("fromDate={from}&toDate={to}"),
        bounds,
    )
    .await;
    assert_eq!(ids(&found).len(), 50);
    let found = page(&door, &redis, "order=earliestFirst", bounds).await;
    assert_eq!(ids(&found)[0], deaths[0].id.to_string());

    // Filtered: 2,000 are looked at, wherever the page lies.
    for from in [0, 45_000, 98_500] {
        let query = format!("label=rare&cursor={}", cursor_after(&newest, from));
        let found = page(&door, &redis, &query, (9_000, 1_500_000)).await;
        let to = LETTERS.min(from + 2_000);
        let expected = newest[from..to]
            .iter()
            .filter(|death| rare.contains(&death.id));
        let expected: Vec<String> = expected.map(|death| death.id.to_string()).collect();
        assert_eq!(ids(&found), expected, "after {from}");
        let cursor = (to < LETTERS).then(|| cursor_after(&newest, to));
        assert_eq!(
            found.get("cursor").and_then(Value::as_str),
            cursor.as_deref(),
            "after {from}"
        );
    }
    every_letter_comes_once(&door, &deaths).await;
    a_cursor_whose_letter_has_gone_still_counts(&door, &redis, &deaths).await;
}

async fn every_letter_comes_once(door: &FrontDoor, deaths: &[DlqCursor]) {
    for order in [Order::LatestFirst, Order::EarliestFirst] {
        let mut range = DeathRange {
            order,
            ..DeathRange::default()
        };
        let mut seen = Vec::with_capacity(deaths.len());
        loop {
            let page = door.state.store.deaths(&range, 1_000).await.unwrap();
            range.after = page.found.last().cloned();
            seen.extend(page.found);
            if !page.has_more {
                break;
            }
        }
        if order == Order::LatestFirst {
            seen.reverse();
        }
        assert!(seen == deaths, "{order:?}: every one, once, in order");
    }
}

/// Also among thousands that died at the same moment.
async fn a_cursor_whose_letter_has_gone_still_counts(
    door: &FrontDoor,
    redis: &RedisServer,
    deaths: &[DlqCursor],
) {
    let at = &deaths[50_000];
    let deleted = door.call("DELETE", &format!("/v2/dlq/{}", at.id)).await;
    assert_eq!(deleted.status, 200);
    let query = format!("count=10&cursor={}-{}", at.died_ms, at.id);
    let found = page(door, redis, &query, (200, 50_000)).await;
    let expected: Vec<String> = deaths[49_990..50_000]
        .iter()
        .rev()
        .map(|death| death.id.to_string())
        .collect();
    assert_eq!(ids(&found), expected);
}
