//! What the hooks of one operation may take together.

use hookstash_producer::hooks::*;
use serde_json::{Value, json};

use crate::support::*;

fn matching(pattern: &str) -> AgentHook {
    let webhook = Webhook::to("https://user.test/hook");
    AgentHook::webhook("h", HookType::AfterToolCall, webhook).matching(pattern)
}

fn json_of(pattern: &str) -> Value {
    json!({"id": "h", "type": "afterToolCall", "matcher": pattern,
        "webhook": {"url": "https://user.test/hook"}})
}

#[test]
fn the_matchers_of_an_operation_share_a_budget() {
    let scene = Scene::local(Receiver::start());
    let pattern = |index: usize| format!("{index:05}{}", "x".repeat(995));
    let fits = (0..20).map(|index| matching(&pattern(index))).collect();
    scene.register(fits);
    // One character more, together with those that are there.
    let refused = scene.hooks.register(OP, vec![matching("y")]);
    let text = "the matchers of an operation have at most 20000 characters together";
    assert_eq!(refused.unwrap_err().to_string(), text);
    let stored = |count: usize| {
        let list = (0..count).map(|index| json_of(&pattern(index)));
        PersistedHooks::from_json(list.collect::<Vec<_>>().into())
    };
    assert_eq!(stored(20).unwrap().len(), 20);
    let refused = stored(21).unwrap_err();
    assert!(matches!(refused, RegisterError::Patterns { max: 20_000 }));
}

#[test]
fn a_matcher_that_is_large_when_compiled_is_refused() {
    let scene = Scene::local(Receiver::start());
    for pattern in ["(?:[^]{1,200}){1,200}", r"(?=(?:[^]{1,200}){1,200})x"] {
        let refused = scene.hooks.register(OP, vec![matching(pattern)]);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("too large when compiled"), "{refused}");
    }
    // What people write is far from that.
    for pattern in [
        "^(files|shell)/(?!read)",
        r"^[\w-]+/(create|update|delete)\w*$",
        "[^/]{1,64}/x",
    ] {
        scene.register(vec![matching(pattern)]);
    }
}

#[test]
fn the_persisted_hooks_of_an_operation_have_a_largest_size() {
    let scene = Scene::local(Receiver::start());
    let large = |bytes: usize| {
        let body = object(&json!({"note": "x".repeat(bytes)}));
        let webhook = Webhook::to("https://user.test/hook").body(body);
        AgentHook::webhook("h", HookType::OnComplete, webhook)
    };
    let half = 500 * 1024;
    scene.register(vec![large(half), large(half)]);
    let text = "the webhooks of an operation take at most 1048576 bytes as JSON";
    let refused = scene.hooks.register(OP, vec![large(half)]).unwrap_err();
    assert_eq!(refused.to_string(), text);
    // What is taken can be stored, and what can be stored is taken again.
    let stored = scene.hooks.serialized(OP).unwrap();
    let json = serde_json::to_value(&stored).unwrap();
    let again = PersistedHooks::from_json(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), json);
    let Value::Array(mut entries) = json else {
        panic!("a list")
    };
    entries.push(entries[0].clone());
    let refused = PersistedHooks::from_json(entries.into()).unwrap_err();
    assert_eq!(refused.to_string(), text);
}

#[test]
fn a_thousand_hooks_may_share_one_matcher() {
    let list: Vec<_> = (0..1_000).map(|_| json_of("^files/(?!read)")).collect();
    assert_eq!(PersistedHooks::from_json(list.into()).unwrap().len(), 1_000);
}

#[test]
fn what_else_a_result_keeps_takes_no_fields_place() {
    let names = [
        "content",
        "error",
        "executionTime",
        "deviceExecutionTime",
        "state",
        "stop",
        "success",
        "deferred",
        "workRegistration",
    ];
    let shadows = names.map(|name| (name.to_owned(), json!("SHADOW")));
    let mut given = ToolRunResult {
        error: Some(json!("e")),
        execution_time: Some(1.0),
        device_execution_time: Some(2.0),
        state: Some(object(&json!({"a": 1}))),
        stop: Some(true),
        deferred: Some(false),
        work_registration: Some(json!({"type": "skill"})),
        ..result("true")
    };
    let plain = serde_json::to_value(&given).unwrap();
    assert_eq!(object(&plain).len(), names.len(), "all that there are");
    given.other = shadows.into_iter().collect();
    assert_eq!(serde_json::to_value(&given).unwrap(), plain);
    assert_eq!(serde_json::to_string(&given).unwrap(), plain.to_string());
    given.other.insert("note".to_owned(), json!(1));
    assert_eq!(serde_json::to_value(&given).unwrap()["note"], 1);
    let event = AfterToolCall {
        call: call("fs/x"),
        mocked: false,
        result: given,
    };
    let shown = serde_json::to_value(&event).unwrap();
    assert_eq!(shown["result"]["content"], "true");
}
