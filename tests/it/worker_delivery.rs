//! What a receiver sees of a delivery, and what becomes of the message: on both hosts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::headers::{HeaderSource, Headers};
use hookstash_shared::message::{Envelope, Fallback, MessageId, Method, State};
use hookstash_shared::random::SystemRandom;
use hookstash_shared::signing::{self, SigningKeys, WebhookSecret};
use hookstash_shared::store::{Cancelled, Redriven};

use crate::support::name_server::NameServer;
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::stage::{SOON, Stage, message};

fn verifier() -> signing::Receiver {
    let secret = WebhookSecret::parse("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX").unwrap();
    let keys = SigningKeys::development();
    signing::Receiver::new(Some(&keys), Some(&secret), Duration::from_secs(5))
}

fn verify(requests: &Received, url: &str) {
    let now_s = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let header = |name| {
        requests
            .header(name)
            .unwrap_or_else(|| panic!("{name} is missing"))
    };
    let body = &requests.body;
    let verifier = verifier();
    verifier
        .verify_qstash(header("upstash-signature"), body, Some(url), now_s)
        .unwrap();
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let signature = header("webhook-signature");
    verifier
        .verify_webhook(id, timestamp, signature, body, now_s)
        .unwrap();
}

#[tokio::test]
async fn a_message_is_delivered_once_as_it_was_published() {
    for stage in Stage::both() {
        let receiver = Receiver::start();
        let worker = stage.work();
        let mut headers = Headers::default();
        headers
            .append(b"Content-Type", HeaderSource::literal("text/x-odd"))
            .unwrap();
        headers
            .append(b"X-Own", HeaderSource::literal(b"caf\xe9"))
            .unwrap();
        let body = b"\x00\xff not UTF-8, \r\n kept".to_vec();
        let url = receiver.url("/a%20b//c/?q=1&r=%2F");
        let id = stage
            .publish(
                message(&url)
                    .method(Method::Put)
                    .headers(headers)
                    .body(body.clone()),
            )
            .await;
        stage.wait_for_state(&id, State::Delivered).await;
        let requests = receiver.received();
        let one = &requests[0];
        assert_eq!(
            (requests.len(), one.method.as_str()),
            (1, "PUT"),
            "{}",
            stage.name()
        );
        assert_eq!(
            (one.path.as_str(), &one.body),
            ("/a%20b//c/?q=1&r=%2F", &body)
        );
        for (name, value) in [
            ("User-Agent", "Upstash-QStash"),
            ("Content-Type", "text/x-odd"),
            ("Upstash-Message-Id", id.as_str()),
            ("Upstash-Retried", "0"),
            ("Accept-Encoding", "identity"),
        ] {
            assert_eq!(one.header(name), Some(value), "{name}");
        }
        assert!(one.header("Upstash-Caller-Ip").is_none());
        verify(one, &url);
        assert!(worker.is_healthy());
    }
}

#[tokio::test]
async fn s05_every_attempt_has_all_headers_and_is_signed_anew() {
    for stage in Stage::both() {
        let receiver =
            Receiver::answering(vec![Answer::status(500), Answer::close(), Answer::ok()]);
        let _worker = stage.work();
        let url = receiver.url("/s05");
        let mut headers = Headers::default();
        headers
            .append(b"X-Own", HeaderSource::literal("kept"))
            .unwrap();
        let id = stage
            .publish(message(&url).headers(headers).body("{}").retries(2))
            .await;
        stage.wait_for_state(&id, State::Delivered).await;
        let requests = receiver.received();
        assert_eq!(requests.len(), 3, "{}", stage.name());
        let mut signatures = Vec::new();
        for (index, one) in requests.iter().enumerate() {
            verify(one, &url);
            assert_eq!(
                one.header("upstash-retried"),
                Some(index.to_string().as_str())
            );
            assert_eq!(one.header("webhook-id"), Some(id.as_str()));
            assert_eq!(
                (one.header("x-own"), one.body.as_slice()),
                (Some("kept"), &b"{}"[..])
            );
            signatures.extend(one.header("upstash-signature").map(str::to_owned));
        }
        signatures.dedup();
        assert_eq!(signatures.len(), 3);
        let classes: Vec<_> = stage.reports().iter().map(|report| report.class).collect();
        assert_eq!(
            classes,
            [Some(ErrorClass::Status), Some(ErrorClass::Network), None]
        );
    }
}

