//! Bodies up to the limit are taken; longer and slower ones are refused in bounded memory.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::front_door::{FrontDoor, TOKEN, embedded_state, read_answer};

const MIB: usize = 1024 * 1024;
const SOON: Duration = Duration::from_secs(20);

fn head(door: &FrontDoor, framing: &str) -> String {
    format!(
        "POST /v2/publish/https://h/ HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
         Authorization: Bearer {TOKEN}\r\n{framing}\r\n\r\n",
        door.addr
    )
}

#[tokio::test]
async fn the_limit_itself_is_accepted_and_one_byte_more_is_not() {
    let door = FrontDoor::embedded().await;
    let fits = door.publish("https://h/", &[], vec![b'x'; 10 * MIB]).await;
    assert_eq!(fits.status, 200, "{fits:?}");
    let more = door
        .publish("https://h/", &[], vec![b'x'; 10 * MIB + 1])
        .await;
    assert_eq!(more.status, 413);
    assert!(
        more.error().contains("quota maxMessageSize exceeded"),
        "{more:?}"
    );
}

#[tokio::test]
async fn a_chunked_body_is_given_up_at_the_limit() {
    let mut state = embedded_state();
    state.limits.body_bytes_max = 1_000;
    let door = FrontDoor::open(state).await;
    for (chunks, status) in [(10, 200), (11, 413)] {
        let mut request = head(&door, "Transfer-Encoding: chunked");
        request.push_str(&format!("64\r\n{}\r\n", "x".repeat(100)).repeat(chunks));
        request.push_str("0\r\n\r\n");
        let answer = door.raw(request).await;
        assert_eq!(answer.status, status, "{answer:?}");
    }
}

#[tokio::test]
async fn an_endless_body_ends_with_a_413() {
    let door = FrontDoor::embedded().await;
    let mut stream = TcpStream::connect(door.addr).await.unwrap();
    let start = head(&door, "Transfer-Encoding: chunked");
    stream.write_all(start.as_bytes()).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let sending = tokio::spawn(async move {
        let chunk = format!("100000\r\n{}\r\n", "x".repeat(MIB));
        // Until the server has had enough.
        while writer.write_all(chunk.as_bytes()).await.is_ok() {}
    });
    let mut answer = vec![0; 12];
    let read = tokio::io::AsyncReadExt::read_exact(&mut reader, &mut answer);
    timeout(SOON, read).await.unwrap().unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    drop(reader);
    timeout(SOON, sending).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_client_that_asks_first_sends_nothing() {
    let door = FrontDoor::embedded().await;
    let framing = format!("Content-Length: {}\r\nExpect: 100-continue", 11 * MIB);
    let answer = timeout(Duration::from_secs(2), door.raw(head(&door, &framing))).await;
    let answer = answer.expect("an answer before any body");
    assert_eq!(answer.status, 413);
    let framing = "Content-Length: 2\r\nExpect: 100-continue";
    let mut stream = TcpStream::connect(door.addr).await.unwrap();
    stream
        .write_all(head(&door, framing).as_bytes())
        .await
        .unwrap();
    let mut asked = vec![0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut stream, &mut asked)
        .await
        .unwrap();
    assert_eq!(asked, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hi").await.unwrap();
    assert_eq!(read_answer(&mut stream).await.status, 200);
}

#[tokio::test]
async fn an_early_refusal_reaches_a_client_that_still_sends() {
    let door = FrontDoor::embedded().await;
    let body = vec![b'x'; 8 * MIB];
    let refused = door.publish("not-a-url", &[], body.clone()).await;
    assert_eq!(refused.status, 400);
    let request = door.request("POST", "/v2/wait/e").body(body.clone());
    assert_eq!(
        crate::support::front_door::answered(request).await.status,
        501
    );
    for (method, path, status) in [("POST", "/v2/nothing", 404), ("PUT", "/v2/keys", 405)] {
        let request = door.request(method, path).body(body.clone());
        let refused = crate::support::front_door::answered(request).await;
        assert_eq!(refused.status, status, "{method} {path}");
    }
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/v2/publish/https://h/", door.addr);
    let refused = client.post(url).body(body).send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 401);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_not_published() {
    let door = FrontDoor::embedded().await;
    let mut stream = TcpStream::connect(door.addr).await.unwrap();
    let request = format!("{}half", head(&door, "Content-Length: 8"));
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    drop(tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await);
    let text = String::from_utf8_lossy(&answer);
    assert!(
        text.is_empty() || text.starts_with("HTTP/1.1 400"),
        "{text}"
    );
    let leased: usize = door
        .lease()
        .await
        .iter()
        .map(|leased| leased.leases.len())
        .sum();
    assert_eq!(leased, 0);
}
