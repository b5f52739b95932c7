//! `POST /v2/publish/{destination}` and `POST /v2/enqueue/{queue}/{destination}`: a message is in the
//! store before the answer goes out.

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use http::request::Parts;

use super::accept::{self, Asked, Draft};
use super::destination::Target;
use super::error::ApiError;
use super::{Api, Shared, body, destination};

/// Accepts one message.
pub(super) async fn publish(
    State(api): State<Shared>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let draft = match destination::of_publish(target_of(&parts)) {
        Ok(target) => draft(&api, &parts, &target, None).await,
        Err(refusal) => Err(refusal),
    };
    store(&api, &parts, body, draft).await
}

/// Accepts one message into a queue, which exists from then on.
pub(super) async fn enqueue(
    State(api): State<Shared>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let draft = match destination::of_enqueue(target_of(&parts)) {
        Ok((queue, target)) => draft(&api, &parts, &target, Some(queue)).await,
        Err(refusal) => Err(refusal),
    };
    store(&api, &parts, body, draft).await
}

fn target_of(parts: &Parts) -> &str {
    let target = parts.uri.path_and_query();
    target.map_or("", |target| target.as_str())
}

async fn draft(
    api: &Api,
    parts: &Parts,
    target: &Target,
    queue: Option<&str>,
) -> Result<Draft, ApiError> {
    let asked = Asked {
        headers: &parts.headers,
        options: &target.options,
        queue,
        caller_ip: accept::caller_ip(parts),
    };
    accept::draft(&api.state, &target.text, &asked).await
}

/// Everything but the body was checked before the body is read.
async fn store(
    api: &Api,
    parts: &Parts,
    body: Body,
    draft: Result<Draft, ApiError>,
) -> Result<Response, ApiError> {
    let draft = match draft {
        Ok(draft) => draft,
        Err(refusal) => {
            body::discard_body(&parts.headers, body).await;
            return Err(refusal);
        }
    };
    let max = api.state.limits.body_bytes_max;
    let held = api.bodies.read(&parts.headers, body, max).await?;
    let ready = draft.with_body(held.bytes.clone());
    let mut answers = accept::send(&api.state, vec![ready]).await;
    let unanswered = || Err(ApiError::Internal("the message has no answer"));
    let accepted = answers.pop().unwrap_or_else(unanswered)?;
    let status = if accepted.is_duplicate() {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(accepted.to_json())).into_response())
}
