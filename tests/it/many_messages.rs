//! What operators do costs what it touches, however many messages are queued and dead.
//!
//! `HOOKSTASH_TEST_MESSAGES=1000000` compares ten thousand of each with that many: it needs 4 GB.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use hookstash_shared::message::{
    Destination, Envelope, Lane, LastResponse, Limits, MessageId, NewMessage, Shard, Shards,
    shard_of_lane,
};
use hookstash_shared::random::SeededRandom;
use http::HeaderMap;
use serde_json::Value;

use crate::support::cost::{Cost, number};
use crate::support::front_door::{FrontDoor, redis_state};
use crate::support::redis::RedisServer;

const SHARDS: u16 = 4;
const START_MS: u64 = 1_700_000_000_000;
/// Messages that are added together.
const BATCH: usize = 20_000;
/// One message in so many has the rare label and goes to the rare URL.
const RARE: usize = 5_000;
/// Every other message waits for one of so many flow-control keys.
const KEYS: usize = 100;

/// Few, and many.
fn sizes() -> [usize; 2] {
    match std::env::var("HOOKSTASH_TEST_MESSAGES") {
        Ok(many) => [10_000, many.parse().expect("a number")],
        Err(_) => [5_000, 25_000],
    }
}

/// A store with as many messages queued as dead.
struct Crowd {
    redis: RedisServer,
    door: FrontDoor,
    /// A queued one.
    queued: MessageId,
    /// Bytes of memory for one queued message, beyond its envelope: plain, and under a key.
    beyond_envelope: [u64; 2],
}

/// An encoded envelope and where it waits.
fn draft(n: usize, key: Option<usize>) -> (Bytes, Lane) {
    let (url, label) = if n.is_multiple_of(RARE) {
        ("https://h.example/rare", "rare")
    } else {
        ("https://h.example/p", "usual")
    };
    let mut message = NewMessage::to(Destination::parse(url).unwrap())
        .labels(vec![label.to_owned()])
        .body(vec![b'x'; 200]);
    if let Some(key) = key {
        let name = format!("key-{key}");
        message = message
            .flow_control(name.as_bytes(), Some(5), None, None)
            .unwrap();
    }
    let message = message.build(START_MS, &Limits::default()).unwrap();
    let lane = message.lane().clone();
    let (header, body) = (message.header().clone(), message.body().clone());
    (Envelope { header, body }.encode().unwrap(), lane)
}

/// Messages of one kind, as the scripts leave them. KEYS: the shard's prefix. ARGV: state, lane,
/// record, envelope, response, then ids with their times of death.
const ADD: &str = "
    local p, state, lane = KEYS[1], ARGV[1], ARGV[2]
    for i = 6, #ARGV, 2 do
        local id = ARGV[i]
        redis.call('HSET', p .. 'm', id, ARGV[3])
        redis.call('SET', p .. 'b:' .. id, ARGV[4])
        if state == 'w' then
            redis.call('RPUSH', p .. 'ln:' .. lane, id)
        else
            redis.call('SET', p .. 'r:' .. id, ARGV[5])
            redis.call('ZADD', p .. 'x', ARGV[i + 1], id)
        end
    end
    if state == 'w' and not redis.call('HGET', p .. 'st', lane) then
        redis.call('HSET', p .. 'st', lane, 'R')
        redis.call('RPUSH', p .. 'run', lane)
        redis.call('HSET', p .. 'cfg', lane, '5|0|1000|0|0|0|1|1')
    end";

/// Adds `count` messages in a state, every one under a flow-control key if `is_keyed`; the last one,
/// and the bytes of all envelopes.
fn add(redis: &RedisServer, state: &str, count: usize, is_keyed: bool) -> (MessageId, usize) {
    // Of each kind its own ids.
    let seed = 2 * u64::from(is_keyed) + u64::from(state == "x");
    let random = SeededRandom::new(seed);
    let shards = Shards::new(SHARDS).unwrap();
    let response = LastResponse::answer(500, &HeaderMap::new(), &Bytes::from_static(b"no"), false);
    let response = response.encode().unwrap();
    let script = redis::Script::new(ADD);
    let mut connection = redis.connection();
    let (mut bytes, mut last) = (0, None);
    let numbers: Vec<usize> = (0..count).collect();
    for batch in numbers.chunks(BATCH) {
        let mut kinds: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for &n in batch {
            let key = is_keyed.then_some(n % KEYS);
            let kind = (n % usize::from(SHARDS), key, n.is_multiple_of(RARE));
            kinds.entry(kind).or_default().push(n);
        }
        for ((shard, key, _), numbers) in kinds {
            let (envelope, lane) = draft(numbers[0], key);
            let shard = match key {
                Some(_) => shard_of_lane(&lane, shards),
                None => Shard::new(u16::try_from(shard).unwrap()).unwrap(),
            };
            let record = format!("1|{state}|0||0|0|3||{}||{lane}|h.example|", envelope.len());
            let mut call = script.key(format!("hs:{{{}}}:", shard.index()));
            call.arg(state).arg(lane.as_str()).arg(record);
            call.arg(&envelope[..]).arg(&response[..]);
            for n in numbers {
                let at_ms = START_MS + n as u64;
                let id = MessageId::new(shard, at_ms, &random);
                call.arg(id.as_str()).arg(at_ms);
                bytes += envelope.len();
                last = Some(id);
            }
            let () = call.invoke(&mut connection).unwrap();
        }
    }
    (last.unwrap(), bytes)
}

