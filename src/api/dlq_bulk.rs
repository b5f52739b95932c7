//! Bulk actions on dead letters: by ids, by filters, or on all, a page at a time.

use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use bytes::Bytes;
use hookstash_shared::message::{Envelope, EnvelopeHeader, LoggedEvent, MessageId, When};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Order, Redrive, RedriveChange, Redriven, Store};
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
    let found = find(&api, &read(&api, request).await?).await?;
    let ids: Vec<MessageId> = found.letters.iter().map(|letter| letter.id).collect();
    let deleted = api.state.store.delete_dead_letters(&ids).await;
    let deleted = deleted.map_err(|error| ApiError::of_several(error, ids.len()))?;
    Ok(Json(answer("deleted", json!(deleted), &found)))
}

/// Sends a page of them again, those that died first before the others, so that a queue is put back
/// in its order. Letters that have gone in between are left out.
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
    let mut selection = read(&api, request).await?;
    selection.order.get_or_insert(Order::EarliestFirst);
    let mut found = find(&api, &selection).await?;
    // Whichever way the pages go.
    found.letters.sort();
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
    let redriven = patiently(store, &redrives).await;
    let redriven = redriven.map_err(|error| ApiError::of_several(error, redrives.len()))?;
    for (redrive, redriven) in redrives.iter().zip(redriven) {
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

/// Redrives, again when it is unclear what became of it: the new ids stay the same. An error of a
/// later try does not hide that an earlier one may have been done.
pub(super) async fn patiently(
    store: &Store,
    redrives: &[Redrive],
) -> Result<Vec<Redriven>, HostError> {
    let mut tries = 1;
    let mut lost = None;
    loop {
        match store.redrive_all(redrives).await {
            Err(error @ (HostError::Lost(_) | HostError::RetryLater(_)))
                if tries < REDRIVE_TRIES =>
            {
                tries += 1;
                if matches!(error, HostError::Lost(_)) {
                    lost = Some(error);
                }
                tokio::time::sleep(REDRIVE_PAUSE).await;
            }
            Err(error) => return Err(lost.unwrap_or(error)),
            done => return done,
        }
    }
}

async fn read(api: &Shared, request: Request) -> Result<Selection, ApiError> {
    let pairs = bulk::read(api, request).await?;
    Selection::read(List::DeadLetters, pairs)
}

async fn find(api: &Api, selection: &Selection) -> Result<Found, ApiError> {
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
    dlq_page::find(&api.state.store, selection).await
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
