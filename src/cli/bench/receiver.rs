//! The built-in receiver: reads every request to its end, answers 200, and notes when it came.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::clock::Clock;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::cpu;
use crate::cli::failure::Failure;

/// Digits of a message's number in its body, after `{"n":"`.
const DIGITS: std::ops::Range<usize> = 6..16;

/// So long after the last arrival, what has not come is not waited for any more.
pub(super) const STUCK_AFTER: Duration = Duration::from_secs(30);

/// The body of message `number`: JSON of `bytes` bytes.
pub(super) fn body(number: usize, bytes: usize) -> Bytes {
    let mut text = format!("{{\"n\":\"{number:010}\",\"pad\":\"");
    let end = "\"}";
    text.push_str(&"x".repeat(bytes.saturating_sub(text.len() + end.len())));
    text.push_str(end);
    text.into()
}

/// A running receiver. Clones are one.
#[derive(Clone)]
pub(super) struct Receiver {
    inner: Arc<Inner>,
    url: String,
}

struct Inner {
    clock: Arc<dyn Clock>,
    expected: Mutex<Arc<Arrivals>>,
}

/// What came of an expected number of messages.
pub(super) struct Arrivals {
    /// Monotonic nanoseconds of the first request of each message; 0 = none yet.
    times: Vec<AtomicU64>,
    arrived: AtomicUsize,
    duplicates: AtomicUsize,
    /// Told when `wanted` have come.
    all: Notify,
    wanted: usize,
}

impl Receiver {
    /// Listens on a free loopback port, on a thread of its own, for the life of the process.
    pub(super) fn start(clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::failed("open the bench's receiver").because(&error);
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let inner = Arc::new(Inner {
            clock,
            expected: Mutex::new(Arc::new(Arrivals::new(0, 0))),
        });
        let served = Arc::clone(&inner);
        std::thread::Builder::new()
            .name(cpu::RECEIVER.to_owned())
            .spawn(move || runtime.block_on(serve(listener, served)))
            .map_err(failed)?;
        let url = format!("http://{address}/hook");
        Ok(Self { inner, url })
    }

    /// Where it takes messages.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Forgets what came and expects messages `0..messages`; done when `wanted` of them have come.
    pub(super) fn expect(&self, messages: usize, wanted: usize) -> Arc<Arrivals> {
        let arrivals = Arc::new(Arrivals::new(messages, wanted));
        *self.inner.lock() = Arc::clone(&arrivals);
        arrivals
    }
}

impl Inner {
    fn lock(&self) -> std::sync::MutexGuard<'_, Arc<Arrivals>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Arrivals {
    fn new(messages: usize, wanted: usize) -> Self {
        Self {
            times: (0..messages).map(|_| AtomicU64::new(0)).collect(),
            arrived: AtomicUsize::new(0),
            duplicates: AtomicUsize::new(0),
            all: Notify::new(),
            wanted,
        }
    }

    /// How many different messages have come.
    pub(super) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    /// How many came once more.
    pub(super) fn duplicates(&self) -> usize {
        self.duplicates.load(Ordering::SeqCst)
    }

    /// When message `number` came first, by the monotonic clock; `None` = not yet.
    pub(super) fn time(&self, number: usize) -> Option<Duration> {
        let nanos = self.times.get(number)?.load(Ordering::SeqCst);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Waits until all that are wanted have come, or none has come for `patience`; `false` then.
    pub(super) async fn complete(&self, patience: Duration) -> bool {
        loop {
            let before = self.arrived();
            if before >= self.wanted {
                return true;
            }
            let told = tokio::time::timeout(patience, self.all.notified()).await;
            if told.is_err() && self.arrived() == before {
                return false;
            }
        }
    }

    fn note(&self, number: usize, at: Duration) {
        let Some(time) = self.times.get(number) else {
            return;
        };
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).max(1);
        let first = time.compare_exchange(0, nanos, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_err() {
            self.duplicates.fetch_add(1, Ordering::SeqCst);
        } else if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.wanted {
            self.all.notify_one();
        }
    }
}

async fn serve(listener: std::net::TcpListener, inner: Arc<Inner>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of files for a moment.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // A peer that has gone already needs no answer.
        let _ = stream.set_nodelay(true);
        let inner = Arc::clone(&inner);
        tokio::spawn(async move {
            let service = service_fn(|request| receive(&inner, request));
            let serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // It ends when the sender closes it.
            let _ = serving.await;
        });
    }
}

async fn receive(
    inner: &Inner,
    request: Request<Incoming>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let at = inner.clock.monotonic();
    if let Ok(body) = request.into_body().collect().await
        && let Some(number) = number(&body.to_bytes())
    {
        let expected = Arc::clone(&inner.lock());
        expected.note(number, at);
    }
    Ok(Response::new(Empty::new()))
}

fn number(body: &[u8]) -> Option<usize> {
    std::str::from_utf8(body.get(DIGITS)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_has_its_length_and_its_number() {
        for bytes in [32, 33, 1_024] {
            let body = body(1_234_567, bytes);
            assert_eq!((body.len(), number(&body)), (bytes, Some(1_234_567)));
            assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok());
        }
    }

    #[test]
    fn a_message_that_comes_twice_is_counted_once_and_as_a_duplicate() {
        let arrivals = Arrivals::new(2, 2);
        arrivals.note(1, Duration::from_secs(1));
        arrivals.note(1, Duration::from_secs(2));
        arrivals.note(7, Duration::from_secs(2));
        assert_eq!((arrivals.arrived(), arrivals.duplicates()), (1, 1));
        assert_eq!(arrivals.time(1), Some(Duration::from_secs(1)));
        assert_eq!(arrivals.time(0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_come_is_waited_for_only_while_others_come() {
        let arrivals = Arc::new(Arrivals::new(3, 3));
        let coming = Arc::clone(&arrivals);
        let comes = async move {
            for number in [0, 1] {
                tokio::time::sleep(STUCK_AFTER * 2 / 3).await;
                coming.note(number, Duration::from_secs(1));
            }
        };
        let (is_complete, ()) = tokio::join!(arrivals.complete(STUCK_AFTER), comes);
        assert_eq!((is_complete, arrivals.arrived()), (false, 2));
        arrivals.note(2, Duration::from_secs(2));
        assert!(arrivals.complete(STUCK_AFTER).await);
    }
}
