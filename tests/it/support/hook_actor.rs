//! A runtime in a process of its own that fires hooks into a Redis and then waits to be killed: this
//! test binary, started again.

use std::process::Command;
use std::sync::Arc;

use hookstash_producer::hooks::{
    BeforeToolCall, EnvironmentHooks, HookDispatcher, HookPublisher, Mode, OnComplete,
    PersistedHooks, RunEnd, ToolCall,
};
use hookstash_producer::publish::Publisher;
use hookstash_shared::clock::SystemClock;
use hookstash_shared::config::LogFormat;
use hookstash_shared::environment::{Environment, ProcessEnvironment};
use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
use hookstash_shared::message::{Limits, Shards};
use hookstash_shared::random::SystemRandom;
use hookstash_shared::store::{Retention, Store};
use hookstash_shared::telemetry;
use tokio_util::sync::CancellationToken;

use super::process::Process;
use super::stage::{LEASE, SOON, connect};

const REDIS: &str = "HOOK_ACTOR_REDIS";
const HOOKS: &str = "HOOK_ACTOR_HOOKS";
/// What the actor prints when everything has been fired, in both modes.
pub(crate) const FIRED: &str = "the actor has fired";

/// Starts the test `name` again as an actor on `redis` with these persisted hooks and variables.
pub(crate) fn start(name: &str, redis: &str, hooks: &str, env: &[(&str, &str)]) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .args(["--exact", name, "--nocapture"])
        .envs([(REDIS, redis), (HOOKS, hooks)])
        .envs(env.iter().copied());
    Process::spawn(command)
}

/// In the actor: fires and never returns. In the test itself: nothing.
pub(crate) async fn act_if_started_as_actor() {
    let environment = Arc::new(ProcessEnvironment);
    let (Some(redis), Some(hooks)) = (environment.get(REDIS), environment.get(HOOKS)) else {
        return;
    };
    telemetry::start("trace", LogFormat::Text).expect("logging");
    let json = serde_json::from_str(&hooks).expect("JSON");
    let hooks = PersistedHooks::from_json(json).expect("hooks");
    for mode in [Mode::Local, Mode::Queue] {
        fire(mode, &redis, &hooks, &environment).await;
    }
    println!("{FIRED}");
    std::future::pending::<()>().await;
}

async fn fire(
    mode: Mode,
    redis: &str,
    hooks: &PersistedHooks,
    environment: &Arc<ProcessEnvironment>,
) {
    let environment: Arc<dyn Environment> = Arc::clone(environment) as _;
    let policy = EgressPolicy::default().in_development();
    let http = HttpClient::new(policy, Arc::clone(&environment), CONNECT_TIMEOUT);
    let clock = Arc::new(SystemClock::new());
    let store = Store::new(
        connect(redis),
        "hs",
        Shards::ONE,
        LEASE,
        Retention::default(),
    );
    let publisher = HookPublisher::Store {
        publisher: Publisher::new(store, clock.clone(), Arc::new(SystemRandom)),
        limits: Limits::default(),
    };
    let dispatcher = HookDispatcher::builder(mode, http.expect("a client"), environment, clock)
        .publisher(publisher)
        .build()
        .expect("a dispatcher");
    let call = ToolCall {
        operation_id: "op".to_owned(),
        identifier: "fs".to_owned(),
        api_name: "write".to_owned(),
        ..ToolCall::default()
    };
    let end = RunEnd {
        operation_id: "op".to_owned(),
        reason: "done".to_owned(),
        ..RunEnd::default()
    };
    let ended = dispatcher.dispatch(OnComplete(end), Some(hooks)).await;
    println!("{mode:?} dispatch: {ended:?}");
    let cancel = CancellationToken::new();
    let verdict = dispatcher.evaluate(
        BeforeToolCall::of_call(call.clone()),
        Some(hooks),
        EnvironmentHooks::Included,
        &cancel,
    );
    println!("{mode:?} verdict: {:?}", verdict.await);
    let observed = dispatcher.observe_before_tool_call(call, Some(hooks));
    println!("{mode:?} observe: {observed:?}");
    assert!(dispatcher.drain(SOON).await, "observations end");
}
