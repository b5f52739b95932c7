//! What goes over the wire and what is made of the answers.

use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::support::{Receiver, local_client, post, read_request, run_in_child};
use crate::environment::{Environment, ProcessEnvironment};
use crate::error_class::ErrorClass;
use crate::http::{RESPONSE_KEEP_BYTES, Request};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_request_arrives_as_given_and_carries_nothing_else() {
    let receiver = Receiver::answering(OK).await;
    let url = format!("http://{}/a//b%20c?x=%41&y=1&y=2&&z", receiver.address);
    let mut headers = HeaderMap::new();
    headers.append("x-one", HeaderValue::from_static("1"));
    headers.append("x-one", HeaderValue::from_static("2"));
    for framing in [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
    ] {
        headers.insert(framing, HeaderValue::from_static("7"));
    }
    let request = Request {
        method: Method::GET,
        headers,
        body: Bytes::from_static(b"\x00\xffraw"),
        ..post(&url)
    };
    let response = local_client().send(request).await.expect("answer");
    assert_eq!(response.status, StatusCode::OK);
    assert_eq!(response.body, "ok");
    assert_eq!(response.headers["content-length"], "2");
    assert!(!response.is_truncated);
    let seen = receiver.seen.requests();
    let mut lines: Vec<&str> = seen[0].split("\r\n").collect();
    assert_eq!(lines.remove(0), "GET /a//b%20c?x=%41&y=1&y=2&&z HTTP/1.1");
    lines.sort_unstable();
    let host = format!("host: {}", receiver.address);
    let mut expected = vec![
        "",
        "\u{0}\u{fffd}raw",
        "accept-encoding: identity",
        "accept: */*",
        "content-length: 5",
        &host,
        "x-one: 1",
        "x-one: 2",
    ];
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn user_information_becomes_basic_authentication_unless_a_header_says_otherwise() {
    let receiver = Receiver::answering(OK).await;
    let url = format!("http://user:pass@{}/", receiver.address);
    let client = local_client();
    client.send(post(&url)).await.expect("answer");
    let mut request = post(&url);
    let bearer = HeaderValue::from_static("Bearer t");
    request.headers.insert(header::AUTHORIZATION, bearer);
    client.send(request).await.expect("answer");
    let seen = receiver.seen.requests();
    assert!(
        seen[0].contains("authorization: Basic dXNlcjpwYXNz\r\n"),
        "{}",
        seen[0]
    );
    assert!(
        seen[1].contains("authorization: Bearer t\r\n"),
        "{}",
        seen[1]
    );
    assert!(!seen[1].contains("Basic"), "{}", seen[1]);
}

#[tokio::test]
async fn h03_h06_no_redirect_is_followed_and_nobody_else_sees_the_headers() {
    let other = Receiver::answering(OK).await;
    let client = local_client();
    for status in [300, 301, 302, 303, 304, 307, 308] {
        let receiver = Receiver::answering(format!(
            "HTTP/1.1 {status} Moved\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
            other.url()
        ))
        .await;
        let url = receiver.url();
        let mut request = post(&url);
        let secret = HeaderValue::from_static("Bearer secret");
        request.headers.insert(header::AUTHORIZATION, secret);
        let response = client.send(request).await.expect("answer");
        assert_eq!(response.status.as_u16(), status);
        assert_eq!(receiver.seen.requests().len(), 1, "{status}");
    }
    let bare = Receiver::answering("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n").await;
    let response = client.send(post(&bare.url())).await.expect("answer");
    assert_eq!(response.status, StatusCode::FOUND);
    assert_eq!(other.seen.connections(), 0);
}

#[tokio::test]
async fn h07_chunks_with_extensions_and_trailers_are_one_body() {
    let receiver = Receiver::answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n\
          000B;x=y\r\n{\"reason\":\"\r\n1\r\n\xc3\r\n00A;q=\"z\"\r\n\xa9\", \"a\":1}\r\n\
          0\r\nX-T: 1\r\n\r\n"
            .to_vec(),
    )
    .await;
    let client = local_client();
    for _ in 0..2 {
        let response = client.send(post(&receiver.url())).await.expect("answer");
        assert_eq!(response.body, "{\"reason\":\"é\", \"a\":1}");
    }
    assert_eq!(
        receiver.seen.connections(),
        1,
        "the connection is used again"
    );
}

#[tokio::test]
async fn h09_interim_answers_are_skipped() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(10);
    for status in [200, 500] {
        let receiver = Receiver::answering(format!(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n{early}\
             HTTP/1.1 {status} Done\r\nContent-Length: 2\r\n\r\nok"
        ))
        .await;
        let response = local_client().send(post(&receiver.url())).await;
        let response = response.expect("answer");
        assert_eq!(
            (response.status.as_u16(), &response.body[..]),
            (status, &b"ok"[..])
        );
    }
}

