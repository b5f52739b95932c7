//! 25.6: durable notifications, through our own store and through a remote service.

use std::time::Duration;

use hookstash_producer::hooks::*;
use hookstash_shared::headers::HeaderSource;
use hookstash_shared::message::Fallback;
use hookstash_shared::store::faulty::{Fault, FaultRates};

use crate::support::*;

const QUEUED: &str = "/v2/publish/";

/// A scene with this publisher. Its receiver plays the remote service too.
fn scene(publisher: Publishers, receiver: Receiver) -> Scene {
    let environment = Variables::of(&[]);
    if publisher == Publishers::Remote {
        environment.set("QSTASH_URL", &receiver.url(""));
        environment.set("QSTASH_TOKEN", "remote-token");
    }
    let setting = Setting {
        publisher,
        environment,
        ..Setting::default()
    };
    Scene::new(receiver, setting)
}

/// The remote service answers `publish`, everyone else `direct`.
fn answering(publish: &Answer, direct: &Answer) -> Receiver {
    let (publish, direct) = (publish.clone(), direct.clone());
    Receiver::with(move |request| {
        if request.path.starts_with(QUEUED) {
            publish.clone()
        } else {
            direct.clone()
        }
    })
}

fn hook(scene: &Scene, webhook: impl FnOnce(Webhook) -> Webhook) {
    scene.hooks.unregister(OP);
    let webhook = webhook(Webhook::to(scene.url("/direct")).durable());
    scene.register(vec![AgentHook::webhook(
        "hook",
        HookType::OnComplete,
        webhook,
    )]);
}

/// How dispatching to a critical durable hook fails.
async fn failure(scene: &Scene) -> DeliveryError {
    hook(scene, Webhook::critical);
    match scene.complete().await.unwrap_err() {
        DispatchError::Critical(error) => error.cause().clone(),
        DispatchError::Environment(error) => panic!("{error}"),
    }
}

fn directs(scene: &Scene) -> usize {
    scene
        .paths()
        .iter()
        .filter(|path| *path == "/direct")
        .count()
}

/// A publisher without a token: none at all, and a remote one.
fn without_token(direct: &Answer) -> [Scene; 2] {
    [Publishers::None, Publishers::Remote].map(|publisher| {
        let scene = scene(publisher, answering(&Answer::ok(), direct));
        scene.environment.unset("QSTASH_TOKEN");
        scene
    })
}

#[tokio::test]
async fn vector_084_without_a_token_the_call_is_made_from_here() {
    for scene in without_token(&Answer::ok()) {
        hook(&scene, |webhook| webhook);
        scene.complete().await.unwrap();
        assert_eq!(scene.paths(), ["/direct"]);
    }
}

#[tokio::test]
async fn vector_085_a_call_in_place_of_the_queue_is_made_once() {
    for scene in without_token(&Answer::close()) {
        hook(&scene, |webhook| webhook);
        let logs = Logs::capture();
        scene.complete().await.unwrap();
        let line = logs.line("[HookDispatcher] Webhook delivery failed (non-fatal)");
        assert!(line.contains("network_error"), "{line}");
        assert_eq!(scene.paths(), ["/direct"]);
    }
}

#[tokio::test]
async fn vector_086_without_a_token_a_critical_hook_fails_and_is_not_sent_unsigned() {
    for scene in without_token(&Answer::ok()) {
        let error = failure(&scene).await;
        assert_eq!(
            error.to_string(),
            "Hook HTTP request failed: configuration: QSTASH_TOKEN not available"
        );
        assert_eq!(scene.receiver.count(), 0);
    }
}

