//! The one way from what a caller asks for to accepted messages: publish, enqueue and batch walk it.
//!
//! [`find`] tells who a text names, [`draft`] checks everything but the body, [`Draft::with_body`]
//! puts the body in, and [`send`] stores what came of it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::extract::ConnectInfo;
use bytes::Bytes;
use hookstash_producer::publish::{PATIENCE_MAX, Published};
use hookstash_shared::message::{
    Destination, GroupEndpoint, MessageId, NewMessage, NewMessageBuilder, is_plain_name,
};
use hookstash_shared::store::UrlGroup;
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

use super::error::{ApiError, echo};
use super::group_headers::with_defaults;
use super::{ApiState, destination, publish_headers};

const QUEUE: &str = "upstash-queue-name";
/// What names of services of the cloud begin with.
const CLOUD_API: &str = "api/";

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
#[derive(Debug)]
pub(super) enum Recipient {
    /// One destination.
    Url(Destination),
    /// Every endpoint of the group of this name.
    Group(String, UrlGroup),
}

/// A message that lacks nothing but its body.
pub(super) struct Draft {
    message: NewMessageBuilder,
    /// The endpoints and the group they are of; none = the message's own destination.
    endpoints: Vec<(Destination, GroupEndpoint)>,
    /// Bytes of its headers and options, those of its group among them.
    header_bytes: usize,
}

/// A message, or one for each endpoint.
pub(super) struct Ready(Draft);

/// What was accepted.
pub(super) enum Accepted {
    /// One message.
    One(Published),
    /// One for each endpoint, with its URL.
    Group(Vec<(Published, Destination)>),
}

/// Finds out who `text` names: a URL, else a URL group. The addresses of both are checked.
pub(super) async fn find(state: &ApiState, text: &str) -> Result<Recipient, ApiError> {
    if text.starts_with(CLOUD_API) {
        return Err(ApiError::Invalid(format!(
            "invalid destination url: {} is a service of the cloud, which this server does not \
             have; publish to the URL of its provider",
            echo(text)
        )));
    }
    if is_plain_name(text) {
        let stored = state
            .store
            .url_group(text)
            .await
            .map_err(ApiError::of_read)?;
        if let Some(stored) = stored {
            check_endpoints(state, text, &stored.group)?;
            return Ok(Recipient::Group(text.to_owned(), stored.group));
        }
    }
    destination::check(text, &state.egress, &*state.environment).map(Recipient::Url)
}

/// What is allowed may have changed since the endpoints were added.
fn check_endpoints(state: &ApiState, name: &str, group: &UrlGroup) -> Result<(), ApiError> {
    for endpoint in &group.endpoints {
        let url = endpoint.url.as_str();
        destination::check(url, &state.egress, &*state.environment).map_err(|refusal| {
            ApiError::Invalid(format!("an endpoint of the URL group {name}: {refusal}"))
        })?;
    }
    Ok(())
}

/// Checks all that can be checked without the body.
pub(super) async fn draft(
    state: &ApiState,
    text: &str,
    asked: &Asked<'_>,
) -> Result<Draft, ApiError> {
    draft_to(state, find(state, text).await?, asked)
}

/// The same for a recipient that was found.
pub(super) fn draft_to(
    state: &ApiState,
    recipient: Recipient,
    asked: &Asked<'_>,
) -> Result<Draft, ApiError> {
    let mut draft = match recipient {
        Recipient::Url(destination) => Draft {
            message: configure(state, destination, asked.headers, asked.options)?,
            endpoints: Vec::new(),
            header_bytes: size(asked.headers, asked),
        },
        Recipient::Group(name, group) => of_group(state, &name, group, asked)?,
    };
    if let Some(name) = asked.queue {
        if names_another_queue(asked, name) {
            return Err(ApiError::invalid(
                "Upstash-Queue-Name",
                "another queue is named too",
            ));
        }
        draft.message = draft.message.queue(name)?;
    }
    if let Some(address) = asked.caller_ip {
        draft.message = draft.message.caller_ip(address);
    }
    Ok(draft)
}

