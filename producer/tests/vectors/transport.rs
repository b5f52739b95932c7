//! 25.5, second half: where calls go and when they succeed.

use std::time::{Duration, Instant};

use hookstash_producer::hooks::*;
use hookstash_shared::http::EgressPolicy;

use crate::support::*;

#[tokio::test]
async fn vector_072_paths_have_the_inner_base_for_calls_and_the_public_one_for_the_queue() {
    let (inner, public) = (Receiver::start(), Receiver::start());
    let environment = Variables::of(&[
        ("INTERNAL_APP_URL", &inner.url("")),
        ("APP_URL", &public.url("")),
    ]);
    for publisher in [Publishers::Store, Publishers::None] {
        let setting = Setting {
            environment: environment.clone(),
            publisher,
            ..Setting::default()
        };
        let scene = Scene::new(Receiver::start(), setting);
        let queued = AgentHook::webhook("q", HookType::OnError, Webhook::to("/queued").durable());
        let fetched = AgentHook::webhook("f", HookType::OnComplete, Webhook::to("/hook"));
        scene.register(vec![fetched, queued]);
        scene.complete().await.unwrap();
        scene.dispatch(OnError(run_end())).await.unwrap();
        let stored = scene.queued().await;
        let urls: Vec<_> = stored
            .iter()
            .map(|message| message.header.url.as_str())
            .collect();
        if publisher == Publishers::Store {
            assert_eq!(urls, [public.url("/queued")]);
            assert_eq!(paths(&inner), ["/hook"]);
        } else {
            assert!(urls.is_empty());
            // The fallback of the queued one is a call from here.
            assert_eq!(paths(&inner), ["/hook", "/hook", "/queued"]);
        }
    }
    assert_eq!(public.count(), 0);
}

#[tokio::test]
async fn vector_073_a_path_takes_the_place_of_the_bases_own() {
    let scene = Scene::local(Receiver::start());
    scene.environment.set("APP_URL", &scene.url("/sub/"));
    scene.deliver(Webhook::to("/hook")).await.unwrap();
    assert_eq!(scene.paths(), ["/hook"]);
}

#[tokio::test]
async fn vector_074_a_path_without_a_base_is_a_configuration_error() {
    let scene = Scene::local(Receiver::start());
    let failure = scene.failure(Webhook::to("/hook")).await;
    assert_eq!(
        failure.to_string(),
        "Hook HTTP request failed: configuration"
    );
}

#[tokio::test]
async fn vector_075_the_own_application_may_be_on_loopback_and_others_may_not() {
    let setting = Setting {
        policy: EgressPolicy::default(),
        ..Setting::default()
    };
    let scene = Scene::new(Receiver::start(), setting);
    let failure = scene.failure(Webhook::to(scene.url("/x"))).await;
    assert_eq!(failure.code, HookErrorCode::Configuration);
    let text = failure.to_string();
    assert!(
        text.contains("127.0.0.1") && text.contains("HOOKSTASH_EGRESS_ALLOW"),
        "{text}"
    );
    assert_eq!(scene.receiver.connections(), 0);
    scene.environment.set("APP_URL", &scene.url("/"));
    scene.deliver(Webhook::to(scene.url("/x"))).await.unwrap();
    scene.deliver(Webhook::to("/y")).await.unwrap();
    scene.environment.unset("APP_URL");
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_URL", &scene.url("/env"));
    scene.environment.set("AGENT_HOOK_WEBHOOK_TOKEN", "t");
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_EVENTS", "onError");
    scene.dispatch(OnError(run_end())).await.unwrap();
    assert_eq!(scene.paths(), ["/x", "/y", "/env"]);
}

#[tokio::test]
async fn vector_076_a_redirect_is_an_error_and_not_followed() {
    for status in [300, 301, 302, 303, 304, 307, 308] {
        let target = Receiver::start();
        let answer = Answer::status(status).header("Location", &target.url("/stolen"));
        let scene = Scene::local(Receiver::always(answer));
        let webhook = Webhook::to(scene.url("/x")).header("Authorization", "Bearer SECRET");
        let failure = scene.failure(webhook).await;
        assert_eq!(
            (failure.code, failure.status),
            (HookErrorCode::HttpError, Some(status))
        );
        assert_eq!((scene.receiver.count(), target.connections()), (1, 0));
    }
    let scene = Scene::local(Receiver::always(Answer::status(302)));
    let failure = scene.failure(Webhook::to(scene.url("/x"))).await;
    assert_eq!(failure.status, Some(302), "without a Location too");
}

