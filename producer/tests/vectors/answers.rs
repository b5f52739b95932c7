//! 25.7: what controls answer, on the wire. What needs no wire is beside the code (`decision`).

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use hookstash_producer::hooks::*;

use crate::support::*;

const ALLOW: &str = r#"{"decision":"allow"}"#;
const DENY: &str = r#"{"decision":"deny","reason":"R"}"#;
/// The largest answer.
const MAX: usize = 64 * 1024;

/// What came of one control with this answer, with errors blocking, and the code of its error.
async fn verdict(answer: Answer) -> (Verdict, Option<&'static str>) {
    let logs = Logs::capture();
    let scene = Scene::local(Receiver::always(answer));
    let webhook = Webhook::to(scene.url("/c"))
        .timeout(Duration::from_secs(5))
        .control(OnError::Block);
    scene.register(vec![AgentHook::webhook(
        "c",
        HookType::BeforeToolCall,
        webhook,
    )]);
    let verdict = scene.evaluate().await;
    assert_eq!(scene.receiver.count(), 1);
    let text = logs.text();
    let code = text
        .lines()
        .find(|line| line.contains("Control failed"))
        .map(|line| {
            let codes = [
                "http_error",
                "invalid_response",
                "network_error",
                "response_too_large",
                "timeout",
            ];
            let named = |code: &&&str| line.contains(&format!("\"{code}\""));
            *codes.iter().find(named).expect("a code")
        });
    (verdict, code)
}

async fn is_allowed(answer: Answer) {
    assert_eq!(verdict(answer).await, (Verdict::Allow, None));
}

async fn is_denied(answer: Answer, expected: &str) {
    let reason = expected.to_owned();
    assert_eq!(verdict(answer).await, (Verdict::Blocked { reason }, None));
}

async fn is_error(answer: Answer, code: &'static str) {
    let reason = HOOK_CONTROL_ERROR.to_owned();
    assert_eq!(
        verdict(answer).await,
        (Verdict::Blocked { reason }, Some(code))
    );
}

fn body(bytes: impl Into<Vec<u8>>) -> Answer {
    Answer::ok().body(bytes)
}

