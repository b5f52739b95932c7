//! The host as its callers see it. What it shares with Redis is compared with a real one in the
//! differential test; here is what that cannot show: time, fullness, waiting, effects.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{EmbeddedHost, Host};
use crate::clock::ManualClock;
use crate::store::host::{HostError, Reply, Step, StepResult};
use crate::store::script::Script;

fn host() -> (EmbeddedHost, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1_700_000_000_000));
    (EmbeddedHost::new(clock.clone()).unwrap(), clock)
}

fn words(line: &str) -> Vec<Bytes> {
    let word = |text: &str| Bytes::copy_from_slice(text.trim_matches('"').as_bytes());
    line.split_whitespace().map(word).collect()
}

fn script(source: &str) -> &'static Script {
    let source: &'static str = Box::leak(source.to_owned().into_boxed_str());
    Box::leak(Box::new(Script::new("test", Box::leak(Box::new([source])))))
}

async fn step(host: &EmbeddedHost, step: Step) -> StepResult {
    host.run(vec![step]).await.pop().unwrap()
}

async fn run(host: &EmbeddedHost, line: &str) -> StepResult {
    step(host, Step::Command(words(line))).await
}

async fn eval(host: &EmbeddedHost, source: &str, keys: &str, args: &str) -> StepResult {
    let script = script(source);
    let (keys, args) = (words(keys), words(args));
    step(host, Step::Script { script, keys, args }).await
}

fn bytes(text: &str) -> Reply {
    Reply::Bytes(Bytes::copy_from_slice(text.as_bytes()))
}

fn fault(result: StepResult) -> String {
    match result {
        Err(HostError::Fault(text)) => text,
        other => panic!("{other:?} is no fault"),
    }
}

#[tokio::test]
async fn a_script_reads_its_keys_and_arguments_and_runs_commands() {
    let (host, _) = host();
    let source = "redis.call('SET', KEYS[1], ARGV[1]) return {redis.call('GET', KEYS[1]), 3.9, \
                  true, false, redis.call('GET', 'nothing')}";
    let reply = eval(&host, source, "k", "v").await.unwrap();
    let want = vec![
        bytes("v"),
        Reply::Int(3),
        Reply::Int(1),
        Reply::Nil,
        Reply::Nil,
    ];
    assert_eq!(reply, Reply::Array(want));
}

#[tokio::test]
async fn a_script_that_fails_midway_keeps_what_it_wrote() {
    let (host, _) = host();
    let source = "redis.call('SET', KEYS[1], 'v') redis.call('LPUSH', KEYS[1], 'x')";
    let text = fault(eval(&host, source, "k", "").await);
    assert!(text.starts_with("WRONGTYPE "), "{text}");
    assert_eq!(run(&host, "GET k").await, Ok(bytes("v")));
}

#[tokio::test]
async fn lua_strings_are_bytes() {
    let (host, _) = host();
    let source = "return string.char(0, 255, 128) .. ARGV[1]";
    let odd = Bytes::from_static(&[0xc3, 0x28, 0]);
    let item = Step::Script {
        script: script(source),
        keys: Vec::new(),
        args: vec![odd],
    };
    let want = Bytes::from_static(&[0, 255, 128, 0xc3, 0x28, 0]);
    assert_eq!(step(&host, item).await, Ok(Reply::Bytes(want)));
}

#[tokio::test]
async fn a_script_reaches_neither_the_machine_nor_new_globals() {
    let (host, _) = host();
    for name in [
        "os",
        "io",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "require",
        "print",
        "debug",
        "getfenv",
        "setfenv",
        "collectgarbage",
        "_G",
        "coroutine",
        "newproxy",
        "module",
    ] {
        let text = fault(eval(&host, &format!("return type({name})"), "", "").await);
        assert!(
            text.contains("nonexistent global variable"),
            "{name}: {text}"
        );
    }
    let text = fault(eval(&host, "x = 1", "", "").await);
    assert!(text.contains("readonly"), "{text}");
    let source = "return type(math.random) .. type(string.dump)";
    assert_eq!(eval(&host, source, "", "").await, Ok(bytes("nilnil")));
}

#[tokio::test]
async fn a_script_that_never_ends_is_stopped() {
    let (host, _) = host();
    let text = fault(eval(&host, "while true do end", "", "").await);
    assert!(text.contains("ran too long"), "{text}");
    assert_eq!(eval(&host, "return 1", "", "").await, Ok(Reply::Int(1)));
}

#[tokio::test]
async fn a_text_that_does_not_compile_is_a_fault() {
    let (host, _) = host();
    let text = fault(eval(&host, "return +", "", "").await);
    assert!(text.starts_with("ERR Error compiling script"), "{text}");
}

#[tokio::test]
async fn time_stands_still_in_a_script_and_keys_expire_between_steps() {
    let (host, clock) = host();
    run(&host, "SET k v PX 100").await.unwrap();
    clock.advance(Duration::from_millis(100));
    assert_eq!(run(&host, "PTTL k").await, Ok(Reply::Int(0)));
    clock.advance(Duration::from_millis(1));
    assert_eq!(run(&host, "PTTL k").await, Ok(Reply::Int(-2)));
    let time = Reply::Array(vec![bytes("1700000000"), bytes("101000")]);
    assert_eq!(run(&host, "TIME").await, Ok(time));
    assert!(host.keys().is_empty());
}