#[tokio::test]
async fn r03_a_receiver_that_always_refuses_gets_every_attempt_and_no_more() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::status(403).header("x-why", "no").body("go away"));
        let _worker = stage.work();
        let id = stage
            .publish(message(&receiver.url("/r03")).retries(3))
            .await;
        let last = stage.wait_for_death(&id).await;
        assert_eq!(
            (last.status(), last.class()),
            (403, Some(ErrorClass::Status))
        );
        assert_eq!(last.body(), "go away");
        assert!(last.headers().get(&"x-why".parse().unwrap()).is_some());
        receiver
            .expect_no_more_than(4, Duration::from_millis(300))
            .await;
        assert_eq!(
            (receiver.count(), stage.reports().len()),
            (4, 4),
            "{}",
            stage.name()
        );
    }
}

#[tokio::test]
async fn r12_final_answers_end_the_message_after_one_attempt() {
    for stage in Stage::both() {
        let _worker = stage.work();
        let stop = Answer::status(489).header("Upstash-NonRetryable-Error", "true");
        for (answer, attempts, class) in [
            (Answer::status(410), 1, ErrorClass::Gone),
            (stop, 1, ErrorClass::Status),
            (Answer::status(489), 3, ErrorClass::Status),
            (Answer::status(404), 3, ErrorClass::Status),
            (
                Answer::status(302).header("location", "/elsewhere"),
                3,
                ErrorClass::Redirect,
            ),
        ] {
            let receiver = Receiver::always(answer.clone());
            let id = stage
                .publish(message(&receiver.url("/r12")).retries(2))
                .await;
            let last = stage.wait_for_death(&id).await;
            assert_eq!(
                (receiver.count(), last.class()),
                (attempts, Some(class)),
                "{answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn r01_the_next_attempt_waits_as_long_as_the_receiver_asked() {
    for stage in Stage::both() {
        let _worker = stage.work();
        for (status, name) in [(429, "Retry-After"), (503, "X-RateLimit-Reset")] {
            let later = Answer::status(status).header(name, "1");
            let receiver = Receiver::answering(vec![later, Answer::ok()]);
            stage.publish(message(&receiver.url("/r01"))).await;
            let requests = receiver.wait_for(2, SOON).await;
            let gap = requests[1].at - requests[0].at;
            let asked = Duration::from_secs(1);
            assert!(
                gap >= asked && gap < 2 * asked,
                "{} {name}: {gap:?}",
                stage.name()
            );
        }
    }
}

#[tokio::test]
async fn r06_a_name_that_does_not_resolve_at_first_is_delivered_at_the_third_attempt() {
    for mut stage in Stage::both() {
        let names = NameServer::failing(2).await;
        stage.name_server = names.address();
        let receiver = Receiver::start();
        let _worker = stage.work();
        let url = format!("http://receiver.test:{}/r06", receiver.addr().port());
        let id = stage.publish(message(&url)).await;
        stage.wait_for_state(&id, State::Delivered).await;
        let classes: Vec<_> = stage.reports().iter().map(|report| report.class).collect();
        assert_eq!(
            classes,
            [Some(ErrorClass::Dns), Some(ErrorClass::Dns), None]
        );
        assert_eq!(receiver.count(), 1, "{}", stage.name());
    }
}

#[tokio::test]
async fn r06_a_name_that_never_resolves_uses_the_budget_and_dies_of_dns() {
    let mut stage = Stage::embedded(crate::support::stage::LEASE);
    let names = NameServer::failing(usize::MAX).await;
    stage.name_server = names.address();
    let _worker = stage.work();
    let id = stage
        .publish(message("http://nowhere.test/").retries(2))
        .await;
    let last = stage.wait_for_death(&id).await;
    assert_eq!((last.status(), last.class()), (0, Some(ErrorClass::Dns)));
    assert_eq!(stage.reports().len(), 3);
}

#[tokio::test]
async fn r07_every_redrive_is_a_delivery_of_its_own() {
    for stage in Stage::both() {
        let [bad, good] = [Answer::status(500), Answer::ok()];
        let receiver = Receiver::answering(vec![bad.clone(), bad.clone(), bad, good]);
        let _worker = stage.work();
        let mut id = stage
            .publish(message(&receiver.url("/r07")).retries(0).body("again"))
            .await;
        for attempts in 1..=3 {
            stage.wait_for_death(&id).await;
            assert_eq!(receiver.count(), attempts);
            id = redrive(&stage, &id).await;
        }
        stage.wait_for_state(&id, State::Delivered).await;
        let requests = receiver.received();
        assert_eq!(requests.len(), 4, "{}", stage.name());
        assert!(requests.iter().all(|one| one.body == b"again"));
        assert!(
            requests
                .iter()
                .all(|one| one.header("upstash-retried") == Some("0"))
        );
    }
}

async fn redrive(stage: &Stage, old: &MessageId) -> MessageId {
    let letter = stage.store.dead_letter(old).await.unwrap().unwrap();
    let mut shared = Envelope::decode(&letter.envelope).unwrap();
    shared.header.body_of = Some(old.as_str().to_owned());
    let new = MessageId::new(old.shard(), old.created_ms(), &SystemRandom);
    let shared = shared.encode().unwrap();
    let redriven = stage
        .store
        .redrive(old, &new, shared, "{}".into())
        .await
        .unwrap();
    assert_eq!(redriven, Redriven::Accepted);
    new
}

#[tokio::test]
async fn r16_a_message_cancelled_while_it_waits_for_its_retry_is_not_called_again() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::status(500).header("Retry-After", "1"));
        let _worker = stage.work();
        let id = stage.publish(message(&receiver.url("/r16"))).await;
        stage.wait_for_state(&id, State::Delayed).await;
        let cancelled = stage.store.cancel(&id, "{}".into()).await.unwrap();
        assert_eq!(cancelled, Cancelled::Now, "{}", stage.name());
        receiver
            .expect_no_more_than(1, Duration::from_millis(1500))
            .await;
        assert_ne!(stage.state(&id).await, Some(State::Delayed));
    }
}

