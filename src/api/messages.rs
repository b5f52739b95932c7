//! `/v2/messages`: messages while they live and a little longer.

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use hookstash_shared::message::{Envelope, LoggedEvent, MessageId};
use hookstash_shared::store::{Cancelled, StoredMessage};
use http::Uri;
use serde_json::{Value, json};

use super::error::ApiError;
use super::message_view::{Object, view};
use super::{Shared, id_in};

/// The message.
pub(super) async fn get(State(api): State<Shared>, uri: Uri) -> Result<Json<Object>, ApiError> {
    let id = id_in(&uri);
    let not_found = || ApiError::no_such_message(id);
    let parsed: MessageId = id.parse().map_err(|_| not_found())?;
    let stored = api
        .state
        .store
        .message(&parsed)
        .await
        .map_err(ApiError::of_read)?
        .ok_or_else(not_found)?;
    let (envelope, body) = decode(&stored)?;
    Ok(Json(view(&parsed, &envelope.header, &body)))
}

/// Cancels it. One that a worker is sending just now is cancelled unless that call succeeds.
pub(super) async fn cancel(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let id = id_in(&uri);
    let not_found = || ApiError::no_such_message(id);
    let parsed: MessageId = id.parse().map_err(|_| not_found())?;
    let store = &api.state.store;
    let stored = store.message(&parsed).await.map_err(ApiError::of_read)?;
    let stored = stored.ok_or_else(not_found)?;
    let envelope = Envelope::decode(&stored.envelope);
    let event = envelope.map_or_else(
        |_| LoggedEvent::default(),
        |envelope| LoggedEvent::of(&envelope.header),
    );
    let event = event.encode();
    match store.cancel(&parsed, event).await? {
        Cancelled::Now | Cancelled::Requested => Ok(Json(json!({ "cancelled": 1 }))),
        Cancelled::None => Err(not_found()),
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
