//! The receiver of the demo: verifies what it gets as a receiver should, and answers as told.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use bytes::Bytes;
use hookstash_shared::clock::Clock;
use hookstash_shared::signing::Receiver as Verifier;
use http::{HeaderMap, StatusCode};
use tokio_util::sync::CancellationToken;

use super::events::{Behaviour, Event};
use crate::api;
use crate::cli::failure::Failure;
use crate::front;

/// Most bytes of a body: those of the largest event.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What the receiver found in one request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// The body is the one that was published, byte for byte.
    pub(super) is_same_body: bool,
    /// Both signatures are good, and refuse a body with one changed byte.
    pub(super) is_verified: bool,
}

/// A running receiver. Clones are one.
#[derive(Clone)]
pub(super) struct Receiver(Arc<Inner>);

struct Inner {
    base: String,
    verifier: Verifier,
    clock: Arc<dyn Clock>,
    expected: HashMap<&'static str, (Bytes, Behaviour)>,
    state: Mutex<Seeing>,
}

#[derive(Default)]
struct Seeing {
    /// By message id and failures before.
    seen: HashMap<(String, u32), Seen>,
    /// Requests so far by event.
    requests: HashMap<String, usize>,
    is_repaired: bool,
}

impl Receiver {
    /// Listens on a free port until `end`.
    pub(super) async fn start(
        events: &[Event],
        verifier: Verifier,
        clock: Arc<dyn Clock>,
        end: CancellationToken,
    ) -> Result<Self, Failure> {
        let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let failed = |error: &dyn std::error::Error| {
            Failure::failed("open the demo's receiver").because(error)
        };
        let listener = front::listen(address)
            .await
            .map_err(|error| failed(&error))?;
        let address = listener.local_addr().map_err(|error| failed(&error))?;
        let expected = events
            .iter()
            .map(|event| (event.name, (event.body.clone(), event.behaviour)));
        let receiver = Self(Arc::new(Inner {
            base: format!("http://{address}"),
            verifier,
            clock,
            expected: expected.collect(),
            state: Mutex::default(),
        }));
        let router = Router::new().fallback(receive).with_state(receiver.clone());
        tokio::spawn(api::serve(listener, router, end.cancelled_owned()));
        Ok(receiver)
    }

    /// `http://127.0.0.1:port`.
    pub(super) fn base(&self) -> &str {
        &self.0.base
    }

    /// Where an event goes.
    pub(super) fn url(&self, event: &str) -> String {
        format!("{}/hooks/{event}", self.0.base)
    }

    /// Answers everything with 200 from now on.
    pub(super) fn repair(&self) {
        self.with(|state| state.is_repaired = true);
    }

    /// What was found in the request of this attempt; `None` if there was none.
    pub(super) fn seen(&self, id: &str, retried: u32) -> Option<Seen> {
        self.with(|state| state.seen.get(&(id.to_owned(), retried)).copied())
    }

    /// What was found in all requests.
    pub(super) fn all(&self) -> Vec<Seen> {
        self.with(|state| state.seen.values().copied().collect())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Seeing) -> T) -> T {
        act(&mut self.0.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn inspect(&self, url: &str, headers: &HeaderMap, body: &Bytes, published: &Bytes) -> Seen {
        let mut changed = body.to_vec();
        match changed.first_mut() {
            Some(byte) => *byte ^= 1,
            None => changed.push(b' '),
        }
        let qstash = |body: &[u8]| self.has_qstash(url, headers, body);
        let webhook = |body: &[u8]| self.has_webhook(headers, body);
        let is_good = qstash(body) && webhook(body);
        Seen {
            is_same_body: body == published,
            is_verified: is_good && !qstash(&changed) && !webhook(&changed),
        }
    }

    fn has_qstash(&self, url: &str, headers: &HeaderMap, body: &[u8]) -> bool {
        let now_s = self.0.clock.now_s();
        let signature = text(headers, "upstash-signature");
        self.0
            .verifier
            .verify_qstash(signature, body, Some(url), now_s)
            .is_ok()
    }

    fn has_webhook(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let [id, timestamp, signature] = ["webhook-id", "webhook-timestamp", "webhook-signature"]
            .map(|name| text(headers, name));
        let now_s = self.0.clock.now_s();
        self.0
            .verifier
            .verify_webhook(id, timestamp, signature, body, now_s)
            .is_ok()
    }

    /// Notes a request and decides its answer.
    fn answer(&self, event: &str, attempt: (String, u32), seen: Seen, behaviour: Behaviour) -> u16 {
        self.with(|state| {
            state.seen.insert(attempt, seen);
            let count = state.requests.entry(event.to_owned()).or_default();
            let before = *count;
            *count += 1;
            match behaviour {
                Behaviour::Healthy => 200,
                Behaviour::Recovering(failures) => failures.get(before).copied().unwrap_or(200),
                Behaviour::Broken if state.is_repaired => 200,
                Behaviour::Broken => 500,
            }
        })
    }
}

async fn receive(State(receiver): State<Receiver>, request: Request) -> StatusCode {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let event = path.strip_prefix("/hooks/").unwrap_or_default();
    let Some((published, behaviour)) = receiver.0.expected.get(event).cloned() else {
        return StatusCode::NOT_FOUND;
    };
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE;
    };
    let seen = receiver.inspect(&receiver.url(event), &parts.headers, &body, &published);
    let id = text(&parts.headers, "upstash-message-id").to_owned();
    let retried = text(&parts.headers, "upstash-retried").parse().unwrap_or(0);
    let status = receiver.answer(event, (id, retried), seen, behaviour);
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}
