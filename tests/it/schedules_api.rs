//! `/v2/schedules`: creating, reading, replacing, pausing and removing schedules.

use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::clock::ManualClock;
use hookstash_shared::cron::Cron;
use hookstash_shared::message::{Lane, shard_of_lane};
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::{PutSchedule, SCHEDULES_MAX, Schedule};
use serde_json::{Value, json};

use crate::support::front_door::{Answered, FrontDoor, answered, state_on};

/// 2027-01-15T08:00:00Z.
const NOW_MS: u64 = 1_800_000_000_000;
const MINUTE_MS: u64 = 60_000;

/// A front door whose clock, and whose store's, is in hand.
async fn timed_door() -> (FrontDoor, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(NOW_MS));
    let host = EmbeddedHost::new(clock.clone()).unwrap();
    let door = FrontDoor::open(state_on(Arc::new(host), clock.clone())).await;
    (door, clock)
}

async fn create(
    door: &FrontDoor,
    destination: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answered {
    let path = format!("/v2/schedules/{destination}");
    let request = door.request("POST", &path).body(body.to_owned());
    let with = |request: reqwest::RequestBuilder, (name, value): &(&str, &str)| {
        request.header(*name, *value)
    };
    answered(headers.iter().fold(request, with)).await
}

async fn created(
    door: &FrontDoor,
    destination: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let answer = create(door, destination, headers, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json["scheduleId"].as_str().unwrap().to_owned()
}

async fn get(door: &FrontDoor, id: &str) -> Value {
    let answer = door.call("GET", &format!("/v2/schedules/{id}")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json
}

async fn ids(door: &FrontDoor) -> Vec<String> {
    let list = door.call("GET", "/v2/schedules").await;
    assert_eq!(list.status, 200, "{list:?}");
    let list = list.json.as_array().unwrap().clone();
    let id = |schedule: &Value| schedule["scheduleId"].as_str().unwrap().to_owned();
    list.iter().map(id).collect()
}

#[tokio::test]
async fn a_schedule_shows_all_that_it_was_given() {
    let (door, _) = timed_door().await;
    let headers = [
        ("Upstash-Cron", " CRON_TZ=Europe/Berlin 0 4 * * * "),
        ("Upstash-Schedule-Id", "a.B_c-1"),
        ("Upstash-Method", "PUT"),
        ("Upstash-Forward-test-header", "test-value"),
        ("Content-Type", "application/json"),
        ("Upstash-Retries", "5"),
        ("Upstash-Retry-Delay", "1000 * retried"),
        ("Upstash-Delay", "10s"),
        ("Upstash-Timeout", "30"),
        ("Upstash-Label", "a,b"),
        ("Upstash-Queue-Name", "q"),
        ("Upstash-Callback", "https://c/"),
        ("Upstash-Callback-Forward-X-A", "1"),
        ("Upstash-Failure-Callback", "https://f/"),
    ];
    let answer = create(&door, "https://h/p?a=1&b=two%20w", &headers, r#"{"x":1}"#).await;
    assert_eq!(answer.json, json!({ "scheduleId": "a.B_c-1" }));
    let expected = json!({
        "scheduleId": "a.B_c-1", "cron": "CRON_TZ=Europe/Berlin 0 4 * * *", "createdAt": NOW_MS,
        "isPaused": false, "delay": 10, "destination": "https://h/p?a=1&b=two%20w",
        "method": "PUT", "retries": 5,
        "header": { "Content-Type": ["application/json"], "Test-Header": ["test-value"] },
        "body": "{\"x\":1}", "timeout": 30, "callerIP": "127.0.0.1", "queueName": "q",
        "retryDelayExpression": "1000 * retried", "label": "a", "labels": ["a", "b"],
        "callback": "https://c/", "callbackHeader": { "X-A": ["1"] },
        "failureCallback": "https://f/",
        // 2027-01-16T03:00:00Z.
        "nextScheduleTime": NOW_MS + 19 * 60 * MINUTE_MS,
    });
    assert_eq!(get(&door, "a.B_c-1").await, expected);
    let list = door.call("GET", "/v2/schedules").await.json;
    assert_eq!(list, json!([expected]));
}

#[tokio::test]
async fn a_schedule_without_options_shows_no_empty_fields() {
    let (door, _) = timed_door().await;
    let id = created(&door, "https://h", &[("Upstash-Cron", "* * * * *")], "").await;
    assert!(id.starts_with("scd_") && id.len() == 30, "{id}");
    let expected = json!({
        "scheduleId": id, "cron": "* * * * *", "createdAt": NOW_MS, "isPaused": false,
        "destination": "https://h", "method": "POST", "retries": 3, "timeout": 900,
        "callerIP": "127.0.0.1", "nextScheduleTime": NOW_MS + MINUTE_MS,
    });
    assert_eq!(get(&door, &id).await, expected);
}

#[tokio::test]
async fn options_may_stand_in_the_query_and_leave_the_destination() {
    let (door, _) = timed_door().await;
    let target =
        "https://h/p?x=1&upstash-cron=*/5+*+*+*+*&upstash-schedule-id=q&upstash-delay=7&y=%20";
    assert_eq!(created(&door, target, &[], "").await, "q");
    let shown = get(&door, "q").await;
    assert_eq!(shown["destination"], "https://h/p?x=1&y=%20");
    assert_eq!(
        (&shown["cron"], &shown["delay"]),
        (&json!("*/5 * * * *"), &json!(7))
    );
    let flow = [
        ("Upstash-Cron", "0 0 * * *"),
        ("Upstash-Schedule-Id", "f"),
        ("Upstash-Flow-Control-Key", "flow-key"),
        ("Upstash-Flow-Control-Value", "parallelism=2"),
    ];
    created(&door, "v2/schedules/https://h/p", &flow, "").await;
    let shown = get(&door, "f").await;
    assert_eq!(
        shown["destination"], "https://h/p",
        "the route is in the base URL already"
    );
    assert_eq!(shown["flowControlKey"], "flow-key");
    assert_eq!(
        (&shown["parallelism"], &shown["period"]),
        (&json!(2), &json!(1))
    );
    assert!(shown.get("rate").is_none());
}

#[tokio::test]
async fn putting_it_again_replaces_it_as_a_whole_and_keeps_one() {
    let (door, clock) = timed_door().await;
    let id = ("Upstash-Schedule-Id", "mine");
    let first = [
        id,
        ("Upstash-Cron", "*/5 * * * *"),
        ("Upstash-Label", "old"),
    ];
    created(&door, "https://h/initial", &first, "my-payload").await;
    assert_eq!(get(&door, "mine").await["body"], "my-payload");
    door.call("PATCH", "/v2/schedules/mine/pause").await;
    clock.advance(Duration::from_secs(1));
    created(
        &door,
        "https://h/updated",
        &[id, ("Upstash-Cron", "*/7 * * * *")],
        "",
    )
    .await;
    let expected = json!({
        "scheduleId": "mine", "cron": "*/7 * * * *", "createdAt": NOW_MS + 1_000,
        "isPaused": false, "destination": "https://h/updated", "method": "POST", "retries": 3,
        "timeout": 900, "callerIP": "127.0.0.1", "nextScheduleTime": NOW_MS + 7 * MINUTE_MS,
    });
    assert_eq!(get(&door, "mine").await, expected);
    assert_eq!(ids(&door).await, ["mine"]);
}

#[tokio::test]
async fn one_that_moves_with_its_queue_is_one_all_the_way() {
    let (door, _) = timed_door().await;
    let cron = ("Upstash-Cron", "* * * * *");
    let shards = door.state.store.shards();
    let mut seen = std::collections::BTreeSet::new();
    for queue in ["q1", "q2", "q3", "q4", "q5", "q6"] {
        let headers = [
            cron,
            ("Upstash-Schedule-Id", "s"),
            ("Upstash-Queue-Name", queue),
        ];
        created(&door, "https://h", &headers, queue).await;
        assert_eq!(ids(&door).await, ["s"]);
        assert_eq!(get(&door, "s").await["body"], queue);
        let found = door.state.store.find_schedule("s").await.unwrap();
        let shard = shard_of_lane(&Lane::queue(queue).unwrap(), shards);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].shard, shard, "with its queue");
        seen.insert(shard);
    }
    assert!(seen.len() > 1, "it moved");
    assert_eq!(door.call("DELETE", "/v2/schedules/s").await.status, 200);
    assert_eq!(door.state.store.count_schedules().await.unwrap(), [0; 4]);
}

#[tokio::test]
async fn what_is_left_of_a_move_that_was_cut_off_goes_with_the_next_put() {
    let (door, clock) = timed_door().await;
    let store = &door.state.store;
    let headers = [("Upstash-Cron", "* * * * *"), ("Upstash-Schedule-Id", "s")];
    created(&door, "https://h/old", &headers, "").await;
    let old = store.find_schedule("s").await.unwrap().remove(0);
    clock.advance(Duration::from_millis(1));
    // A process that ended after it put the schedule elsewhere.
    let other = store
        .shards()
        .iter()
        .find(|shard| *shard != old.shard)
        .unwrap();
    let envelope = store
        .schedule_envelope(old.shard, &old.schedule.body_key)
        .await;
    let put = PutSchedule {
        id: "s".to_owned(),
        schedule: Schedule::new(old.schedule.cron.clone(), NOW_MS + 1, "scb_new".to_owned()),
        envelope: envelope.unwrap().unwrap(),
        due_ms: NOW_MS + MINUTE_MS,
        most: 10,
        dedup_scope: None,
    };
    store.put_schedule(other, &put).await.unwrap();
    assert_eq!(ids(&door).await, ["s"], "shown once");
    assert_eq!(
        get(&door, "s").await["createdAt"],
        NOW_MS + 1,
        "the newer one"
    );
    created(&door, "https://h/new", &headers, "").await;
    assert_eq!(store.find_schedule("s").await.unwrap().len(), 1);
    assert_eq!(get(&door, "s").await["destination"], "https://h/new");
}

#[tokio::test]
async fn it_is_paused_and_resumed_by_either_verb_and_removed_once() {
    let (door, clock) = timed_door().await;
    let headers = [
        ("Upstash-Cron", "*/10 * * * *"),
        ("Upstash-Schedule-Id", "s"),
    ];
    created(&door, "https://h", &headers, "").await;
    for (verb, root) in [
        ("PATCH", "schedules"),
        ("POST", "schedules"),
        ("PATCH", "Schedules"),
    ] {
        for _ in 0..2 {
            let paused = door.call(verb, &format!("/v2/{root}/s/pause")).await;
            assert_eq!(paused.status, 200, "{verb} {paused:?}");
            let shown = get(&door, "s").await;
            assert_eq!(shown["isPaused"], true);
            assert!(shown.get("nextScheduleTime").is_none());
        }
        clock.advance(Duration::from_mins(25));
        for _ in 0..2 {
            let resumed = door.call(verb, &format!("/v2/{root}/s/resume")).await;
            assert_eq!(resumed.status, 200, "{verb} {resumed:?}");
            let shown = get(&door, "s").await;
            assert_eq!(shown["isPaused"], false);
            let next = shown["nextScheduleTime"].as_u64().unwrap();
            let now = door.state.clock.now_ms();
            assert!(
                next > now && next <= now + 10 * MINUTE_MS,
                "found from now on"
            );
        }
    }
    assert_eq!(door.call("DELETE", "/v2/Schedules/s").await.status, 200);
    for (method, path) in [
        ("GET", "/v2/schedules/s"),
        ("DELETE", "/v2/schedules/s"),
        ("PATCH", "/v2/schedules/s/pause"),
        ("POST", "/v2/schedules/s/resume"),
        ("GET", "/v2/Schedules/s"),
    ] {
        let gone = door.call(method, path).await;
        assert_eq!(
            (gone.status, gone.error()),
            (404, "schedule s not found"),
            "{path}"
        );
    }
    assert_eq!(ids(&door).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_makes_no_schedule_is_refused_and_the_refusal_names_the_field() {
    let door = FrontDoor::embedded().await;
    let cron = ("Upstash-Cron", "* * * * *");
    for (destination, headers, status, fault) in [
        (
            "https://h",
            vec![],
            400,
            "invalid Upstash-Cron: a schedule needs one",
        ),
        (
            "https://h",
            vec![("Upstash-Cron", "")],
            400,
            "invalid Upstash-Cron: it has 0 fields",
        ),
        (
            "https://h",
            vec![("Upstash-Cron", "* * * * * *")],
            400,
            "invalid Upstash-Cron: it has 6 fields: expected five",
        ),
        (
            "https://h",
            vec![("Upstash-Cron", "0 0 30 2 *")],
            400,
            "it never fires",
        ),
        (
            "https://h",
            vec![("Upstash-Cron", "61 * * * *")],
            400,
            "minute \"61\"",
        ),
        (
            "https://h",
            vec![("Upstash-Cron", "CRON_TZ=X/Y * * * * *")],
            400,
            "time zone \"X/Y\"",
        ),
        (
            "https://h",
            vec![cron, cron],
            400,
            "invalid Upstash-Cron: it is given more than once",
        ),
        (
            "https://h",
            vec![cron, ("Upstash-Schedule-Id", "a b")],
            400,
            "invalid Upstash-Schedule-Id: expected 1 to 256 characters of [A-Za-z0-9._-]",
        ),
        (
            "https://h",
            vec![cron, ("Upstash-Schedule-Id", "")],
            400,
            "Upstash-Schedule-Id",
        ),
        (
            "https://h",
            vec![cron, ("Upstash-Not-Before", "4000000000")],
            400,
            "Upstash-Not-Before",
        ),
        (
            "https://h",
            vec![cron, ("Upstash-Delay", "400d")],
            400,
            "invalid Upstash-Delay",
        ),
        (
            "https://h",
            vec![cron, ("Upstash-Deduplication-Id", "a:b")],
            400,
            "DeduplicationId cannot contain ':'",
        ),
        (
            "https://h",
            vec![cron, ("Upstash-Workflow-Init", "1")],
            501,
            "Upstash-Workflow-Init",
        ),
    ] {
        let refused = create(&door, destination, &headers, "x").await;
        assert_eq!(refused.status, status, "{headers:?} {refused:?}");
        assert!(
            refused.error().contains(fault),
            "{headers:?}: {}",
            refused.error()
        );
    }
    assert_eq!(ids(&door).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_schedule_to_nowhere_or_of_too_large_a_body_is_refused() {
    const NO_SCHEME: &str = "endpoint has invalid scheme, add http:// or https://";
    let door = FrontDoor::embedded().await;
    let cron = [("Upstash-Cron", "* * * * *")];
    for (destination, fault) in [
        ("", NO_SCHEME),
        ("no-group", NO_SCHEME),
        (
            "http://127.0.0.1/",
            "endpoint resolves to a loopback address",
        ),
    ] {
        let refused = create(&door, destination, &cron, "x").await;
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.error().contains(fault), "{}", refused.error());
    }
    let long = "x".repeat(10 * 1024 * 1024 + 1);
    let refused = create(&door, "https://h", &cron, &long).await;
    assert_eq!(refused.status, 413);
    assert_eq!(ids(&door).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_comes_twice_with_one_deduplication_id_is_one_schedule() {
    let (door, clock) = timed_door().await;
    let headers = [
        ("Upstash-Cron", "* * * * *"),
        ("Upstash-Deduplication-Id", "d"),
    ];
    let first = created(&door, "https://h", &headers, "x").await;
    let second = create(&door, "https://h", &headers, "x").await;
    let expected = json!({ "scheduleId": first, "deduplicated": true });
    assert_eq!((second.status, second.json), (202, expected));
    assert_eq!(ids(&door).await, std::slice::from_ref(&first));
    // The window is over; or the first one is gone.
    clock.advance(Duration::from_millis(10 * MINUTE_MS + 1));
    let third = created(&door, "https://h", &headers, "x").await;
    assert_ne!(third, first);
    door.call("DELETE", &format!("/v2/schedules/{third}")).await;
    let fourth = created(&door, "https://h", &headers, "x").await;
    assert!(ids(&door).await.contains(&fourth));
}

#[tokio::test]
async fn redacted_parts_are_shown_as_hashes() {
    let (door, _) = timed_door().await;
    let headers = [
        ("Upstash-Cron", "* * * * *"),
        ("Upstash-Forward-X-Secret", "abc"),
        ("Upstash-Redact-Fields", "body,header[X-Secret]"),
    ];
    let id = created(&door, "https://h", &headers, "abc").await;
    let shown = get(&door, &id).await;
    let hash = "REDACTED:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(
        (&shown["body"], &shown["header"]["X-Secret"]),
        (&json!(hash), &json!([hash]))
    );
    assert!(!shown.to_string().contains("abc"));
}

#[tokio::test]
async fn a_list_leaves_out_bodies_that_are_too_much_together() {
    let (door, clock) = timed_door().await;
    let body = "x".repeat(9 * 1024 * 1024);
    for id in ["a", "b"] {
        let headers = [("Upstash-Cron", "* * * * *"), ("Upstash-Schedule-Id", id)];
        created(&door, "https://h", &headers, &body).await;
        clock.advance(Duration::from_millis(1));
    }
    let list = door.call("GET", "/v2/schedules").await.json;
    assert_eq!(list[0]["body"].as_str().map(str::len), Some(body.len()));
    assert_eq!(list[1]["scheduleId"], "b");
    assert!(list[1].get("body").is_none());
    assert_eq!(
        get(&door, "b").await["body"].as_str().map(str::len),
        Some(body.len())
    );
}

#[tokio::test]
async fn there_is_room_for_so_many_schedules_and_a_replacement_needs_none() {
    let (door, _) = timed_door().await;
    let store = &door.state.store;
    let shards: Vec<_> = store.shards().iter().collect();
    for number in 0..SCHEDULES_MAX {
        let cron = Cron::parse("* * * * *").unwrap();
        let put = PutSchedule {
            id: format!("s{number}"),
            schedule: Schedule::new(cron, NOW_MS + number, format!("scb_{number}")),
            envelope: "HS1:00000002{}".into(),
            due_ms: NOW_MS + MINUTE_MS,
            most: SCHEDULES_MAX,
            dedup_scope: None,
        };
        let shard = shards[usize::try_from(number).unwrap() % shards.len()];
        store.put_schedule(shard, &put).await.unwrap();
    }
    let cron = ("Upstash-Cron", "* * * * *");
    let refused = create(&door, "https://h", &[cron], "").await;
    let text = "quota maxSchedules exceeded: the limit is 1000";
    assert_eq!((refused.status, refused.error()), (412, text));
    created(
        &door,
        "https://h",
        &[cron, ("Upstash-Schedule-Id", "s7")],
        "",
    )
    .await;
    // Nor does one that moves to the shard of another queue.
    let before = store.find_schedule("s8").await.unwrap()[0].shard;
    let in_another =
        |queue: &&str| shard_of_lane(&Lane::queue(queue).unwrap(), store.shards()) != before;
    let queue = ["q1", "q2", "q3", "q4", "q5", "q6"]
        .into_iter()
        .find(in_another);
    let moved = [
        cron,
        ("Upstash-Schedule-Id", "s8"),
        ("Upstash-Queue-Name", queue.unwrap()),
    ];
    created(&door, "https://h", &moved, "").await;
    let listed = ids(&door).await;
    assert_eq!(listed.len(), 1000);
    assert_eq!(
        listed
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .len(),
        1000
    );
    door.call("DELETE", "/v2/schedules/s0").await;
    created(&door, "https://h", &[cron], "").await;
}
