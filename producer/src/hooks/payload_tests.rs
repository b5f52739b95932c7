use serde_json::json;

use super::*;

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn config(json: &Value) -> WebhookConfig {
    WebhookConfig::parse(json).unwrap()
}

#[test]
fn vector_188_a_field_that_is_overwritten_keeps_its_place() {
    let event = object(&json!({"b": 1, "hookId": "theirs", "a": 2, "userId": "u"}));
    let webhook = config(&json!({"url": "/x", "body": {"a": 3, "z": 1}}));
    let mut payload = build(&event, "own", HookType::OnComplete, &webhook);
    add_email(&mut payload, "u@mail.test");
    let text = serde_json::to_string(&payload).unwrap();
    assert_eq!(
        text,
        r#"{"b":1,"hookId":"own","a":3,"userId":"u","hookType":"onComplete","z":1,"userEmail":"u@mail.test"}"#
    );
}

#[test]
fn removing_a_field_does_not_move_the_others() {
    let event =
        object(&json!({"finalState": 1, "b": 1, "userEmail": 2, "c": 3, "mock": 4, "d": 5}));
    let payload = build(
        &event,
        "h",
        HookType::OnComplete,
        &config(&json!({"url": "/x"})),
    );
    let names: Vec<_> = payload.keys().collect();
    assert_eq!(names, ["b", "c", "d", "hookId", "hookType"]);
}

#[test]
fn redaction_follows_the_true_type_and_takes_odd_shapes() {
    let webhook = config(&json!({"url": "/x", "body": {"hookType": "onComplete"}}));
    for (result, expected) in [
        (
            json!({"workRegistration": {"args": 1, "type": "skill"}}),
            json!({"workRegistration": {"type": "skill", "data": null}}),
        ),
        (
            json!({"workRegistration": "skill"}),
            json!({"workRegistration": "skill"}),
        ),
        (json!(null), json!(null)),
        (json!("text"), json!("text")),
    ] {
        let event = object(&json!({"result": result}));
        let payload = build(&event, "h", HookType::AfterToolCall, &webhook);
        assert_eq!(payload["result"], expected);
        let other = build(&event, "h", HookType::OnComplete, &webhook);
        assert_eq!(other["result"], event["result"]);
    }
    // Also when the body brings the result.
    let secret = json!({"workRegistration": {"args": "SECRET", "type": "skill"}});
    let webhook = config(&json!({"url": "/x", "body": {"result": secret}}));
    let payload = build(&Map::new(), "h", HookType::AfterToolCall, &webhook);
    assert!(!Value::from(payload).to_string().contains("SECRET"));
}
