//! `/v2/dlq`: messages that failed for good. A dead letter's id is its message's id.
//!
//! Which letters a page holds is in `dlq_page`, actions on several are in `dlq_bulk`.

use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use hookstash_shared::message::{Envelope, LastResponse, MessageId};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{DeadLetter, DlqCursor, Redriven};
use http::{StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::error::ApiError;
use super::message_view::{Object, put, put_body, put_headers, view};
use super::selection::{List, Selection};
use super::{Api, Shared, body, destination, dlq_bulk, dlq_page, id_in, query, redrive_options};

/// A page ends early once its entries hold this many bytes; its cursor goes on from there.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Pages that are made at one time, each of up to 16 MiB in the store's form and in JSON.
pub(super) const LISTS_MAX: usize = 4;
/// Messages and dead letters that are held whole at one time, to be shown or sent again.
pub(super) const SINGLES_MAX: usize = 16;
/// Longest time a request waits for one of these places.
const LIST_WAIT: Duration = Duration::from_secs(5);

/// One page.
pub(super) async fn list(State(api): State<Shared>, uri: Uri) -> Result<Response, ApiError> {
    let pairs = query::pairs(uri.query()).map(|(key, value)| (key, Some(value)));
    let selection = Selection::read(List::DeadLetters, pairs)?;
    let _place = place_in(&api.lists).await?;
    let found = dlq_page::find(&api.state.store, &selection).await?;
    let letters = api.state.store.dead_letters_at(&found.letters).await;
    let mut next = found.next;
    let mut shown = Vec::with_capacity(found.letters.len());
    let mut bytes = 0;
    for letter in letters.map_err(ApiError::of_read)?.into_iter().flatten() {
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
        let at = DlqCursor {
            died_ms: letter.died_ms,
            id: letter.id,
        };
        let Some(letter) = whole(&api, letter).await.map_err(ApiError::of_read)? else {
            continue;
        };
        let (object, body_bytes) = show(&api, &letter).await?;
        bytes += body_bytes.max(letter.envelope.len()) + letter.response.len();
        shown.push(Value::Object(object));
        if bytes >= PAGE_BYTES_MAX {
            next = Some(at);
        }
    }
    let mut object = Object::new();
    put(&mut object, "messages", Some(shown));
    put(
        &mut object,
        "cursor",
        next.as_ref().map(dlq_page::show_cursor),
    );
    // Written as JSON while the place is still held.
    Ok(Json(object).into_response())
}

/// One dead letter.
pub(super) async fn get(State(api): State<Shared>, uri: Uri) -> Result<Response, ApiError> {
    let _place = place_in(&api.singles).await?;
    let letter = find(&api, id_in(&uri)).await?;
    // Written as JSON while the place is still held.
    Ok(Json(show(&api, &letter).await?.0).into_response())
}

/// Deletes one for good.
pub(super) async fn delete(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let id = id_in(&uri);
    let not_found = || ApiError::no_such_dead_letter(id);
    let parsed: MessageId = id.parse().map_err(|_| not_found())?;
    if api.state.store.delete_dead_letter(&parsed).await? {
        Ok(Json(json!({ "deleted": 1 })))
    } else {
        Err(not_found())
    }
}

/// Sends one again, as a new message with a fresh budget of retries. Options of a publish replace
/// those of the letter.
pub(super) async fn redrive(
    State(api): State<Shared>,
    uri: Uri,
    request: Request,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let in_query = query::separate(uri.query().unwrap_or_default()).options;
    let headers = request.headers().clone();
    body::discard(request).await;
    let id = id_in(&uri);
    let _place = place_in(&api.singles).await?;
    let letter = find(&api, id).await?;
    let gone = || ApiError::Gone(format!("the stored message {} cannot be read", letter.id));
    let Envelope { mut header, body } = Envelope::decode(&letter.envelope).map_err(|_| gone())?;
    let state = &api.state;
    let due = {
        let check = |url: &str| destination::check(url, &state.egress, &*state.environment);
        let at = (state.clock.now_ms(), &state.limits);
        redrive_options::change(&mut header, &headers, &in_query, &check, at)?
    };
    let redrive = dlq_bulk::prepare(&api, letter.id, header, body, due).ok_or_else(gone)?;
    let new = redrive.new;
    let redriven = dlq_bulk::patiently(&api.state.store, &[redrive]).await?;
    match redriven.first() {
        Some(Redriven::Accepted) => Ok((StatusCode::CREATED, Json(json!({ "messageId": new })))),
        Some(Redriven::Gone) => Err(gone()),
        Some(Redriven::None) | None => Err(ApiError::no_such_dead_letter(id)),
    }
}

/// One of the places for what is held at one time.
pub(super) async fn place_in(places: &Semaphore) -> Result<SemaphorePermit<'_>, ApiError> {
    match timeout(LIST_WAIT, places.acquire()).await {
        Ok(Ok(place)) => Ok(place),
        _ => Err(ApiError::Unavailable(
            "too many messages are read at this moment",
        )),
    }
}

