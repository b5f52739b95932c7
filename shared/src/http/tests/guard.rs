//! The egress policy at its three places.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{error, io};

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower::{Layer, Service};

use super::support::{Answer, Receiver, client, client_in, local_client, name_server, post};
use crate::error_class::ErrorClass;
use crate::http::egress::Egress;
use crate::http::peer::PeerCheckLayer;
use crate::http::{CONNECT_TIMEOUT, EgressPolicy, EgressRefusal, HttpClient, Request, Trust};

const NO_CONTENT: &str = "HTTP/1.1 204 No Content\r\n\r\n";

/// A name server that gives every name these addresses.
async fn pointing_to(addresses: &[[u8; 4]]) -> SocketAddr {
    let addresses = addresses.to_vec();
    name_server(move |_| Answer::V4(addresses.clone())).await
}

async fn refusal(client: &HttpClient, url: &str) -> String {
    let error = client.send(post(url)).await.expect_err(url);
    assert_eq!(error.class, ErrorClass::Egress, "{url}: {error}");
    error.message
}

#[tokio::test]
async fn x01_x04_a_refused_literal_reaches_no_socket() {
    let canary = Receiver::answering(NO_CONTENT).await;
    let port = canary.address.port();
    let client = client("", ([127, 0, 0, 1], 9).into());
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "localhost",
        "a.localhost.",
        "[::ffff:7f00:1]",
        "0",
    ] {
        let message = refusal(&client, &format!("http://{host}:{port}/")).await;
        assert!(message.contains("HOOKSTASH_EGRESS_ALLOW"), "{message}");
    }
    assert_eq!(canary.seen.connections(), 0);
}

#[tokio::test]
async fn one_forbidden_address_among_those_of_a_name_refuses_the_name() {
    let canary = Receiver::answering(NO_CONTENT).await;
    let url = format!("http://receiver.test:{}/", canary.address.port());
    for addresses in [
        &[[127, 0, 0, 1]][..],
        &[[93, 184, 216, 34], [127, 0, 0, 1]],
        &[[127, 0, 0, 1], [169, 254, 169, 254]],
    ] {
        let message = refusal(&client("", pointing_to(addresses).await), &url).await;
        assert!(message.contains("HOOKSTASH_EGRESS_ALLOW"), "{message}");
    }
    let mixed = pointing_to(&[[127, 0, 0, 1], [169, 254, 169, 254]]).await;
    refusal(&client("loopback", mixed), &url).await;
    assert_eq!(canary.seen.connections(), 0);
}

#[tokio::test]
async fn x06_a_listed_host_is_reached_by_name_and_port_alone() {
    let receiver = Receiver::answering(NO_CONTENT).await;
    let port = receiver.address.port();
    let server = pointing_to(&[[127, 0, 0, 1]]).await;
    for allow in [
        "receiver.test".to_owned(),
        format!("receiver.test:{port}"),
        "*.test".to_owned(),
        "127.0.0.0/8".to_owned(),
        "loopback".to_owned(),
    ] {
        let client = client(&allow, server);
        let url = format!("http://receiver.test:{port}/");
        client.send(post(&url)).await.expect(&allow);
    }
    assert_eq!(receiver.seen.requests().len(), 5);
    for allow in [
        "other.test",
        "receiver.test:1",
        "*.receiver.test",
        "private",
    ] {
        refusal(
            &client(allow, server),
            &format!("http://receiver.test:{port}/"),
        )
        .await;
    }
}

#[tokio::test]
async fn the_own_application_and_operator_hooks_reach_loopback_but_no_metadata() {
    let receiver = Receiver::answering(NO_CONTENT).await;
    let url = format!("http://receiver.test:{}/", receiver.address.port());
    let server = pointing_to(&[[127, 0, 0, 1]]).await;
    let environment = BTreeMap::from([("APP_URL".to_owned(), url.clone())]);
    client_in("", server, environment)
        .send(post(&url))
        .await
        .expect("trusted");
    let client_without = client("", server);
    let operator = |url| Request {
        trust: Trust::Operator,
        ..post(url)
    };
    client_without.send(operator(&url)).await.expect("trusted");
    let metadata = client("", pointing_to(&[[169, 254, 169, 254]]).await);
    for url in ["http://receiver.test/", "http://169.254.169.254/"] {
        let error = metadata.send(operator(url)).await.expect_err(url);
        assert_eq!(error.class, ErrorClass::Egress);
    }
}

