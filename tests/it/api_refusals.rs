//! Who and what is refused, in which words.

use std::io::Write;
use std::sync::{Arc, Mutex};

use hookstash::key_ring::KeyRing;
use serde_json::json;

use crate::support::front_door::{FrontDoor, READ_ONLY_TOKEN, answered, embedded_state};
use crate::support::listen_everywhere;

#[tokio::test]
async fn without_the_token_everything_under_v2_is_a_401() {
    let door = FrontDoor::embedded().await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for (method, path) in [
        ("POST", "/v2/publish/https://h/"),
        ("GET", "/v2/keys"),
        ("GET", "/v2/dlq"),
        ("DELETE", "/v2/messages/x"),
        ("POST", "/v2/batch"),
        ("GET", "/v2/nothing"),
    ] {
        let url = format!("http://{}{path}", door.addr);
        let none = client.request(method.parse().unwrap(), &url);
        for request in [
            none.try_clone().unwrap(),
            none.try_clone().unwrap().bearer_auth("other"),
            none.try_clone().unwrap().header("Authorization", "t0ken=="),
            client.request(
                method.parse().unwrap(),
                format!("{url}?qstash_token=t0ken%3D"),
            ),
        ] {
            let refused = answered(request).await;
            let text = "unable to authenticate: invalid token";
            assert_eq!((refused.status, refused.error()), (401, text), "{path}");
        }
    }
}

#[tokio::test]
async fn a_publish_to_nowhere_says_what_a_destination_needs() {
    let door = FrontDoor::embedded().await;
    let refused = door.call("POST", "/v2/publish/").await;
    let text = "invalid destination url: endpoint has invalid scheme, add http:// or https://";
    assert_eq!((refused.status, refused.error()), (400, text));
}

#[tokio::test]
async fn an_option_of_the_query_that_is_no_header_name_is_refused_without_its_text() {
    let door = FrontDoor::embedded().await;
    for path in ["/v2/publish/https://h/", "/v2/dlq/retry/x"] {
        let refused = door
            .call("POST", &format!("{path}?upstash-x%0Aforged=1"))
            .await;
        assert_eq!(refused.status, 400, "{path}");
        assert!(
            refused.error().contains("named like a header"),
            "{refused:?}"
        );
        assert!(!refused.error().contains("forged"), "{refused:?}");
    }
}

#[tokio::test]
async fn the_read_only_token_reads_but_changes_nothing_and_sees_no_key() {
    let door = FrontDoor::embedded().await;
    let id = door.publish("https://h/p", &[], "x").await.id();
    let client = reqwest::Client::new();
    for (method, path, status) in [
        ("GET", format!("/v2/messages/{id}"), 200),
        ("GET", "/v2/dlq".to_owned(), 200),
        ("GET", "/v2/queues".to_owned(), 200),
        ("GET", "/v2/keys".to_owned(), 403),
        ("GET", "//v2/keys".to_owned(), 403),
        ("POST", "/v2/keys/rotate".to_owned(), 403),
        ("POST", "/v2/publish/https://h/p".to_owned(), 403),
        ("DELETE", format!("/v2/messages/{id}"), 403),
        ("DELETE", "/v2/messages".to_owned(), 403),
        ("PATCH", "/v2/schedules/s/pause".to_owned(), 403),
    ] {
        let url = format!("http://{}{path}", door.addr);
        let request = client.request(method.parse().unwrap(), &url);
        let answer = answered(request.bearer_auth(READ_ONLY_TOKEN)).await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        let url = format!("{url}?qstash_token={READ_ONLY_TOKEN}");
        let in_query = client.request(method.parse().unwrap(), url);
        assert_eq!(answered(in_query).await.status, status, "{method} {path}");
    }
    let there = door.call("GET", &format!("/v2/messages/{id}")).await;
    assert_eq!(there.status, 200);
}

