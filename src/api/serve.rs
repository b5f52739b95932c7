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

/// Connections at one time; more wait in the system's backlog.
const CONNECTIONS_MAX: usize = 4_096;
/// Time for the head of a request, and time a connection may idle before it.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Headers of one request: those of a message and our own. Above: 431.
const HEADERS_MAX: usize = 256;
/// Bytes of the head of one request: those of a message's headers and its destination twice over.
const HEAD_BYTES_MAX: usize = 160 * 1024;
/// Time that running requests get after the shutdown: a publish's patience and a store's answer.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);
/// Pause after the system refuses a connection, which it does when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `shutdown` is done, then lets running requests finish for up
/// to 15 seconds. Dropping the future stops accepting; open connections then end with the runtime.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future<Output = ()>) {
    let closing = CancellationToken::new();
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let accepting = async {
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let closing = closing.clone();
                    connections.spawn(converse(stream, peer, router.clone(), closing, place));
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
    peer: SocketAddr,
    router: Router,
    closing: CancellationToken,
    _place: OwnedSemaphorePermit,
) {
    drop(stream.set_nodelay(true));
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