fn of_group(
    state: &ApiState,
    name: &str,
    group: UrlGroup,
    asked: &Asked<'_>,
) -> Result<Draft, ApiError> {
    let headers = with_defaults(asked, &group.headers)?;
    let endpoints = group.endpoints.into_iter().map(|endpoint| {
        let group = name.to_owned();
        let name = endpoint.name;
        (endpoint.url, GroupEndpoint { group, name })
    });
    let endpoints: Vec<_> = endpoints.collect();
    let Some((first, _)) = endpoints.first() else {
        return Err(ApiError::Internal("a URL group without endpoints"));
    };
    Ok(Draft {
        message: configure(state, first.clone(), &headers, asked.options)?,
        endpoints,
        header_bytes: size(&headers, asked),
    })
}

/// Bytes of the headers and of the options beside them.
fn size(headers: &HeaderMap, asked: &Asked<'_>) -> usize {
    let headers = headers.iter();
    let in_headers = headers.map(|(name, value)| name.as_str().len() + value.len());
    let in_options = asked.options.iter();
    let in_options = in_options.map(|(name, value)| name.len() + value.len());
    in_headers.chain(in_options).sum()
}

fn configure(
    state: &ApiState,
    destination: Destination,
    headers: &HeaderMap,
    options: &[(String, Vec<u8>)],
) -> Result<NewMessageBuilder, ApiError> {
    let check = |url: &str| destination::check(url, &state.egress, &*state.environment);
    publish_headers::configure(destination, headers, options, &check)
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
    /// Puts the body in.
    pub(super) fn with_body(mut self, body: Bytes) -> Ready {
        self.message = self.message.body(body);
        Ready(self)
    }
}

impl Ready {
    /// How many messages it makes.
    pub(super) fn count(&self) -> usize {
        self.0.endpoints.len().max(1)
    }

    /// How many bytes of headers its messages have together.
    pub(super) fn header_bytes(&self) -> usize {
        self.0.header_bytes.saturating_mul(self.count())
    }

    fn is_for_group(&self) -> bool {
        !self.0.endpoints.is_empty()
    }

    /// The messages, checked as a whole.
    fn messages(self, state: &ApiState) -> Result<Vec<NewMessage>, ApiError> {
        let now_ms = state.clock.now_ms();
        let Draft {
            message, endpoints, ..
        } = self.0;
        let Some((_, endpoint)) = endpoints.first() else {
            return Ok(vec![message.build(now_ms, &state.limits)?]);
        };
        let message = message.content_of_group(&endpoint.group);
        let members = endpoints.into_iter().map(|(destination, endpoint)| {
            let member = message.clone().to_endpoint(destination, endpoint);
            member.build(now_ms, &state.limits)
        });
        Ok(members.collect::<Result<_, _>>()?)
    }
}

/// Stores all of `ready`, those of one queue in their order. One answer for each, in the same order.
/// Once the store has failed, what comes after is not sent: it would overtake what came before.
pub(super) async fn send(state: &ApiState, ready: Vec<Ready>) -> Vec<Result<Accepted, ApiError>> {
    let mut sending = Sending {
        state,
        until: state.clock.monotonic() + PATIENCE_MAX,
        has_failed: false,
        answers: ready.iter().map(|_| None).collect(),
        run: Vec::new(),
    };
    for (index, one) in ready.into_iter().enumerate() {
        let is_for_group = one.is_for_group();
        match one.messages(state) {
            Ok(members) if is_for_group => {
                sending.send_run().await;
                sending.send_group(index, members).await;
            }
            Ok(messages) => {
                let placed = messages.into_iter().map(|message| (index, message));
                sending.run.extend(placed);
            }
            Err(refusal) => sending.answer(index, Err(refusal)),
        }
    }
    sending.send_run().await;
    let unanswered = || Err(ApiError::Internal("the message has no answer"));
    let answers = sending.answers.into_iter();
    answers
        .map(|answer| answer.unwrap_or_else(unanswered))
        .collect()
}

