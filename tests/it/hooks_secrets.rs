//! What stands in an allow-listed variable reaches the receiver, and nothing else.

use std::time::Duration;

use hookstash_shared::signing::SigningKeys;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::cli_secrets::{contains, everything_in};
use crate::support::hook_actor;
use crate::support::program::{Program, SOON};
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::{RedisOptions, RedisServer};

const CANARY: &str = "canaryhooktokenV7bN4mK1sD9f";
const ENVIRONMENT_CANARY: &str = "canaryenvtokenP3lO8kI5jU2h";

/// A hook for each way in which a header can leave, or fail to.
fn hooks(receiver: &Receiver) -> Value {
    let hook = |id: &str, hook_type: &str, more: Value| {
        let mut webhook = json!({
            "url": receiver.url(&format!("/{id}")),
            "headers": {"Authorization": "Bearer ${HOOK_TOKEN}", "X-Copy": "${HOOK_TOKEN}"},
            "allowedEnvVars": ["HOOK_TOKEN"],
        });
        if let Value::Object(more) = more {
            webhook.as_object_mut().unwrap().extend(more);
        }
        let mut hook = json!({"id": id, "type": hook_type});
        hook["webhook"] = webhook;
        hook
    };
    let forbidden = json!({"headers": {"Host": "${HOOK_TOKEN}"}});
    let durable = json!({"delivery": "qstash", "fallback": "none"});
    let control = json!({"responseHandling": "toolCall", "onError": "block"});
    json!([
        hook("plain", "onComplete", json!({"fallback": "none"})),
        hook("redirect", "onComplete", json!({})),
        hook("close", "onComplete", json!({})),
        hook("forbidden", "onComplete", forbidden),
        hook("durable", "onComplete", durable),
        hook("control", "beforeToolCall", control),
        hook("observed", "beforeToolCall", json!({})),
    ])
}

/// Everything fails in its own way, and the durable one for good.
fn failing_receiver() -> Receiver {
    Receiver::with(|request| match &*request.path {
        "/durable" => Answer::status(410).body("gone"),
        "/redirect" => Answer::status(302).header("Location", "/elsewhere"),
        "/control" => Answer::ok().body("{\"decision\":7}"),
        "/close" => Answer::close(),
        "/observed" => {
            let headers = "X-A: b\r\n".repeat(100);
            Answer::stream("HTTP/1.1 200 OK\r\n", headers, Duration::from_millis(1))
        }
        _ => Answer::status(500).body("no"),
    })
}

/// Checks that the secrets did reach every receiver they should have reached.
fn check_received(receiver: &Receiver) {
    let received = receiver.received();
    let bearer = format!("Bearer {CANARY}");
    for path in [
        "/plain",
        "/redirect",
        "/close",
        "/durable",
        "/control",
        "/observed",
    ] {
        let mut came = received.iter().filter(|request| request.path == path);
        let request = came
            .next()
            .unwrap_or_else(|| panic!("{path} was not called"));
        assert_eq!(request.header("authorization"), Some(&*bearer), "{path}");
        assert!(came.next().is_some(), "{path}: in both modes");
    }
    let mut of_operator = received
        .iter()
        .filter(|request| request.path.starts_with("/env"));
    let request = of_operator.next().expect("the operator's hook");
    let bearer = format!("Bearer {ENVIRONMENT_CANARY}");
    assert_eq!(request.header("authorization"), Some(&*bearer));
}

/// Whatever the program shows of these dead letters, and what it has logged.
async fn everything_shown_by(program: &Program, dead: &[String]) -> Vec<String> {
    let mut paths = vec!["/v2/dlq".to_owned(), "/metrics".to_owned()];
    for id in dead {
        paths.push(format!("/v2/dlq/{id}"));
        paths.push(format!("/v2/messages/{id}"));
    }
    let mut shown = Vec::new();
    for path in paths {
        shown.push(program.call("GET", &path).await.1.to_string());
    }
    shown.extend(program.process.lines());
    shown
}

#[tokio::test]
async fn secrets_in_header_templates_are_neither_stored_nor_shown_in_either_mode() {
    hook_actor::act_if_started_as_actor().await;
    let redis = RedisServer::start_with(RedisOptions {
        appendfsync: Some("always"),
        ..RedisOptions::default()
    });
    let receiver = failing_receiver();
    let env_url = receiver.url("/env?signature=canaryquery");
    let env = [
        ("HOOK_TOKEN", CANARY),
        ("AGENT_HOOK_WEBHOOK_URL", env_url.as_str()),
        ("AGENT_HOOK_WEBHOOK_TOKEN", ENVIRONMENT_CANARY),
        ("AGENT_HOOK_WEBHOOK_EVENTS", "onComplete,beforeToolCall"),
        ("RUST_BACKTRACE", "1"),
    ];
    let name = "hooks_secrets::\
                secrets_in_header_templates_are_neither_stored_nor_shown_in_either_mode";
    let actor = hook_actor::start(name, &redis.url(), &hooks(&receiver).to_string(), &env);
    actor.wait_for_line(hook_actor::FIRED, SOON).await;
    let keys = SigningKeys::development();
    let server_env = [
        ("HOOK_TOKEN", CANARY),
        ("HOOKSTASH_LOG", "trace"),
        // Without keys a critical message is not sent.
        ("QSTASH_CURRENT_SIGNING_KEY", keys.current().expose_secret()),
        ("QSTASH_NEXT_SIGNING_KEY", keys.next().expose_secret()),
    ];
    let program = Program::serve(&redis, &server_env).await;
    let dead = program.wait_for_dead(2).await;
    check_received(&receiver);

    let mut shown = everything_shown_by(&program, &dead).await;
    let actors = actor.lines();
    assert!(
        actors.iter().any(|line| line.contains("TRACE")),
        "as loud as it gets"
    );
    assert!(
        actors.iter().any(|line| line.contains("Control failed")),
        "the control was asked"
    );
    shown.extend(actors);
    let stored = everything_in(&redis);
    assert!(
        stored
            .iter()
            .any(|(_, bytes)| contains(bytes, "${HOOK_TOKEN}")),
        "the scan sees the template"
    );
    for secret in [CANARY, ENVIRONMENT_CANARY] {
        for (place, bytes) in &stored {
            assert!(!contains(bytes, secret), "{secret} is in {place}");
        }
        for text in &shown {
            assert!(!text.contains(secret), "{secret} is shown: {text}");
        }
    }
}
