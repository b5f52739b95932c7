//! `POST /v1/completions/{operation}/{tool_message}`: a tool that runs elsewhere brings its result.
//!
//! The result is reviewed by the controls of its operation and becomes the final one, unless there
//! is one. Everyone who asks gets the same final result; `applied` says whose it is.

use axum::Json;
use axum::extract::{Path, Request, State};
use hookstash_producer::hooks::ToolRunResult;
use hookstash_producer::runtime::{CompleteError, RecoverError, ReviewError};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::error::ApiError;
use super::{Shared, body};

/// Longest id in the path, in bytes.
const ID_BYTES_MAX: usize = 512;

/// Completes one placeholder. A client that goes away before its verdict has changed nothing.
pub(super) async fn complete(
    State(api): State<Shared>,
    Path((operation, tool_message)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    if operation.len() > ID_BYTES_MAX || tool_message.len() > ID_BYTES_MAX {
        body::discard(request).await;
        return Err(ApiError::Placeholder);
    }
    let (parts, body) = request.into_parts();
    let max = api.state.limits.body_bytes_max;
    let held = api.bodies.read(&parts.headers, body, max).await?;
    let result = read(&held.bytes)?;
    let never = CancellationToken::new();
    let completions = &api.state.completions;
    let completed = completions
        .complete(&operation, &tool_message, result, &never)
        .await
        .map_err(refusal)?;
    Ok(Json(json!({
        "applied": completed.applied,
        "result": completed.publication.result,
    })))
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