#[tokio::test]
async fn r16_a_message_cancelled_during_its_call_loses_the_call_and_ends_cancelled() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::hang());
        let worker = stage.work();
        let id = stage.publish(message(&receiver.url("/r16"))).await;
        receiver.wait_for(1, SOON).await;
        let cancelled = stage.store.cancel(&id, "{}".into()).await.unwrap();
        assert_eq!(cancelled, Cancelled::Requested, "{}", stage.name());
        // A cancelled message's envelope is gone, and so is the message.
        while stage.state(&id).await.is_some() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((worker.in_flight(), receiver.count()), (0, 1));
        assert_eq!(
            worker.drain(SOON).await,
            hookstash_worker::Drained::Finished
        );
    }
}

#[tokio::test]
async fn a_template_is_filled_at_every_attempt_from_the_workers_environment() {
    for mut stage in Stage::both() {
        stage.environment = Arc::new(BTreeMap::from([("TOKEN".to_owned(), "t0ken".to_owned())]));
        let receiver = Receiver::start();
        let _worker = stage.work();
        let template = |variable: &str| {
            let mut headers = Headers::default();
            let source = HeaderSource::Template {
                text: format!("Bearer ${{{variable}}}"),
                allowed_env_vars: vec![variable.to_owned()],
            };
            headers.append(b"authorization", source).unwrap();
            message(&receiver.url("/k14")).headers(headers).retries(1)
        };
        let filled = stage.publish(template("TOKEN")).await;
        stage.wait_for_state(&filled, State::Delivered).await;
        assert_eq!(
            receiver.received()[0].header("authorization"),
            Some("Bearer t0ken")
        );
        let unset = stage.publish(template("UNSET")).await;
        let last = stage.wait_for_death(&unset).await;
        assert_eq!(
            last.class(),
            Some(ErrorClass::Configuration),
            "{}",
            last.error()
        );
        assert_eq!(
            receiver.count(),
            1,
            "nothing is sent with an unset variable"
        );
    }
}

