//! `/healthz` and `/readyz` of a process whose front door is not open: before the store has been
//! reached, and of one that only works.

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{StatusCode, header};
use serde_json::json;

use crate::api::{self, Readiness};

/// When a client may try again, in seconds.
const RETRY_AFTER_S: &str = "5";

/// Answers the probes, and everything else with 503: nothing was done, try again.
pub(crate) fn router(readiness: Readiness) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(not_open)
        .with_state(readiness)
}

async fn healthz() -> Response {
    Json(json!({ "status": "up" })).into_response()
}

async fn readyz(State(readiness): State<Readiness>) -> Response {
    let blocked = readiness.blocked();
    if blocked.is_empty() {
        return Json(json!({ "status": "ready" })).into_response();
    }
    let parts = blocked
        .iter()
        .map(|(part, reason)| json!({ "part": part, "reason": reason }));
    let body = json!({ "status": "not ready", "notReady": parts.collect::<Vec<_>>() });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
}

async fn not_open(request: Request) -> Response {
    api::discard(request).await;
    let text = "this process is not serving requests; nothing was changed, sending the request \
                again is safe";
    let retry_after = [(header::RETRY_AFTER, RETRY_AFTER_S)];
    let body = Json(json!({ "error": text }));
    (StatusCode::SERVICE_UNAVAILABLE, retry_after, body).into_response()
}
