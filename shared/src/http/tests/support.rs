//! Receivers that misbehave on purpose, a name server that says what it is told, and clients for
//! both.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::http::{
    CONNECT_TIMEOUT, EgressPolicy, HttpClient, RESPONSE_KEEP_BYTES, Request, Resolver, Trust,
};

/// A client with `allow` opened; names go to `name_server`.
pub fn client(allow: &str, name_server: SocketAddr) -> HttpClient {
    client_in(allow, name_server, BTreeMap::new())
}

pub fn client_in(
    allow: &str,
    name_server: SocketAddr,
    environment: BTreeMap<String, String>,
) -> HttpClient {
    let policy = EgressPolicy::parse(allow).expect("allow list");
    let resolver = Resolver::with_name_servers(&[name_server]).expect("resolver");
    HttpClient::with_resolver(policy, Arc::new(environment), CONNECT_TIMEOUT, &resolver)
        .expect("client")
}

/// A client that may reach receivers on loopback and resolves nothing.
pub fn local_client() -> HttpClient {
    client("loopback", ([127, 0, 0, 1], 9).into())
}

pub fn post(url: &str) -> Request<'_> {
    Request {
        method: Method::POST,
        url,
        headers: HeaderMap::new(),
        body: Bytes::from_static(b"body"),
        timeout: Duration::from_secs(20),
        response_keep_bytes: RESPONSE_KEEP_BYTES,
        trust: Trust::Policy,
    }
}

/// What a receiver has seen.
#[derive(Clone, Default)]
pub struct Seen {
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
    connections: Arc<Mutex<usize>>,
}

impl Seen {
    pub fn requests(&self) -> Vec<String> {
        let requests = self.requests.lock().expect("lock");
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        requests.iter().map(text).collect()
    }

    pub fn connections(&self) -> usize {
        *self.connections.lock().expect("lock")
    }
}

/// A raw receiver on a free port; `answer` plays each connection.
pub struct Receiver {
    pub address: SocketAddr,
    pub seen: Seen,
}

impl Receiver {
    pub async fn playing<F, Fut>(play: F) -> Self
    where
        F: Fn(TcpStream, Seen) -> Fut + Send + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let address = listener.local_addr().expect("address");
        let seen = Seen::default();
        let shared = seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *shared.connections.lock().expect("lock") += 1;
                tokio::spawn(play(stream, shared.clone()));
            }
        });
        Self { address, seen }
    }

    /// Answers every request on a connection with the same bytes and keeps it open.
    pub async fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::playing(move |mut stream, seen| {
            let answer = answer.clone();
            async move {
                while read_request(&mut stream, &seen).await {
                    if stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// Reads one request, writes `answer` and closes.
    pub async fn closing_after(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::playing(move |mut stream, seen| {
            let answer = answer.clone();
            async move {
                read_request(&mut stream, &seen).await;
                let _ = stream.write_all(&answer).await;
            }
        })
        .await
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }
}

/// Reads one request with its `Content-Length` body and records it; false at the end of the
/// connection.
pub async fn read_request(stream: &mut TcpStream, seen: &Seen) -> bool {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |value| value.parse::<usize>().expect("length"));
            if bytes.len() >= end + 4 + length {
                seen.requests.lock().expect("lock").push(bytes);
                return true;
            }
        }
        let mut chunk = vec![0; 16 * 1024];
        match stream.read(&mut chunk).await {
            Ok(count) if count > 0 => bytes.extend_from_slice(&chunk[..count]),
            _ => return false,
        }
    }
}

/// What the stub name server says about a name.
#[derive(Clone)]
pub enum Answer {
    ServFail,
    NxDomain,
    /// IPv4 addresses; the question for IPv6 is answered with no record.
    V4(Vec<[u8; 4]>),
}

/// A name server on a free UDP port. `answer` is asked once per question for IPv4 addresses; the
/// question for IPv6 addresses gets `SERVFAIL` or nothing.
pub async fn name_server<F>(mut answer: F) -> SocketAddr
where
    F: FnMut(&str) -> Answer + Send + 'static,
{
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("bind");
    let address = socket.local_addr().expect("address");
    tokio::spawn(async move {
        let mut packet = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut packet).await {
            let (name, kind, end) = question(&packet[..length]);
            let answer = if kind == 1 {
                answer(&name)
            } else {
                Answer::V4(Vec::new())
            };
            let reply = reply(&packet[..end], &answer);
            let _ = socket.send_to(&reply, from).await;
        }
    });
    address
}

/// The name, the record type and the end of the question section.
fn question(packet: &[u8]) -> (String, u16, usize) {
    let mut labels = Vec::new();
    let mut at = 12;
    while packet[at] != 0 {
        let end = at + 1 + usize::from(packet[at]);
        labels.push(String::from_utf8_lossy(&packet[at + 1..end]).to_lowercase());
        at = end;
    }
    let kind = u16::from_be_bytes([packet[at + 1], packet[at + 2]]);
    (labels.join("."), kind, at + 5)
}

fn reply(query: &[u8], answer: &Answer) -> Vec<u8> {
    let (code, addresses) = match answer {
        Answer::ServFail => (2, &[][..]),
        Answer::NxDomain => (3, &[][..]),
        Answer::V4(addresses) => (0, &addresses[..]),
    };
    let mut reply = query.to_vec();
    reply[2] = 0x81;
    reply[3] = 0x80 | code;
    reply[6] = 0;
    reply[7] = u8::try_from(addresses.len()).expect("few addresses");
    reply[8..12].fill(0);
    if matches!(answer, Answer::NxDomain) {
        // A start of authority that allows the answer to be reused for 60 s.
        reply[9] = 1;
        reply.extend_from_slice(&[0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 60, 0, 22, 0, 0]);
        reply.extend_from_slice(&[0, 0, 0, 60].repeat(5));
    }
    for address in addresses {
        // The question's name, type A, class IN, 60 s, 4 bytes.
        reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        reply.extend_from_slice(address);
    }
    reply
}

/// Runs the test `name` of this binary again in a process of its own with other variables, and
/// fails when it fails there.
pub async fn run_in_child(name: &str, variables: &[(&str, &str)]) {
    let binary = std::env::current_exe().expect("own path");
    let output = tokio::process::Command::new(binary)
        .args(["--exact", name, "--nocapture"])
        .envs(variables.iter().copied())
        .output()
        .await
        .expect("child");
    assert_passed(&output);
}

/// The same with at most `files` open files.
pub async fn run_in_child_with_files(name: &str, files: usize, variables: &[(&str, &str)]) {
    let output = tokio::process::Command::new("sh")
        .args(["-c", "ulimit -n \"$0\"; exec \"$@\"", &files.to_string()])
        .arg(std::env::current_exe().expect("own path"))
        .args(["--exact", name, "--nocapture"])
        .envs(variables.iter().copied())
        .output()
        .await
        .expect("child");
    assert_passed(&output);
}

fn assert_passed(output: &std::process::Output) {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 passed"), "the child ran no test: {text}");
}