#[tokio::test]
async fn a_full_store_refuses_growth_but_not_draining() {
    let (host, _) = host();
    run(&host, "SET k v").await.unwrap();
    host.set_full(true);
    let full = |result| matches!(result, Err(HostError::Full(_)));
    assert!(full(run(&host, "SET k w").await));
    let grows = "return redis.call('SETRANGE', KEYS[1], 0, '')";
    assert!(full(eval(&host, grows, "nil", "").await));
    let drains = "redis.call('HDEL', KEYS[1], 'x') return redis.call('SET', KEYS[2], 'w')";
    assert_eq!(
        eval(&host, drains, "nil k", "").await,
        Ok(Reply::Status("OK".to_owned()))
    );
    assert_eq!(run(&host, "GET k").await, Ok(bytes("w")));
    assert_eq!(run(&host, "DEL k").await, Ok(Reply::Int(1)));
    host.set_full(false);
    run(&host, "SET k v").await.unwrap();
}

#[tokio::test]
async fn an_error_caught_by_pcall_does_not_end_the_script() {
    let (host, _) = host();
    let source = "redis.call('SET', KEYS[1], 'v') local r = redis.pcall('LPOP', KEYS[1]) \
                  local ok, e = pcall(redis.call, 'NOSUCH') return {r.err, tostring(ok), e}";
    let want = vec![
        bytes("WRONGTYPE Operation against a key holding the wrong kind of value"),
        bytes("false"),
        bytes("ERR Unknown Redis command called from script"),
    ];
    assert_eq!(eval(&host, source, "k", "").await, Ok(Reply::Array(want)));
}

#[tokio::test]
async fn a_restored_snapshot_forgets_what_came_after_it() {
    let (host, _) = host();
    run(&host, "ZADD z 1 a").await.unwrap();
    let (before, shown) = (host.snapshot(), host.dump());
    run(&host, "ZADD z 2 b").await.unwrap();
    assert_ne!(host.dump(), shown);
    host.restore(before);
    assert_eq!(host.dump(), shown);
}

#[tokio::test]
async fn effects_depend_on_no_clock() {
    let (host, _) = host();
    host.take_effects();
    run(&host, "SET k v EX 10").await.unwrap();
    run(&host, "GET k").await.unwrap();
    eval(
        &host,
        "redis.call('XADD', KEYS[1], '*', 'f', 'v') redis.call('PEXPIRE', KEYS[1], 5)",
        "s",
        "",
    )
    .await
    .unwrap();
    let want = vec![
        vec![words("SET k v PXAT 1700000010000")],
        vec![
            words("XADD s 1700000000000-0 f v"),
            words("PEXPIREAT s 1700000000005"),
        ],
    ];
    assert_eq!(host.take_effects(), want);
}

const LONG: Duration = Duration::from_mins(1);

fn key() -> Bytes {
    Bytes::from_static(b"w")
}

#[tokio::test(start_paused = true)]
async fn a_wait_takes_a_token_that_is_there() {
    let (host, _) = host();
    run(&host, "RPUSH w t").await.unwrap();
    assert_eq!(host.wait(key(), Duration::ZERO).await, Ok(true));
    assert_eq!(host.wait(key(), Duration::from_secs(5)).await, Ok(false));
    assert!(host.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_script_that_pushes_wakes_the_first_waiter_when_it_ends() {
    let (host, _) = host();
    let host = Arc::new(host);
    let wait = |host: Arc<EmbeddedHost>| tokio::spawn(async move { host.wait(key(), LONG).await });
    let first = wait(host.clone());
    tokio::task::yield_now().await;
    let second = wait(host.clone());
    tokio::task::yield_now().await;
    let source = "redis.call('RPUSH', KEYS[1], 't') return redis.call('LLEN', KEYS[1])";
    assert_eq!(eval(&host, source, "w", "").await, Ok(Reply::Int(1)));
    assert_eq!(first.await.unwrap(), Ok(true));
    assert!(!second.is_finished());
    assert_eq!(run(&host, "LLEN w").await, Ok(Reply::Int(0)));
    assert_eq!(second.await.unwrap(), Ok(false));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiter_takes_no_token() {
    let (host, _) = host();
    let mut early = host.wait(key(), LONG);
    let mut late = host.wait(key(), LONG);
    assert!(futures::poll!(&mut early).is_pending());
    assert!(futures::poll!(&mut late).is_pending());
    run(&host, "RPUSH w t").await.unwrap();
    host.set_full(true);
    drop(early);
    assert_eq!(late.await, Ok(true));
    assert_eq!(run(&host, "LLEN w").await, Ok(Reply::Int(0)));
}

#[tokio::test]
async fn waiting_for_what_is_no_list_is_a_fault() {
    let (host, _) = host();
    run(&host, "SET w v").await.unwrap();
    let result = host.wait(key(), LONG).await;
    assert!(matches!(result, Err(HostError::Fault(_))), "{result:?}");
}
