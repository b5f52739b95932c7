//! `/v2/events` and `/v2/logs`: what happened to messages, from the event log.
//!
//! The log holds one entry for each change, with the fields people search by: no body, no headers
//! of either side, and not the beginning of a call (so no event has the state `ACTIVE`). A failed
//! attempt is one entry that shows as two events: `ERROR`, and `RETRY` or `FAILED`.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use hookstash_shared::message::{Lane, LaneKind, LoggedEvent, MessageId};
use hookstash_shared::store::{EventPosition, EventRange, Order, StoredEvent};
use http::Uri;
use serde_json::Value;

use super::error::ApiError;
use super::message_view::{Object, put, put_endpoint, put_flow};
use super::selection::{Facts, List, Selection};
use super::{Api, Shared, dlq, query};

/// Events of a page by default.
const PAGE: usize = 100;
/// Events of a page at most.
const PAGE_MAX: usize = 1_000;
/// Most entries of the log that one page looks at; it then ends with a cursor, however few it found.
const EXAMINED_MAX: usize = 2_000;
/// How far the clocks of publisher and store may lie apart when the events of a message are looked
/// for from its creation on.
const CLOCK_SLACK_MS: u64 = 500;

/// A page under the key that the SDKs read.
pub(super) async fn events(State(api): State<Shared>, uri: Uri) -> Result<Response, ApiError> {
    page(&api, &uri, "events").await
}

/// The same under the other name of the protocol.
pub(super) async fn logs(State(api): State<Shared>, uri: Uri) -> Result<Response, ApiError> {
    page(&api, &uri, "logs").await
}

async fn page(api: &Api, uri: &Uri, key: &str) -> Result<Response, ApiError> {
    let pairs = query::pairs(uri.query()).map(|(key, value)| (key, Some(value)));
    let selection = Selection::read(List::Events, pairs)?;
    let _place = dlq::place_in(&api.lists).await?;
    let (events, next) = find(api, &selection).await?;
    let mut object = Object::new();
    put(&mut object, key, Some(events));
    put(&mut object, "cursor", next.map(Place::show));
    Ok(Json(object).into_response())
}

/// A place between two events, as cursors name it: the last one that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: EventPosition,
    /// Which of the events that one entry shows as.
    part: usize,
}

impl Place {
    fn show(self) -> String {
        let EventPosition {
            ms,
            seq,
            shard,
            index,
        } = self.at;
        format!("{ms}-{seq}-{shard}-{index}-{}", self.part)
    }

    fn read(text: &str) -> Result<Self, ApiError> {
        let read = || {
            let mut parts = text.split('-');
            let place = Self {
                at: EventPosition {
                    ms: parts.next()?.parse().ok()?,
                    seq: parts.next()?.parse().ok()?,
                    shard: parts.next()?.parse().ok()?,
                    index: parts.next()?.parse().ok()?,
                },
                part: parts.next()?.parse().ok()?,
            };
            parts.next().is_none().then_some(place)
        };
        read().ok_or_else(|| ApiError::invalid("cursor", "use the one that the last page returned"))
    }
}

/// The events of the page that `selection` asks for, and where the next one goes on.
async fn find(api: &Api, selection: &Selection) -> Result<(Vec<Value>, Option<Place>), ApiError> {
    let cursor = selection.cursor.as_deref().map(Place::read).transpose()?;
    let count = selection.count.unwrap_or(PAGE).min(PAGE_MAX);
    let range = range(selection, cursor);
    let order = range.order;
    let is_empty = selection.ids.as_ref().is_some_and(Vec::is_empty);
    if is_empty {
        return Ok((Vec::new(), None));
    }
    let mut walk = api.state.store.events(range);
    let mut events = Vec::new();
    let mut last = cursor;
    let mut examined = 0;
    let mut has_more = false;
    'walk: while let Some(stored) = walk.next().await.map_err(ApiError::of_read)? {
        has_more = examined == EXAMINED_MAX;
        if has_more {
            break;
        }
        examined += 1;
        let at = stored.at;
        let parts = parts(&stored, selection, order);
        if parts.is_empty() {
            last = Some(Place { at, part: 0 });
        }
        for (part, event) in parts {
            let place = Place { at, part };
            if cursor.is_some_and(|cursor| !order.is_after(&place, &cursor)) {
                continue;
            }
            has_more = events.len() == count;
            if has_more {
                break 'walk;
            }
            last = Some(place);
            events.extend(event.map(Value::Object));
        }
    }
    if order != selection.order.unwrap_or_default() {
        events.reverse();
    }
    Ok((events, last.filter(|_| has_more)))
}

/// What is walked. The events of a message lie close behind its creation, which its id tells: with
/// ids the walk begins there, and each page is turned round at its end.
fn range(selection: &Selection, cursor: Option<Place>) -> EventRange {
    let mut range = EventRange {
        order: selection.order.unwrap_or_default(),
        start: cursor.map(|cursor| cursor.at),
        from_ms: selection.from_ms,
        to_ms: selection.to_ms,
        shards: None,
    };
    if let Some(ids) = &selection.ids {
        let created = ids
            .iter()
            .map(MessageId::created_ms)
            .min()
            .unwrap_or_default();
        let mut shards: Vec<_> = ids.iter().map(MessageId::shard).collect();
        shards.sort();
        shards.dedup();
        range.order = Order::EarliestFirst;
        range.from_ms = Some(created.saturating_sub(CLOCK_SLACK_MS));
        range.to_ms = None;
        range.shards = Some(shards);
    }
    range
}

