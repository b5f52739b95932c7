//! `POST /v2/publish/{destination}`: a message is in the store before the answer goes out.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse as _, Response};
use hookstash_producer::publish::{PATIENCE_MAX, Published};
use hookstash_shared::message::NewMessageBuilder;
use http::StatusCode;
use http::request::Parts;
use serde_json::json;

use super::error::ApiError;
use super::{ApiState, Shared, body, destination, publish_headers};

/// Accepts one message. Everything but the body is checked before the body is read.
pub(super) async fn publish(
    State(api): State<Shared>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let message = match draft(&api.state, &parts) {
        Ok(message) => message,
        Err(refusal) => {
            body::discard_body(&parts.headers, body).await;
            return Err(refusal);
        }
    };
    let limits = &api.state.limits;
    let held = api
        .bodies
        .read(&parts.headers, body, limits.body_bytes_max)
        .await?;
    let message = message
        .body(held.bytes.clone())
        .build(api.state.clock.now_ms(), limits)?;
    let has_dedup_id = message.header().dedup.is_some();
    match api.state.publisher.publish(message, PATIENCE_MAX).await {
        Ok(published) => Ok(answer(published)),
        Err(error) => Err(ApiError::of_publish(&error, has_dedup_id)),
    }
}

/// The message without its body.
fn draft(state: &ApiState, parts: &Parts) -> Result<NewMessageBuilder, ApiError> {
    let target = parts
        .uri
        .path_and_query()
        .map_or("", |target| target.as_str());
    let target = destination::cut(target)?;
    let check = |url: &str| destination::check(url, &state.egress, &*state.environment);
    let destination = check(&target.text)?;
    let (headers, options) = (&parts.headers, &target.options);
    let message = publish_headers::configure(destination, headers, options, &check)?;
    Ok(match parts.extensions.get::<ConnectInfo<SocketAddr>>() {
        Some(ConnectInfo(peer)) => message.caller_ip(peer.ip().to_canonical()),
        None => message,
    })
}

fn answer(published: Published) -> Response {
    let id = published.id;
    if published.is_duplicate {
        let body = json!({ "messageId": id, "deduplicated": true });
        (StatusCode::ACCEPTED, Json(body)).into_response()
    } else {
        Json(json!({ "messageId": id })).into_response()
    }
}
