//! The equipment itself: a test that leans on it must be able to believe it.

use std::process::Command;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::process::Process;
use crate::support::proxy::Proxy;
use crate::support::receiver::{Answer, Receiver};
use crate::support::redis::RedisServer;

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn the_receiver_records_requests_as_they_came() {
    let receiver = Receiver::answering(vec![
        Answer::status(500).header("Retry-After", "1").body("no"),
        Answer::ok(),
    ]);
    let mut stream = TcpStream::connect(receiver.addr()).await.expect("connect");
    let sent = "POST /a?b=c HTTP/1.1\r\nHost: x\r\nX-One: 1\r\nx-two:  2 \r\nContent-Length: 3\r\n\r\n\
                    \x00\r\nPUT /d HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    stream.write_all(sent.as_bytes()).await.expect("write");
    let requests = receiver.wait_for(2, SOON).await;
    assert_eq!(requests[0].method, "POST");
    assert_eq!(requests[0].path, "/a?b=c");
    let headers: Vec<(&str, &str)> = requests[0]
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let wanted = [
        ("Host", "x"),
        ("X-One", "1"),
        ("x-two", "2"),
        ("Content-Length", "3"),
    ];
    assert_eq!(headers, wanted);
    assert_eq!(requests[0].body, b"\x00\r\n");
    assert_eq!(requests[1].text(), "abc");
    assert_eq!(requests[1].header("TRANSFER-ENCODING"), Some("chunked"));
    assert_eq!(receiver.connections(), 1);
    let mut answers = String::new();
    while answers.matches("HTTP/1.1").count() < 2 || !answers.ends_with("\r\n\r\n") {
        let mut buffer = [0; 1024];
        let read = stream.read(&mut buffer).await.expect("read");
        answers.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
    assert!(answers.starts_with("HTTP/1.1 500 "), "{answers}");
    assert!(answers.contains("Retry-After: 1\r\n"), "{answers}");
    assert!(answers.contains("HTTP/1.1 200 "), "{answers}");
}

#[tokio::test]
async fn the_receiver_delays_hangs_closes_and_answers_raw() {
    let receiver = Receiver::with(|request| match request.path.as_str() {
        "/late" => Answer::ok().after(Duration::from_millis(200)),
        "/hang" => Answer::hang(),
        "/close" => Answer::close(),
        _ => Answer::raw("nonsense"),
    });
    let client = reqwest::Client::builder()
        .no_proxy()
        .build()
        .expect("a client");
    let get = |path: &str| client.get(receiver.url(path)).send();
    let start = Instant::now();
    assert_eq!(get("/late").await.expect("late").status(), 200);
    assert!(start.elapsed() >= Duration::from_millis(200));
    let hung = tokio::time::timeout(Duration::from_millis(300), get("/hang")).await;
    assert!(hung.is_err());
    assert!(get("/close").await.is_err());
    assert!(get("/raw").await.is_err());
    assert_eq!(receiver.active_max(), 1);
}

#[tokio::test]
async fn the_receiver_holds_a_thousand_connections() {
    let receiver = Receiver::always(Answer::ok().after(Duration::from_millis(500)));
    let mut streams = Vec::new();
    for _ in 0..1_000 {
        let mut stream = TcpStream::connect(receiver.addr()).await.expect("connect");
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request).await.expect("write");
        streams.push(stream);
    }
    receiver.wait_for(1_000, SOON).await;
    assert_eq!(receiver.open_max(), 1_000);
}

#[tokio::test]
async fn the_proxy_cuts_after_commands_before_their_reply() {
    let redis = RedisServer::start();
    let proxy = Proxy::to_port(redis.port());
    proxy.cut_after_commands(2);
    let mut stream = TcpStream::connect(("127.0.0.1", proxy.port()))
        .await
        .expect("connect");
    let command = b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n";
    stream.write_all(&command.repeat(3)).await.expect("write");
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).await.expect("a close");
    assert!(replies.is_empty(), "{replies:?}");
    assert_eq!(redis.cli::<i64>(&["GET", "n"]), 2);
}

#[tokio::test]
async fn the_proxy_pauses_and_switches() {
    let one = RedisServer::start();
    let two = RedisServer::start();
    let proxy = Proxy::to_port(one.port());
    let ask = async |stream: &mut TcpStream, wait: Duration| {
        stream.write_all(b"INCR n\r\n").await.expect("write");
        let mut reply = [0; 16];
        let read = tokio::time::timeout(wait, stream.read(&mut reply))
            .await
            .ok()?;
        Some(String::from_utf8_lossy(&reply[..read.expect("read")]).into_owned())
    };
    let connect = async || {
        let addr = ("127.0.0.1", proxy.port());
        TcpStream::connect(addr).await.expect("connect")
    };
    let mut old = connect().await;
    assert_eq!(ask(&mut old, SOON).await.as_deref(), Some(":1\r\n"));
    proxy.pause();
    assert_eq!(ask(&mut old, Duration::from_millis(200)).await, None);
    proxy.switch_to_port(two.port());
    proxy.resume();
    // What was held back passes, in both directions, to where the old connection leads.
    let mut held_back = [0; 4];
    old.read_exact(&mut held_back).await.expect("a reply");
    assert_eq!(&held_back, b":2\r\n");
    assert_eq!(
        ask(&mut connect().await, SOON).await.as_deref(),
        Some(":1\r\n")
    );
    assert_eq!(one.cli::<i64>(&["GET", "n"]), 2);
    proxy.cut();
    let mut rest = Vec::new();
    old.read_to_end(&mut rest).await.expect("a close");
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn a_process_tells_its_lines_takes_signals_and_ends() {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        "trap 'echo caught >&2; exit 3' TERM; echo up; while :; do sleep 0.05; done",
    ]);
    let mut process = Process::spawn(command);
    process.wait_for_line("up", SOON).await;
    process.signal("TERM");
    assert_eq!(process.wait_exit(SOON).await.code(), Some(3));
    process.wait_for_line("caught", SOON).await;
}

#[tokio::test]
async fn a_server_keeps_its_data_and_port_over_a_crash() {
    let mut redis = RedisServer::start_durable();
    let () = redis.cli(&["SET", "a", "1"]);
    let port = redis.port();
    redis.restart();
    assert_eq!(redis.port(), port);
    assert_eq!(redis.cli::<String>(&["GET", "a"]), "1");
}