#[tokio::test]
async fn vector_077_an_answer_is_a_success_however_much_of_it_never_comes() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for answer in [
        Answer::ok().body(vec![b'x'; 100 * 1024]),
        Answer::stream(head, "1\r\nx\r\n", Duration::from_millis(5)),
        Answer::stream(head, "", Duration::from_millis(50)),
        Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n"),
    ] {
        let scene = Scene::local(Receiver::always(answer));
        let webhook = Webhook::to(scene.url("/x")).timeout(Duration::from_secs(5));
        let begun = Instant::now();
        scene.deliver(webhook).await.unwrap();
        assert!(
            begun.elapsed() < Duration::from_secs(4),
            "the body is not waited for"
        );
    }
}

#[tokio::test]
async fn vector_078_an_empty_answer_is_a_success() {
    for status in [200, 201, 202, 204, 205, 206] {
        let scene = Scene::local(Receiver::always(Answer::status(status)));
        scene.deliver(Webhook::to(scene.url("/x"))).await.unwrap();
    }
}

#[tokio::test]
async fn vector_079_the_answer_of_a_notification_means_nothing() {
    for body in [&b"not json"[..], b"\xff", br#"{"decision":"deny"}"#] {
        let scene = Scene::local(Receiver::always(Answer::ok().body(body)));
        scene.deliver(Webhook::to(scene.url("/x"))).await.unwrap();
    }
}

#[tokio::test]
async fn vector_080_a_failed_notification_is_not_repeated() {
    let scene = Scene::local(Receiver::always(Answer::status(500)));
    let failure = scene.failure(Webhook::to(scene.url("/x"))).await;
    assert_eq!(failure.to_string(), "Hook HTTP request failed: http_error");
    assert_eq!((failure.status, scene.receiver.count()), (Some(500), 1));
}

#[tokio::test]
async fn vector_082_timeouts_are_whole_milliseconds_rounded_up() {
    // Beside the code: `webhook::tests`. Here: that they are kept.
    let scene = Scene::local(Receiver::always(Answer::hang()));
    for (timeout, least) in [(0.0001, 0), (0.3, 300)] {
        let json = serde_json::json!({"url": scene.url("/x"), "timeout": timeout});
        let begun = Instant::now();
        let failure = scene.failure(Webhook::from_json(json)).await;
        assert_eq!(failure.code, HookErrorCode::Timeout, "{timeout}");
        assert!(begun.elapsed() >= Duration::from_millis(least), "{timeout}");
    }
}

#[tokio::test]
async fn vector_083_a_refused_connection_is_logged_without_the_query() {
    let logs = Logs::capture();
    let scene = Scene::local(Receiver::start());
    let failure = scene
        .failure(Webhook::to("http://127.0.0.1:9/x?signature=SECRET"))
        .await;
    assert_eq!(failure.code, HookErrorCode::NetworkError);
    let text = logs.text();
    assert!(text.contains("Critical webhook delivery failed"), "{text}");
    assert!(!text.contains("SECRET"), "{text}");
    assert!(!failure.to_string().contains("SECRET"));
}

#[tokio::test]
async fn a_template_in_a_url_is_refused_and_in_a_body_is_text() {
    let scene = Scene::local(Receiver::start());
    for url in ["https://${H}/x", "https://h/${P}"] {
        let hook = AgentHook::webhook("k16", HookType::OnComplete, Webhook::to(url));
        let error = scene
            .hooks
            .register(OP, vec![hook])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("k16") && error.contains("in headers only"),
            "{error}"
        );
    }
    let body = object(&serde_json::json!({"text": "${T}"}));
    scene
        .deliver(Webhook::to(scene.url("/x")).body(body))
        .await
        .unwrap();
    assert_eq!(scene.body()["text"], "${T}");
}
