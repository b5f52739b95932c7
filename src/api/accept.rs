//! The one way from what a caller asks for to accepted messages: publish, enqueue and batch walk it.
//!
//! [`draft`] checks everything but the body, [`Draft::with_body`] makes what is to be stored, and
//! [`send`] stores it.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use bytes::Bytes;
use hookstash_producer::publish::{PATIENCE_MAX, PublishError, Published};
use hookstash_shared::message::{Destination, NewMessage, NewMessageBuilder};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::error::ApiError;
use super::{ApiState, destination, publish_headers};

const QUEUE: &str = "upstash-queue-name";

/// What a caller says of a message, besides its destination and its body.
pub(super) struct Asked<'a> {
    /// Its headers: options, and what is forwarded.
    pub(super) headers: &'a HeaderMap,
    /// Options of the destination's query, which a header of the same name wins over.
    pub(super) options: &'a [(String, Vec<u8>)],
    /// The queue that the path or the item names.
    pub(super) queue: Option<&'a str>,
    /// The caller's address.
    pub(super) caller_ip: Option<IpAddr>,
}

/// Who gets a message.
pub(super) enum Recipient {
    /// One destination.
    Url(Destination),
}

/// A message that lacks nothing but its body.
pub(super) struct Draft {
    message: NewMessageBuilder,
}

/// What is stored together.
pub(super) struct Ready {
    message: NewMessage,
}

/// A message that was accepted.
pub(super) struct Accepted(Published);

/// Finds out who `text` names: a URL, or nobody.
pub(super) fn find(state: &ApiState, text: &str) -> Result<Recipient, ApiError> {
    destination::check(text, &state.egress, &*state.environment).map(Recipient::Url)
}

/// Checks all that can be checked without the body.
pub(super) fn draft(state: &ApiState, text: &str, asked: &Asked<'_>) -> Result<Draft, ApiError> {
    let Recipient::Url(destination) = find(state, text)?;
    let check = |url: &str| destination::check(url, &state.egress, &*state.environment);
    let (headers, options) = (asked.headers, asked.options);
    let mut message = publish_headers::configure(destination, headers, options, &check)?;
    if let Some(name) = asked.queue {
        if names_another_queue(asked, name) {
            return Err(ApiError::invalid(
                "Upstash-Queue-Name",
                "another queue is named too",
            ));
        }
        message = message.queue(name)?;
    }
    if let Some(address) = asked.caller_ip {
        message = message.caller_ip(address);
    }
    Ok(Draft { message })
}

fn names_another_queue(asked: &Asked<'_>, queue: &str) -> bool {
    let in_headers = asked.headers.get_all(QUEUE).into_iter();
    let in_headers = in_headers.map(HeaderValue::as_bytes);
    let in_options = asked.options.iter().filter(|(name, _)| name == QUEUE);
    let in_options = in_options.map(|(_, value)| value.as_slice());
    in_headers
        .chain(in_options)
        .any(|named| named.trim_ascii() != queue.as_bytes())
}

/// The address at the other end of a request's connection.
pub(super) fn caller_ip(parts: &Parts) -> Option<IpAddr> {
    let ConnectInfo(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(peer.ip().to_canonical())
}

impl Draft {
    /// Puts the body in and checks the whole.
    pub(super) fn with_body(self, state: &ApiState, body: Bytes) -> Result<Ready, ApiError> {
        let message = self.message.body(body);
        let message = message.build(state.clock.now_ms(), &state.limits)?;
        Ok(Ready { message })
    }
}

/// Stores all of `ready`, those of one queue in their order. One answer for each, in the same order.
pub(super) async fn send(state: &ApiState, ready: Vec<Ready>) -> Vec<Result<Accepted, ApiError>> {
    let have_dedup_ids: Vec<bool> = ready.iter().map(Ready::has_dedup_id).collect();
    let messages = ready.into_iter().map(|one| {
        let id = state.publisher.id_for(&one.message);
        (id, one.message)
    });
    let messages = messages.collect();
    let published = state.publisher.publish_many(messages, PATIENCE_MAX).await;
    let results = published.into_iter().zip(have_dedup_ids);
    results
        .map(|(published, has_dedup_id)| answer(published, has_dedup_id))
        .collect()
}

fn answer(
    published: Result<Published, PublishError>,
    has_dedup_id: bool,
) -> Result<Accepted, ApiError> {
    published
        .map(Accepted)
        .map_err(|error| ApiError::of_publish(&error, has_dedup_id))
}

impl Ready {
    fn has_dedup_id(&self) -> bool {
        self.message.header().dedup.is_some()
    }
}

impl Accepted {
    /// Whether nothing was stored, because others came first.
    pub(super) fn is_duplicate(&self) -> bool {
        self.0.is_duplicate
    }

    /// The answer to the caller.
    pub(super) fn to_json(&self) -> Value {
        let id = self.0.id;
        if self.0.is_duplicate {
            json!({ "messageId": id, "deduplicated": true })
        } else {
            json!({ "messageId": id })
        }
    }
}