#[tokio::test]
async fn without_a_signing_key_the_fallback_decides() {
    for mut stage in Stage::both() {
        stage.signer = None;
        let receiver = Receiver::start();
        let _worker = stage.work();
        let url = receiver.url("/unsigned");
        let sent = stage.publish(message(&url)).await;
        stage.wait_for_state(&sent, State::Delivered).await;
        assert!(receiver.received()[0].header("upstash-signature").is_none());
        let refused = stage.publish(message(&url).fallback(Fallback::None)).await;
        let last = stage.wait_for_death(&refused).await;
        assert_eq!(last.class(), Some(ErrorClass::Critical));
        assert_eq!(receiver.count(), 1, "{}", stage.name());
    }
}

#[tokio::test]
async fn a_message_of_a_queue_waits_for_the_retries_of_the_one_before_it() {
    for stage in Stage::both() {
        let receiver = Receiver::with(|request| match request.text() {
            "first" if request.header("upstash-retried") != Some("2") => Answer::status(500),
            _ => Answer::ok(),
        });
        let queued = |body: &str| {
            let message = message(&receiver.url("/queue")).body(body.to_owned());
            message.queue("orders").expect("a queue")
        };
        let all = ["first", "second", "third"].map(queued).to_vec();
        let ids = stage.publish_all(all).await;
        let _worker = stage.work();
        stage.wait_for_state(&ids[2], State::Delivered).await;
        let requests = receiver.received();
        let order: Vec<_> = requests.iter().map(Received::text).collect();
        assert_eq!(
            order,
            ["first", "first", "first", "second", "third"],
            "{}",
            stage.name()
        );
        assert_eq!(receiver.active_max(), 1);
    }
}

#[tokio::test]
async fn a_flow_control_key_bounds_calls_at_one_time_and_per_period() {
    for stage in Stage::both() {
        let receiver = Receiver::always(Answer::ok().after(Duration::from_millis(50)));
        let _worker = stage.work();
        let capped = |_| message(&receiver.url("/cap")).flow_control(b"cap", Some(3), None, None);
        stage
            .publish_all((0..30).map(|n| capped(n).unwrap()).collect())
            .await;
        receiver.wait_for(30, SOON).await;
        assert_eq!(receiver.active_max(), 3, "{}", stage.name());
        let receiver = Receiver::start();
        let rated = |_| {
            let period = Some(Duration::from_secs(1));
            message(&receiver.url("/rate")).flow_control(b"rate", None, Some(5), period)
        };
        stage
            .publish_all((0..12).map(|n| rated(n).unwrap()).collect())
            .await;
        let requests = receiver.wait_for(12, SOON).await;
        for (later, earlier) in requests[5..].iter().zip(&requests) {
            let gap = later.at - earlier.at;
            assert!(
                gap > Duration::from_millis(900),
                "{}: {gap:?}",
                stage.name()
            );
        }
    }
}

#[tokio::test]
async fn r19_a_destination_that_failed_often_is_called_as_soon_as_ever() {
    const FAILURES: usize = 20;
    for stage in Stage::both() {
        let bad = vec![Answer::status(500); FAILURES];
        let receiver = Receiver::answering([bad, vec![Answer::ok()]].concat());
        let _worker = stage.work();
        for _ in 0..FAILURES {
            let id = stage
                .publish(message(&receiver.url("/r19")).retries(0))
                .await;
            stage.wait_for_death(&id).await;
        }
        let id = stage
            .publish(message(&receiver.url("/r19")).retries(0))
            .await;
        stage.wait_for_state(&id, State::Delivered).await;
        assert_eq!(receiver.count(), FAILURES + 1, "{}", stage.name());
    }
}
