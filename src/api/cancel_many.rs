//! `DELETE /v2/messages`: cancels messages by their ids, by filters, or all.
//!
//! Without ids every message on its way is looked at, a page of the store's at a time and without an
//! index. What lives from the request's begin to its end is met; what is published meanwhile may be.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use bytes::Bytes;
use hookstash_shared::message::{Envelope, EnvelopeHeader, Lane, LoggedEvent, MessageId, Peek};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Cancelled, Record, Store};

use super::error::ApiError;
use super::message_view::{Object, put};
use super::selection::{Facts, List, Selection};
use super::walk_place::Place;
use super::{Api, Shared, bulk};

/// A request ends after this time, and its answer has a cursor to go on with. SDKs do not look at
/// that cursor and wait 10 minutes for an answer, so this is as long as they can be served.
const TIME_MAX: Duration = Duration::from_mins(9);
/// The count that clients send when nobody gave one: it stands for all.
const COUNT_OF_ALL: usize = 100;

/// Cancels what is asked for. Those that a worker is sending just now are counted, and are cancelled
/// unless that call succeeds.
pub(super) async fn cancel_many(
    State(api): State<Shared>,
    request: Request,
) -> Result<Json<Object>, ApiError> {
    let selection = Selection::read(List::Messages, bulk::read(&api, request).await?)?;
    let (cancelled, next) = if let Some(ids) = &selection.ids {
        (by_id(&api.state.store, ids).await?, None)
    } else {
        let mut cancelled = 0;
        let next = walk(&api, &selection, &mut cancelled).await;
        let next = next.map_err(|error| match cancelled {
            0 => error,
            _ => error.after(&format!("{cancelled} were cancelled")),
        });
        (cancelled, next?)
    };
    let mut object = Object::new();
    put(&mut object, "cancelled", Some(cancelled));
    put(&mut object, "cursor", next.map(Place::show));
    Ok(Json(object))
}

/// How many were cancelled. Ids that are not on their way are skipped.
pub(super) async fn by_id(store: &Store, ids: &[MessageId]) -> Result<usize, ApiError> {
    let heads = store.envelope_heads(ids).await;
    let heads = heads.map_err(ApiError::of_read)?;
    let headers = headers(store, ids, heads).await;
    let headers = headers.map_err(ApiError::of_read)?;
    let events = headers.iter().map(|header| event(header.as_ref()));
    let messages: Vec<(MessageId, Bytes)> = ids.iter().copied().zip(events).collect();
    cancel(store, &messages).await
}

/// Where to go on. Counts in `cancelled`, which is right after an error too.
async fn walk(
    api: &Api,
    selection: &Selection,
    cancelled: &mut usize,
) -> Result<Option<Place>, ApiError> {
    let store = &api.state.store;
    let at = selection.cursor.as_deref().map(Place::read).transpose()?;
    let Place { shard, mut cursor } = at.unwrap_or_default();
    let most = selection.count.filter(|count| *count != COUNT_OF_ALL);
    let most = most.unwrap_or(usize::MAX);
    let deadline = api.state.clock.monotonic() + TIME_MAX;
    let mut is_first = true;
    for shard in store.shards().iter().filter(|one| one.index() >= shard) {
        loop {
            if !is_first && api.state.clock.monotonic() >= deadline {
                return Ok(Some(Place::new(shard, cursor)));
            }
            is_first = false;
            let page = store.live_messages(shard, cursor).await;
            let page = page.map_err(ApiError::of_read)?;
            cancel_page(store, selection, page.found, (most, &mut *cancelled)).await?;
            if *cancelled >= most {
                return Ok(None);
            }
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
    }
    Ok(None)
}

/// Cancels of a page until `cancelled` is `most`.
async fn cancel_page(
    store: &Store,
    selection: &Selection,
    page: Vec<(MessageId, Record)>,
    (most, cancelled): (usize, &mut usize),
) -> Result<(), ApiError> {
    // By id, because a page may hold one twice.
    let page: BTreeMap<MessageId, Record> = page.into_iter().collect();
    let may_fit = page.into_iter().filter(|(id, record)| {
        let created_ms = id.created_ms();
        // What was asked to stop already is counted once.
        !record.is_cancel_requested
            && selection.from_ms.is_none_or(|from| created_ms >= from)
            && selection.to_ms.is_none_or(|to| created_ms <= to)
            && Lane::parse(&record.lane).map_or(true, |lane| selection.filter.may_fit(&lane))
    });
    let ids: Vec<MessageId> = may_fit.map(|(id, _)| id).collect();
    let heads = store.live_heads(&ids).await.map_err(ApiError::of_read)?;
    let headers = headers(store, &ids, heads).await;
    let headers = headers.map_err(ApiError::of_read)?;
    let chosen = ids.into_iter().zip(&headers).filter(|(_, header)| {
        let facts = header.as_ref().map(Facts::of).unwrap_or_default();
        selection.filter.fits(&facts)
    });
    let chosen: Vec<(MessageId, Bytes)> = chosen
        .map(|(id, header)| (id, event(header.as_ref())))
        .collect();
    let mut rest = &chosen[..];
    // Again, because some may have ended meanwhile.
    while *cancelled < most && !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(most - *cancelled));
        *cancelled += cancel(store, now).await?;
        rest = later;
    }
    Ok(())
}

async fn cancel(store: &Store, messages: &[(MessageId, Bytes)]) -> Result<usize, ApiError> {
    let answers = store.cancel_all(messages).await;
    let answers = answers.map_err(|error| ApiError::of_several(error, messages.len()))?;
    let count = answers
        .iter()
        .filter(|answer| **answer != Cancelled::None)
        .count();
    Ok(count)
}

/// The headers of messages of which the beginning was read; `None` for one that has gone or cannot be
/// read.
async fn headers(
    store: &Store,
    ids: &[MessageId],
    heads: Vec<Bytes>,
) -> Result<Vec<Option<EnvelopeHeader>>, HostError> {
    let mut headers = Vec::with_capacity(ids.len());
    for (id, head) in ids.iter().zip(heads) {
        let peek = match Envelope::decode_header(&head) {
            Ok(Peek::NeedMore { total }) if !head.is_empty() => {
                Envelope::decode_header(&store.envelope_start(id, total).await?)
            }
            other => other,
        };
        headers.push(match peek {
            Ok(Peek::Header(header)) => Some(*header),
            _ => None,
        });
    }
    Ok(headers)
}

fn event(header: Option<&EnvelopeHeader>) -> Bytes {
    header.map_or_else(
        || LoggedEvent::default().encode(),
        |header| LoggedEvent::of(header).encode(),
    )
}
