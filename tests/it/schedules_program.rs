//! Schedules through the program: real processes, real minutes, restarts.

use std::collections::BTreeMap;
use std::time::Duration;

use hookstash_shared::message::MessageId;
use serde_json::Value;
use tokio::time::Instant;

use crate::support::program::{Program, SOON, TOKEN};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;

/// Creates the schedule `id` with `cron` in its URL form.
async fn create(program: &Program, id: &str, cron: &str, url: &str) {
    let options = format!("upstash-cron={cron}&upstash-schedule-id={id}");
    let path = format!("/v2/schedules/{url}?{options}");
    let (status, answer) = program.call("POST", &path).await;
    assert_eq!(
        (status, &answer["scheduleId"]),
        (200, &Value::from(id)),
        "{answer}"
    );
}

async fn schedules(program: &Program) -> BTreeMap<String, Value> {
    let (status, list) = program.call("GET", "/v2/schedules").await;
    assert_eq!(status, 200, "{list}");
    let list = list.as_array().expect("a list").iter();
    list.map(|one| {
        (
            one["scheduleId"].as_str().expect("an id").to_owned(),
            one.clone(),
        )
    })
    .collect()
}

/// One stays due, one is paused; both survive what `restart` does.
async fn both_survive(program: Program, restart: impl AsyncFnOnce(Program) -> Program) {
    create(&program, "due", "0+0+1+1+*", "https://example.com/due").await;
    create(
        &program,
        "paused",
        "*+*+*+*+*",
        "https://example.com/paused",
    )
    .await;
    let (status, _) = program.call("PATCH", "/v2/schedules/paused/pause").await;
    assert_eq!(status, 200);
    let before = schedules(&program).await;
    assert_eq!(before["paused"]["isPaused"], true);
    let program = restart(program).await;
    assert_eq!(schedules(&program).await, before);
    let (status, _) = program.call("PATCH", "/v2/schedules/paused/resume").await;
    assert_eq!(status, 200);
    let after = schedules(&program).await;
    assert_eq!(after["paused"]["isPaused"], false);
    assert!(after["paused"]["nextScheduleTime"].is_u64());
}

#[tokio::test]
async fn schedules_survive_a_killed_server_with_a_data_directory() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("data").to_string_lossy().into_owned();
    let program = Program::dev(&["--data-dir", &path], &[]).await;
    both_survive(program, async |mut program| {
        program.process.kill9();
        Program::dev(&["--data-dir", &path], &[]).await
    })
    .await;
}

#[tokio::test]
async fn schedules_survive_a_killed_redis_and_a_new_server() {
    let mut redis = RedisServer::start_durable();
    let program = Program::role("serve", &redis, &[]).await;
    both_survive(program, async |program| {
        drop(program);
        redis.kill9();
        redis.restart();
        Program::role("serve", &redis, &[]).await
    })
    .await;
}

/// The long one: up to four minutes, nearly all of it waiting.
#[tokio::test]
async fn c07_of_three_workers_each_minute_is_fired_by_one_and_a_kill_leaves_none_out() {
    const MINUTES: usize = 3;
    let redis = RedisServer::start_durable();
    let receiver = Receiver::always(Answer::ok());
    let front = Program::role("api", &redis, &[("QSTASH_TOKEN", TOKEN)]).await;
    let mut workers = vec![
        Program::worker(&redis, &[]).await,
        Program::worker(&redis, &[]).await,
        Program::worker(&redis, &[]).await,
    ];
    create(&front, "minutely", "*+*+*+*+*", &receiver.url("/")).await;
    let deadline = Instant::now() + Duration::from_secs(60 * MINUTES as u64) + SOON;
    let mut minutes: BTreeMap<u64, MessageId> = BTreeMap::new();
    while minutes.len() < MINUTES {
        assert!(Instant::now() < deadline, "{minutes:?}");
        for request in receiver.received() {
            assert_eq!(request.header("Upstash-Schedule-Id"), Some("minutely"));
            let id = request.header("Upstash-Message-Id").expect("an id");
            let id: MessageId = id.parse().expect("a message id");
            let minute = id.created_ms() / 60_000;
            let first = *minutes.entry(minute).or_insert(id);
            // The same message may come twice: a killed worker cannot say that it delivered it.
            assert_eq!(first, id, "one message a minute");
        }
        if minutes.len() == 1 && workers.len() == 3 {
            workers[0].kill9();
            workers.remove(0);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (first, last) = (minutes.keys().min().unwrap(), minutes.keys().max().unwrap());
    assert_eq!(
        last - first,
        MINUTES as u64 - 1,
        "no minute was left out: {minutes:?}"
    );
    let shown = schedules(&front).await.remove("minutely").unwrap();
    assert!(shown["lastScheduleTime"].is_u64() && shown.get("error").is_none());
    let states = shown["lastScheduleStates"].as_object().expect("states");
    assert_eq!(states.len(), 1);
}
