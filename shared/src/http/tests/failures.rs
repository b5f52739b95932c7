//! Every class of failure, caused on a real socket.

use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::support::{
    Answer, Receiver, client, local_client, name_server, post, read_request, run_in_child,
    run_in_child_with_files,
};
use crate::environment::{Environment, ProcessEnvironment};
use crate::error_class::ErrorClass;
use crate::http::{ATTEMPT_MESSAGE_BYTES_MAX, AttemptError, HttpClient, Request};

async fn failure(client: &HttpClient, url: &str) -> AttemptError {
    let error = client.send(post(url)).await.expect_err(url);
    assert!(error.message.len() <= ATTEMPT_MESSAGE_BYTES_MAX, "{error}");
    assert!(!error.message.contains(char::is_control), "{error:?}");
    error
}

#[tokio::test]
async fn a_url_that_cannot_be_called_is_configuration() {
    // Longer than a request target may be.
    let long = format!("http://127.0.0.1/{}", "x".repeat(70_000));
    for url in [
        "",
        "no url",
        "/relative",
        "ftp://h/",
        "data:,x",
        "http://",
        "http://a b/",
        "http://h:99999/",
        &long,
    ] {
        let error = failure(&local_client(), url).await;
        assert_eq!(error.class, ErrorClass::Configuration, "{error}");
    }
}

#[tokio::test]
async fn credentials_of_the_url_are_in_no_message() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    drop(listener);
    for url in [
        format!("http://us3r:s3cret@{address}/p4th?qu3ry"),
        "http://us3r:s3cret@nowhere.test/p4th?qu3ry".to_owned(),
        "http://us3r:s3cret@10.0.0.1/p4th?qu3ry".to_owned(),
        "http://us3r:s3cret@[/p4th?qu3ry".to_owned(),
    ] {
        let error = failure(&local_client(), &url).await;
        for secret in ["us3r", "s3cret", "p4th", "qu3ry", "dXMzcjpzM2NyZXQ"] {
            assert!(!format!("{error:?}").contains(secret), "{error:?}");
        }
    }
}

#[tokio::test]
async fn a_refused_port_is_connect() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    drop(listener);
    for scheme in ["http", "https"] {
        let error = failure(&local_client(), &format!("{scheme}://{address}/")).await;
        assert_eq!(error.class, ErrorClass::Connect, "{error}");
        assert!(error.message.contains("refused"), "{error}");
    }
}

#[tokio::test]
async fn tls_to_a_plain_port_is_tls() {
    let receiver = Receiver::playing(|mut stream, _| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        // Keeps the connection until the client has read.
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    })
    .await;
    let error = failure(&local_client(), &format!("https://{}/", receiver.address)).await;
    assert_eq!(error.class, ErrorClass::Tls, "{error}");
}

#[tokio::test]
async fn hanging_up_in_the_handshake_is_tls() {
    let receiver = Receiver::playing(|mut stream, _| async move {
        let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await;
    })
    .await;
    let error = failure(&local_client(), &format!("https://{}/", receiver.address)).await;
    assert_eq!(error.class, ErrorClass::Tls, "{error}");
}

/// Serves one TLS connection: waits `before_handshake`, reads a request, waits
/// `before_answer` and answers.
fn tls_receiver(before_handshake: Duration, before_answer: Duration) -> std::net::SocketAddr {
    use std::io::{Read, Write};
    let certificate = include_bytes!("receiver.certificate.pem");
    let certificate = CertificateDer::from_pem_slice(certificate).expect("certificate");
    let key = PrivateKeyDer::try_from(&include_bytes!("receiver.key.der")[..]).expect("key");
    let config = rustls::ServerConfig::builder_with_provider(
        rustls::crypto::aws_lc_rs::default_provider().into(),
    )
    .with_safe_default_protocol_versions()
    .expect("versions")
    .with_no_client_auth()
    .with_single_cert(vec![certificate], key)
    .expect("server");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("connection");
        std::thread::sleep(before_handshake);
        let mut tls = rustls::ServerConnection::new(config.into()).expect("connection");
        let mut stream = rustls::Stream::new(&mut tls, &mut socket);
        if stream.read(&mut [0; 4096]).is_ok() {
            std::thread::sleep(before_answer);
            let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
            let _ = stream.read(&mut [0; 4096]);
        }
    });
    address
}

#[tokio::test]
async fn an_untrusted_certificate_is_tls() {
    let address = tls_receiver(Duration::ZERO, Duration::ZERO);
    let error = failure(&local_client(), &format!("https://{address}/")).await;
    assert_eq!(error.class, ErrorClass::Tls, "{error}");
}

#[tokio::test]
async fn g10_a_slow_handshake_and_a_slow_first_byte_have_their_time() {
    const CHILD: &str = "HOOKSTASH_TEST_G10";
    if ProcessEnvironment.get(CHILD).is_some() {
        let address = tls_receiver(Duration::from_secs(3), Duration::from_secs(2));
        let url = format!("https://{address}/");
        let response = local_client().send(post(&url)).await.expect("answer");
        assert_eq!(response.status.as_u16(), 204);
        return;
    }
    let roots = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/http/tests/receiver.certificate.pem"
    );
    let name = "http::tests::failures::g10_a_slow_handshake_and_a_slow_first_byte_have_their_time";
    run_in_child(name, &[(CHILD, "1"), ("SSL_CERT_FILE", roots)]).await;
}

