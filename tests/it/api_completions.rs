//! `POST /v1/completions/{operation}/{tool_message}`: results that come from elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hookstash_producer::hooks::{OnError, Webhook};
use hookstash_producer::runtime::{OperationRecord, OperationStore, StoredOperations};
use hookstash_shared::store::{CompletionKey, Store};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::front_door::{Answered, FrontDoor, answered, embedded_state};
use crate::support::program::SOON;
use crate::support::receiver::{Answer, Receiver};

/// An operation with an after-control at `url`, and a placeholder of it.
async fn open(store: &Store, operation: &str, control: Option<String>) {
    let webhook = control.map(|url| Webhook::to(url).control(OnError::Block));
    open_with(store, operation, webhook).await;
}

/// The same with this webhook.
async fn open_with(store: &Store, operation: &str, webhook: Option<Webhook>) {
    let hooks = webhook.map_or(json!([]), |webhook| {
        json!([{"id": "policy", "type": "afterToolCall", "webhook": Value::from(webhook)}])
    });
    let record = OperationRecord {
        hooks: Some(hooks),
        user_id: Some("u1".to_owned()),
        ..OperationRecord::default()
    };
    let operations = StoredOperations::new(store.clone());
    operations.save(operation, &record).await.expect("saved");
    let call = json!({"operationId": operation, "identifier": "fs", "apiName": "write",
        "toolCallId": "c1", "assistantMessageId": "m1", "args": {}, "callIndex": 1,
        "stepIndex": 0, "executor": "server", "userId": "u1"});
    let context = json!({"call": call, "operations": [operation]});
    let key = CompletionKey::new(operation, "row 1", store.shards());
    let opened = store.open_completion(&key, context.to_string().into());
    opened.await.expect("open");
}

async fn complete(front: &FrontDoor, operation: &str, body: &str) -> Answered {
    let path = format!("/v1/completions/{operation}/row%201");
    answered(front.request("POST", &path).body(body.to_owned())).await
}

