//! The listener: bounded connections with deadlines, and an end that waits for what runs.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use futures::future::{Either, select};
use hookstash_shared::descriptors::{inbound, soft_limit};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use super::patient::Patient;

/// Connections at one time; more wait in the system's backlog.
const CONNECTIONS_MAX: usize = 4_096;
/// Time for the head of a request, and time a connection may idle before it.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Headers of one request: those of a message and our own. Above: 431.
const HEADERS_MAX: usize = 256;
/// Bytes of the head of one request: those of a message's headers and its destination twice over.
const HEAD_BYTES_MAX: usize = 160 * 1024;
/// Longest time that a client takes nothing of an answer.
const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that running requests get after the shutdown: a publish's patience and a store's answer.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);
/// Pause after the system refuses a connection, which it does when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `shutdown` is done, then lets running requests finish for up
/// to 15 seconds. Dropping the future stops accepting; open connections then end with the runtime.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let closing = CancellationToken::new();
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(connections_max()));
    let accepting = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let closing = closing.clone();
                    let (router, stall) = (router.clone(), WRITE_STALL_TIMEOUT);
                    connections.spawn(converse(stream, stall, peer, router, closing, place));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    select(pin!(accepting), pin!(shutdown)).await;
    drop(listener);
    closing.cancel();
    connections.close();
    connections.wait().await;
}

/// Answers the requests of one connection.
async fn converse(
    stream: TcpStream,
    write_stall: Duration,
    peer: SocketAddr,
    router: Router,
    closing: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    drop(stream.set_nodelay(true));
    let stream = Patient::new(stream, write_stall);
    let service = service_fn(move |request: http::Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        let mut router = router.clone();
        async move { Ok::<_, Infallible>(router.call(request).await.unwrap_or_default()) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = match select(connection.as_mut(), pin!(closing.cancelled())).await {
        Either::Left((ended, _)) => ended,
        Either::Right(_) => {
            connection.as_mut().graceful_shutdown();
            timeout(SHUTDOWN_GRACE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended badly");
    }
}

/// [`CONNECTIONS_MAX`], or fewer when the limit of open files is small: deliveries of this process
/// need the rest.
fn connections_max() -> usize {
    let places = soft_limit().map_or(CONNECTIONS_MAX, inbound);
    places.min(CONNECTIONS_MAX)
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn a_client_that_never_reads_its_answers_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        let router = Router::new().route("/", get(|| async { "x".repeat(1024 * 1024) }));
        let place = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
        let stall = Duration::from_millis(300);
        let closing = CancellationToken::new();
        let served = converse(stream, stall, peer, router, closing, place);
        let requests = "GET / HTTP/1.1\r\nHost: h\r\n\r\n".repeat(64);
        client.write_all(requests.as_bytes()).await.unwrap();
        timeout(Duration::from_secs(20), served).await.unwrap();
        drop(client);
    }
}