#[tokio::test]
async fn vector_087_a_queue_that_cannot_be_reached_is_a_network_error() {
    let store = scene(Publishers::Store, Receiver::start());
    let always = FaultRates {
        lose_before: 10_000,
        ..FaultRates::default()
    };
    store.faults.set_rates(always);
    let remote = scene(
        Publishers::Remote,
        answering(&Answer::close(), &Answer::ok()),
    );
    for scene in [store, remote] {
        let error = failure(&scene).await;
        assert_eq!(
            error.to_string(),
            "Hook HTTP request failed: network_error: QStash publish failed"
        );
        assert_eq!((error.status, directs(&scene)), (None, 0));
    }
}

#[tokio::test]
async fn vector_088_a_queue_that_refuses_is_an_http_error_and_nothing_of_its_words_is_shown() {
    for status in [401, 429, 503] {
        let logs = Logs::capture();
        let refusal = Answer::status(status)
            .body("SECRET words")
            .header("X-A", "SECRET");
        let scene = scene(Publishers::Remote, answering(&refusal, &Answer::ok()));
        let error = failure(&scene).await;
        let text =
            format!("Hook HTTP request failed: http_error: QStash publish failed (HTTP {status})");
        assert_eq!((error.to_string(), error.status), (text, Some(status)));
        assert_eq!(
            scene.receiver.count(),
            1,
            "a refusal is not repeated, nor sent directly"
        );
        let own: Vec<_> = own_lines(&logs);
        assert!(!own.iter().any(|line| line.contains("SECRET")), "{own:?}");
    }
    let scene = scene(Publishers::Store, Receiver::start());
    scene.faults.inject(Fault::Full);
    let error = failure(&scene).await;
    let text = "Hook HTTP request failed: http_error: QStash publish failed (HTTP 503)";
    assert_eq!(
        (error.to_string().as_str(), error.status),
        (text, Some(503))
    );
    assert_eq!(scene.receiver.count(), 0);
}

