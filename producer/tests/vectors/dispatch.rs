//! 25.4: modes, and what a dispatch reaches.

use std::sync::Arc;

use hookstash_producer::hooks::*;

use crate::support::*;

fn dual(scene: &Scene, notes: &Notes) -> AgentHook {
    let webhook = Webhook::to(scene.url("/dual"));
    noting::<OnComplete>("dual", notes).with_webhook(webhook)
}

fn persisted(scene: &Scene) -> PersistedHooks {
    scene.hooks.serialized(OP).expect("a known operation")
}

#[tokio::test]
async fn vector_044_a_webhook_is_sent_in_local_mode() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::OnComplete)]);
    scene.complete().await.unwrap();
    assert_eq!(scene.paths(), ["/h"]);
}

#[tokio::test]
async fn vector_045_a_webhook_is_sent_in_queue_mode() {
    let scene = Scene::queue(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::OnComplete)]);
    scene.complete().await.unwrap();
    assert_eq!(scene.paths(), ["/h"]);
}

#[tokio::test]
async fn vector_046_a_fresh_process_sends_what_was_persisted() {
    for scene in Scene::both() {
        scene.register(vec![scene.hook("h", HookType::OnComplete)]);
        let json = serde_json::to_value(persisted(&scene)).unwrap();
        let restored = PersistedHooks::from_json(json).unwrap();
        for mode in [Mode::Local, Mode::Queue] {
            let fresh = scene.restarted(mode);
            fresh.dispatch(completed(), Some(&restored)).await.unwrap();
        }
        assert_eq!(scene.receiver.count(), 2);
    }
}

#[tokio::test]
async fn vector_047_a_dual_hook_is_called_locally_and_sent_in_queue_mode() {
    let [local, queue] = Scene::both();
    for (scene, handled, sent) in [(local, 1, 0), (queue, 0, 1)] {
        let notes = Notes::default();
        scene.register(vec![dual(&scene, &notes)]);
        scene.complete().await.unwrap();
        assert_eq!((notes.all().len(), scene.receiver.count()), (handled, sent));
    }
}

#[tokio::test]
async fn vector_048_a_dual_hook_is_sent_where_only_its_persisted_form_is_known() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    scene.register(vec![dual(&scene, &notes)]);
    let restored = persisted(&scene);
    let fresh = scene.restarted(Mode::Local);
    fresh.dispatch(completed(), Some(&restored)).await.unwrap();
    assert_eq!((notes.all().len(), scene.receiver.count()), (0, 1));
}

#[tokio::test]
async fn vector_049_a_handler_alone_does_nothing_in_queue_mode() {
    let scene = Scene::queue(Receiver::start());
    let notes = Notes::default();
    scene.register(vec![noting::<OnComplete>("h", &notes)]);
    scene.complete().await.unwrap();
    assert!(notes.all().is_empty() && scene.receiver.count() == 0);
}

#[tokio::test]
async fn vector_050_a_failing_handler_does_not_keep_the_next_from_running() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    let failing = AgentHook::handler("bad", |_: Arc<OnComplete>| async { Err("no".into()) });
    scene.register(vec![failing, noting::<OnComplete>("good", &notes)]);
    scene.complete().await.unwrap();
    assert_eq!(notes.all(), ["good"]);
}

#[tokio::test]
async fn vector_051_an_unknown_operation_reaches_nobody() {
    for scene in Scene::both() {
        scene.complete().await.unwrap();
        assert_eq!(scene.receiver.count(), 0);
    }
}

#[tokio::test]
async fn vector_052_another_type_reaches_nobody() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::OnComplete)]);
    scene.dispatch(OnError(run_end())).await.unwrap();
    assert_eq!(scene.receiver.count(), 0);
}

#[tokio::test]
async fn vector_053_an_empty_persisted_list_counts_in_queue_mode() {
    let scene = Scene::queue(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::OnComplete)]);
    let nothing = PersistedHooks::default();
    scene
        .hooks
        .dispatch(completed(), Some(&nothing))
        .await
        .unwrap();
    assert_eq!(scene.receiver.count(), 0);
}

#[tokio::test]
async fn vector_054_the_list_in_memory_wins_in_local_mode() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("persisted", HookType::OnComplete)]);
    let stored = persisted(&scene);
    scene.hooks.unregister(OP);
    scene.register(vec![scene.hook("memory", HookType::OnComplete)]);
    scene
        .hooks
        .dispatch(completed(), Some(&stored))
        .await
        .unwrap();
    assert_eq!(scene.paths(), ["/memory"]);
}

#[tokio::test]
async fn vector_055_a_dispatch_asks_no_control() {
    for scene in Scene::both() {
        scene.register(vec![scene.control("c", OnError::Block)]);
        let event = BeforeToolCall::of_call(call("fs/readFile"));
        scene.dispatch(event).await.unwrap();
        assert!(scene.hooks.drain(SOON).await);
        assert_eq!(scene.receiver.count(), 0);
    }
}

#[tokio::test]
async fn vector_056_a_failing_webhook_does_not_keep_the_others_from_being_sent() {
    let receiver = Receiver::answering(vec![Answer::status(500), Answer::ok()]);
    let scene = Scene::local(receiver);
    let hook = |id| scene.hook(id, HookType::OnComplete);
    scene.register(vec![hook("1"), hook("2"), hook("3")]);
    let logs = Logs::capture();
    scene.complete().await.unwrap();
    assert_eq!(scene.paths(), ["/1", "/2", "/3"]);
    let line = logs.line("[HookDispatcher] Webhook delivery failed (non-fatal)");
    assert!(
        line.contains("http_error") && line.contains("500"),
        "{line}"
    );
}

