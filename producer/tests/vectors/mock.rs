//! 25.12: results in place of tool calls, and observing beside them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hookstash_producer::hooks::*;
use serde_json::json;

use crate::support::*;

fn mocking(id: &str, notes: &Notes, content: &str) -> AgentHook {
    let (own, notes, content) = (id.to_owned(), notes.clone(), content.to_owned());
    AgentHook::handler(id, move |event: Arc<BeforeToolCall>| {
        let is_first = event.mock(result(&content));
        notes.add(&format!("{own} {is_first}"));
        async { Ok(()) }
    })
}

async fn mocked(scene: &Scene) -> Option<String> {
    let result = scene
        .hooks
        .dispatch_before_tool_call(call("fs/readFile"))
        .await;
    result.unwrap().map(|result| result.content)
}

#[tokio::test]
async fn vector_171_without_hooks_nothing_is_mocked() {
    for scene in Scene::both() {
        assert_eq!(mocked(&scene).await, None);
    }
}

#[tokio::test]
async fn vector_172_a_handler_may_let_the_call_be_made() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    scene.register(vec![noting::<BeforeToolCall>("h", &notes)]);
    assert_eq!(mocked(&scene).await, None);
    assert_eq!(notes.all(), ["h"]);
}

#[tokio::test]
async fn vector_173_the_first_result_wins_and_later_handlers_are_not_asked() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    scene.register(vec![
        mocking("a", &notes, "first"),
        mocking("b", &notes, "second"),
    ]);
    assert_eq!(mocked(&scene).await.as_deref(), Some("first"));
    assert_eq!(notes.all(), ["a true"]);
}

#[tokio::test]
async fn a_second_result_of_one_handler_is_not_taken() {
    let scene = Scene::local(Receiver::start());
    let hook = AgentHook::handler("h", |event: Arc<BeforeToolCall>| async move {
        assert!(event.mock(result("first")) && !event.mock(result("second")));
        Err("after the mock".into())
    });
    scene.register(vec![hook]);
    assert_eq!(mocked(&scene).await.as_deref(), Some("first"), "it stands");
}

#[tokio::test]
async fn vector_174_a_failing_handler_does_not_keep_the_next_from_mocking() {
    let scene = Scene::local(Receiver::start());
    let bad = AgentHook::handler("bad", |_: Arc<BeforeToolCall>| async { Err("no".into()) });
    scene.register(vec![bad, mocking("good", &Notes::default(), "good")]);
    assert_eq!(mocked(&scene).await.as_deref(), Some("good"));
}

#[tokio::test]
async fn vector_175_a_result_is_returned_as_it_is() {
    let scene = Scene::local(Receiver::start());
    let failed = ToolRunResult {
        content: "fixture error".to_owned(),
        error: Some(json!({"code": "E"})),
        success: false,
        ..ToolRunResult::default()
    };
    for expected in [failed, ToolRunResult::default()] {
        scene.hooks.unregister(OP);
        let given = expected.clone();
        let hook = AgentHook::handler("h", move |event: Arc<BeforeToolCall>| {
            event.mock(given.clone());
            async { Ok(()) }
        });
        scene.register(vec![hook]);
        let result = scene
            .hooks
            .dispatch_before_tool_call(call("fs/x"))
            .await
            .unwrap();
        assert_eq!(result, Some(expected));
    }
}

#[tokio::test]
async fn vector_176_in_queue_mode_nothing_is_mocked_and_webhooks_are_sent() {
    let scene = Scene::queue(Receiver::start());
    let notes = Notes::default();
    let webhook = scene.hook("w", HookType::BeforeToolCall);
    scene.register(vec![mocking("h", &notes, "x"), webhook]);
    assert_eq!(mocked(&scene).await, None);
    assert!(notes.all().is_empty());
    scene
        .hooks
        .observe_before_tool_call(call("fs/x"), None)
        .unwrap();
    assert!(scene.hooks.drain(SOON).await);
    assert_eq!(scene.paths(), ["/w"]);
}

