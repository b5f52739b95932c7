//! 25.1: registration and store.

use std::sync::Arc;

use hookstash_producer::hooks::*;
use serde_json::json;

use crate::support::*;

/// Why registering `hook` is refused.
fn refused(scene: &Scene, hook: AgentHook) -> String {
    let error = scene.hooks.register(OP, vec![hook]).expect_err("a refusal");
    error
        .hook_error()
        .expect("one hook is at fault")
        .to_string()
}

fn environment(receiver: &Receiver, events: &str) -> Setting {
    let environment = Variables::of(&[
        ("AGENT_HOOK_WEBHOOK_URL", &receiver.url("/env")),
        ("AGENT_HOOK_WEBHOOK_TOKEN", "t0ken"),
        ("AGENT_HOOK_WEBHOOK_EVENTS", events),
    ]);
    Setting {
        environment,
        ..Setting::default()
    }
}

#[tokio::test]
async fn vector_001_registering_nothing_makes_no_entry() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![]);
    assert!(!scene.hooks.has_hooks(OP));
    assert!(scene.hooks.serialized(OP).is_none());
}

#[tokio::test]
async fn vector_002_registering_nothing_beside_environment_hooks_makes_an_empty_entry() {
    let receiver = Receiver::start();
    let setting = environment(&receiver, "onComplete,onError,afterStep");
    let scene = Scene::new(receiver, setting);
    scene.register(vec![]);
    assert!(!scene.hooks.has_hooks(OP));
    let stored = scene.hooks.serialized(OP).expect("an entry");
    assert_eq!(serde_json::to_string(&stored).unwrap(), "[]");
    scene.complete().await.unwrap();
    assert_eq!(scene.paths(), ["/env"]);
}

#[tokio::test]
async fn vector_003_hooks_run_in_the_order_of_registration() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    scene.register(vec![noting::<OnComplete>("h1", &notes)]);
    scene.register(vec![noting::<OnComplete>("h2", &notes)]);
    scene.complete().await.unwrap();
    assert_eq!(notes.all(), ["h1", "h2"]);
}

#[tokio::test]
async fn vector_004_hooks_of_one_id_all_run() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    let hook = noting::<OnComplete>("x", &notes);
    scene.register(vec![hook.clone(), hook]);
    scene.complete().await.unwrap();
    assert_eq!(notes.all(), ["x", "x"]);
}

#[tokio::test]
async fn vector_005_a_hook_that_does_nothing_is_refused() {
    let scene = Scene::local(Receiver::start());
    let hook = AgentHook::new("h", HookType::OnComplete);
    assert_eq!(
        refused(&scene, hook),
        "A hook requires a handler or webhook"
    );
}

#[tokio::test]
async fn vector_006_a_handler_in_json_is_refused() {
    let scene = Scene::local(Receiver::start());
    let hook = json_hook(json!({"id": "h", "type": "onComplete", "handler": "text"}));
    assert_eq!(refused(&scene, hook), "Hook handler must be a function");
}

#[tokio::test]
async fn vector_007_an_unknown_type_is_refused_with_the_list_of_valid_ones() {
    let scene = Scene::local(Receiver::start());
    let hook = json!({"id": "h", "type": "beforeUserPrompt", "webhook": {"url": "/x"}});
    let refusal = refused(&scene, json_hook(hook));
    assert!(refusal.contains("beforeUserPrompt"), "{refusal}");
    for hook_type in HookType::ALL {
        assert!(refusal.contains(hook_type.as_str()), "{refusal}");
    }
}

#[tokio::test]
async fn vector_008_one_bad_hook_keeps_the_whole_list_out_and_the_earlier_ones_in() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("first", HookType::OnComplete)]);
    let list = vec![
        scene.hook("good", HookType::OnComplete),
        AgentHook::new("bad", HookType::OnComplete),
    ];
    let error = scene.hooks.register(OP, list).unwrap_err().to_string();
    assert_eq!(
        error,
        "hook 1 (\"bad\"): A hook requires a handler or webhook"
    );
    assert!(scene.hooks.has_hook(OP, "first") && !scene.hooks.has_hook(OP, "good"));
}

#[tokio::test]
async fn vector_009_an_empty_matcher_on_another_event_is_refused() {
    let scene = Scene::local(Receiver::start());
    let hook = scene.hook("h", HookType::OnComplete).matching("");
    assert_eq!(
        refused(&scene, hook),
        "Matchers are only supported for tool events"
    );
}

#[tokio::test]
async fn vector_010_a_star_matcher_on_another_event_is_refused() {
    let scene = Scene::local(Receiver::start());
    let hook = scene.hook("h", HookType::OnComplete).matching("*");
    assert_eq!(
        refused(&scene, hook),
        "Matchers are only supported for tool events"
    );
}

#[tokio::test]
async fn vector_011_a_matcher_that_does_not_parse_is_refused() {
    let scene = Scene::local(Receiver::start());
    let hook = scene.hook("h", HookType::BeforeToolCall).matching("[");
    let refusal = refused(&scene, hook);
    assert!(
        refusal.starts_with("Invalid hook matcher regular expression"),
        "{refusal}"
    );
}

