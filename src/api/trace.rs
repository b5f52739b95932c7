//! One log event for each request. Never in it: the query, bodies, values of headers.

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::Shared;

/// Logs method, route, status and time of every request.
pub(super) async fn record(State(api): State<Shared>, request: Request, next: Next) -> Response {
    let clock = &api.state.clock;
    let start = clock.monotonic();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let status = response.status();
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let took_ms = clock.monotonic().saturating_sub(start).as_millis();
    if status.is_server_error() {
        tracing::warn!(%method, route, status = status.as_u16(), took_ms, "request failed");
    } else {
        tracing::info!(%method, route, status = status.as_u16(), took_ms, "request");
    }
    response
}