#[tokio::test]
async fn silence_and_drips_are_timeout() {
    let silent = Receiver::answering("").await;
    let dripping = Receiver::playing(|mut stream, seen| async move {
        read_request(&mut stream, &seen).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n")
            .await;
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    for receiver in [silent, dripping] {
        let url = receiver.url();
        let request = Request {
            timeout: Duration::from_millis(200),
            ..post(&url)
        };
        let error = local_client().send(request).await.expect_err("no answer");
        assert_eq!(error.class, ErrorClass::Timeout);
        assert_eq!(error.message, "no complete answer within 200ms");
    }
}

#[tokio::test]
async fn an_answer_cut_short_is_network() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\nContent-Le",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
    ] {
        let receiver = Receiver::closing_after(answer).await;
        let error = failure(&local_client(), &receiver.url()).await;
        assert_eq!(error.class, ErrorClass::Network, "{answer}: {error}");
    }
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_invalid_response() {
    for answer in [
        "SSH-2.0-OpenSSH_9.9\r\n\r\n",
        "\x00\x01\x02\x03\r\n\r\n",
        "HTTP/1.1 abc OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhi\r\n",
    ] {
        let receiver = Receiver::answering(answer).await;
        let error = failure(&local_client(), &receiver.url()).await;
        assert_eq!(
            error.class,
            ErrorClass::InvalidResponse,
            "{answer}: {error}"
        );
    }
}

#[tokio::test]
async fn a_head_without_end_is_too_large() {
    let receiver = Receiver::playing(|mut stream, seen| async move {
        read_request(&mut stream, &seen).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while stream.write_all(b"x-pad: 0123456789\r\n").await.is_ok() {}
    })
    .await;
    let error = failure(&local_client(), &receiver.url()).await;
    assert_eq!(error.class, ErrorClass::ResponseTooLarge, "{error}");
}

#[tokio::test]
async fn r06_a_failing_name_server_is_dns_and_the_third_attempt_delivers() {
    let mut questions = 0;
    let server = name_server(move |_| {
        questions += 1;
        match questions {
            1 | 2 => Answer::ServFail,
            _ => Answer::V4(vec![[127, 0, 0, 1]]),
        }
    })
    .await;
    let receiver = Receiver::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let client = client("loopback", server);
    let url = format!("http://receiver.test:{}/", receiver.address.port());
    for _ in 0..2 {
        let error = failure(&client, &url).await;
        assert_eq!(error.class, ErrorClass::Dns, "{error}");
    }
    client.send(post(&url)).await.expect("delivered");
    assert_eq!(receiver.seen.requests().len(), 1);
}

#[tokio::test]
async fn r06_an_unknown_name_is_dns_each_time_and_is_asked_again() {
    let (asked, mut questions) = tokio::sync::mpsc::unbounded_channel();
    let server = name_server(move |name| {
        asked.send(name.to_owned()).expect("test");
        Answer::NxDomain
    })
    .await;
    let client = client("", server);
    for _ in 0..3 {
        let error = failure(&client, "http://receiver.test/").await;
        assert_eq!(error.class, ErrorClass::Dns, "{error}");
        assert!(
            error
                .message
                .starts_with("the host name does not resolve: "),
            "{error}"
        );
        assert_eq!(questions.try_recv().as_deref(), Ok("receiver.test"));
    }
}

#[tokio::test]
async fn a_silent_name_server_is_dns_within_the_connect_deadline() {
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0")
        .await
        .expect("bind");
    let client = client("", socket.local_addr().expect("address"));
    let error = failure(&client, "http://receiver.test/").await;
    assert_eq!(error.class, ErrorClass::Dns, "{error}");
}

#[tokio::test]
async fn an_upload_nobody_reads_is_timeout() {
    let receiver = Receiver::playing(|stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let url = receiver.url();
    let request = Request {
        body: Bytes::from(vec![0; 32 * 1024 * 1024]),
        timeout: Duration::from_millis(300),
        ..post(&url)
    };
    let error = local_client().send(request).await.expect_err("no answer");
    assert_eq!(error.class, ErrorClass::Timeout);
}

#[tokio::test]
async fn h17_a_call_without_a_file_for_its_socket_waits_for_one() {
    waits_for_a_file(
        "h17_a_call_without_a_file_for_its_socket_waits_for_one",
        false,
    )
    .await;
}

#[tokio::test]
async fn h17_a_call_without_a_file_to_resolve_its_name_waits_for_one() {
    waits_for_a_file(
        "h17_a_call_without_a_file_to_resolve_its_name_waits_for_one",
        true,
    )
    .await;
}

/// In a process of its own, because the limit is that of a process.
async fn waits_for_a_file(name: &str, by_name: bool) {
    const CHILD: &str = "HOOKSTASH_TEST_FILES";
    if ProcessEnvironment.get(CHILD).is_none() {
        let name = format!("http::tests::failures::{name}");
        return run_in_child_with_files(&name, 128, &[(CHILD, "1")]).await;
    }
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let receiver = Receiver::answering(ok).await;
    let server = name_server(|_| Answer::V4(vec![[127, 0, 0, 1]])).await;
    let client = client("loopback", server);
    let url = if by_name {
        format!("http://receiver.test:{}/", receiver.address.port())
    } else {
        receiver.url()
    };
    let mut files: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let answered = tokio::spawn(async move { client.send(post(&url)).await });
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!answered.is_finished(), "it waits, and fails nothing");
    // Both ends of the connection are in this process.
    files.truncate(files.len() - 8);
    answered.await.expect("no panic").expect("an answer");
    assert_eq!(receiver.seen.requests().len(), 1);
}