async fn find(api: &Api, id: &str) -> Result<DeadLetter, ApiError> {
    let not_found = || ApiError::no_such_dead_letter(id);
    let parsed: MessageId = id.parse().map_err(|_| not_found())?;
    api.state
        .store
        .dead_letter(&parsed)
        .await
        .map_err(ApiError::of_read)?
        .ok_or_else(not_found)
}

/// The letter with its whole envelope; `None` when it has gone in between.
async fn whole(api: &Api, letter: DeadLetter) -> Result<Option<DeadLetter>, HostError> {
    if letter.is_cut {
        api.state.store.dead_letter(&letter.id).await
    } else {
        Ok(Some(letter))
    }
}

/// The message with what became of it, and the size of its body in bytes.
async fn show(api: &Api, letter: &DeadLetter) -> Result<(Object, usize), ApiError> {
    let response = LastResponse::decode(&letter.response).ok();
    let (mut object, body_bytes) = match Envelope::decode(&letter.envelope) {
        Ok(envelope) => {
            let is_shared = letter
                .record
                .as_ref()
                .is_some_and(|record| record.body_key.is_some());
            let named = if is_shared {
                shared_body(api, &letter.id).await?
            } else {
                None
            };
            // A callback whose own part cannot be read is shown without a body.
            let body = envelope.payload(&named.unwrap_or_default());
            let body = body.unwrap_or_default();
            (view(&letter.id, &envelope.header, &body), body.len())
        }
        Err(_) => (unreadable(&letter.id), 0),
    };
    put(&mut object, "dlqId", Some(letter.id));
    put(&mut object, "diedAt", Some(letter.died_ms));
    put(
        &mut object,
        "responseStatus",
        Some(response.as_ref().map_or(0, LastResponse::status)),
    );
    if let Some(response) = response {
        put_headers(&mut object, "responseHeader", response.headers(), &[]);
        put_body(
            &mut object,
            ["responseBody", "responseBodyBase64"],
            response.body(),
            false,
        );
        put(
            &mut object,
            "error",
            Some(response.error()).filter(|error| !error.is_empty()),
        );
        put(&mut object, "errorClass", response.class());
    }
    Ok((object, body_bytes))
}

async fn shared_body(api: &Api, id: &MessageId) -> Result<Option<bytes::Bytes>, ApiError> {
    let stored = api.state.store.message(id).await;
    let stored = stored.map_err(ApiError::of_read)?;
    let shared = stored.and_then(|stored| stored.shared_body);
    Ok(shared
        .and_then(|shared| Envelope::decode(&shared).ok())
        .map(|shared| shared.body))
}

/// An entry whose envelope is missing: the fields that clients rely on.
fn unreadable(id: &MessageId) -> Object {
    let mut object = Object::new();
    put(&mut object, "messageId", Some(id));
    put(&mut object, "url", Some(""));
    put(&mut object, "method", Some("POST"));
    put(&mut object, "maxRetries", Some(0));
    put(&mut object, "notBefore", Some(id.created_ms()));
    put(&mut object, "createdAt", Some(id.created_ms()));
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_pages_are_made_at_one_time_and_more_wait_for_a_while() {
        let lists = Semaphore::new(LISTS_MAX);
        let mut places = Vec::new();
        for _ in 0..LISTS_MAX {
            places.push(place_in(&lists).await.unwrap());
        }
        let start = tokio::time::Instant::now();
        let refused = place_in(&lists).await;
        assert!(matches!(refused, Err(ApiError::Unavailable(_))));
        assert_eq!(start.elapsed(), LIST_WAIT);
        places.pop();
        assert!(place_in(&lists).await.is_ok());
    }
}
