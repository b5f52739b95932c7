//! Callbacks as the API takes, shows and refuses them.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::front_door::FrontDoor;
use crate::support::program::Program;
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::stage::SOON;
use crate::support::told::told;

fn own_id(request: &Received) -> String {
    request.header("upstash-message-id").unwrap().to_owned()
}

#[tokio::test]
async fn a_message_shows_its_callbacks_while_it_lives_when_it_is_dead_and_in_the_log() {
    let door = FrontDoor::embedded().await;
    let headers = [
        ("Upstash-Callback", "https://callback/a?b=1"),
        ("Upstash-Callback-Forward-X-One", "1"),
        ("Upstash-Failure-Callback", "https://failed/"),
        ("Upstash-Failure-Callback-Forward-X-Two", "2"),
    ];
    let published = door.publish("https://h/", &headers, "b").await;
    let id = published.id();
    let live = door.call("GET", &format!("/v2/messages/{id}")).await.json;
    door.kill(500, &http::HeaderMap::new(), &"".into()).await;
    let dead = door.call("GET", &format!("/v2/dlq/{id}")).await.json;
    for shown in [&live, &dead] {
        assert_eq!(shown["callback"], "https://callback/a?b=1");
        assert_eq!(shown["callbackHeader"], json!({ "X-One": ["1"] }));
        assert_eq!(shown["failureCallback"], "https://failed/");
        assert_eq!(shown["failureCallbackHeader"], json!({ "X-Two": ["2"] }));
        assert_eq!(shown.get("header"), None);
    }
    let log = door
        .call("GET", &format!("/v2/events?messageId={id}"))
        .await
        .json;
    let created = log["events"].as_array().unwrap().last().unwrap();
    assert_eq!(created["callback"], "https://callback/a?b=1");
    assert_eq!(created["failureCallback"], "https://failed/");
}

#[tokio::test]
async fn headers_of_callbacks_are_hidden_where_those_of_the_message_are() {
    let door = FrontDoor::embedded().await;
    let headers = [
        ("Upstash-Callback", "https://callback/"),
        ("Upstash-Callback-Forward-Authorization", "abc"),
        ("Upstash-Redact-Fields", "header[Authorization]"),
    ];
    let id = door.publish("https://h/", &headers, "b").await.id();
    let shown = door.call("GET", &format!("/v2/messages/{id}")).await.json;
    let hash = "REDACTED:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(shown["callbackHeader"], json!({ "Authorization": [hash] }));
}

#[tokio::test]
async fn a_callback_to_a_refused_address_is_a_400_that_names_it_and_nothing_is_stored() {
    let door = FrontDoor::embedded().await;
    for header in ["Upstash-Callback", "Upstash-Failure-Callback"] {
        for (url, address) in [
            ("http://127.0.0.1/x", "127.0.0.1"),
            ("http://[::1]/", "::1"),
        ] {
            let refused = door.publish("https://h/", &[(header, url)], "b").await;
            let text =
                format!("invalid {header}: endpoint resolves to a loopback address: {address}");
            assert_eq!((refused.status, refused.error()), (400, text.as_str()));
        }
        let lane = format!("{header}-Queue-Name");
        let own_lane = [(header, "https://c/"), (lane.as_str(), "q")];
        let refused = door.publish("https://h/", &own_lane, "b").await;
        assert_eq!(refused.status, 400);
        assert!(refused.error().contains(&lane), "{}", refused.error());
    }
    let leased = door.lease().await;
    assert!(leased.iter().all(|shard| shard.leases.is_empty()));
}

#[tokio::test]
async fn a_callback_is_a_message_that_can_be_looked_at() {
    let program = Program::dev(&[], &[]).await;
    let source = Receiver::start();
    let listener = Receiver::with(|request| match request.path.as_str() {
        "/dies" => Answer::status(500).body("no"),
        _ => Answer::ok(),
    });
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    for (path, list) in [("/lives", "messages"), ("/dies", "dlq")] {
        let to = listener.url(path);
        let headers = [
            ("Upstash-Callback", to.as_str()),
            ("Upstash-Callback-Retries", "0"),
            ("Upstash-Callback-Label", "of-callback"),
        ];
        let id = program.publish(&source.url("/"), &headers, "body").await;
        let count = listener.count() + 1;
        let request = listener.wait_for(count.min(2), SOON).await.pop().unwrap();
        let own = own_id(&request);
        let shown = found(&program, &format!("/v2/{list}/{own}")).await;
        assert_eq!(text(&shown["body"]).as_bytes(), request.body);
        assert_eq!(
            (&shown["url"], &shown["label"]),
            (&json!(to), &json!("of-callback"))
        );
        assert_eq!(shown["maxRetries"], 0);
        assert_eq!(told(&request, &to)["sourceMessageId"], json!(id));
    }
}

#[tokio::test]
async fn views_of_a_callback_hide_what_its_message_hides_and_its_receiver_sees_it() {
    let program = Program::dev(&[], &[]).await;
    let source = Receiver::start();
    let listener = Receiver::always(Answer::status(500));
    let to = listener.url("/");
    let headers = [
        ("Upstash-Callback", to.as_str()),
        ("Upstash-Callback-Retries", "0"),
        ("Upstash-Redact-Fields", "header[X-Secret]"),
        ("Upstash-Forward-X-Secret", "CANARY"),
    ];
    program.publish(&source.url("/"), &headers, "b").await;
    let request = listener.wait_for(1, SOON).await.remove(0);
    let story = told(&request, &to);
    assert_eq!(story["sourceHeader"]["X-Secret"], json!(["CANARY"]));
    let shown = found(&program, &format!("/v2/dlq/{}", own_id(&request))).await;
    assert!(shown["body"].as_str().unwrap().starts_with("REDACTED:"));
    assert!(!shown.to_string().contains("CANARY"));
}

/// What `path` shows once it is there.
async fn found(program: &Program, path: &str) -> Value {
    let deadline = Instant::now() + SOON;
    loop {
        let (status, shown) = program.call("GET", path).await;
        if status == 200 {
            return shown;
        }
        assert!(Instant::now() < deadline, "{path}: {status} {shown}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