/// The events that an entry shows as, by their number, in the order of the walk; `None` for one that
/// is not asked for.
fn parts(
    stored: &StoredEvent,
    selection: &Selection,
    order: Order,
) -> Vec<(usize, Option<Object>)> {
    let is_wanted = selection
        .ids
        .as_ref()
        .is_none_or(|ids| ids.binary_search(&stored.id).is_ok());
    let event = if is_wanted {
        LoggedEvent::decode(&stored.event)
    } else {
        LoggedEvent::default()
    };
    let lane = event
        .lane
        .as_deref()
        .and_then(|lane| Lane::parse(lane).ok());
    let name = |kind| {
        let lane = lane.as_ref().filter(|lane| lane.kind() == kind)?;
        Some(String::from_utf8_lossy(&lane.plain_name()).into_owned())
    };
    let mut facts = Facts {
        url: &event.url,
        labels: &event.labels,
        queue: name(LaneKind::Queue),
        flow_key: name(LaneKind::Flow),
        group: event
            .endpoint
            .as_ref()
            .map(|endpoint| endpoint.group.as_str()),
        schedule: event.schedule.as_deref(),
        caller_ip: event.caller_ip,
        status: event.status.unwrap_or_default(),
        state: "",
    };
    let ids_win = selection.ids.is_some() && !selection.is_filtered_by_id;
    let mut shown: Vec<(usize, Option<Object>)> = Vec::new();
    for (part, &state) in states(stored.code, &event).iter().enumerate() {
        facts.state = state;
        let is_wanted = is_wanted && (ids_win || selection.filter.fits(&facts));
        shown.push((part, is_wanted.then(|| show(stored, &event, &facts))));
    }
    if order == Order::LatestFirst {
        shown.reverse();
    }
    shown
}

/// The states of the protocol that a stored code stands for, in the order in which they came.
fn states(code: char, event: &LoggedEvent) -> &'static [&'static str] {
    match code {
        'n' => &["CREATED"],
        'k' => &["DELIVERED"],
        'r' => &["ERROR", "RETRY"],
        'x' if event.class.is_some() => &["ERROR", "FAILED"],
        'x' => &["FAILED"],
        'q' => &["CANCEL_REQUESTED"],
        'c' => &["CANCELED"],
        'v' => &["ERROR"],
        // Handed back, and what is not known here.
        _ => &[],
    }
}

fn show(stored: &StoredEvent, event: &LoggedEvent, facts: &Facts<'_>) -> Object {
    let is_attempt = matches!(stored.code, 'k' | 'r' | 'x');
    let mut object = Object::new();
    put(&mut object, "time", Some(stored.at.ms));
    put(&mut object, "messageId", Some(stored.id));
    put(&mut object, "state", Some(facts.state));
    put(&mut object, "url", Some(facts.url));
    put(
        &mut object,
        "method",
        event.retries.map(|_| event.method.as_str()),
    );
    put(&mut object, "error", error_of(stored, event));
    put(
        &mut object,
        "errorClass",
        event.class.filter(|_| is_attempt),
    );
    put(
        &mut object,
        "responseStatus",
        event.status.filter(|_| is_attempt),
    );
    let next = event.retry_after_ms.filter(|_| facts.state == "RETRY");
    let next = next.map(|after| stored.at.ms.saturating_add(after));
    put(&mut object, "nextDeliveryTime", next);
    put(&mut object, "queueName", facts.queue.as_ref());
    put(&mut object, "flowControlKey", facts.flow_key.as_ref());
    put(&mut object, "scheduleId", event.schedule.as_ref());
    put_endpoint(&mut object, event.endpoint.as_ref());
    put_flow(&mut object, event.flow);
    put(&mut object, "maxRetries", event.retries);
    for key in ["retryDelayExpr", "retryDelayExpression"] {
        put(&mut object, key, event.retry_delay.as_ref());
    }
    put(&mut object, "callback", event.callback.as_ref());
    put(
        &mut object,
        "failureCallback",
        event.failure_callback.as_ref(),
    );
    put(&mut object, "callerIP", event.caller_ip);
    put(&mut object, "label", event.labels.first());
    put(
        &mut object,
        "labels",
        Some(&event.labels).filter(|labels| !labels.is_empty()),
    );
    object
}

fn error_of<'a>(stored: &StoredEvent, event: &'a LoggedEvent) -> Option<&'a str> {
    match stored.code {
        'v' => Some("the worker that held it was lost; it is delivered again"),
        'x' if event.class.is_none() && event.error.is_empty() => {
            Some("the stored message was missing")
        }
        'r' | 'x' => Some(event.error.as_str()).filter(|error| !error.is_empty()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_shown() {
        let text = "1700000000000-3-15-2-1";
        assert_eq!(Place::read(text).unwrap().show(), text);
        for text in [
            "",
            "1",
            "1-2-3-4",
            "1-2-3-4-5-6",
            "a-2-3-4-5",
            "1-2-70000-4-5",
        ] {
            assert!(Place::read(text).is_err(), "{text}");
        }
    }
}
