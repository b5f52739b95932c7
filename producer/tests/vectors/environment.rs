//! 25.11: the operator's hooks. What their settings may be is beside the code
//! (`environment_hooks`); here is what they do.

use hookstash_producer::hooks::*;
use serde_json::json;

use crate::controls::blocked;
use crate::support::*;

fn set(scene: &Scene, path: &str, events: &str) {
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_URL", &scene.url(path));
    scene.environment.set("AGENT_HOOK_WEBHOOK_TOKEN", "t0ken");
    scene.environment.set("AGENT_HOOK_WEBHOOK_EVENTS", events);
}

fn controlling(scene: &Scene, on_error: &str) {
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING", "toolCall");
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_ON_ERROR", on_error);
}

#[tokio::test]
async fn vector_159_without_settings_there_is_no_environment_hook() {
    let scene = Scene::local(Receiver::start());
    for hook_type in HookType::ALL {
        assert_eq!(scene.hooks.can_deliver(OP, hook_type), Ok(false));
        scene.dispatch(event(hook_type)).await.unwrap();
    }
    assert!(scene.hooks.drain(SOON).await);
    assert_eq!(scene.receiver.count(), 0);
}

#[tokio::test]
async fn vector_166_stored_environment_hooks_of_earlier_versions_are_ignored() {
    for scene in Scene::both() {
        set(&scene, "/env", "onComplete");
        scene.environment.set("AGENT_HOOK_WEBHOOK_TOKEN", "new");
        let old = json!({
            "id": "server-env-webhook:onComplete", "type": "onComplete",
            "webhook": {"url": scene.url("/old"), "headers": {"Authorization": "Bearer old"}},
        });
        let caller = json!({
            "id": "c", "type": "onComplete", "webhook": {"url": scene.url("/caller")},
        });
        let stored = PersistedHooks::from_json(json!([old, caller, old])).unwrap();
        assert_eq!(stored.len(), 1);
        scene
            .hooks
            .dispatch(completed(), Some(&stored))
            .await
            .unwrap();
        assert_eq!(
            scene.paths(),
            ["/caller", "/env"],
            "callers' hooks come first"
        );
        let authorization = scene.receiver.received()[1]
            .header("authorization")
            .map(str::to_owned);
        assert_eq!(authorization.as_deref(), Some("Bearer new"));
    }
}

#[tokio::test]
async fn vector_167_a_changed_environment_counts_from_the_next_event_on() {
    let deny = Answer::ok().body(r#"{"decision":"deny"}"#);
    let scene = Scene::local(Receiver::always(deny));
    set(&scene, "/old", "beforeToolCall");
    controlling(&scene, "block");
    scene.register(vec![scene.hook("caller", HookType::AfterToolCall)]);
    assert_eq!(
        scene.evaluate().await,
        blocked("Blocked by beforeToolCall hook.")
    );
    set(&scene, "/new", "afterToolCall");
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING", "ignore");
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_ON_ERROR", "continue");
    assert_eq!(scene.evaluate().await, Verdict::Allow);
    scene.dispatch(after("fs/readFile")).await.unwrap();
    assert_eq!(scene.paths(), ["/old", "/caller", "/new"]);
}

#[tokio::test]
async fn vector_168_without_its_url_an_environment_hook_is_gone_and_callers_stay() {
    let scene = Scene::local(Receiver::start());
    set(&scene, "/env", "onComplete");
    scene.register(vec![scene.hook("caller", HookType::OnComplete)]);
    scene.environment.unset("AGENT_HOOK_WEBHOOK_URL");
    scene.complete().await.unwrap();
    assert_eq!(scene.paths(), ["/caller"]);
    let stored = serde_json::to_string(&scene.hooks.serialized(OP)).unwrap();
    assert!(!stored.contains("server-env-webhook"), "{stored}");
}

#[tokio::test]
async fn vector_169_a_controlling_environment_hook_is_asked_and_not_notified() {
    let scene = Scene::local(Receiver::start());
    set(&scene, "/env", "beforeToolCall,afterToolCall");
    controlling(&scene, "block");
    scene.dispatch(after("fs/readFile")).await.unwrap();
    assert_eq!(scene.receiver.count(), 0);
    assert_eq!(
        scene.evaluate_call(after("fs/readFile")).await,
        Verdict::Allow
    );
    assert_eq!(scene.paths(), ["/env"]);
    assert_eq!(scene.body()["hookId"], "server-env-webhook:afterToolCall");
}

#[tokio::test]
async fn vector_170_an_observing_environment_hook_decides_nothing() {
    let deny = Answer::ok().body(r#"{"decision":"deny"}"#);
    let scene = Scene::local(Receiver::always(deny));
    set(&scene, "/env", "beforeToolCall");
    assert_eq!(scene.evaluate().await, Verdict::Allow);
    assert_eq!(scene.receiver.count(), 0);
    let mocked = scene
        .hooks
        .dispatch_before_tool_call(call("fs/x"))
        .await
        .unwrap();
    assert_eq!((mocked, scene.receiver.count()), (None, 0));
    scene
        .hooks
        .observe_before_tool_call(call("fs/x"), None)
        .unwrap();
    assert!(scene.hooks.drain(SOON).await);
    assert_eq!(scene.paths(), ["/env"]);
}

#[tokio::test]
async fn a_wrong_environment_stops_every_operation_of_the_dispatcher() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::OnComplete)]);
    scene.environment.set("AGENT_HOOK_WEBHOOK_TOKEN", "  ");
    let text = "Invalid Agent Hook environment: AGENT_HOOK_WEBHOOK_TOKEN";
    assert_eq!(scene.complete().await.unwrap_err().to_string(), text);
    let observed = scene.hooks.observe_before_tool_call(call("fs/x"), None);
    assert_eq!(observed.unwrap_err().to_string(), text);
    let mocked = scene.hooks.dispatch_before_tool_call(call("fs/x")).await;
    assert_eq!(mocked.unwrap_err().to_string(), text);
    let can = scene.hooks.can_deliver(OP, HookType::OnComplete);
    assert_eq!(can.unwrap_err().to_string(), text);
    assert_eq!(
        check_environment(&*scene.environment)
            .unwrap_err()
            .to_string(),
        text
    );
    assert_eq!(scene.receiver.count(), 0);
}