#[tokio::test]
async fn vector_012_a_matcher_that_is_no_text_is_refused() {
    let scene = Scene::local(Receiver::start());
    let hook = json!({
        "id": "h", "type": "beforeToolCall", "webhook": {"url": "/x"},
        "matcher": {"identifier": "^fs$"},
    });
    let refusal = refused(&scene, json_hook(hook));
    assert!(
        refusal.starts_with("Invalid hook matcher regular expression"),
        "{refusal}"
    );
    let id = json!({"id": 7, "type": "onComplete", "webhook": {"url": "/x"}});
    assert_eq!(refused(&scene, json_hook(id)), "Hook id must be a string");
}

#[tokio::test]
async fn vector_013_a_control_with_a_handler_is_refused() {
    let scene = Scene::local(Receiver::start());
    let handler = AgentHook::handler("h", |_: Arc<BeforeToolCall>| async { Ok(()) });
    let hook = handler.with_webhook(Webhook::to("/x").control(OnError::Block));
    assert_eq!(refused(&scene, hook), "Control hooks cannot have a handler");
}

#[tokio::test]
async fn vector_014_a_hook_with_a_reserved_id_is_dropped_with_a_warning() {
    let logs = Logs::capture();
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    let id = "server-env-webhook:beforeToolCall";
    scene.register(vec![noting::<BeforeToolCall>(id, &notes)]);
    let mocked = scene
        .hooks
        .dispatch_before_tool_call(call("fs/x"))
        .await
        .unwrap();
    assert!(mocked.is_none() && notes.all().is_empty());
    assert!(scene.hooks.serialized(OP).is_none());
    assert!(logs.line("reserved").contains("WARN"));
}

#[tokio::test]
async fn vector_015_what_is_registered_is_a_snapshot() {
    let scene = Scene::local(Receiver::start());
    let mut json = json!({
        "id": "h", "type": "afterToolCall", "matcher": "^fs/",
        "webhook": {"url": scene.url("/old"), "headers": {"x-a": "old"}},
    });
    scene.register(vec![json_hook(json.clone())]);
    json["webhook"]["url"] = scene.url("/new").into();
    json["matcher"] = "^http/".into();
    json["webhook"]["headers"]["x-a"] = "new".into();
    scene.dispatch(after("fs/readFile")).await.unwrap();
    let received = scene.receiver.received();
    assert_eq!(received[0].path, "/old");
    assert_eq!(received[0].header("x-a"), Some("old"));
}

#[tokio::test]
async fn vector_016_unregister_forgets_all() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::OnComplete)]);
    scene.hooks.unregister(OP);
    scene.hooks.unregister(OP);
    assert!(!scene.hooks.has_hooks(OP));
    assert!(scene.hooks.serialized(OP).is_none());
}

#[tokio::test]
async fn vector_017_only_webhooks_are_serialized() {
    let scene = Scene::local(Receiver::start());
    let handler = noting::<OnComplete>("handler", &Notes::default());
    scene.register(vec![handler, scene.hook("webhook", HookType::OnComplete)]);
    let stored = serde_json::to_value(scene.hooks.serialized(OP)).unwrap();
    let url = scene.url("/webhook");
    assert_eq!(
        stored,
        json!([{"id": "webhook", "type": "onComplete", "webhook": {"url": url}}])
    );
}

#[tokio::test]
async fn vector_018_a_hook_is_serialized_exactly_as_it_was_given() {
    let scene = Scene::local(Receiver::start());
    let text = r#"{"id":"tool","type":"afterToolCall","matcher":"^fs/","webhook":{"url":"/hook","fallback":"none"}}"#;
    scene.register(vec![json_hook(serde_json::from_str(text).unwrap())]);
    let stored = serde_json::to_string(&scene.hooks.serialized(OP)).unwrap();
    assert_eq!(stored, format!("[{text}]"));
}

#[tokio::test]
async fn vector_019_a_wrong_environment_refuses_every_registration() {
    let scene = Scene::local(Receiver::start());
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_EVENTS", "beforeToolCall,...");
    for hooks in [vec![], vec![scene.hook("h", HookType::OnComplete)]] {
        let error = scene.hooks.register(OP, hooks).unwrap_err().to_string();
        assert!(error.contains("AGENT_HOOK_WEBHOOK_EVENTS"), "{error}");
    }
    assert!(!scene.hooks.has_hooks(OP));
}

#[tokio::test]
async fn vector_020_hooks_are_found_by_id() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("a", HookType::OnComplete)]);
    assert!(scene.hooks.has_hook(OP, "a") && !scene.hooks.has_hook(OP, "b"));
    assert!(!scene.hooks.has_hook("other", "a"));
}

#[tokio::test]
async fn an_operation_has_a_bounded_number_of_hooks() {
    let scene = Scene::local(Receiver::start());
    let hook = scene.hook("h", HookType::OnComplete);
    scene.register(vec![hook.clone(); 1_000]);
    let error = scene.hooks.register(OP, vec![hook]).unwrap_err();
    assert_eq!(error.to_string(), "an operation has at most 1000 hooks");
}