#[tokio::test]
async fn vector_177_a_critical_observation_that_fails_changes_nothing_but_the_log() {
    let logs = Logs::capture();
    let receiver = Receiver::answering(vec![Answer::status(500), Answer::ok()]);
    let scene = Scene::local(receiver);
    let critical = Webhook::to(scene.url("/critical")).critical();
    scene.register(vec![
        AgentHook::webhook("critical", HookType::BeforeToolCall, critical),
        mocking("h", &Notes::default(), "mocked"),
        scene.hook("sibling", HookType::BeforeToolCall),
    ]);
    scene
        .hooks
        .observe_before_tool_call(call("fs/readFile"), None)
        .unwrap();
    assert_eq!(mocked(&scene).await.as_deref(), Some("mocked"));
    assert!(scene.hooks.drain(SOON).await);
    assert_eq!(scene.paths(), ["/critical", "/sibling"]);
    logs.line("[HookDispatcher] Critical webhook delivery failed");
}

#[tokio::test]
async fn vector_178_a_slow_observation_delays_nothing() {
    let slow = Answer::ok().after(Duration::from_secs(2));
    let scene = Scene::local(Receiver::always(slow));
    scene.register(vec![scene.hook("w", HookType::BeforeToolCall)]);
    let begun = Instant::now();
    scene
        .hooks
        .observe_before_tool_call(call("fs/x"), None)
        .unwrap();
    assert_eq!(mocked(&scene).await, None);
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert!(!scene.hooks.drain(Duration::from_millis(50)).await);
    assert!(scene.hooks.drain(SOON).await);
    assert_eq!(scene.receiver.count(), 1);
}

#[tokio::test]
async fn vector_179_a_handler_for_other_tools_is_not_asked() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    scene.register(vec![mocking("h", &notes, "x").matching("^http/")]);
    assert_eq!(mocked(&scene).await, None);
    assert!(notes.all().is_empty());
}

#[tokio::test]
async fn a_generic_dispatch_observes_and_runs_no_handler() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    let webhook = scene.hook("w", HookType::BeforeToolCall);
    scene.register(vec![mocking("h", &notes, "x"), webhook]);
    let event = BeforeToolCall::of_call(call("fs/x"));
    scene.dispatch(event).await.unwrap();
    assert!(scene.hooks.drain(SOON).await);
    assert!(notes.all().is_empty());
    assert_eq!(scene.paths(), ["/w"]);
}

#[tokio::test]
async fn a_dual_hook_is_asked_as_a_handler_once_and_observes_where_it_has_none() {
    for (scene, handled, sent) in Scene::both()
        .into_iter()
        .zip([(1, 0), (0, 1)])
        .map(|(s, (h, n))| (s, h, n))
    {
        let notes = Notes::default();
        let webhook = Webhook::to(scene.url("/dual"));
        scene.register(vec![
            noting::<BeforeToolCall>("dual", &notes).with_webhook(webhook),
        ]);
        scene
            .hooks
            .observe_before_tool_call(call("fs/x"), None)
            .unwrap();
        assert_eq!(mocked(&scene).await, None);
        assert!(scene.hooks.drain(SOON).await);
        assert_eq!((notes.all().len(), scene.receiver.count()), (handled, sent));
    }
}

#[tokio::test]
async fn an_observation_outlives_whoever_started_it() {
    let scene = Scene::local(Receiver::always(
        Answer::ok().after(Duration::from_millis(100)),
    ));
    let hooks = [
        scene.hook("1", HookType::BeforeToolCall),
        scene.hook("2", HookType::BeforeToolCall),
    ];
    scene.register(hooks.into());
    let dispatcher = scene.hooks.clone();
    let tool = tokio::spawn(async move {
        dispatcher
            .observe_before_tool_call(call("fs/x"), None)
            .unwrap();
        std::future::pending::<()>().await;
    });
    scene.receiver.wait_for(1, SOON).await;
    tool.abort();
    scene.receiver.wait_for(2, SOON).await;
}
