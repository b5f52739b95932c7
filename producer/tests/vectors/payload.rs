//! 25.13: what is on the wire. Order and odd shapes are beside the code (`payload`).

use hookstash_producer::hooks::*;
use serde_json::{Value, json};

use crate::support::*;

async fn sent(webhook: Webhook) -> Value {
    let scene = Scene::local(Receiver::start());
    let json = Value::from(webhook);
    let mut json = object(&json);
    json.insert("url".to_owned(), scene.url("/x").into());
    scene
        .deliver(Webhook::from_json(json.into()))
        .await
        .unwrap();
    scene.body()
}

#[tokio::test]
async fn vector_180_selected_fields_and_the_body_are_all_there_is() {
    let webhook = Webhook::to("/x")
        .event_fields(["errorMessage", "reason", "topicId"])
        .body(object(&json!({"taskId": 7})));
    let expected = json!({
        "errorMessage": "", "reason": "done", "topicId": "t1",
        "hookId": "hook", "hookType": "onComplete", "taskId": 7,
    });
    assert_eq!(sent(webhook).await.to_string(), expected.to_string());
}

#[tokio::test]
async fn vector_181_the_final_state_cannot_be_selected() {
    let body = sent(Webhook::to("/x").event_fields(["finalState", "reason"])).await;
    let expected = json!({"reason": "done", "hookId": "hook", "hookType": "onComplete"});
    assert_eq!(body, expected);
}

#[tokio::test]
async fn vector_182_fields_that_do_not_exist_are_not_there() {
    for name in ["doesNotExist", "constructor", "__proto__"] {
        let body = sent(Webhook::to("/x").event_fields([name])).await;
        assert_eq!(
            body,
            json!({"hookId": "hook", "hookType": "onComplete"}),
            "{name}"
        );
    }
    let body = sent(Webhook::to("/x").event_fields(Vec::<String>::new())).await;
    assert_eq!(body, json!({"hookId": "hook", "hookType": "onComplete"}));
}

#[tokio::test]
async fn vector_183_the_body_wins_over_the_hooks_id() {
    let body = sent(Webhook::to("/x").body(object(&json!({"hookId": "x"})))).await;
    assert_eq!(body["hookId"], "x");
}

#[tokio::test]
async fn vector_184_the_body_cannot_bring_local_fields_onto_the_wire() {
    let extra = json!({"mock": 1, "finalState": 2, "userEmail": "a"});
    let body = sent(
        Webhook::to("/x")
            .body(object(&extra))
            .event_fields(["reason"]),
    )
    .await;
    assert_eq!(
        body,
        json!({"reason": "done", "hookId": "hook", "hookType": "onComplete"})
    );
}

fn skill() -> AfterToolCall {
    let mut event = after("skills/run");
    event.result.work_registration = Some(json!({
        "args": {"a": "SECRET"}, "data": {"b": "SECRET"}, "provider": "p", "toolName": "t",
        "type": "skill",
    }));
    event
}

#[tokio::test]
async fn vector_185_a_skills_own_data_does_not_leave() {
    let expected = json!({"data": null, "provider": "p", "toolName": "t", "type": "skill"});
    for is_durable in [false, true] {
        for is_projected in [false, true] {
            let setting = Setting {
                publisher: Publishers::Store,
                ..Setting::default()
            };
            let scene = Scene::new(Receiver::start(), setting);
            let mut webhook = Webhook::to(scene.url("/x"));
            if is_durable {
                webhook = webhook.durable();
            }
            if is_projected {
                // A body that lies about the type cannot switch the redaction off.
                let body = object(&json!({"hookType": "onComplete"}));
                webhook = webhook.event_fields(["result"]).body(body);
            }
            scene.register(vec![AgentHook::webhook(
                "h",
                HookType::AfterToolCall,
                webhook,
            )]);
            let event = std::sync::Arc::new(skill());
            scene.dispatch(std::sync::Arc::clone(&event)).await.unwrap();
            let body = match scene.queued().await.pop() {
                Some(message) => serde_json::from_slice(&message.body).unwrap(),
                None => scene.body(),
            };
            assert_eq!(body["result"]["workRegistration"], expected);
            assert!(!body.to_string().contains("SECRET"), "{body}");
            let own = event.result.work_registration.as_ref().unwrap();
            assert_eq!(own["data"]["b"], "SECRET", "the event is not touched");
        }
    }
}

#[tokio::test]
async fn vector_186_other_registrations_leave_as_they_are() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::AfterToolCall)]);
    let mut event = after("tasks/run");
    let registration = json!({"type": "task", "action": "a", "targets": [1], "args": 2, "data": 3});
    event.result.work_registration = Some(registration.clone());
    scene.dispatch(event).await.unwrap();
    assert_eq!(scene.body()["result"]["workRegistration"], registration);
}

#[tokio::test]
async fn vector_187_a_control_sees_the_whole_result() {
    let scene = Scene::local(Receiver::start());
    let webhook = Webhook::to(scene.url("/c")).control(OnError::Block);
    scene.register(vec![AgentHook::webhook(
        "c",
        HookType::AfterToolCall,
        webhook,
    )]);
    let event = skill();
    let registration = event.result.work_registration.clone().unwrap();
    assert_eq!(scene.evaluate_call(event).await, Verdict::Allow);
    assert_eq!(scene.body()["result"]["workRegistration"], registration);
}
