//! A hook that panics has failed like any other: its siblings run, and no guard opens by it.

use std::sync::Arc;

use hookstash_producer::hooks::*;

use crate::controls::blocked;
use crate::support::*;

/// A webhook whose headers cannot be made without a panic.
fn panicking(scene: &Scene) -> Webhook {
    Webhook::to(scene.url("/panics"))
        .header("A", format!("${{{PANICS}}}"))
        .allow_env_var(PANICS)
}

#[tokio::test]
async fn siblings_of_a_hook_that_panics_run() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    // One panics before it returns a future, one within it.
    let early = AgentHook::handler("early", |event: Arc<OnComplete>| {
        assert_eq!(event.0.operation_id, "another", "early");
        async { Ok(()) }
    });
    let late = AgentHook::handler("late", |_: Arc<OnComplete>| async { panic!("late") });
    let webhook = AgentHook::webhook("webhook", HookType::OnComplete, panicking(&scene));
    let sibling = scene.hook("sibling", HookType::OnComplete);
    let handler = noting::<OnComplete>("handler", &notes);
    scene.register(vec![early, late, webhook, sibling, handler]);
    scene.complete().await.unwrap();
    assert_eq!(scene.paths(), ["/sibling"]);
    assert_eq!(notes.all(), ["handler"]);
}

#[tokio::test]
async fn a_critical_webhook_that_panics_is_a_critical_failure() {
    let scene = Scene::local(Receiver::start());
    let failure = scene.failure(panicking(&scene)).await;
    assert_eq!(failure.code, HookErrorCode::Configuration);
}

#[tokio::test]
async fn a_handler_that_panics_does_not_keep_the_next_from_mocking_and_its_own_result_stands() {
    let good = AgentHook::handler("good", |event: Arc<BeforeToolCall>| async move {
        event.mock(result("good"));
        Ok(())
    });
    for (mocks_first, expected) in [(false, "good"), (true, "bad")] {
        let scene = Scene::local(Receiver::start());
        let bad = AgentHook::handler("bad", move |event: Arc<BeforeToolCall>| async move {
            if mocks_first {
                event.mock(result("bad"));
            }
            panic!("after that");
        });
        scene.register(vec![bad, good.clone()]);
        let mocked = scene.hooks.dispatch_before_tool_call(call("fs/x")).await;
        assert_eq!(mocked.unwrap().unwrap().content, expected);
    }
}

#[tokio::test]
async fn a_guard_that_panics_blocks_or_not_as_it_says_and_never_allows_for_others() {
    let deny = || Answer::ok().body(r#"{"decision":"deny","reason":"R"}"#);
    for (on_error, expected) in [
        (OnError::Block, HOOK_CONTROL_ERROR),
        (OnError::Continue, "R"),
    ] {
        let scene = Scene::local(Receiver::always(deny()));
        let webhook = panicking(&scene).control(on_error);
        let guard = AgentHook::webhook("guard", HookType::BeforeToolCall, webhook);
        scene.register(vec![guard, scene.control("next", OnError::Block)]);
        assert_eq!(scene.evaluate().await, blocked(expected));
    }
}
