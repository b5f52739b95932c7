//! What callbacks tell, how often, and how they are sent: by real workers on both hosts.

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::headers::{HeaderSource, Headers};
use hookstash_shared::message::{
    CallbackSpec, Destination, Envelope, GroupEndpoint, MessageId, Method, Shard, State,
};
use hookstash_shared::store::{EventRange, Exchange, Fair, LOST_MAX};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::receiver::{Answer, Receiver};
use crate::support::stage::{LEASE, SOON, Stage, message};
use crate::support::told::{attempts, bytes, callback, told};

const QUIET: Duration = Duration::from_millis(500);

fn headers(name: &str, value: &str) -> Headers {
    let mut headers = Headers::default();
    headers
        .append(name.as_bytes(), HeaderSource::literal(value))
        .unwrap();
    headers
}

/// All that `receiver` was told, when `count` callbacks have come and no more.
async fn all_told(receiver: &Receiver, count: usize, url: &str) -> Vec<Value> {
    receiver.wait_for(count, SOON).await;
    receiver.expect_no_more_than(count, QUIET).await;
    let requests = receiver.received();
    requests.iter().map(|request| told(request, url)).collect()
}

#[tokio::test]
async fn a_success_is_told_once_with_everything_about_it() {
    for stage in Stage::both() {
        let answer = Answer::status(201).header("X-Of-Answer", "1").body("done");
        let source = Receiver::always(answer);
        let listener = Receiver::start();
        let _worker = stage.work();
        let (url, to) = (source.url("/source?q=%20"), listener.url("/told?x=%2F"));
        let endpoint = GroupEndpoint {
            group: "g".into(),
            name: Some("n".into()),
        };
        let unused = listener.url("/never");
        let id = stage
            .publish(
                message(&url)
                    .to_endpoint(Destination::parse(&url).unwrap(), endpoint)
                    .schedule("scd_1")
                    .caller_ip([192, 0, 2, 7].into())
                    .method(Method::Patch)
                    .headers(headers("x-own", "kept"))
                    .body("{\"a\":1}")
                    .callback(callback(&to))
                    .failure_callback(callback(&unused)),
            )
            .await;
        let mut all = all_told(&listener, 1, &to).await;
        let mut only = all.remove(0);
        let header = only["header"].take();
        assert_eq!(header["X-Of-Answer"], json!(["1"]), "{}", stage.name());
        assert_eq!(
            only,
            json!({
                "status": 201, "header": null, "body": "ZG9uZQ==",
                "retried": 0, "maxRetries": 3, "sourceMessageId": id,
                "topicName": "g", "endpointName": "n", "url": url, "method": "PATCH",
                "sourceHeader": { "X-Own": ["kept"] }, "sourceBody": "eyJhIjoxfQ==",
                "notBefore": id.created_ms(), "createdAt": id.created_ms(),
                "scheduleId": "scd_1", "callerIP": "192.0.2.7",
            })
        );
        let request = &listener.received()[0];
        assert_eq!(
            (request.method.as_str(), request.path.as_str()),
            ("POST", "/told?x=%2F")
        );
        let own: MessageId = request
            .header("upstash-message-id")
            .unwrap()
            .parse()
            .unwrap();
        assert!(own != id && own.shard() == id.shard());
        assert_eq!(request.header("upstash-retried"), Some("0"));
        for name in ["upstash-caller-ip", "x-own"] {
            assert_eq!(request.header(name), None, "{name} is the source's");
        }
        stage.wait_for_state(&own, State::Delivered).await;
        // That message tells whose callback it is, and the log has both.
        let stored = stage.store.message(&own).await.unwrap().unwrap();
        let envelope = Envelope::decode(&stored.envelope).unwrap();
        assert_eq!(envelope.header.callback_of, Some(id));
        let mut walk = stage.store.events(EventRange::default());
        let mut codes = Vec::new();
        while let Some(event) = walk.next().await.unwrap() {
            if event.id == own {
                codes.push(event.code);
            }
        }
        assert_eq!(codes, ['k', 'n']);
    }
}

