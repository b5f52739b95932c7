//! The one validated constructor of messages. Whatever makes a message, front door, hook,
//! schedule or callback, makes it here, so that nothing undeliverable is ever stored.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;

use super::callback::CallbackSpec;
use super::dedup::DedupId;
use super::destination::Destination;
use super::envelope::{Envelope, EnvelopeHeader};
use super::id::{Shard, Shards};
use super::lane::Lane;
use super::limits::{Limits, When, due, millis};
use super::placement;
use super::policy::{Fallback, FlowLimits, GroupEndpoint, Method, RedactField, RetryDelay};
use super::refusal::{LABEL_BYTES_MAX, LABELS_MAX, NewMessageError, REDACT_MAX, RETRIES_MAX};
use crate::headers::{HeaderError, Headers, is_reserved};
use crate::random::Random;

/// Retries when the caller does not say.
const RETRIES_DEFAULT: u32 = 3;
const PERIOD_DEFAULT: Duration = Duration::from_secs(1);
const PERIOD_MAX: Duration = Duration::from_hours(7 * 24);

/// A message that can be stored. Made by [`NewMessage::to`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    envelope: Envelope,
    when: When,
}

impl NewMessage {
    /// Begins a message to `destination`: `POST`, no headers, no body, 3 retries, now.
    pub fn to(destination: Destination) -> NewMessageBuilder {
        NewMessageBuilder {
            destination,
            method: Method::default(),
            headers: Headers::default(),
            body: Bytes::new(),
            retries: RETRIES_DEFAULT,
            retry_delay: None,
            timeout: None,
            when: When::Now,
            dedup: None,
            is_content_deduplicated: false,
            labels: Vec::new(),
            fallback: Fallback::default(),
            caller_ip: None,
            queue: None,
            flow: None,
            redact: Vec::new(),
            endpoint: None,
            schedule: None,
            callback: None,
            failure_callback: None,
        }
    }

    /// What will be stored.
    pub fn header(&self) -> &EnvelopeHeader {
        &self.envelope.header
    }

    /// What will be delivered.
    pub fn body(&self) -> &Bytes {
        &self.envelope.body
    }

    /// When the first attempt is due.
    pub fn when(&self) -> When {
        self.when
    }

    /// The lane it will wait in.
    pub fn lane(&self) -> &Lane {
        self.header().lane()
    }

    /// The end of its deduplication key (see [`placement::dedup_name`]); `None` without an id.
    pub fn dedup_name(&self) -> Option<String> {
        let header = self.header();
        let id = header.dedup.as_ref()?;
        let name = placement::dedup_name(header.lane.as_ref(), id);
        Some(match &header.endpoint {
            Some(endpoint) => placement::dedup_name_of_endpoint(&name, endpoint, &header.url),
            None => name,
        })
    }

    /// The shard to put it into: draw it once and keep it with the id over all tries.
    pub fn place(&self, shards: Shards, random: &dyn Random) -> Shard {
        let header = self.header();
        placement::place(header.lane.as_ref(), header.dedup.as_ref(), shards, random)
    }

    /// The same message without its body, which is stored under another key of its shard.
    #[must_use]
    pub fn sharing_body(mut self, body_key: &str) -> Self {
        self.envelope.header.body_of = Some(body_key.to_owned());
        self.envelope.body = Bytes::new();
        self
    }

    /// The envelope to store.
    pub fn into_envelope(self) -> Envelope {
        self.envelope
    }
}

/// A message in the making.
#[derive(Debug, Clone)]
pub struct NewMessageBuilder {
    destination: Destination,
    method: Method,
    headers: Headers,
    body: Bytes,
    retries: u32,
    retry_delay: Option<RetryDelay>,
    timeout: Option<Duration>,
    when: When,
    dedup: Option<DedupId>,
    is_content_deduplicated: bool,
    labels: Vec<String>,
    fallback: Fallback,
    caller_ip: Option<IpAddr>,
    queue: Option<Lane>,
    flow: Option<(Lane, FlowLimits)>,
    redact: Vec<RedactField>,
    endpoint: Option<GroupEndpoint>,
    schedule: Option<String>,
    callback: Option<Box<CallbackSpec>>,
    failure_callback: Option<Box<CallbackSpec>>,
}

impl NewMessageBuilder {
    /// Makes what was asked to be the id of the content that of the content for the URL group
    /// `group`: the same for all endpoints, so that all of them are placed together.
    #[must_use]
    pub fn content_of_group(mut self, group: &str) -> Self {
        if self.is_content_deduplicated && self.dedup.is_none() {
            self.dedup = Some(DedupId::of_content(group, &self.headers, &self.body));
        }
        self
    }

    /// The same message to another destination, an endpoint of a URL group.
    #[must_use]
    pub fn to_endpoint(mut self, destination: Destination, endpoint: GroupEndpoint) -> Self {
        self.destination = destination;
        self.endpoint = Some(endpoint);
        self
    }

    /// The schedule that makes it.
    #[must_use]
    pub fn schedule(mut self, id: impl Into<String>) -> Self {
        self.schedule = Some(id.into());
        self
    }

    /// The HTTP method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// All headers, `Content-Type` included.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// The body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Retries after the first attempt, `0..=1000`.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// The expression for the delay between attempts.
    #[must_use]
    pub fn retry_delay(mut self, expression: RetryDelay) -> Self {
        self.retry_delay = Some(expression);
        self
    }