fn memory(redis: &RedisServer) -> u64 {
    let info: String = redis.cli(&["INFO", "memory"]);
    number(&info, "used_memory:")
}

impl Crowd {
    async fn gather(count: usize) -> Self {
        let redis = RedisServer::start();
        let half = count / 2;
        let before = memory(&redis);
        let (queued, plain) = add(&redis, "w", half, false);
        let between = memory(&redis);
        let (_, keyed) = add(&redis, "w", half, true);
        let after = memory(&redis);
        let beyond = |from: u64, to: u64, bytes: usize| (to - from - bytes as u64) / half as u64;
        let beyond_envelope = [
            beyond(before, between, plain),
            beyond(between, after, keyed),
        ];
        add(&redis, "x", count, false);
        let door = FrontDoor::open(redis_state(&redis.url())).await;
        // Connections are made before anything is counted.
        door.call("GET", "/v2/dlq?count=1").await;
        Self {
            redis,
            door,
            queued,
            beyond_envelope,
        }
    }

    /// Sends a request; what it cost and answered.
    async fn ask(&self, method: &str, path: &str) -> (Cost, Value) {
        Cost::reset(&self.redis);
        let start = Instant::now();
        let answer = self.door.call(method, path).await;
        let took = start.elapsed();
        let cost = Cost::now(&self.redis);
        assert!((200..300).contains(&answer.status), "{path}: {answer:?}");
        println!(
            "  {method} {path}: {} commands, {} bytes, {took:?}",
            cost.commands, cost.bytes
        );
        (cost, answer.json)
    }

    /// Cancels by a label, request by request; how many, and commands for a hundred messages
    /// that it looked at.
    async fn cancel_by_label(&self, count: usize) -> (u64, u64) {
        let (mut cancelled, mut commands, mut requests) = (0, 0, 0);
        let (start, mut cursor) = (Instant::now(), String::new());
        loop {
            let path = format!("/v2/messages?label=rare&cursor={cursor}");
            let (cost, answer) = self.ask("DELETE", &path).await;
            commands += cost.commands;
            cancelled += answer["cancelled"].as_u64().unwrap();
            requests += 1;
            match answer.get("cursor") {
                Some(next) => next.as_str().unwrap().clone_into(&mut cursor),
                None => break,
            }
        }
        println!(
            "  cancel by label: {cancelled} in {requests} requests, {:?}",
            start.elapsed()
        );
        (cancelled, commands * 100 / count as u64)
    }
}

#[tokio::test]
async fn what_operators_do_costs_the_same_among_few_and_among_many_messages() {
    let mut found: Vec<Vec<u64>> = Vec::new();
    let mut walks = Vec::new();
    for count in sizes() {
        let crowd = Crowd::gather(count).await;
        let [plain, keyed] = crowd.beyond_envelope;
        println!(
            "{count} queued, {count} dead; memory of a queued message beyond its envelope: \
             {plain} bytes, {keyed} under a flow-control key"
        );
        let mut costs = Vec::new();
        let url = "url=https://h.example/rare";
        let cancel_one = format!("/v2/messages/{}", crowd.queued);
        for (method, path, key, entries) in [
            ("GET", "/v2/dlq", "messages", Some(100)),
            ("GET", "/v2/dlq?label=rare", "messages", None),
            ("GET", &format!("/v2/dlq?{url}"), "messages", None),
            ("GET", &cancel_one, "messageId", None),
            ("DELETE", &cancel_one, "cancelled", None),
            ("GET", "/v2/flowControl/key-7", "flowControlKey", None),
            ("POST", "/v2/dlq/retry", "responses", Some(100)),
            ("DELETE", "/v2/dlq", "deleted", None),
            ("DELETE", "/v2/messages?count=1", "cancelled", None),
            (
                "DELETE",
                "/v2/messages?count=1&flowControlKey=key-7",
                "cancelled",
                None,
            ),
        ] {
            let (cost, answer) = crowd.ask(method, path).await;
            assert!(!answer[key].is_null(), "{path}: {answer}");
            if let Some(entries) = entries {
                assert_eq!(answer[key].as_array().unwrap().len(), entries, "{path}");
            }
            costs.push(cost.commands);
        }
        let (cancelled, each) = crowd.cancel_by_label(count).await;
        // Of either kind one in RARE, and the first of the dead, which was sent again; a page
        // cancelled a few at random before.
        let expected = 2 * (count / 2).div_ceil(RARE) as u64 + 1;
        assert!(
            (expected.saturating_sub(3)..=expected).contains(&cancelled),
            "{cancelled}"
        );
        walks.push(each);
        found.push(costs);
        assert!(plain < 550 && keyed < 550, "{plain} {keyed}");
    }
    println!("commands: {found:?}; commands for a hundred messages of a walk: {walks:?}");
    for (few, many) in found[0].iter().zip(&found[1]) {
        // Pages of a hash are a few entries longer or shorter.
        assert!(*many <= few + few / 4 + 20, "{found:?}");
    }
    assert!(walks[1] <= walks[0] + walks[0] / 4, "{walks:?}");
}