#[tokio::test]
async fn every_attempt_is_told_with_its_number_and_the_death_once() {
    for stage in Stage::both() {
        let source = Receiver::answering(vec![
            Answer::close(),
            Answer::status(302).header("location", "/elsewhere"),
            Answer::status(503).body("no"),
        ]);
        let listener = Receiver::start();
        let mourner = Receiver::start();
        let _worker = stage.work();
        let (to, last) = (listener.url("/each"), mourner.url("/last"));
        let id = stage
            .publish(
                message(&source.url("/"))
                    .retries(2)
                    .callback(callback(&to))
                    .failure_callback(callback(&last)),
            )
            .await;
        let each = all_told(&listener, 3, &to).await;
        assert_eq!(
            attempts(&each),
            [(0, 0), (1, 302), (2, 503)],
            "{}",
            stage.name()
        );
        for told in &each {
            assert_eq!(
                (&told["maxRetries"], &told["dlqId"]),
                (&json!(2), &Value::Null)
            );
            let has_answer = told["status"] != json!(0);
            assert_eq!(told.get("header").is_some(), has_answer, "{told}");
        }
        let death = all_told(&mourner, 1, &last).await.remove(0);
        assert_eq!(attempts(std::slice::from_ref(&death)), [(2, 503)]);
        assert_eq!(death["dlqId"], json!(id));
        assert_eq!(death["sourceMessageId"], json!(id));
        assert_eq!(bytes(&death, "body"), b"no");
        stage.wait_for_state(&id, State::Dead).await;
    }
}