    /// The deadline of one attempt.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// When the first attempt is due.
    #[must_use]
    pub fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// The deduplication id; it wins over [`Self::content_deduplication`].
    #[must_use]
    pub fn dedup(mut self, id: DedupId) -> Self {
        self.dedup = Some(id);
        self
    }

    /// Makes the deduplication id from the content.
    #[must_use]
    pub fn content_deduplication(mut self, is_on: bool) -> Self {
        self.is_content_deduplicated = is_on;
        self
    }

    /// The labels, the first of which is *the* label.
    #[must_use]
    pub fn labels(mut self, labels: Vec<String>) -> Self {
        self.labels = labels;
        self
    }

    /// What to do when the message cannot be sent as it should be.
    #[must_use]
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = fallback;
        self
    }

    /// The publisher's address.
    #[must_use]
    pub fn caller_ip(mut self, address: IpAddr) -> Self {
        self.caller_ip = Some(address);
        self
    }

    /// The queue to wait in.
    pub fn queue(mut self, name: &str) -> Result<Self, NewMessageError> {
        self.queue = Some(Lane::queue(name)?);
        Ok(self)
    }

    /// The flow-control key with its limits; the period is 1 second when absent and at least a
    /// millisecond.
    pub fn flow_control(
        mut self,
        key: &[u8],
        parallelism: Option<u32>,
        rate: Option<u32>,
        period: Option<Duration>,
    ) -> Result<Self, NewMessageError> {
        let period = period.unwrap_or(PERIOD_DEFAULT);
        let is_limited = parallelism.is_some() || rate.is_some();
        let is_sane = parallelism != Some(0) && rate != Some(0);
        if !is_limited || !is_sane || period.as_millis() == 0 || period > PERIOD_MAX {
            return Err(NewMessageError::FlowLimits);
        }
        let limits = FlowLimits {
            parallelism,
            rate,
            period_ms: millis(period),
        };
        self.flow = Some((Lane::flow(key)?, limits));
        Ok(self)
    }

    /// Parts that views show only as a hash.
    #[must_use]
    pub fn redact(mut self, fields: Vec<RedactField>) -> Self {
        self.redact = fields;
        self
    }

    /// Who is told of every attempt.
    #[must_use]
    pub fn callback(mut self, callback: CallbackSpec) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }

    /// Who is told when it fails for good.
    #[must_use]
    pub fn failure_callback(mut self, callback: CallbackSpec) -> Self {
        self.failure_callback = Some(Box::new(callback));
        self
    }

    /// Checks the whole against `limits` at the time `now_ms` (milliseconds since the epoch).
    pub fn build(self, now_ms: u64, limits: &Limits) -> Result<NewMessage, NewMessageError> {
        self.check(limits)?;
        let timeout = self.timeout.unwrap_or(limits.timeout_default);
        if timeout.as_millis() == 0 || timeout > limits.timeout_max {
            return Err(NewMessageError::Timeout(limits.timeout_max));
        }
        let (when, not_before_ms) = due(self.when, now_ms, limits)?;
        let (lane, flow) = match (self.queue, self.flow) {
            (Some(_), Some(_)) => return Err(NewMessageError::QueueAndFlow),
            (None, Some((lane, limits))) => (Some(lane), Some(limits)),
            (queue, None) => (queue, None),
        };
        let dedup = self.dedup.or_else(|| {
            let of_content =
                || DedupId::of_content(self.destination.as_str(), &self.headers, &self.body);
            self.is_content_deduplicated.then(of_content)
        });
        let header = EnvelopeHeader {
            url: self.destination,
            method: self.method,
            headers: self.headers,
            retries: self.retries,
            retry_delay: self.retry_delay,
            timeout_ms: millis(timeout),
            not_before_ms,
            lane,
            flow,
            dedup,
            labels: self.labels,
            fallback: self.fallback,
            caller_ip: self.caller_ip,
            redact: self.redact,
            endpoint: self.endpoint,
            schedule: self.schedule,
            callback: self.callback,
            failure_callback: self.failure_callback,
            callback_of: None,
            body_of: None,
        };
        header.check_callbacks(now_ms, limits)?;
        let envelope = Envelope {
            header,
            body: self.body,
        };
        Ok(NewMessage { envelope, when })
    }

    /// The checks of single fields.
    fn check(&self, limits: &Limits) -> Result<(), NewMessageError> {
        if self.body.len() > limits.body_bytes_max {
            return Err(NewMessageError::BodyTooLarge {
                bytes: self.body.len(),
                max: limits.body_bytes_max,
            });
        }
        if self.retries > RETRIES_MAX {
            return Err(NewMessageError::Retries);
        }
        if let Some((name, _)) = self.headers.iter().find(|(name, _)| is_reserved(name)) {
            return Err(HeaderError::Reserved(name.clone()).into());
        }
        let is_good = |label: &String| (1..=LABEL_BYTES_MAX).contains(&label.len());
        if self.labels.len() > LABELS_MAX || !self.labels.iter().all(is_good) {
            return Err(NewMessageError::Labels);
        }
        if self.redact.len() > REDACT_MAX {
            return Err(NewMessageError::Redact);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "new_message_tests.rs"]
mod tests;
