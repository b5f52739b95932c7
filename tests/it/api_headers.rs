//! The headers of a publish on the wire.

use serde_json::json;

use crate::support::front_door::FrontDoor;

#[tokio::test]
async fn every_option_is_taken_or_refused_by_name() {
    let door = FrontDoor::embedded().await;
    for (header, value, error) in [
        ("Upstash-Method", "get", ""),
        ("Upstash-Method", "BREW", "invalid Upstash-Method"),
        ("Upstash-Delay", "1d10h30m", ""),
        ("Upstash-Delay", "later", "invalid Upstash-Delay"),
        ("Upstash-Not-Before", "1500000000", ""),
        (
            "Upstash-Not-Before",
            "tomorrow",
            "invalid Upstash-Not-Before",
        ),
        ("Upstash-Retries", "0", ""),
        ("Upstash-Retries", "-1", "invalid Upstash-Retries"),
        (
            "Upstash-Retry-Delay",
            "max(1000, pow(2, retried) * 1000)",
            "",
        ),
        (
            "Upstash-Retry-Delay",
            "__import__('os')",
            "invalid Upstash-Retry-Delay",
        ),
        ("Upstash-Timeout", "2h", ""),
        ("Upstash-Timeout", "3h", "invalid Upstash-Timeout"),
        ("Upstash-Deduplication-Id", "abc", ""),
        (
            "Upstash-Deduplication-Id",
            "a:b",
            "DeduplicationId cannot contain ':'",
        ),
        ("Upstash-Content-Based-Deduplication", "False", ""),
        (
            "Upstash-Content-Based-Deduplication",
            "?",
            "invalid Upstash-Content-Based-Deduplication",
        ),
        ("Upstash-Header-Forward", "true", ""),
        (
            "Upstash-Header-Forward",
            "?",
            "invalid Upstash-Header-Forward",
        ),
        ("Upstash-Label", "a,b", ""),
        ("Upstash-Label", "a,,b", "invalid Upstash-Label"),
        ("Upstash-Redact-Fields", "body,header[X-Key]", ""),
        (
            "Upstash-Redact-Fields",
            "title",
            "invalid Upstash-Redact-Fields",
        ),
        ("Upstash-Telemetry-Runtime", "node@v20", ""),
        ("Upstash-Something-New", "x", ""),
    ] {
        let answer = door.publish("https://h/", &[(header, value)], "x").await;
        let status = if error.is_empty() { 200 } else { 400 };
        assert_eq!(answer.status, status, "{header}: {value}: {answer:?}");
        if status == 400 {
            assert!(
                answer.error().starts_with(error),
                "{header}: {}",
                answer.error()
            );
        }
    }
}

#[tokio::test]
async fn what_is_not_built_is_a_501_that_names_the_header() {
    let door = FrontDoor::embedded().await;
    for header in [
        "Upstash-Workflow-Init",
        "Upstash-Workflow-Runid",
        "Upstash-Feature-Set",
    ] {
        let refused = door.publish("https://h/", &[(header, "x")], "x").await;
        let text = format!("{header} is not supported by this server yet");
        assert_eq!((refused.status, refused.error()), (501, text.as_str()));
    }
}

#[tokio::test]
async fn h18_illegal_headers_are_refused_at_publish() {
    let door = FrontDoor::embedded().await;
    let long = "x".repeat(9_000);
    for (line, status, shown) in [
        ("Upstash-Forward-X-N: é", 200, json!(["é"])),
        ("Upstash-Forward-X-N: 🚀", 200, json!(["🚀"])),
        ("Upstash-Forward-X-N:  \tspaced \t", 200, json!(["spaced"])),
        ("Upstash-Forward-X-N: a\tb", 200, json!(["a\tb"])),
        ("Upstash-Forward-X-N:", 200, json!([""])),
        (
            "Upstash-Forward-X-N: 1\r\nUpstash-Forward-X-N: 2",
            200,
            json!(["1", "2"]),
        ),
        (&format!("Upstash-Forward-X-N: {long}"), 400, json!("x-n")),
        ("Upstash-Forward-X-N: a\x01b", 400, json!(null)),
        ("Upstash-Forward-X N: 1", 400, json!(null)),
        ("Upstash-Forward-X-Ü: 1", 400, json!(null)),
        ("Upstash-Forward-: 1", 400, json!("invalid header name")),
    ] {
        let answer = door
            .raw_target("POST", "/v2/publish/https://h/", &format!("{line}\r\n"))
            .await;
        assert_eq!(answer.status, status, "{line:?}: {answer:?}");
        if status == 200 {
            let message = door
                .call("GET", &format!("/v2/messages/{}", answer.id()))
                .await;
            assert_eq!(message.json["header"]["X-N"], shown, "{line:?}");
        } else if let Some(part) = shown.as_str() {
            // The others never were HTTP: the refusal comes before any header has a name.
            assert!(
                answer.error().contains(part),
                "{line:?}: {}",
                answer.error()
            );
        }
    }
}

#[tokio::test]
async fn h18_too_many_headers_are_refused_by_name() {
    let door = FrontDoor::embedded().await;
    for (count, status) in [(100, 200), (101, 400), (200, 400), (300, 431)] {
        let lines: Vec<_> = (0..count)
            .map(|n| format!("Upstash-Forward-X-{n}: 1\r\n"))
            .collect();
        let lines = lines.concat();
        let answer = door
            .raw_target("POST", "/v2/publish/https://h/", &lines)
            .await;
        assert_eq!(answer.status, status, "{count}");
        if status == 400 {
            assert!(answer.error().contains("header x-"), "{}", answer.error());
        }
    }
}