fn coded(coding: &str, bytes: Vec<u8>) -> Answer {
    body(bytes).header("Content-Encoding", coding)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn deflate(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn vector_098_every_2xx_can_decide() {
    for status in [200, 201, 202, 203, 206, 299] {
        is_denied(Answer::status(status).body(DENY), "R").await;
        is_allowed(Answer::status(status).body(ALLOW)).await;
    }
}

#[tokio::test]
async fn vector_099_an_empty_answer_decides_nothing() {
    for answer in [
        Answer::status(204),
        Answer::status(205),
        Answer::ok(),
        body(" \r\n\t "),
    ] {
        is_allowed(answer).await;
    }
}

#[tokio::test]
async fn vector_105_an_answer_of_64_kib_is_read_and_one_more_byte_is_too_large() {
    let padded = |bytes: usize| format!("{DENY}{}", " ".repeat(bytes - DENY.len()));
    is_denied(body(padded(MAX)), "R").await;
    is_error(body(padded(MAX + 1)), "response_too_large").await;
}

#[tokio::test]
async fn vector_106_bytes_count_not_characters() {
    let deny = format!(
        r#"{{"decision":"deny","reason":"{}"}}"#,
        "中".repeat(22_000)
    );
    is_error(body(deny), "response_too_large").await;
}

#[tokio::test]
async fn vector_107_too_large_comes_before_no_decision() {
    is_error(
        body(format!("{{}}{}", " ".repeat(65_535))),
        "response_too_large",
    )
    .await;
}

#[tokio::test]
async fn vector_108_a_declared_length_is_believed_without_reading() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n";
    let answer = Answer::stream(head, "", Duration::from_mins(1));
    is_error(answer, "response_too_large").await;
}

#[tokio::test]
async fn vector_113_another_status_is_an_error_whatever_the_body_says() {
    for status in [300, 301, 302, 307, 400, 401, 404, 429, 500, 503] {
        is_error(Answer::status(status).body(ALLOW), "http_error").await;
    }
}

#[tokio::test]
async fn vector_114_the_content_type_is_not_looked_at() {
    is_denied(body(DENY).header("Content-Type", "text/html"), "R").await;
    is_allowed(body(ALLOW).header("Content-Type", "text/html")).await;
}

#[tokio::test]
async fn vector_115_compressed_answers_are_read() {
    for (coding, coded_deny) in [
        ("gzip", gzip(DENY.as_bytes())),
        ("x-gzip", gzip(DENY.as_bytes())),
        ("GZIP", gzip(DENY.as_bytes())),
        ("deflate", zlib(DENY.as_bytes())),
        ("deflate", deflate(DENY.as_bytes())),
        ("identity", DENY.into()),
    ] {
        is_denied(coded(coding, coded_deny), "R").await;
    }
    is_allowed(coded("gzip", gzip(ALLOW.as_bytes()))).await;
    is_allowed(coded("gzip", Vec::new())).await;
}

#[tokio::test]
async fn broken_and_unknown_codings_are_errors_not_silence() {
    let cut = |mut bytes: Vec<u8>, by: usize| {
        bytes.truncate(bytes.len() - by);
        bytes
    };
    let tail = |mut bytes: Vec<u8>| {
        bytes.extend_from_slice(b"tail");
        bytes
    };
    for (coding, bytes) in [
        ("gzip", DENY.into()),
        ("gzip", cut(gzip(DENY.as_bytes()), 1)),
        ("gzip", cut(gzip(DENY.as_bytes()), 12)),
        ("gzip", tail(gzip(DENY.as_bytes()))),
        ("deflate", cut(zlib(DENY.as_bytes()), 5)),
        ("deflate", cut(deflate(DENY.as_bytes()), 2)),
        ("deflate", tail(zlib(DENY.as_bytes()))),
        ("deflate", DENY.into()),
        ("br", DENY.into()),
        ("gzip, gzip", gzip(&gzip(DENY.as_bytes()))),
    ] {
        is_error(coded(coding, bytes), "invalid_response").await;
    }
}

#[tokio::test]
async fn the_limit_holds_for_what_comes_out_of_a_coding() {
    let padded = |bytes: usize| format!("{DENY}{}", " ".repeat(bytes - DENY.len())).into_bytes();
    is_denied(coded("gzip", gzip(&padded(MAX))), "R").await;
    is_denied(coded("deflate", zlib(&padded(MAX))), "R").await;
    for size in [MAX + 1, 50 * 1024 * 1024] {
        is_error(coded("gzip", gzip(&padded(size))), "response_too_large").await;
        is_error(coded("deflate", zlib(&padded(size))), "response_too_large").await;
        is_error(
            coded("deflate", deflate(&padded(size))),
            "response_too_large",
        )
        .await;
    }
}

#[tokio::test]
async fn vector_116_a_body_that_stalls_runs_into_the_deadline() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{\"decision\":";
    let answer = Answer::stream(head, "", Duration::from_mins(1));
    let logs = Logs::capture();
    let scene = Scene::local(Receiver::always(answer));
    let webhook = Webhook::to(scene.url("/c"))
        .timeout(Duration::from_millis(300))
        .control(OnError::Block);
    scene.register(vec![AgentHook::webhook(
        "c",
        HookType::BeforeToolCall,
        webhook,
    )]);
    let reason = HOOK_CONTROL_ERROR.to_owned();
    assert_eq!(scene.evaluate().await, Verdict::Blocked { reason });
    assert!(logs.line("Control failed").contains("\"timeout\""));
}

#[tokio::test]
async fn h07_chunked_answers_with_extensions_and_trailers_are_read() {
    let deny = r#"{"decision":"deny","reason":"é"}"#.as_bytes();
    // Split inside the two bytes of the last character.
    let (first, second) = deny.split_at(deny.len() - 3);
    let mut raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    write!(raw, "00{:X};x=y\r\n", first.len()).unwrap();
    raw.extend_from_slice(first);
    write!(raw, "\r\n{:X}\r\n", second.len()).unwrap();
    raw.extend_from_slice(second);
    raw.extend_from_slice(b"\r\n0\r\nX-T: 1\r\n\r\n");
    is_denied(Answer::raw(raw), "é").await;
}

#[tokio::test]
async fn h09_answers_before_the_last_decide_nothing() {
    for status in [200, 500] {
        let deny = DENY;
        let raw = format!(
            "HTTP/1.1 100 Continue\r\n\r\n{}HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{deny}",
            "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(10),
            deny.len(),
        );
        if status == 200 {
            is_denied(Answer::raw(raw), "R").await;
        } else {
            is_error(Answer::raw(raw), "http_error").await;
        }
    }
}