fn critical(scene: &Scene, id: &str) -> AgentHook {
    let webhook = Webhook::to(scene.url(&format!("/{id}"))).critical();
    AgentHook::webhook(id, HookType::OnComplete, webhook)
}

#[tokio::test]
async fn vector_057_a_critical_failure_is_raised_after_the_siblings() {
    let receiver = Receiver::answering(vec![Answer::status(500), Answer::ok()]);
    let scene = Scene::local(receiver);
    scene.register(vec![
        critical(&scene, "A"),
        scene.hook("B", HookType::OnComplete),
    ]);
    let logs = Logs::capture();
    let error = scene.complete().await.unwrap_err();
    assert_eq!(error.to_string(), "Critical webhook delivery failed: A");
    assert_eq!(scene.paths(), ["/A", "/B"]);
    let line = logs.line("[HookDispatcher] Critical webhook delivery failed");
    for part in ["ERROR", "operation_id=\"op\"", "\"A\"", "onComplete"] {
        assert!(line.contains(part), "{line}");
    }
}

#[tokio::test]
async fn vector_058_one_error_holds_every_critical_failure_the_first_in_front() {
    let receiver = Receiver::with(|request| match &*request.path {
        "/A" => Answer::status(500),
        "/C" => Answer::status(404),
        _ => Answer::ok(),
    });
    let scene = Scene::local(receiver);
    let b = scene.hook("B", HookType::OnComplete);
    scene.register(vec![critical(&scene, "A"), b, critical(&scene, "C")]);
    let DispatchError::Critical(error) = scene.complete().await.unwrap_err() else {
        panic!("a critical error");
    };
    assert_eq!(error.hook_id(), "A");
    assert_eq!(error.cause().status, Some(500));
    let all: Vec<_> = error
        .failures()
        .map(|failure| (&*failure.hook_id, failure.cause.status))
        .collect();
    assert_eq!(all, [("A", Some(500)), ("C", Some(404))]);
}

#[tokio::test]
async fn vector_059_a_handler_is_never_critical() {
    let scene = Scene::local(Receiver::start());
    let failing = AgentHook::handler("bad", |_: Arc<OnComplete>| async { Err("no".into()) });
    scene.register(vec![
        failing.with_webhook(Webhook::to(scene.url("/x")).critical()),
    ]);
    scene.complete().await.unwrap();
    assert_eq!(scene.receiver.count(), 0);
}

#[tokio::test]
async fn vector_060_nothing_can_be_delivered_after_the_environment_hook_is_gone() {
    let receiver = Receiver::start();
    let environment = Variables::of(&[
        ("AGENT_HOOK_WEBHOOK_URL", &receiver.url("/env")),
        ("AGENT_HOOK_WEBHOOK_TOKEN", "t0ken"),
        ("AGENT_HOOK_WEBHOOK_EVENTS", "beforeToolCall"),
    ]);
    let setting = Setting {
        environment,
        ..Setting::default()
    };
    let scene = Scene::new(receiver, setting);
    let can = || {
        scene
            .hooks
            .can_deliver(OP, HookType::BeforeToolCall)
            .unwrap()
    };
    assert!(can());
    scene.environment.unset("AGENT_HOOK_WEBHOOK_URL");
    assert!(!can());
    scene.register(vec![scene.control("c", OnError::Block)]);
    assert!(!can(), "controls do not count");
    scene.register(vec![noting::<BeforeToolCall>("h", &Notes::default())]);
    assert!(can());
}

#[tokio::test]
async fn handlers_can_be_delivered_to_in_local_mode_only() {
    for (scene, can) in Scene::both().into_iter().zip([true, false]) {
        scene.register(vec![noting::<OnComplete>("h", &Notes::default())]);
        assert_eq!(scene.hooks.can_deliver(OP, HookType::OnComplete), Ok(can));
        assert_eq!(scene.hooks.can_deliver(OP, HookType::OnError), Ok(false));
    }
}

#[tokio::test]
async fn the_next_hook_starts_after_the_last_has_ended() {
    let receiver = Receiver::always(Answer::ok().after(std::time::Duration::from_millis(50)));
    let scene = Scene::local(receiver);
    let hooks = (0..5).map(|n| scene.hook(&n.to_string(), HookType::OnComplete));
    scene.register(hooks.collect());
    scene.complete().await.unwrap();
    assert_eq!(scene.paths(), ["/0", "/1", "/2", "/3", "/4"]);
    assert_eq!(scene.receiver.active_max(), 1);
}

#[tokio::test]
async fn handlers_see_the_local_state_and_no_receiver_does() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    let seen = notes.clone();
    let handler = AgentHook::handler("h", move |event: Arc<OnComplete>| {
        let state = event
            .0
            .final_state
            .as_ref()
            .and_then(LocalState::get::<u32>);
        seen.add(&format!("{state:?}"));
        async { Ok(()) }
    });
    scene.register(vec![handler, scene.hook("w", HookType::OnComplete)]);
    scene.complete().await.unwrap();
    assert_eq!(notes.all(), ["Some(7)"]);
    assert!(scene.body().get("finalState").is_none());
}

#[test]
fn queue_mode_is_selected_by_exactly_one_word() {
    for (value, mode) in [
        (Some("queue"), Mode::Queue),
        (Some("Queue"), Mode::Local),
        (Some("queue "), Mode::Local),
        (Some(""), Mode::Local),
        (None, Mode::Local),
    ] {
        let environment = Variables::of(&[]);
        if let Some(value) = value {
            environment.set("AGENT_RUNTIME_MODE", value);
        }
        assert_eq!(Mode::from_environment(&*environment), mode, "{value:?}");
    }
}