/// A call of [`send`] under way.
struct Sending<'a> {
    state: &'a ApiState,
    /// When patience ends, by the monotonic clock.
    until: Duration,
    has_failed: bool,
    answers: Vec<Option<Result<Accepted, ApiError>>>,
    /// Messages with one destination that follow each other, each with its place.
    run: Vec<(usize, NewMessage)>,
}

impl Sending<'_> {
    /// Sends the run in as few pipelines as possible.
    async fn send_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        if self.has_failed {
            return run
                .iter()
                .for_each(|(index, _)| self.answer(*index, Err(not_sent())));
        }
        let publisher = &self.state.publisher;
        let (mut places, mut messages) = (Vec::new(), Vec::new());
        for (index, message) in run {
            places.push((index, message.header().dedup.is_some()));
            messages.push((publisher.id_for(&message), message));
        }
        let published = publisher.publish_many(messages, self.patience()).await;
        for ((index, has_dedup_id), published) in places.into_iter().zip(published) {
            let answer = published.map(Accepted::One);
            self.answer(
                index,
                answer.map_err(|error| ApiError::of_publish(&error, has_dedup_id)),
            );
        }
    }

    /// Sends the members of a group, which share their body.
    async fn send_group(&mut self, index: usize, members: Vec<NewMessage>) {
        if self.has_failed {
            return self.answer(index, Err(not_sent()));
        }
        let has_dedup_id = members.iter().any(|member| member.header().dedup.is_some());
        let urls = members.iter().map(|member| member.header().url.clone());
        let urls: Vec<Destination> = urls.collect();
        let publisher = &self.state.publisher;
        let published = publisher.publish_group(members, self.patience()).await;
        let answer = published.map(|all| Accepted::Group(all.into_iter().zip(urls).collect()));
        self.answer(
            index,
            answer.map_err(|error| ApiError::of_publish(&error, has_dedup_id)),
        );
    }

    fn answer(&mut self, index: usize, answer: Result<Accepted, ApiError>) {
        self.has_failed |= answer.as_ref().is_err_and(is_of_store);
        if let Some(place) = self.answers.get_mut(index) {
            *place = Some(answer);
        }
    }

    fn patience(&self) -> Duration {
        self.until.saturating_sub(self.state.clock.monotonic())
    }
}

/// Whether the store failed, so that nothing after it may be sent.
pub(super) fn is_of_store(error: &ApiError) -> bool {
    matches!(error, ApiError::Unavailable(_) | ApiError::Unknown(_))
}

/// The answer for what is not sent after a failure of the store.
pub(super) fn not_sent() -> ApiError {
    ApiError::Unavailable("the store failed a message before this one")
}

impl Accepted {
    /// Whether nothing was stored, because others came first.
    pub(super) fn is_duplicate(&self) -> bool {
        match self {
            Self::One(published) => published.is_duplicate,
            Self::Group(members) => members.iter().all(|(published, _)| published.is_duplicate),
        }
    }

    /// The answer to the caller: an object, or an array for a group.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::One(published) => entry(published, None),
            Self::Group(members) => {
                let entries = members.iter();
                entries
                    .map(|(published, url)| entry(published, Some(url)))
                    .collect()
            }
        }
    }
}

fn entry(published: &Published, url: Option<&Destination>) -> Value {
    let id: MessageId = published.id;
    let mut entry = json!({ "messageId": id });
    if let Some(object) = entry.as_object_mut() {
        if let Some(url) = url {
            object.insert("url".to_owned(), json!(url));
        }
        if published.is_duplicate {
            object.insert("deduplicated".to_owned(), json!(true));
        }
    }
    entry
}
