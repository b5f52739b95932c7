//! `/v2/messages`: messages while they live and a little longer.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hookstash_shared::message::{Envelope, MessageId};
use hookstash_shared::store::StoredMessage;
use http::Uri;
use serde_json::{Value, json};

use super::error::ApiError;
use super::message_view::view;
use super::{Shared, cancel_many, dlq, id_in};

/// The message.
pub(super) async fn get(State(api): State<Shared>, uri: Uri) -> Result<Response, ApiError> {
    let id = id_in(&uri);
    let not_found = || ApiError::no_such_message(id);
    let parsed: MessageId = id.parse().map_err(|_| not_found())?;
    let _place = dlq::place_in(&api.singles).await?;
    let stored = api
        .state
        .store
        .message(&parsed)
        .await
        .map_err(ApiError::of_read)?
        .ok_or_else(not_found)?;
    let (envelope, body) = decode(&stored)?;
    // Written as JSON while the place is still held.
    Ok(Json(view(&parsed, &envelope.header, &body)).into_response())
}

/// Cancels it. One that a worker is sending just now is cancelled unless that call succeeds.
pub(super) async fn cancel(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let id = id_in(&uri);
    let not_found = || ApiError::no_such_message(id);
    let parsed: MessageId = id.parse().map_err(|_| not_found())?;
    match cancel_many::by_id(&api.state.store, &[parsed]).await? {
        0 => Err(not_found()),
        cancelled => Ok(Json(json!({ "cancelled": cancelled }))),
    }
}

/// The envelope and the bytes that are delivered, which may be another message's.
fn decode(stored: &StoredMessage) -> Result<(Envelope, Bytes), ApiError> {
    let unreadable = |_| ApiError::Internal("the stored message cannot be read");
    let envelope = Envelope::decode(&stored.envelope).map_err(unreadable)?;
    let named = match &stored.shared_body {
        Some(shared) => Envelope::decode(shared).map_err(unreadable)?.body,
        None => Bytes::new(),
    };
    let body = envelope.payload(&named).map_err(unreadable)?;
    Ok((envelope, body))
}
