//! Bulk actions on dead letters: by ids, by filters, or on all, a page at a time.

use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use bytes::Bytes;
use hookstash_shared::message::{Envelope, EnvelopeHeader, LoggedEvent, MessageId, When};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Redrive, RedriveChange, Redriven, Store};
use http::StatusCode;
use serde_json::{Value, json};

use super::canonical::canonical;
use super::dlq_page::{self, Found, show_cursor};
use super::error::ApiError;
use super::message_view::{Object, put};
use super::selection::{List, Selection};
use super::{Api, Shared, body, bulk, publish_headers, query};

/// How often a redrive with an unclear answer is sent, and the pause in between.
const REDRIVE_TRIES: u32 = 5;
const REDRIVE_PAUSE: Duration = Duration::from_millis(200);

/// Deletes a page of them for good.
pub(super) async fn delete(
    State(api): State<Shared>,
    request: Request,
) -> Result<Json<Object>, ApiError> {
    let found = select(&api, request).await?;
    let ids: Vec<MessageId> = found.letters.iter().map(|letter| letter.id).collect();
    let deleted = api.state.store.delete_dead_letters(&ids).await?;
    Ok(Json(answer("deleted", json!(deleted), &found)))
}

/// Sends a page of them again. Letters that have gone in between are left out.
pub(super) async fn redrive(
    State(api): State<Shared>,
    request: Request,
) -> Result<(StatusCode, Json<Object>), ApiError> {
    let in_query = query::separate(request.uri().query().unwrap_or_default()).options;
    let options = publish_headers::given(request.headers(), &in_query)?;
    if let Some(name) = options.keys().next() {
        body::discard(request).await;
        let name = canonical(name);
        return Err(ApiError::not_built(&format!(
            "{name} on a retry of several"
        )));
    }
    let found = select(&api, request).await?;
    let store = &api.state.store;
    let heads = store.dead_letter_heads(&found.letters).await;
    let mut redrives = Vec::new();
    let mut errors = Vec::new();
    for letter in heads.map_err(ApiError::of_read)?.into_iter().flatten() {
        let header = dlq_page::header_of(store, &letter).await;
        match header
            .map_err(ApiError::of_read)?
            .and_then(|header| prepare(&api, letter.id, header, Bytes::new(), None))
        {
            Some(redrive) => redrives.push(redrive),
            None => errors.push(unreadable(&letter.id)),
        }
    }
    let mut responses = Vec::new();
    for (redrive, redriven) in redrives.iter().zip(patiently(store, &redrives).await?) {
        match redriven {
            Redriven::Accepted => {
                responses.push(json!({ "messageId": redrive.new, "dlqId": redrive.old }));
            }
            Redriven::Gone => errors.push(unreadable(&redrive.old)),
            Redriven::None => {}
        }
    }
    let mut object = answer("responses", Value::Array(responses), &found);
    put(
        &mut object,
        "errors",
        Some(errors).filter(|errors| !errors.is_empty()),
    );
    Ok((StatusCode::CREATED, Json(object)))
}

/// What makes the dead letter `old` a new message with this header; `None` when it cannot be stored.
/// If that is changed, `due` says when the message is due, and `body` is the letter's own.
pub(super) fn prepare(
    api: &Api,
    old: MessageId,
    mut header: EnvelopeHeader,
    body: Bytes,
    due: Option<When>,
) -> Option<Redrive> {
    let event = LoggedEvent::of(&header).encode();
    // A callback carries what it tells; others leave their body where it is.
    if header.callback_of.is_none() && (due.is_none() || header.body_of.is_none()) {
        header.body_of = Some(old.to_string());
    }
    let change = due.map(|when| RedriveChange {
        body_key: header.body_of.clone(),
        retries: header.retries,
        when,
    });
    let shared = Envelope { header, body }.encode().ok()?;
    let (now_ms, random) = (api.state.clock.now_ms(), &*api.state.random);
    let new = MessageId::new(old.shard(), now_ms, random);
    Some(Redrive {
        old,
        new,
        shared,
        event,
        change,
    })
}

/// Redrives, again when it is unclear what became of it: the new ids stay the same.
pub(super) async fn patiently(
    store: &Store,
    redrives: &[Redrive],
) -> Result<Vec<Redriven>, HostError> {
    let mut tries = 1;
    loop {
        match store.redrive_all(redrives).await {
            Err(HostError::Lost(_) | HostError::RetryLater(_)) if tries < REDRIVE_TRIES => {
                tries += 1;
                tokio::time::sleep(REDRIVE_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

async fn select(api: &Shared, request: Request) -> Result<Found, ApiError> {
    let pairs = bulk::read(api, request).await?;
    let selection = Selection::read(List::DeadLetters, pairs)?;
    if let Some(ids) = &selection.ids {
        if !selection.is_unfiltered() {
            return Err(ApiError::invalid("filter", "give ids or filters, not both"));
        }
        let letters = api.state.store.deaths_by_id(ids).await;
        return Ok(Found {
            letters: letters.map_err(ApiError::of_read)?,
            next: None,
        });
    }
    dlq_page::find(&api.state.store, &selection).await
}

fn answer(key: &str, value: Value, found: &Found) -> Object {
    let mut object = Object::new();
    put(&mut object, key, Some(value));
    put(&mut object, "cursor", found.next.as_ref().map(show_cursor));
    object
}

fn unreadable(id: &MessageId) -> Value {
    json!({ "dlqId": id, "error": format!("the stored message {id} cannot be read") })
}