#[tokio::test]
async fn h09_endless_interim_answers_end_at_the_total_timeout() {
    let receiver = Receiver::playing(|mut stream, seen| async move {
        read_request(&mut stream, &seen).await;
        while stream
            .write_all(b"HTTP/1.1 102 Processing\r\n\r\n")
            .await
            .is_ok()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let url = receiver.url();
    let request = Request {
        timeout: Duration::from_millis(200),
        ..post(&url)
    };
    let client = local_client();
    let call = tokio::time::timeout(Duration::from_millis(700), client.send(request));
    let error = call.await.expect("within the timeout and half a second");
    assert_eq!(error.expect_err("no answer").class, ErrorClass::Timeout);
}

#[tokio::test]
async fn h12_a_slow_upload_has_the_whole_timeout() {
    const BODY_BYTES: usize = 5 * 1024 * 1024;
    let receiver = Receiver::playing(|mut stream, _| async move {
        let mut chunk = vec![0; 256 * 1024];
        let mut received = 0;
        while received < BODY_BYTES {
            received += stream.read(&mut chunk).await.expect("upload");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        stream.write_all(OK.as_bytes()).await.expect("answer");
    })
    .await;
    let url = receiver.url();
    let body = Bytes::from(vec![b'x'; BODY_BYTES]);
    let response = local_client().send(Request { body, ..post(&url) }).await;
    assert_eq!(response.expect("answer").status, StatusCode::OK);
}

#[tokio::test]
async fn h15_proxy_variables_are_ignored() {
    const ORIGIN: &str = "HOOKSTASH_TEST_H15_URL";
    if let Some(url) = ProcessEnvironment.get(ORIGIN) {
        let response = local_client().send(post(&url)).await.expect("answer");
        assert_eq!(response.status, StatusCode::OK);
        return;
    }
    let origin = Receiver::answering(OK).await;
    let canary = Receiver::answering(OK).await;
    let proxy = format!("http://{}", canary.address);
    let origin_url = origin.url();
    for names in [
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"],
        ["http_proxy", "https_proxy", "all_proxy"],
    ] {
        let mut variables = vec![(ORIGIN, &*origin_url), ("NO_PROXY", "example.com")];
        variables.extend(names.map(|name| (name, &*proxy)));
        let name = "http::tests::protocol::h15_proxy_variables_are_ignored";
        run_in_child(name, &variables).await;
    }
    assert_eq!(canary.seen.connections(), 0);
    assert_eq!(origin.seen.requests().len(), 2);
}

#[tokio::test]
async fn h01_a_connection_closed_in_the_pool_never_causes_a_second_request() {
    const CALLS: usize = 300;
    let receiver = Receiver::playing(|mut stream, seen| async move {
        read_request(&mut stream, &seen).await;
        let _ = stream.write_all(OK.as_bytes()).await;
        // Closes about when the next request comes.
        tokio::time::sleep(Duration::from_millis(1)).await;
    })
    .await;
    let client = local_client();
    let url = receiver.url();
    let mut delivered = Vec::new();
    for id in 0..CALLS {
        let mut request = post(&url);
        let value = HeaderValue::from(id);
        request.headers.insert("x-id", value);
        match client.send(request).await {
            Ok(_) => delivered.push(id),
            Err(error) => assert_eq!(error.class, ErrorClass::Network, "{error}"),
        }
        tokio::time::sleep(Duration::from_micros(600 + (id as u64 * 37) % 1_000)).await;
    }
    let seen = receiver.seen.requests();
    let times = |id: usize| {
        let line = format!("x-id: {id}\r\n");
        seen.iter()
            .filter(|request| request.contains(&line))
            .count()
    };
    assert!((0..CALLS).all(|id| times(id) <= 1));
    assert!(delivered.iter().all(|id| times(*id) == 1));
    assert!(delivered.len() > CALLS / 2, "{}", delivered.len());
}

#[tokio::test]
async fn h01_a_connection_closed_without_an_answer_is_a_network_error_after_one_request() {
    let receiver = Receiver::playing(|mut stream, seen| async move {
        if seen.requests().is_empty() {
            read_request(&mut stream, &seen).await;
            let _ = stream.write_all(OK.as_bytes()).await;
        }
        read_request(&mut stream, &seen).await;
    })
    .await;
    let client = local_client();
    client.send(post(&receiver.url())).await.expect("answer");
    // On the pooled connection, then on a new one.
    for requests in [2, 3] {
        let error = client.send(post(&receiver.url())).await;
        assert_eq!(error.expect_err("closed").class, ErrorClass::Network);
        assert_eq!(receiver.seen.requests().len(), requests);
    }
}

#[tokio::test]
async fn a_long_answer_is_kept_up_to_the_bound_and_the_connection_used_again() {
    let body = "x".repeat(RESPONSE_KEEP_BYTES + 500_000);
    let length = body.len();
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"
    );
    for answer in [whole, chunked] {
        let receiver = Receiver::answering(answer).await;
        let client = local_client();
        for _ in 0..2 {
            let response = client.send(post(&receiver.url())).await.expect("answer");
            assert_eq!(response.body.len(), RESPONSE_KEEP_BYTES);
            assert!(response.is_truncated);
        }
        assert_eq!(receiver.seen.connections(), 1);
    }
}

#[tokio::test]
async fn an_answer_of_exactly_the_bound_is_not_truncated() {
    let receiver = Receiver::answering(OK).await;
    let client = local_client();
    let url = receiver.url();
    for (keep, body, is_truncated) in [(2, "ok", false), (1, "o", true), (0, "", true)] {
        let request = Request {
            response_keep_bytes: keep,
            ..post(&url)
        };
        let response = client.send(request).await.expect("answer");
        assert_eq!(response.body, body);
        assert_eq!(response.is_truncated, is_truncated);
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_off_by_size() {
    let (closed, mut is_closed) = tokio::sync::mpsc::channel(1);
    let receiver = Receiver::playing(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            read_request(&mut stream, &seen).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
            let filler = vec![b'x'; 64 * 1024];
            while stream.write_all(&filler).await.is_ok() {}
            let _ = closed.send(()).await;
        }
    })
    .await;
    let response = local_client()
        .send(post(&receiver.url()))
        .await
        .expect("answer");
    assert_eq!(response.body.len(), RESPONSE_KEEP_BYTES);
    assert!(response.is_truncated);
    is_closed.recv().await.expect("the client hung up");
}

#[tokio::test]
async fn a_drip_beyond_the_kept_bytes_does_not_hold_the_call() {
    let receiver = Receiver::playing(|mut stream, seen| async move {
        read_request(&mut stream, &seen).await;
        let head = format!(
            "HTTP/1.1 200 OK\r\n\r\n{}",
            "x".repeat(RESPONSE_KEEP_BYTES + 1)
        );
        let _ = stream.write_all(head.as_bytes()).await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let client = local_client();
    let url = receiver.url();
    let call = tokio::time::timeout(Duration::from_secs(2), client.send(post(&url)));
    let response = call.await.expect("soon").expect("answer");
    assert!(response.is_truncated);
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    let (closed, mut is_closed) = tokio::sync::mpsc::channel(1);
    let receiver = Receiver::playing(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            read_request(&mut stream, &seen).await;
            let _ = closed.send(stream.read(&mut [0]).await).await;
        }
    })
    .await;
    let client = local_client();
    let url = receiver.url();
    tokio::select! {
        _ = client.send(post(&url)) => unreachable!("nobody answers"),
        () = async { while receiver.seen.requests().is_empty() { tokio::task::yield_now().await } } => {}
    }
    let read = is_closed.recv().await.expect("receiver");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}