#[tokio::test]
async fn unknown_paths_are_404_and_wrong_methods_405_in_json() {
    let door = FrontDoor::embedded().await;
    for path in [
        "/",
        "/v2",
        "/v2/",
        "/v2/nothing",
        "/v1/publish/https://h/",
        "/v2/dlq/a/b",
    ] {
        let answer = door.call("GET", path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.error().starts_with("no such path: "), "{answer:?}");
    }
    for (method, path) in [
        ("GET", "/v2/publish/https://h/"),
        ("PUT", "/v2/publish/https://h/"),
        ("POST", "/v2/messages/x"),
        ("DELETE", "/v2/keys"),
        ("PATCH", "/v2/dlq/x"),
        ("POST", "/healthz"),
    ] {
        let answer = door.call(method, path).await;
        assert_eq!(answer.status, 405, "{method} {path}");
        assert_eq!(
            answer.error(),
            format!("method {method} is not allowed here")
        );
    }
}

#[tokio::test]
async fn what_is_not_built_is_a_501_that_names_the_path() {
    let door = FrontDoor::embedded().await;
    for (method, path) in [
        ("POST", "/v2/batch/trigger"),
        ("DELETE", "/v2/workflows/runs/r?cancel=true"),
        ("POST", "/v2/notify/e"),
        ("POST", "/v2/wait/e"),
        ("GET", "/v2/waiters/e"),
    ] {
        let answer = door.call(method, path).await;
        assert_eq!(answer.status, 501, "{method} {path}");
        let start: String = path
            .split('?')
            .next()
            .unwrap()
            .split('/')
            .take(3)
            .collect::<Vec<_>>()
            .join("/");
        let expected = format!("{method} {start}");
        assert!(
            answer.error().starts_with(&expected),
            "{path}: {}",
            answer.error()
        );
    }
}

#[tokio::test]
async fn keys_are_shown_and_rotated_only_where_they_are_set() {
    let door = FrontDoor::embedded().await;
    let keys = door.call("GET", "/v2/keys").await;
    let expected = json!({
        "current": "sig_7kYjw48mhY7kAjqNGcy6cr29RJ6r",
        "next": "sig_5ZB6DVzB1wjE8S6rZ7eenA8Pdnhs",
    });
    assert_eq!((keys.status, keys.json), (200, expected));
    for path in ["/v2/keys/rotate", "/v2/rotate"] {
        let refused = door.call("POST", path).await;
        assert_eq!(refused.status, 409);
        for variable in ["QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY"] {
            assert!(refused.error().contains(variable), "{}", refused.error());
        }
    }
    let mut state = embedded_state();
    state.keys = KeyRing::fixed(None);
    let door = FrontDoor::open(state).await;
    let none = door.call("GET", "/v2/keys").await;
    assert_eq!(none.status, 404);
    assert_eq!(
        none.error(),
        "no signing keys are configured: QSTASH_CURRENT_SIGNING_KEY and \
         QSTASH_NEXT_SIGNING_KEY are not set"
    );
}

/// What was logged on this thread, which all of a test's tasks share.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn requests_are_logged_without_anything_that_they_carry() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .finish();
    listen_everywhere();
    let _guard = tracing::subscriber::set_default(subscriber);
    let door = FrontDoor::embedded().await;
    carry_secrets(&door).await;
    // A place in the code that another test's thread reached first counts as silent until the
    // cache is made anew on a thread that listens.
    tracing::callsite::rebuild_interest_cache();
    carry_secrets(&door).await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let line = "method=POST route=\"/v2/publish/{*destination}\" status=200";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("upstash-unheard-of"), "{text}");
    for hidden in ["SECRET", "t0ken", "sig_"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
}

async fn carry_secrets(door: &FrontDoor) {
    let destination = "https://SECRET:SECRET@h/SECRET?k=SECRET&qstash_token=SECRET";
    let headers = [
        ("Upstash-Forward-X-Key", "SECRET"),
        ("Upstash-Unheard-Of", "SECRET"),
        ("Upstash-Label", "SECRET"),
    ];
    let accepted = door.publish(destination, &headers, "SECRET").await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
    for (method, path, status) in [
        ("GET", "/v2/SECRET?qstash_token=SECRET", 404),
        ("GET", "/v2/messages/SECRET", 404),
        ("GET", "/v2/keys", 200),
        ("POST", "/v2/enqueue/SECRET/https://SECRET/", 200),
        ("GET", "/v2/queues/SECRET", 200),
        (
            "POST",
            "/v2/schedules/https://SECRET/?upstash-cron=*+*+*+*+*",
            200,
        ),
    ] {
        assert_eq!(door.call(method, path).await.status, status, "{path}");
    }
}