/// What this project logs, at any level.
fn own_lines(logs: &Logs) -> Vec<String> {
    let text = logs.text();
    text.lines()
        .filter(|line| line.contains("hookstash"))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn vector_089_a_refused_notification_is_sent_directly_with_its_id() {
    let no_content = Answer::status(204);
    let store = scene(Publishers::Store, answering(&no_content, &no_content));
    store.faults.inject(Fault::Full);
    let remote = scene(
        Publishers::Remote,
        answering(&Answer::status(503), &no_content),
    );
    for scene in [store, remote] {
        let logs = Logs::capture();
        hook(&scene, |webhook| webhook);
        scene.complete().await.unwrap();
        assert_eq!(directs(&scene), 1);
        let line = logs.line("[HookDispatcher] QStash delivery failed, falling back to fetch");
        assert!(
            line.contains("http_error") && line.contains("503"),
            "{line}"
        );
    }
}

#[tokio::test]
async fn a_call_in_place_of_an_unclear_publish_carries_the_messages_id() {
    let scene = scene(Publishers::Store, Receiver::start());
    scene.faults.set_rates(FaultRates {
        lose_after: 10_000,
        ..FaultRates::default()
    });
    hook(&scene, |webhook| {
        webhook.timeout(Duration::from_millis(300))
    });
    scene.complete().await.unwrap();
    let direct = &scene.receiver.received()[0];
    let id = direct
        .header("upstash-message-id")
        .expect("an id")
        .to_owned();
    scene.faults.set_rates(FaultRates::default());
    let stored = scene.store.message(&id.parse().unwrap()).await.unwrap();
    assert!(
        stored.is_some(),
        "so that the receiver can see that they are the same"
    );
}

#[tokio::test]
async fn an_unclear_publish_is_repeated_and_makes_one_message() {
    let scene = scene(Publishers::Store, Receiver::start());
    scene.faults.inject(Fault::LoseAfter);
    scene.faults.inject(Fault::LoseBefore);
    hook(&scene, Webhook::critical);
    scene.complete().await.unwrap();
    assert_eq!(scene.queued().await.len(), 1);
}

#[tokio::test]
async fn after_the_first_publish_without_an_answer_the_others_of_a_dispatch_are_tried_once() {
    let lost = FaultRates {
        lose_before: 10_000,
        ..FaultRates::default()
    };
    let unreachable = FaultRates {
        refuse: 10_000,
        ..FaultRates::default()
    };
    for rates in [lost, unreachable] {
        let scene = scene(Publishers::Store, Receiver::start());
        scene.faults.set_rates(rates);
        let hooks = (0..6).map(|n| {
            let webhook = Webhook::to(scene.url("/direct")).durable();
            let webhook = webhook.timeout(Duration::from_secs(2));
            AgentHook::webhook(n.to_string(), HookType::OnComplete, webhook)
        });
        scene.register(hooks.collect());
        let begun = std::time::Instant::now();
        scene.complete().await.unwrap();
        assert_eq!(directs(&scene), 6);
        let took = begun.elapsed();
        assert!(
            took < Duration::from_secs(8),
            "not two seconds for each: {took:?}"
        );
    }
}

#[tokio::test]
async fn vector_090_timeout_and_headers_go_with_the_message() {
    let give = |webhook: Webhook| {
        webhook
            .timeout(Duration::from_secs(4))
            .header("X-Key", "Bearer ${HOOK_TOKEN}")
            .header("Content-Type", "text/plain")
            .allow_env_var("HOOK_TOKEN")
    };
    let remote = scene(Publishers::Remote, Receiver::start());
    remote.environment.set("HOOK_TOKEN", "SECRET");
    hook(&remote, give);
    remote.complete().await.unwrap();
    let published = &remote.receiver.received()[0];
    assert_eq!(published.path, format!("{QUEUED}{}", remote.url("/direct")));
    for (name, value) in [
        ("authorization", "Bearer remote-token"),
        ("content-type", "application/json"),
        ("upstash-method", "POST"),
        ("upstash-timeout", "4s"),
        ("upstash-forward-x-key", "Bearer SECRET"),
    ] {
        assert_eq!(published.header(name), Some(value), "{name}");
    }
    for name in [
        "upstash-retries",
        "upstash-delay",
        "upstash-deduplication-id",
        "upstash-callback",
    ] {
        assert_eq!(published.header(name), None, "{name}");
    }

    let store = scene(Publishers::Store, Receiver::start());
    hook(&store, give);
    store
        .complete()
        .await
        .expect("the variable is needed where the message is sent");
    let message = store.queued().await.pop().expect("a message");
    assert_eq!(message.header.timeout_ms, 4_000);
    let template = message
        .header
        .headers
        .get(&"x-key".parse().unwrap())
        .unwrap();
    let HeaderSource::Template {
        text,
        allowed_env_vars,
    } = template
    else {
        panic!("a template");
    };
    assert_eq!(
        (&**text, &**allowed_env_vars),
        ("Bearer ${HOOK_TOKEN}", &["HOOK_TOKEN".to_owned()][..])
    );
    let headers = message
        .header
        .headers
        .resolve(&*remote.environment)
        .unwrap();
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(message.header.fallback, Fallback::Fetch);
    assert_eq!(message.header.retries, 3);
}

#[tokio::test]
async fn timeouts_below_a_second_are_kept_exactly_and_rounded_up_for_a_remote_service() {
    let short = |webhook: Webhook| webhook.timeout(Duration::from_millis(1_500));
    let store = scene(Publishers::Store, Receiver::start());
    hook(&store, short);
    store.complete().await.unwrap();
    assert_eq!(store.queued().await[0].header.timeout_ms, 1_500);
    let remote = scene(Publishers::Remote, Receiver::start());
    hook(&remote, short);
    remote.complete().await.unwrap();
    assert_eq!(
        remote.receiver.received()[0].header("upstash-timeout"),
        Some("2s")
    );
}

#[tokio::test]
async fn vector_091_the_bypass_header_goes_to_the_own_application_only() {
    for publisher in [Publishers::Store, Publishers::Remote] {
        let scene = scene(publisher, Receiver::start());
        scene
            .environment
            .set("VERCEL_AUTOMATION_BYPASS_SECRET", "by-pass-canary");
        scene.environment.set("APP_URL", "https://app.example");
        let external = Webhook::to("https://elsewhere.example/x").durable();
        let own = Webhook::to("/own").durable();
        scene.register(vec![
            AgentHook::webhook("external", HookType::OnComplete, external),
            AgentHook::webhook("own", HookType::OnComplete, own),
        ]);
        scene.complete().await.unwrap();
        let bypass = "x-vercel-protection-bypass";
        if publisher == Publishers::Remote {
            let received = scene.receiver.received();
            let forwarded = format!("upstash-forward-{bypass}");
            assert_eq!(received[0].header(&forwarded), None);
            assert_eq!(received[1].header(&forwarded), Some("by-pass-canary"));
            assert_eq!(received[1].path, format!("{QUEUED}https://app.example/own"));
        } else {
            for message in scene.queued().await {
                let header = message.header.headers.get(&bypass.parse().unwrap());
                let is_own = message.header.url.as_str() == "https://app.example/own";
                assert_eq!(header.is_some(), is_own);
                let stored = String::from_utf8_lossy(&message.encode().unwrap()).into_owned();
                assert!(!stored.contains("canary"), "{stored}");
            }
        }
    }
}

#[tokio::test]
async fn vector_092_a_forbidden_header_is_a_configuration_error_without_a_fallback() {
    for publisher in [Publishers::Store, Publishers::Remote, Publishers::None] {
        let scene = scene(publisher, Receiver::start());
        hook(&scene, |webhook| webhook.header("Upstash-Callback", "x"));
        let logs = Logs::capture();
        scene.complete().await.unwrap();
        assert!(
            logs.line("Webhook delivery failed")
                .contains("configuration")
        );
        assert_eq!(scene.receiver.count(), 0);
        assert!(scene.queued().await.is_empty());
    }
}

#[tokio::test]
async fn vector_093_a_queued_payload_has_the_address() {
    for publisher in [Publishers::Store, Publishers::Remote] {
        let scene = scene(publisher, Receiver::start());
        hook(&scene, |webhook| webhook);
        scene.complete().await.unwrap();
        let body = match scene.queued().await.pop() {
            Some(message) => serde_json::from_slice(&message.body).unwrap(),
            None => scene.body(),
        };
        assert_eq!(body["userEmail"], "u1@mail.test");
    }
}

#[tokio::test]
async fn a_critical_message_is_never_sent_unsigned_by_a_worker_either() {
    let scene = scene(Publishers::Store, Receiver::start());
    hook(&scene, Webhook::critical);
    scene.complete().await.unwrap();
    assert_eq!(scene.queued().await[0].header.fallback, Fallback::None);
}

#[test]
fn queue_mode_needs_a_publisher_and_a_remote_one_its_token() {
    let environment = Variables::of(&[]);
    let build = |publisher: Option<HookPublisher>| {
        let http = http(
            environment.clone(),
            hookstash_shared::http::EgressPolicy::default(),
        );
        let clock = std::sync::Arc::new(hookstash_shared::clock::SystemClock::new());
        let builder = HookDispatcher::builder(Mode::Queue, http, environment.clone(), clock);
        match publisher {
            Some(publisher) => builder.publisher(publisher).build(),
            None => builder.build(),
        }
        .map(|_| ())
    };
    assert_eq!(build(None).unwrap_err(), BuildError::NoPublisher);
    for token in [None, Some("")] {
        if let Some(token) = token {
            environment.set("QSTASH_TOKEN", token);
        }
        let error = build(Some(HookPublisher::Remote)).unwrap_err().to_string();
        assert_eq!(
            error,
            "QSTASH_TOKEN is required when AGENT_RUNTIME_MODE=queue"
        );
    }
    environment.set("QSTASH_TOKEN", "t");
    assert_eq!(build(Some(HookPublisher::Remote)), Ok(()));
}
