//! `POST /v2/batch`: many messages in one request, each accepted or refused by itself.
//!
//! The answer has one entry for each item, in order, with status 200 also when every item was
//! refused, as the official clients expect. Two ends are the whole request's, because a client that
//! looks at no single entry would take them for success: a part of the protocol that is not built,
//! before anything is stored; and a store that is not known to have taken any item.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hookstash_shared::store::UrlGroup;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::accept::{self, Accepted, Asked, Ready, Recipient};
use super::error::ApiError;
use super::{ApiState, Shared, destination};

/// Largest request in bytes, or twice what one message may have if that is more: in JSON a body may
/// be longer than it is.
const BATCH_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most items of one request.
const ITEMS_MAX: usize = 10_000;
/// Most messages that they make, an item for a URL group one for each endpoint.
const MESSAGES_MAX: usize = 10_000;
/// Most bytes of headers that these messages have together: an item may take the default headers of
/// a URL group, and each of the group's messages has all of them.
const HEADER_BYTES_MAX: usize = 64 * 1024 * 1024;
const TOO_MANY: &str = "more than 10000 items";
const EXPECTED: &str =
    "expected destination as text, headers as texts by name, body and queue as text or null";

/// One item, as it is sent. Clients leave out what is not given, or send null.
#[derive(Deserialize)]
struct Item {
    destination: String,
    headers: Option<BTreeMap<String, String>>,
    body: Option<String>,
    queue: Option<String>,
}

/// The items, each to be read by itself.
struct Items<'a>(Vec<&'a RawValue>);

/// The URL groups of the items before, by name.
type Groups = BTreeMap<String, UrlGroup>;

/// What became of one item.
type Outcome = Result<Accepted, ApiError>;

/// Accepts what can be accepted of the items.
pub(super) async fn batch(
    State(api): State<Shared>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let max = BATCH_BYTES_MAX.max(api.state.limits.body_bytes_max.saturating_mul(2));
    let held = api.bodies.read(&parts.headers, body, max).await?;
    let items = read(&api.state, &held.bytes, accept::caller_ip(&parts)).await?;
    let outcomes = send(&api.state, items).await;
    Ok(answer(&outcomes))
}

/// Reads the items and checks each.
async fn read(
    state: &ApiState,
    body: &[u8],
    caller_ip: Option<IpAddr>,
) -> Result<Vec<Result<Ready, ApiError>>, ApiError> {
    let items: Items = serde_json::from_slice(body).map_err(|error| {
        // Other texts of the parser may repeat what it met.
        let is_ours = error.is_data() && error.to_string().contains(TOO_MANY);
        let why = if is_ours {
            TOO_MANY
        } else {
            "expected a JSON array of items"
        };
        ApiError::invalid("batch", why)
    })?;
    let mut read = Vec::with_capacity(items.0.len());
    let (mut groups, mut has_failed) = (Groups::new(), false);
    let (mut messages, mut header_bytes) = (0, 0_usize);
    for item in items.0 {
        // Later items would wait for the store too, and might overtake this one in its queue.
        if has_failed {
            read.push(Err(accept::not_sent()));
            continue;
        }
        let item = prepare(state, item, caller_ip, &mut groups).await;
        if let Err(refusal @ ApiError::NotBuilt(_)) = item {
            return Err(refusal);
        }
        has_failed = item.as_ref().is_err_and(accept::is_of_store);
        messages += item.as_ref().map_or(0, Ready::count);
        if messages > MESSAGES_MAX {
            let why = format!("its URL groups make it more than {MESSAGES_MAX} messages");
            return Err(ApiError::invalid("batch", why));
        }
        header_bytes = header_bytes.saturating_add(item.as_ref().map_or(0, Ready::header_bytes));
        if header_bytes > HEADER_BYTES_MAX {
            let why = format!("its messages have more than {HEADER_BYTES_MAX} bytes of headers");
            return Err(ApiError::invalid("batch", why));
        }
        read.push(item);
    }
    Ok(read)
}

async fn prepare(
    state: &ApiState,
    item: &RawValue,
    caller_ip: Option<IpAddr>,
    groups: &mut Groups,
) -> Result<Ready, ApiError> {
    let item: Item =
        serde_json::from_str(item.get()).map_err(|_| ApiError::invalid("item", EXPECTED))?;
    let target = destination::read(&item.destination)?;
    let headers = headers(item.headers.unwrap_or_default())?;
    let asked = Asked {
        headers: &headers,
        options: &target.options,
        queue: item.queue.as_deref(),
        caller_ip,
    };
    let recipient = find(state, target.text, groups).await?;
    let draft = accept::draft_to(state, recipient, &asked)?;
    Ok(draft.with_body(Bytes::from(item.body.unwrap_or_default())))
}

/// Finds out who `text` names; a group is read once for all items.
async fn find(state: &ApiState, text: String, groups: &mut Groups) -> Result<Recipient, ApiError> {
    if let Some(group) = groups.get(&text) {
        return Ok(Recipient::Group(text, group.clone()));
    }
    let found = accept::find(state, &text).await?;
    if let Recipient::Group(name, group) = &found {
        groups.insert(name.clone(), group.clone());
    }
    Ok(found)
}

/// The headers of an item as those of a request.
fn headers(given: BTreeMap<String, String>) -> Result<HeaderMap, ApiError> {
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| ApiError::invalid("headers", "a name is not that of a header"))?;
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| ApiError::invalid(name.as_str(), "control characters are not allowed"))?;
        headers
            .try_append(name, value)
            .map_err(|_| ApiError::invalid("headers", "there are too many"))?;
    }
    Ok(headers)
}

/// Stores what can be stored. One outcome for each item, in order.
async fn send(state: &ApiState, items: Vec<Result<Ready, ApiError>>) -> Vec<Outcome> {
    let mut ready = Vec::with_capacity(items.len());
    let refusals: Vec<Option<ApiError>> = items
        .into_iter()
        .map(|item| item.map(|item| ready.push(item)).err())
        .collect();
    let mut sent = accept::send(state, ready).await.into_iter();
    let unanswered = || Err(ApiError::Internal("the message has no answer"));
    let outcomes = refusals.into_iter().map(|refusal| match refusal {
        Some(refusal) => Err(refusal),
        None => sent.next().unwrap_or_else(unanswered),
    });
    outcomes.collect()
}

fn answer(outcomes: &[Outcome]) -> Response {
    let entries: Value = outcomes.iter().map(entry).collect();
    let failures = || outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    let of_store = failures().filter(|error| error.status().is_server_error());
    // An unknown end says more than "nothing was changed".
    let worst = of_store.max_by_key(|error| matches!(error, ApiError::Unknown(_)));
    match worst {
        Some(error) if failures().count() == outcomes.len() => {
            error.respond(&json!({ "error": error.to_string(), "items": entries }))
        }
        _ => Json(entries).into_response(),
    }
}

fn entry(outcome: &Outcome) -> Value {
    match outcome {
        Ok(accepted) => accepted.to_json(),
        Err(error) => json!({ "error": error.to_string(), "status": error.status().as_u16() }),
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ItemsVisitor).map(Self)
    }
}

/// Stops at [`ITEMS_MAX`], so that a request of nothing but commas takes little memory.
struct ItemsVisitor;

impl<'de> Visitor<'de> for ItemsVisitor {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            if items.len() == ITEMS_MAX {
                return Err(A::Error::custom(TOO_MANY));
            }
            items.push(item);
        }
        Ok(items)
    }
}
