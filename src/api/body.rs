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
/// Memory of bodies that are being read or stored at one time, in all connections together, with
/// the copies that are made of them. A body takes its part as it arrives: what a client has only
/// announced takes nothing.
const BODIES_BYTES_MAX: usize = 256 * 1024 * 1024;
/// How often a body is in memory while it is stored: as read, in its envelope, in the command.
const COPIES: usize = 3;
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

    /// Reads `body` up to `max` bytes. A body that says it is longer is not taken at all; one that
    /// turns out to be longer is given up at the limit. Whatever a refused client still sends is
    /// read and forgotten, in bounded time.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        mut body: Body,
        max: usize,
    ) -> Result<Held, ApiError> {
        let read = self.collect(&mut body, max).await;
        if read.is_err() {
            discard_body(headers, body).await;
        }
        read
    }

    async fn collect(&self, body: &mut Body, max: usize) -> Result<Held, ApiError> {
        let length = body.size_hint().upper().map(usize::try_from);
        let length = length.map(|length| length.unwrap_or(usize::MAX));
        if length.is_some_and(|length| length > max) {
            return Err(ApiError::TooLarge(max));
        }
        let deadline = Instant::now() + BODY_READ_TIMEOUT;
        let mut part = self.reserve(0).await?;
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
            let total = bytes.len() + chunk.len();
            if total > max {
                return Err(ApiError::TooLarge(max));
            }
            let missing = units(total).saturating_sub(part.num_permits());
            part.merge(self.reserve(missing).await?);
            if bytes.is_empty() {
                // All at once, so that growing leaves no second copy.
                bytes.reserve(length.unwrap_or_default());
            }
            bytes.extend_from_slice(chunk);
        }
    }

    async fn reserve(&self, units: usize) -> Result<OwnedSemaphorePermit, ApiError> {
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

/// Units of the budget that a body of `bytes` takes; one that is larger than the budget takes all
/// of it.
fn units(bytes: usize) -> usize {
    (bytes.saturating_mul(COPIES) / KIB + 1).min(BODIES_BYTES_MAX / KIB)
}

/// Reads what a refused request still sends and forgets it: a client that is cut off in the middle
/// of its body sees a broken connection instead of the refusal. Bounded in bytes and time.
pub(crate) async fn discard(request: Request) {
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
            let expected = expected + DISCARD_TIMEOUT;
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
        let all = budget.reserve(units(BODIES_BYTES_MAX)).await.unwrap();
        let refused = budget.read(&HeaderMap::new(), body(), 10).await;
        assert!(matches!(refused, Err(ApiError::Unavailable(_))));
        drop(all);
        let held = budget.read(&HeaderMap::new(), body(), 10).await.unwrap();
        assert_eq!(held.bytes, "x");
        // A larger limit than the budget takes all of it and waits for no more.
        drop(held);
        assert!(budget.reserve(units(usize::MAX)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_announced_but_not_sent_takes_nothing_of_the_budget() {
        let budget = BodyBudget::new();
        let headers = HeaderMap::new();
        let silent = || Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        let waiting = budget.read(&headers, silent(), BODIES_BYTES_MAX);
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        assert_eq!(budget.0.available_permits(), BODIES_BYTES_MAX / KIB);
    }

    #[tokio::test]
    async fn a_body_is_counted_with_its_copies_until_it_is_dropped() {
        let budget = BodyBudget::new();
        let body = Body::from(vec![0; 100 * KIB]);
        let held = budget.read(&HeaderMap::new(), body, 200 * KIB).await;
        let free = BODIES_BYTES_MAX / KIB;
        assert_eq!(budget.0.available_permits(), free - 301);
        drop(held);
        assert_eq!(budget.0.available_permits(), free);
    }
}
