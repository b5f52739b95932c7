//! Reading a request's body: all of it or a refusal, in bounded memory and time.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::ApiError;

/// Longest time from the head of a request to the end of its body: 10 MiB at 90 KiB/s.
const BODY_READ_TIMEOUT: Duration = Duration::from_mins(2);
/// Longest pause within a body.
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of bodies that are being read or stored at one time, in all connections together.
const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Longest time a request waits for its part of that.
const BUDGET_WAIT: Duration = Duration::from_secs(10);
/// Most bytes of a refused body that are read and forgotten.
const DISCARD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest time that this takes.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);
/// Unit of the budget.
const KIB: usize = 1024;

/// What all bodies in memory may take together.
pub(super) struct BodyBudget(Arc<Semaphore>);

/// A body and its part of the budget, which is free again when this is dropped.
pub(super) struct Held {
    /// The bytes exactly as they were sent.
    pub(super) bytes: Bytes,
    _part: OwnedSemaphorePermit,
}

impl BodyBudget {
    pub(super) fn new() -> Self {
        Self(Arc::new(Semaphore::new(BODIES_BYTES_MAX / KIB)))
    }

    /// Reads `body` up to `max` bytes. A body that says it is longer is not read at all; one that
    /// turns out to be longer is given up at the limit.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        mut body: Body,
        max: usize,
    ) -> Result<Held, ApiError> {
        let upper = body
            .size_hint()
            .upper()
            .and_then(|upper| usize::try_from(upper).ok());
        if upper.is_some_and(|upper| upper > max) {
            discard_body(headers, body).await;
            return Err(ApiError::TooLarge(max));
        }
        let part = self.reserve(upper.unwrap_or(max)).await?;
        let deadline = Instant::now() + BODY_READ_TIMEOUT;
        let mut bytes = BytesMut::new();
        loop {
            let until = deadline.min(Instant::now() + BODY_IDLE_TIMEOUT);
            let late = |_| ApiError::BodyTimeout(BODY_READ_TIMEOUT);
            let Some(frame) = timeout_at(until, body.frame()).await.map_err(late)? else {
                return Ok(Held {
                    bytes: bytes.freeze(),
                    _part: part,
                });
            };
            let frame = frame.map_err(|_| ApiError::BodyRead)?;
            let Some(chunk) = frame.data_ref() else {
                continue;
            };
            if bytes.len() + chunk.len() > max {
                drop(bytes);
                discard_body(headers, body).await;
                return Err(ApiError::TooLarge(max));
            }
            bytes.extend_from_slice(chunk);
        }
    }

    async fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
        let units = (bytes / KIB + 1).min(BODIES_BYTES_MAX / KIB);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let reserved = Arc::clone(&self.0).acquire_many_owned(units);
        match timeout(BUDGET_WAIT, reserved).await {
            Ok(Ok(part)) => Ok(part),
            _ => Err(ApiError::Unavailable(
                "too many large requests at this moment",
            )),
        }
    }
}

/// Reads what a refused request still sends and forgets it: a client that is cut off in the middle
/// of its body sees a broken connection instead of the refusal. Bounded in bytes and time.
pub(super) async fn discard(request: Request) {
    let (parts, body) = request.into_parts();
    discard_body(&parts.headers, body).await;
}

/// The same for a body that was taken out of its request.
pub(super) async fn discard_body(headers: &HeaderMap, mut body: Body) {
    // A client that asks first sends nothing after a refusal.
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let mut bytes = 0;
    let all = async {
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > DISCARD_BYTES_MAX {
                return;
            }
        }
    };
    drop(timeout(DISCARD_TIMEOUT, all).await);
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    fn dripping(pause: Duration) -> Body {
        Body::from_stream(stream::unfold((), move |()| async move {
            tokio::time::sleep(pause).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b"x")), ()))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_given_up() {
        let budget = BodyBudget::new();
        for (pause, expected) in [(20, BODY_IDLE_TIMEOUT), (1, BODY_READ_TIMEOUT)] {
            let start = Instant::now();
            let body = dripping(Duration::from_secs(pause));
            let read = budget.read(&HeaderMap::new(), body, 1_000_000).await;
            assert!(matches!(read, Err(ApiError::BodyTimeout(_))));
            assert_eq!(start.elapsed().as_secs(), expected.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_is_read_for_a_bounded_time() {
        let start = Instant::now();
        discard_body(&HeaderMap::new(), dripping(Duration::from_secs(1))).await;
        assert_eq!(start.elapsed(), DISCARD_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_share_one_budget_of_memory() {
        let budget = BodyBudget::new();
        let body = || Body::from("x");
        let all = budget.reserve(BODIES_BYTES_MAX).await.unwrap();
        let refused = budget.read(&HeaderMap::new(), body(), 10).await;
        assert!(matches!(refused, Err(ApiError::Unavailable(_))));
        drop(all);
        let held = budget.read(&HeaderMap::new(), body(), 10).await.unwrap();
        assert_eq!(held.bytes, "x");
        // A larger limit than the budget takes all of it and waits for no more.
        drop(held);
        assert!(budget.reserve(usize::MAX / 2).await.is_ok());
    }
}
