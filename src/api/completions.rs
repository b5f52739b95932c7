//! `POST /v1/completions/{operation}/{tool_message}`: a tool that runs elsewhere brings its result.
//!
//! The result is reviewed by the controls of its operation and becomes the final one, unless there
//! is one. Everyone who asks gets the same final result; `applied` says whose it is.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use hookstash_producer::hooks::ToolRunResult;
use hookstash_producer::runtime::{CompleteError, RecoverError, ReviewError};
use serde_json::{Map, Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::error::ApiError;
use super::places::Taken;
use super::{Shared, body};

/// Longest id in the path, in bytes.
const ID_BYTES_MAX: usize = 512;
/// Largest result in bytes: it is held, with copies, for as long as its controls take.
const RESULT_BYTES_MAX: usize = 1024 * 1024;
/// Results that are reviewed at one time, of which an operation gets its share.
pub(super) const COMPLETIONS_MAX: usize = 32;
/// Longest time for all controls of a result together.
const COMPLETION_TIMEOUT: Duration = Duration::from_mins(2);

/// Completes one placeholder. A client that goes away before its verdict has changed nothing.
pub(super) async fn complete(
    State(api): State<Shared>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let Ok(Path((operation, tool_message))) = path else {
        body::discard(request).await;
        return Err(ApiError::invalid("path", "its ids are no UTF-8"));
    };
    if operation.len() > ID_BYTES_MAX || tool_message.len() > ID_BYTES_MAX {
        body::discard(request).await;
        return Err(ApiError::Placeholder);
    }
    let (parts, body) = request.into_parts();
    let max = api.state.limits.body_bytes_max.min(RESULT_BYTES_MAX);
    let held = api.bodies.read(&parts.headers, body, max).await?;
    let _place = api.completions.take(&operation).map_err(busy)?;
    let result = read(&held.bytes)?;
    // Publishing needs its part of the budget meanwhile.
    drop(held);
    let never = CancellationToken::new();
    let completions = &api.state.completions;
    let completing = completions.complete(&operation, &tool_message, result, &never);
    let completed = timeout(COMPLETION_TIMEOUT, completing)
        .await
        .map_err(|_| late())?
        .map_err(refusal)?;
    Ok(Json(json!({
        "applied": completed.applied,
        "result": completed.publication.result,
    })))
}

fn busy(taken: Taken) -> ApiError {
    ApiError::Unavailable(match taken {
        Taken::All => "too many results are reviewed at this moment",
        Taken::Share => "too many results of this operation are reviewed at this moment",
    })
}

fn late() -> ApiError {
    ApiError::Unknown(format!(
        "its controls did not decide within {} seconds; sending it again is safe",
        COMPLETION_TIMEOUT.as_secs()
    ))
}

/// The result in a body: an object with `content`, and whatever else a result has. It succeeded
/// unless it says otherwise.
fn read(body: &[u8]) -> Result<ToolRunResult, ApiError> {
    let wrong = |why: &str| ApiError::invalid("body", why);
    let mut fields: Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| wrong("it is no JSON object"))?;
    if !fields.get("content").is_some_and(Value::is_string) {
        return Err(wrong("\"content\" must be a string"));
    }
    let has_error = fields.contains_key("error");
    fields.entry("success").or_insert(json!(!has_error));
    fields.shift_remove("deferred");
    serde_json::from_value(Value::Object(fields))
        .map_err(|_| wrong("a field of the result has a wrong type"))
}

fn refusal(error: CompleteError) -> ApiError {
    if let CompleteError::Unknown = error {
        return ApiError::Placeholder;
    }
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "a completion was not taken"
    );
    match error {
        CompleteError::Store(source) => ApiError::of_completion(&source),
        CompleteError::Review(ReviewError::Recover(RecoverError::Unread { .. })) => {
            ApiError::Unavailable("the hooks of the operation cannot be read")
        }
        CompleteError::Review(ReviewError::Recover(RecoverError::Unknown { operation_id })) => {
            ApiError::NotFound(format!("operation {}", super::error::echo(&operation_id)))
        }
        CompleteError::Cancelled => ApiError::Unavailable("cancelled before its verdict"),
        _ => ApiError::Internal("its controls cannot be asked; the server's log says why"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_content_and_succeeds_unless_it_says_otherwise() {
        for (body, success) in [
            (r#"{"content":""}"#, true),
            (r#"{"content":"x","success":false}"#, false),
            (r#"{"content":"x","error":"E"}"#, false),
            (r#"{"content":"x","state":{"a":1},"deferred":true}"#, true),
        ] {
            let result = read(body.as_bytes()).unwrap();
            assert_eq!((result.success, result.deferred), (success, None), "{body}");
        }
        for body in [
            "",
            "[]",
            "{}",
            r#"{"content":1}"#,
            r#"{"content":"x","state":1}"#,
            "{\"content\":",
        ] {
            assert!(
                matches!(read(body.as_bytes()), Err(ApiError::Invalid(_))),
                "{body}"
            );
        }
    }
}
