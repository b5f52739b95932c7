//! Durable webhooks from the dispatcher to the receiver: through the store, by a worker that holds
//! the secrets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hookstash_producer::hooks::{
    AgentHook, HookDispatcher, HookPublisher, HookType, Mode, OnComplete, RunEnd, Webhook,
};
use hookstash_shared::clock::SystemClock;
use hookstash_shared::environment::Environment;
use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
use hookstash_shared::message::Limits;
use hookstash_shared::signing::{self, SigningKeys};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::support::hook_actor;
use crate::support::program::Program;
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::redis::RedisServer;
use crate::support::stage::{SOON, Stage};

/// Checks the signature that every SDK checks.
fn verify(request: &Received, url: &str) {
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let keys = SigningKeys::development();
    let verifier = signing::Receiver::new(Some(&keys), None, Duration::from_secs(5));
    let signature = request.header("upstash-signature").expect("a signature");
    verifier
        .verify_qstash(signature, &request.body, Some(url), now_s)
        .expect("a good signature");
}

fn environment(variables: &[(&str, &str)]) -> Arc<dyn Environment> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Arc::new(variables.iter().map(owned).collect::<BTreeMap<_, _>>())
}

#[tokio::test]
async fn a_durable_webhook_arrives_signed_with_headers_of_the_workers_environment() {
    for mut stage in Stage::both() {
        let receiver = Receiver::start();
        stage.environment = environment(&[("HOOK_TOKEN", "of-the-worker")]);
        // The producer has no such variable, and needs none.
        let own = environment(&[]);
        let policy = EgressPolicy::default();
        let http = HttpClient::new(policy, Arc::clone(&own), CONNECT_TIMEOUT).unwrap();
        let publisher = HookPublisher::Store {
            publisher: stage.publisher.clone(),
            limits: Limits::default(),
        };
        let clock = Arc::new(SystemClock::new());
        let hooks = HookDispatcher::builder(Mode::Queue, http, own, clock)
            .publisher(publisher)
            .build()
            .unwrap();
        let url = receiver.url("/done");
        let webhook = Webhook::to(&url)
            .durable()
            .critical()
            .header("Authorization", "Bearer ${HOOK_TOKEN}")
            .allow_env_var("HOOK_TOKEN")
            .event_fields(["operationId", "reason"]);
        hooks
            .register(
                "op",
                vec![AgentHook::webhook("done", HookType::OnComplete, webhook)],
            )
            .unwrap();
        let end = RunEnd {
            operation_id: "op".to_owned(),
            reason: "done".to_owned(),
            ..RunEnd::default()
        };
        hooks.dispatch(OnComplete(end), None).await.unwrap();
        assert_eq!(receiver.count(), 0, "{}: queued, not sent", stage.name());
        let worker = stage.work();
        let request = receiver.wait_for(1, SOON).await.remove(0);
        assert_eq!(
            request.header("authorization"),
            Some("Bearer of-the-worker")
        );
        assert_eq!(request.header("content-type"), Some("application/json"));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let expected = json!({
            "operationId": "op", "reason": "done", "hookId": "done", "hookType": "onComplete",
        });
        assert_eq!(body, expected, "{}", stage.name());
        verify(&request, &url);
        drop(worker);
    }
}

#[tokio::test]
async fn a_hook_outlives_its_process_and_a_rotated_variable_counts_from_the_next_attempt_on() {
    hook_actor::act_if_started_as_actor().await;
    let redis = RedisServer::start_durable();
    let later = Answer::status(503).header("Retry-After", "1");
    let receiver = Receiver::answering(vec![later.clone(), later, Answer::ok()]);
    let url = receiver.url("/done");
    let hooks = json!([{
        "id": "done", "type": "onComplete", "webhook": {
            "url": url, "delivery": "qstash", "fallback": "none",
            "headers": {"Authorization": "Bearer ${HOOK_TOKEN}"}, "allowedEnvVars": ["HOOK_TOKEN"],
        },
    }]);
    let name = "hooks_queue::\
                a_hook_outlives_its_process_and_a_rotated_variable_counts_from_the_next_attempt_on";
    let actor = hook_actor::start(name, &redis.url(), &hooks.to_string(), &[]);
    actor.wait_for_line(hook_actor::FIRED, SOON).await;
    actor.signal("KILL");
    assert_eq!(receiver.count(), 0);

    let keys = SigningKeys::development();
    let worker = async |token| {
        let env = [
            ("QSTASH_CURRENT_SIGNING_KEY", keys.current().expose_secret()),
            ("QSTASH_NEXT_SIGNING_KEY", keys.next().expose_secret()),
            ("HOOK_TOKEN", token),
        ];
        Program::worker(&redis, &env).await
    };
    // The actor has fired in both modes: two messages.
    let mut first = worker("first-value").await;
    receiver.wait_for(2, SOON).await;
    first.signal("TERM");
    first.wait_exit(SOON).await;
    let before = receiver.count();
    let _second = worker("second-value").await;
    let requests = receiver.wait_for(before + 2, 3 * SOON).await;
    for (index, request) in requests.iter().enumerate() {
        let token = if index < before {
            "first-value"
        } else {
            "second-value"
        };
        let expected = format!("Bearer {token}");
        assert_eq!(
            request.header("authorization"),
            Some(&*expected),
            "request {index}"
        );
        verify(request, &url);
    }
}