#[tokio::test]
async fn the_first_result_is_applied_and_every_later_one_gets_it() {
    let front = FrontDoor::embedded().await;
    open(&front.state.store, "op", None).await;
    let first = complete(&front, "op", r#"{"content":"first"}"#).await;
    assert_eq!((first.status, &first.json["applied"]), (200, &json!(true)));
    assert_eq!(first.json["result"]["content"], "first");
    for _ in 0..2 {
        let later = complete(&front, "op", r#"{"content":"later"}"#).await;
        assert_eq!((later.status, &later.json["applied"]), (200, &json!(false)));
        assert_eq!(later.json["result"], first.json["result"]);
    }
}

#[tokio::test]
async fn a_denied_result_is_kept_nowhere_and_its_denial_is_final() {
    let denial = r#"{"decision":"deny","reason":"no"}"#;
    let policy = Receiver::always(Answer::ok().body(denial));
    let front = FrontDoor::embedded().await;
    open(&front.state.store, "op", Some(policy.url("/check"))).await;
    let first = complete(&front, "op", r#"{"content":"SECRET"}"#).await;
    assert_eq!((first.status, &first.json["applied"]), (200, &json!(true)));
    let blocked = json!({"content": "no", "error": "hook_denied", "success": false,
        "state": {"phase": "afterToolCall", "reason": "no", "type": "blocked"}});
    assert_eq!(first.json["result"], blocked);
    let asked: Value = serde_json::from_slice(&policy.received()[0].body).expect("JSON");
    assert_eq!(
        asked["result"]["content"], "SECRET",
        "the control sees all of it"
    );
    drop(policy);
    let later = complete(&front, "op", r#"{"content":"later"}"#).await;
    assert_eq!(
        (&later.json["applied"], &later.json["result"]),
        (&json!(false), &blocked)
    );
}

#[tokio::test]
async fn a_policy_that_cannot_be_asked_blocks() {
    let front = FrontDoor::embedded().await;
    open(
        &front.state.store,
        "op",
        Some("http://127.0.0.1:9/".to_owned()),
    )
    .await;
    let answer = complete(&front, "op", r#"{"content":"x"}"#).await;
    assert_eq!(answer.json["result"]["content"], "hook_control_error");
}

#[tokio::test]
async fn a_placeholder_that_is_not_open_is_not_found() {
    let front = FrontDoor::embedded().await;
    let answer = complete(&front, "op", r#"{"content":"x"}"#).await;
    assert_eq!(answer.status, 404);
    assert_eq!(
        answer.error(),
        "unknown or expired placeholder: nothing was applied"
    );
    // And it is not there afterwards either.
    open(&front.state.store, "op", None).await;
    let answer = complete(&front, "op", r#"{"content":"y"}"#).await;
    assert_eq!(answer.json["applied"], json!(true));
}

#[tokio::test]
async fn a_result_without_a_token_or_of_a_wrong_form_is_refused_and_not_applied() {
    let front = FrontDoor::embedded().await;
    open(&front.state.store, "op", None).await;
    for (body, status) in [
        ("", 400),
        ("[]", 400),
        ("{}", 400),
        (r#"{"content":7}"#, 400),
    ] {
        assert_eq!(complete(&front, "op", body).await.status, status, "{body}");
    }
    let url = format!("http://{}/v1/completions/op/row%201", front.addr);
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let bare = client.post(url).body(r#"{"content":"x"}"#).send().await;
    assert_eq!(bare.expect("an answer").status().as_u16(), 401);
    assert_eq!(
        front.call("GET", "/v1/completions/op/row%201").await.status,
        405
    );
    let answer = complete(&front, "op", r#"{"content":"x"}"#).await;
    assert_eq!(answer.json["applied"], json!(true));
}

#[tokio::test]
async fn callers_that_race_get_one_result() {
    let front = Arc::new(FrontDoor::open(embedded_state()).await);
    open(&front.state.store, "op", None).await;
    let calls = (0..32).map(|number| {
        let front = Arc::clone(&front);
        async move {
            let body = json!({"content": number.to_string()}).to_string();
            // A caller that is refused for want of a place sends it again.
            patiently(&front, "op", &body).await
        }
    });
    let answers = futures::future::join_all(calls).await;
    let applied = answers
        .iter()
        .filter(|one| one.json["applied"] == json!(true));
    assert_eq!(applied.count(), 1);
    assert!(
        answers
            .iter()
            .all(|one| one.json["result"] == answers[0].json["result"])
    );
}

#[tokio::test]
async fn a_result_of_a_mebibyte_is_taken_and_a_larger_one_is_not() {
    const MAX: usize = 1024 * 1024;
    let front = FrontDoor::embedded().await;
    open(&front.state.store, "op", None).await;
    let of_length = |length: usize| {
        let frame = json!({"content": ""}).to_string();
        json!({"content": "x".repeat(length - frame.len())}).to_string()
    };
    let refused = complete(&front, "op", &of_length(MAX + 1)).await;
    assert_eq!(refused.status, 413);
    let taken = complete(&front, "op", &of_length(MAX)).await;
    assert_eq!((taken.status, &taken.json["applied"]), (200, &json!(true)));
}

/// Results of `operation` that wait for a policy that never answers.
fn hanging(front: &Arc<FrontDoor>, operation: &str, count: usize) -> Vec<JoinHandle<Answered>> {
    let one = || {
        let (front, operation) = (Arc::clone(front), operation.to_owned());
        tokio::spawn(async move { complete(&front, &operation, r#"{"content":"x"}"#).await })
    };
    (0..count).map(|_| one()).collect()
}

fn assert_busy(answer: &Answered, text: &str) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"));
    assert!(answer.error().starts_with(text), "{answer:?}");
    let safe = "nothing was changed, sending the request again is safe";
    assert!(answer.error().ends_with(safe), "{answer:?}");
}

const ALL_TAKEN: &str = "too many results are reviewed at this moment";
const SHARE_TAKEN: &str = "too many results of this operation are reviewed at this moment";

#[tokio::test]
async fn an_operation_whose_policy_hangs_leaves_places_to_others() {
    let policy = Receiver::always(Answer::hang());
    let front = Arc::new(FrontDoor::embedded().await);
    let store = &front.state.store;
    open(store, "hangs", Some(policy.url("/check"))).await;
    open(store, "quick", None).await;
    let waiting = hanging(&front, "hangs", 16);
    policy.wait_for(16, SOON).await;
    for _ in 0..20 {
        let refused = complete(&front, "hangs", r#"{"content":"x"}"#).await;
        assert_busy(&refused, SHARE_TAKEN);
    }
    let other = complete(&front, "quick", r#"{"content":"x"}"#).await;
    assert_eq!((other.status, &other.json["applied"]), (200, &json!(true)));
    // What was refused is still open, and is taken when its policy answers.
    for one in waiting {
        one.abort();
        drop(one.await);
    }
    let key = CompletionKey::new("hangs", "row 1", store.shards());
    let open = store.placeholder(&key).await.expect("read").expect("open");
    assert_eq!(open.result, None);
    let record = OperationRecord {
        hooks: Some(json!([])),
        ..OperationRecord::default()
    };
    let operations = StoredOperations::new(store.clone());
    operations.save("hangs", &record).await.expect("saved");
    let taken = patiently(&front, "hangs", r#"{"content":"again"}"#).await;
    assert_eq!(taken.json["applied"], json!(true));
    assert_eq!(taken.json["result"]["content"], "again");
}

/// Sends a result until it is not refused for want of a place.
async fn patiently(front: &FrontDoor, operation: &str, body: &str) -> Answered {
    let sent = async {
        loop {
            let answer = complete(front, operation, body).await;
            if answer.status != 503 {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let sent = tokio::time::timeout(SOON, sent).await;
    sent.expect("a place is free again")
}

#[tokio::test]
async fn results_whose_controls_hang_keep_others_waiting_but_not_publishing() {
    let policy = Receiver::always(Answer::hang());
    let front = Arc::new(FrontDoor::embedded().await);
    let mut waiting = Vec::new();
    for (operation, share) in [("a", 16), ("b", 8), ("c", 4), ("d", 2), ("e", 1), ("f", 1)] {
        open(&front.state.store, operation, Some(policy.url("/check"))).await;
        waiting.extend(hanging(&front, operation, share));
        policy.wait_for(waiting.len(), SOON).await;
    }
    for operation in ["a", "f", "another"] {
        let refused = complete(&front, operation, r#"{"content":"x"}"#).await;
        assert_busy(&refused, ALL_TAKEN);
    }
    let published = front.publish("https://example.com/hook", &[], "x").await;
    assert_eq!(published.status, 200, "{published:?}");
    // Whoever goes away gives its place back.
    for one in waiting {
        one.abort();
        drop(one.await);
    }
    open(&front.state.store, "free", None).await;
    let free = patiently(&front, "free", r#"{"content":"x"}"#).await;
    assert_eq!(free.status, 200);
}

#[tokio::test]
async fn a_result_whose_control_does_not_decide_in_two_minutes_is_given_up_and_can_be_sent_again() {
    let answers = Arc::new(AtomicBool::new(false));
    let decides = Arc::clone(&answers);
    let policy = Receiver::with(move |_| {
        if decides.load(Ordering::SeqCst) {
            Answer::ok().body(r#"{"decision":"allow"}"#)
        } else {
            Answer::hang()
        }
    });
    let front = Arc::new(FrontDoor::embedded().await);
    // Its own time is longer than that of the whole completion.
    let patient = Webhook::to(policy.url("/check")).control(OnError::Block);
    let patient = patient.timeout(Duration::from_mins(10));
    open_with(&front.state.store, "op", Some(patient)).await;
    let waiting = hanging(&front, "op", 1).remove(0);
    policy.wait_for(1, SOON).await;
    // From here on time goes by as soon as nothing else happens.
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let late = waiting.await.expect("an answer");
    let waited = start.elapsed();
    tokio::time::resume();
    assert!(
        waited.abs_diff(Duration::from_mins(2)) < Duration::from_secs(20),
        "{waited:?}"
    );
    assert_eq!(late.status, 503, "{late:?}");
    assert_eq!(
        late.error(),
        "its controls did not decide within 120 seconds; sending it again is safe"
    );
    assert!(late.headers.contains_key("retry-after"));
    answers.store(true, Ordering::SeqCst);
    let again = complete(&front, "op", r#"{"content":"again"}"#).await;
    assert_eq!(again.json["applied"], json!(true), "nothing was taken");
    assert_eq!(again.json["result"]["content"], "again");
}

#[tokio::test]
async fn a_path_that_is_no_text_is_refused_like_everything_else() {
    let front = FrontDoor::embedded().await;
    for path in ["/v1/completions/%FF/row", "/v1/completions/op/%C3%28"] {
        let answer = answered(front.request("POST", path).body("{}")).await;
        assert_eq!(answer.status, 400, "{path}");
        assert_eq!(answer.error(), "invalid path: its ids are no UTF-8");
    }
}