#[tokio::test]
async fn a_final_answer_is_told_as_a_death_at_once_and_a_cancel_is_not() {
    for stage in Stage::both() {
        let source = Receiver::with(|request| match request.path.as_str() {
            "/gone" => Answer::status(410),
            _ => Answer::hang(),
        });
        let mourner = Receiver::start();
        let _worker = stage.work();
        let to = mourner.url("/");
        let publish = |path: &str| {
            let message = message(&source.url(path)).callback(callback(&to));
            stage.publish(message.failure_callback(callback(&to)))
        };
        let cancelled = publish("/hangs").await;
        source.wait_for(1, SOON).await;
        let gone = publish("/gone").await;
        let both = all_told(&mourner, 2, &to).await;
        assert!(
            both.iter().all(|told| told["status"] == json!(410)),
            "{}",
            stage.name()
        );
        assert!(
            both.iter()
                .all(|told| told["sourceMessageId"] == json!(gone))
        );
        stage.store.cancel(&cancelled, "{}".into()).await.unwrap();
        let deadline = Instant::now() + SOON;
        while stage
            .state(&cancelled)
            .await
            .is_some_and(|state| !state.is_final())
        {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        mourner.expect_no_more_than(2, QUIET).await;
    }
}

#[tokio::test]
async fn bodies_of_any_kind_and_size_are_told_whole_and_answers_up_to_what_is_kept() {
    const KEPT: usize = 64 * 1024;
    let large: Vec<u8> = (0..=250u8).cycle().take(1024 * 1024).collect();
    let odd = b"\x00\xff not UTF-8".to_vec();
    for stage in Stage::both() {
        for (body, answer) in [
            (Vec::new(), Vec::new()),
            (odd.clone(), odd.clone()),
            (large.clone(), large.clone()),
            (vec![b'x'], large[..KEPT].to_vec()),
        ] {
            let source = Receiver::always(Answer::ok().body(answer.clone()));
            let listener = Receiver::start();
            let _worker = stage.work();
            let to = listener.url("/");
            let message = message(&source.url("/")).body(body.clone());
            stage.publish(message.callback(callback(&to))).await;
            let told = all_told(&listener, 1, &to).await.remove(0);
            let kept = &answer[..answer.len().min(KEPT)];
            assert_eq!(bytes(&told, "sourceBody"), body, "{}", stage.name());
            assert_eq!(bytes(&told, "body"), kept);
            assert_eq!(told.get("sourceBody").is_some(), !body.is_empty());
            assert_eq!(told.get("body").is_some(), !answer.is_empty());
        }
    }
}

#[tokio::test]
async fn many_large_callbacks_stay_within_the_budget_of_bodies() {
    const BODY: usize = 256 * 1024;
    const COUNT: usize = 12;
    let mut stage = Stage::embedded(LEASE);
    // Room for the source and what is composed of it: three callbacks at one time.
    stage.settings.body_budget_bytes = 8 * BODY as u64;
    let source = Receiver::start();
    let listener = Receiver::always(Answer::ok().after(Duration::from_millis(50)));
    let worker = stage.work();
    let to = listener.url("/");
    let body = Bytes::from(vec![b'x'; BODY]);
    for _ in 0..COUNT {
        let message = message(&source.url("/")).body(body.clone());
        stage.publish(message.callback(callback(&to))).await;
    }
    let deadline = Instant::now() + 3 * SOON;
    let mut least = i64::MAX;
    while listener.count() < COUNT {
        assert!(Instant::now() < deadline, "{} came", listener.count());
        least = least.min(worker.load().body_bytes_free);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // One may go beyond the budget, as one that is larger than all of it would.
    let one = i64::try_from(BODY * 10 / 3).unwrap();
    assert!(least > -one, "{least} bytes were left of the budget");
    let at_once = listener.active_max();
    assert!(
        (1..=4).contains(&at_once),
        "{at_once} callbacks at one time"
    );
}

#[tokio::test]
async fn s18_9_a_callback_has_the_retries_of_its_message_or_its_own() {
    for stage in Stage::both() {
        for (own, attempts) in [(None, 3), (Some(0), 1), (Some(1), 2)] {
            let source = Receiver::start();
            let listener = Receiver::always(Answer::status(500));
            let _worker = stage.work();
            let to = listener.url("/");
            let spec = CallbackSpec {
                retries: own,
                ..callback(&to)
            };
            stage
                .publish(message(&source.url("/")).retries(2).callback(spec))
                .await;
            let all = all_told(&listener, attempts, &to).await;
            assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "other bytes");
            let requests = listener.received();
            let retried: Vec<_> = requests
                .iter()
                .map(|request| request.header("upstash-retried").unwrap())
                .collect();
            assert_eq!(retried, ["0", "1", "2"][..attempts], "{}", stage.name());
        }
    }
}

#[tokio::test]
async fn a_callback_is_sent_as_its_own_options_say() {
    for stage in Stage::both() {
        let source = Receiver::start();
        let listener = Receiver::start();
        let _worker = stage.work();
        let spec = CallbackSpec {
            method: Method::Put,
            headers: headers("x-for-callback", "1"),
            delay_ms: 1_000,
            ..callback(&listener.url("/"))
        };
        stage
            .publish(message(&source.url("/")).method(Method::Get).callback(spec))
            .await;
        let request = &listener.wait_for(1, SOON).await[0];
        assert_eq!(request.method, "PUT", "{}", stage.name());
        assert_eq!(request.header("x-for-callback"), Some("1"));
        let waited = request.at.duration_since(source.received()[0].at);
        assert!(waited >= Duration::from_millis(950), "{waited:?}");
    }
}

#[tokio::test]
async fn a_callback_that_fails_for_good_is_a_dead_letter_and_tells_nobody() {
    for stage in Stage::both() {
        let source = Receiver::always(Answer::status(500));
        let listener = Receiver::always(Answer::status(500));
        let _worker = stage.work();
        let to = listener.url("/");
        let spec = CallbackSpec {
            retries: Some(0),
            ..callback(&to)
        };
        let message = message(&source.url("/")).retries(0).body("b");
        let message = message.callback(spec.clone()).failure_callback(spec);
        let id = stage.publish(message).await;
        all_told(&listener, 2, &to).await;
        for request in listener.received() {
            let own = request.header("upstash-message-id").unwrap();
            let last = stage.wait_for_death(&own.parse().unwrap()).await;
            assert_eq!(last.status(), 500, "{}", stage.name());
        }
        stage.wait_for_death(&id).await;
    }
}

#[tokio::test]
async fn a_message_whose_workers_were_all_lost_is_told_as_dead_without_an_attempt() {
    let stage = Stage::embedded(Duration::from_millis(2));
    let source = Receiver::start();
    let (listener, mourner) = (Receiver::start(), Receiver::start());
    let to = mourner.url("/");
    let poison = message(&source.url("/")).body("b");
    let poison = poison.callback(callback(&listener.url("/")));
    let id = stage.publish(poison.failure_callback(callback(&to))).await;
    let deadline = Instant::now() + SOON;
    loop {
        let exchange = Exchange {
            settlements: &[],
            want: 1,
            nonce: 7,
            fair: Fair { flow: 10, host: 10 },
            upkeep: 64,
            may_recover: true,
            byte_budget: 1 << 20,
        };
        let answer = stage
            .store
            .exchange(Shard::default(), &exchange)
            .await
            .unwrap();
        if answer
            .leases
            .first()
            .is_some_and(|lease| lease.lost == LOST_MAX - 1)
        {
            break;
        }
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A worker with a sane lease time takes it over.
    let patient = Stage::on(std::sync::Arc::clone(&stage.host), LEASE, 1);
    let _worker = patient.work();
    let death = all_told(&mourner, 1, &to).await.remove(0);
    assert_eq!((&death["dlqId"], &death["status"]), (&json!(id), &json!(0)));
    assert_eq!(bytes(&death, "sourceBody"), b"b");
    let last = patient.wait_for_death(&id).await;
    assert_eq!(last.class(), Some(ErrorClass::WorkerLost));
    assert_eq!((source.count(), listener.count()), (0, 0));
}