#[tokio::test]
async fn a_connection_opened_in_trust_does_not_serve_others() {
    let receiver = Receiver::answering(NO_CONTENT).await;
    let url = format!("http://receiver.test:{}/", receiver.address.port());
    let client = client("", pointing_to(&[[127, 0, 0, 1]]).await);
    let request = Request {
        trust: Trust::Operator,
        ..post(&url)
    };
    client.send(request).await.expect("trusted");
    refusal(&client, &url).await;
    assert_eq!(receiver.seen.requests().len(), 1);
}

#[tokio::test]
async fn the_machine_resolver_knows_the_machine_in_development() {
    let receiver = Receiver::answering(NO_CONTENT).await;
    let policy = EgressPolicy::default().in_development();
    let environment = Arc::new(BTreeMap::<String, String>::new());
    let client = HttpClient::new(policy, environment, CONNECT_TIMEOUT).expect("client");
    for host in ["localhost", "LOCALHOST.", "hook.localhost"] {
        let url = format!("http://{host}:{}/", receiver.address.port());
        client.send(post(&url)).await.expect(host);
    }
    assert_eq!(receiver.seen.requests().len(), 3);
}

/// A connector that connects to the same place whatever it is asked for, as after a rebinding.
#[derive(Clone)]
struct Rebound(SocketAddr);

impl Service<()> for Rebound {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        let address = self.0;
        Box::pin(async move { Ok(TokioIo::new(TcpStream::connect(address).await?)) })
    }
}

#[tokio::test]
async fn the_connected_peer_is_checked_whatever_was_resolved() {
    let receiver = Receiver::answering(NO_CONTENT).await;
    for (allow, egress, is_open) in [
        ("", Egress::Guarded, false),
        ("private", Egress::Guarded, false),
        ("loopback", Egress::Guarded, true),
        ("", Egress::Opened, true),
    ] {
        let layer = PeerCheckLayer {
            policy: Arc::new(EgressPolicy::parse(allow).expect("policy")),
            egress,
        };
        let connected = layer.layer(Rebound(receiver.address)).call(()).await;
        match connected {
            Ok(_) => assert!(is_open, "{allow}"),
            Err(error) => {
                assert!(!is_open, "{allow}: {error}");
                assert!(error.is::<EgressRefusal>(), "{error}");
            }
        }
    }
    let nowhere = PeerCheckLayer {
        policy: Arc::default(),
        egress: Egress::Guarded,
    };
    let refused = nowhere
        .layer(Rebound(([127, 0, 0, 1], 1).into()))
        .call(())
        .await;
    let error = refused.expect_err("nobody listens");
    assert!(error.is::<io::Error>(), "{error}");
}

#[tokio::test]
async fn a_refusal_by_the_peer_check_has_class_egress() {
    let receiver = Receiver::answering(NO_CONTENT).await;
    let policy = Arc::new(EgressPolicy::default());
    let client = reqwest::Client::builder()
        .no_proxy()
        .connector_layer(PeerCheckLayer {
            policy,
            egress: Egress::Guarded,
        })
        .build()
        .expect("client");
    let error = client.post(receiver.url()).body("secret").send().await;
    let error = error.expect_err("refused");
    let error = crate::http::AttemptError::from_reqwest(&error, false);
    assert_eq!(error.class, ErrorClass::Egress);
    assert!(
        receiver.seen.requests().is_empty(),
        "no byte of HTTP was sent"
    );
    local_client()
        .send(post(&receiver.url()))
        .await
        .expect("the receiver works");
}
