//! The application's own HTTP server: it prints hooks, judges calls and takes callbacks.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use hookstash_producer::runtime::{AGENT_CALLBACK_PATH, AgentRuntime};
use hookstash_shared::clock::{Clock, SystemClock};
use hookstash_shared::signing::{Receiver as Verifier, SigningKeys};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::hooks::{POLICY_PATH, TRACE_PATH, print};

/// What the policy endpoint is asked with.
pub(crate) const POLICY_KEY: &str = "a key of this example";
/// Longest wait for what is still on its way.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// A running receiver.
pub(crate) struct Receiver {
    pub(crate) base: String,
    pub(crate) runtime: OnceLock<AgentRuntime>,
    ends: Mutex<usize>,
    verifier: Verifier,
    clock: SystemClock,
}

impl Receiver {
    pub(crate) async fn start(keys: &SigningKeys) -> anyhow::Result<Arc<Self>> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let receiver = Arc::new(Self {
            base: format!("http://{}", listener.local_addr()?),
            runtime: OnceLock::new(),
            ends: Mutex::default(),
            verifier: Verifier::new(Some(keys), None, Duration::ZERO),
            clock: SystemClock::new(),
        });
        let router = Router::new()
            .route(TRACE_PATH, post(trace))
            .route(POLICY_PATH, post(judge))
            .route(AGENT_CALLBACK_PATH, post(callback))
            .with_state(Arc::clone(&receiver));
        let forever = std::future::pending();
        tokio::spawn(hookstash::api::serve(listener, router, forever));
        Ok(receiver)
    }

    /// Waits until so many ends of runs have been delivered.
    pub(crate) async fn until_ends(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while *self.ends.lock().unwrap_or_else(PoisonError::into_inner) < count
            && Instant::now() < deadline
        {
            tokio::time::sleep(POLL).await;
        }
    }

    /// Whether the worker has signed this.
    fn is_signed(&self, headers: &HeaderMap, path: &str, body: &[u8]) -> bool {
        let signature = headers.get("upstash-signature");
        let signature = signature.and_then(|value| value.to_str().ok());
        let url = format!("{}{path}", self.base);
        let now_s = self.clock.now_s();
        signature.is_some_and(|signature| {
            let verified = self
                .verifier
                .verify_qstash(signature, body, Some(&url), now_s);
            verified.is_ok()
        })
    }
}

/// Prints a notification. What came through the queue is signed.
async fn trace(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let event: Value = serde_json::from_slice(&body).unwrap_or_default();
    let hook_type = event["hookType"].as_str().unwrap_or_default();
    let is_end = matches!(hook_type, "onComplete" | "onError");
    if is_end && !receiver.is_signed(&headers, TRACE_PATH, &body) {
        return StatusCode::UNAUTHORIZED;
    }
    print(hook_type, &event);
    if is_end {
        *receiver.ends.lock().unwrap_or_else(PoisonError::into_inner) += 1;
    }
    StatusCode::OK
}

/// The policy: nothing is deleted by force, and no password leaves a file.
async fn judge(headers: HeaderMap, body: Bytes) -> Response {
    let key = headers.get(http::header::AUTHORIZATION);
    if key.is_none_or(|key| key.as_bytes() != format!("Bearer {POLICY_KEY}").as_bytes()) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let event: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    let answer = if text("/args/command").contains("rm -rf") {
        json!({"decision": "deny", "reason": "Nothing is deleted by force."})
    } else if text("/result/content").contains("password") {
        json!({"decision": "deny", "reason": "Passwords stay where they are."})
    } else {
        json!({"decision": "allow"})
    };
    println!(
        "policy {:<26} {}/{}: {}",
        text("/hookType"),
        text("/identifier"),
        text("/apiName"),
        answer["decision"].as_str().unwrap_or_default()
    );
    axum::Json(answer).into_response()
}

/// The end of a sub-agent, delivered by the worker.
async fn callback(
    State(receiver): State<Arc<Receiver>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let Some(runtime) = receiver.runtime.get() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    if !receiver.is_signed(&headers, AGENT_CALLBACK_PATH, &body) {
        let error = json!({"error": "Invalid signature"});
        return (StatusCode::UNAUTHORIZED, axum::Json(error)).into_response();
    }
    match runtime.agent_callback(&body).await {
        Ok(receipt) => axum::Json(receipt).into_response(),
        Err(error) => {
            let status = StatusCode::from_u16(error.status());
            status
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
                .into_response()
        }
    }
}
