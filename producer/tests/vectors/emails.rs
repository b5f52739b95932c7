//! 25.14: e-mail addresses. Counting lookups over time is beside the code (`emails`).

use std::time::Duration;

use hookstash_producer::hooks::*;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn vector_189_every_type_gets_the_address_of_its_user() {
    for hook_type in HookType::ALL {
        let scene = Scene::local(Receiver::start());
        scene.register(vec![scene.hook("h", hook_type)]);
        scene.dispatch(event(hook_type)).await.unwrap();
        assert!(scene.hooks.drain(SOON).await);
        let body = scene.body();
        assert_eq!(body["userId"], "u1", "{hook_type}");
        assert_eq!(body["userEmail"], "u1@mail.test", "{hook_type}");
        assert_eq!(body["hookType"], hook_type.as_str());
        let fields = object(&body);
        assert!(
            !fields.values().any(Value::is_null),
            "absent, not null: {body}"
        );
        assert_eq!(fields.keys().next_back().unwrap(), "userEmail");
    }
}

/// The body that arrives, and who was looked up.
async fn sent(webhook: impl FnOnce(Webhook) -> Webhook) -> (Value, Vec<String>) {
    let scene = Scene::local(Receiver::start());
    scene
        .deliver(webhook(Webhook::to(scene.url("/x"))))
        .await
        .unwrap();
    (scene.body(), scene.users.asked())
}

#[tokio::test]
async fn vector_190_the_owner_that_the_body_names_is_looked_up() {
    let extra = object(&json!({"userId": "owner", "userEmail": "spoof"}));
    let (body, asked) = sent(|webhook| webhook.body(extra)).await;
    assert_eq!(body["userId"], "owner");
    assert_eq!(body["userEmail"], "owner@mail.test");
    assert_eq!(asked, ["owner"]);
}

#[tokio::test]
async fn vector_191_an_owner_that_is_no_text_is_not_looked_up() {
    for user in [json!(null), json!(""), json!(42)] {
        let extra = object(&json!({"userId": user}));
        let (body, asked) = sent(|webhook| webhook.body(extra)).await;
        assert!(
            body.get("userEmail").is_none() && asked.is_empty(),
            "{body}"
        );
        assert_eq!(body["userId"], user);
    }
}

#[tokio::test]
async fn vector_192_without_an_address_the_field_is_absent() {
    let extra = object(&json!({"userId": "nobody"}));
    let (body, asked) = sent(|webhook| webhook.body(extra)).await;
    assert!(body.get("userEmail").is_none(), "{body}");
    assert_eq!(asked, ["nobody"]);
}

#[tokio::test]
async fn vector_193_a_failed_lookup_does_not_keep_the_delivery_back() {
    let logs = Logs::capture();
    let extra = object(&json!({"userId": "bad"}));
    let (body, _) = sent(|webhook| webhook.body(extra)).await;
    assert!(body.get("userEmail").is_none(), "{body}");
    logs.line("[HookDispatcher] Failed to resolve webhook user email");
    assert!(!logs.text().contains("SECRET"));
}

#[tokio::test]
async fn vector_194_whoever_does_not_select_it_causes_no_lookup() {
    let (body, asked) = sent(|webhook| webhook.event_fields(["userId"])).await;
    assert_eq!(body["userId"], "u1");
    assert!(body.get("userEmail").is_none() && asked.is_empty());
}

#[tokio::test]
async fn vector_195_the_address_can_be_selected_without_the_id() {
    let (body, _) = sent(|webhook| webhook.event_fields(["userEmail"])).await;
    let expected = json!({
        "hookId": "hook", "hookType": "onComplete", "userEmail": "u1@mail.test",
    });
    assert_eq!(body.to_string(), expected.to_string());
}

#[tokio::test]
async fn vector_196_deliveries_share_a_lookup_for_five_minutes() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::OnComplete)]);
    let (first, second) = tokio::join!(scene.complete(), scene.complete());
    first.unwrap();
    second.unwrap();
    assert_eq!(scene.users.asked().len(), 1);
    scene.clock.advance(Duration::from_millis(299_999));
    scene.complete().await.unwrap();
    assert_eq!(scene.users.asked().len(), 1);
    scene.clock.advance(Duration::from_millis(1));
    scene.complete().await.unwrap();
    assert_eq!(scene.users.asked().len(), 2);
}

#[tokio::test]
async fn vector_198_every_dispatcher_has_a_cache_of_its_own() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::OnComplete)]);
    scene.complete().await.unwrap();
    let stored = scene.hooks.serialized(OP).unwrap();
    let other = scene.restarted(Mode::Local);
    other.dispatch(completed(), Some(&stored)).await.unwrap();
    assert_eq!(scene.users.asked(), ["u1", "u1"]);
}

#[tokio::test]
async fn vector_199_an_abandoned_delivery_leaves_the_lookup_to_its_siblings() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::OnComplete)]);
    let mut end = run_end();
    end.user_id = "slow".to_owned();
    let event = Event::from(OnComplete(end));
    let first = tokio::spawn({
        let (hooks, event) = (scene.hooks.clone(), event.clone());
        async move { hooks.dispatch(event, None).await }
    });
    while scene.users.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        scene.users.let_go();
    };
    let (sibling, ()) = tokio::join!(scene.dispatch(event), release);
    sibling.unwrap();
    assert_eq!(scene.body()["userEmail"], "slow@mail.test");
    assert_eq!(scene.users.asked().len(), 1);
}
