//! Callbacks: where a message wants to be told of its attempts, and the message that tells it.
//!
//! A callback is a message of its own: signed, retried, and a dead letter in the end. What it does
//! not say itself (retries, the delay between them, the deadline) it takes from its message. It has
//! no callbacks.
//!
//! Redaction: a callback goes to an endpoint of the publisher's, so it carries the originals. Views
//! of it must not show what views of its message hide: it hides the same headers, and its whole
//! body as soon as anything of its message is hidden.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};

use super::destination::Destination;
use super::envelope::{Envelope, EnvelopeHeader};
use super::framing;
use super::id::MessageId;
use super::limits::{Limits, When};
use super::new_message::{NewMessage, NewMessageBuilder};
use super::policy::{Method, RedactField, RetryDelay};
use super::refusal::NewMessageError;
use crate::headers::{HeaderError, HeaderSource, Headers};

/// Which of a message's callbacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallbackKind {
    /// Told of every attempt that was made.
    Callback,
    /// Told once, when the message is dead.
    Failure,
}

impl CallbackKind {
    /// The header that asks for it.
    pub fn header_name(self) -> &'static str {
        match self {
            Self::Callback => "Upstash-Callback",
            Self::Failure => "Upstash-Failure-Callback",
        }
    }
}

/// Where and how to tell of a message's attempts. What is absent is as for the message, if nothing
/// else is said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackSpec {
    /// Where to.
    pub url: Destination,
    /// The method; `POST` when absent, whatever the message's.
    #[serde(default, skip_serializing_if = "framing::is_default")]
    pub method: Method,
    /// Headers for `url`. Without a `Content-Type` it is `application/json`.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// Retries after the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Expression for the delay between attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_delay: Option<RetryDelay>,
    /// Total deadline of one attempt in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Milliseconds from the attempt to the callback; at once when absent.
    #[serde(default, skip_serializing_if = "framing::is_default")]
    pub delay_ms: u64,
    /// Labels; those of the message are not taken over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Parts that views show only as a hash, besides what the message hides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<RedactField>,
}

impl EnvelopeHeader {
    /// Whether the callbacks of a message with this header can be sent, and within its queue, which
    /// waits for them.
    pub fn check_callbacks(&self, now_ms: u64, limits: &Limits) -> Result<(), NewMessageError> {
        let is_queued = self.queue().is_some();
        for (kind, callback) in self.callbacks() {
            if is_queued && callback.delay_ms > 0 {
                return Err(NewMessageError::CallbackDelay(kind));
            }
            let checked = callback.check(self, now_ms, limits);
            checked.map_err(|refusal| NewMessageError::Callback(kind, Box::new(refusal)))?;
        }
        Ok(())
    }
}

impl CallbackSpec {
    /// A callback to `url` with the settings of its message.
    pub fn to(url: Destination) -> Self {
        Self {
            url,
            method: Method::default(),
            headers: Headers::default(),
            retries: None,
            retry_delay: None,
            timeout_ms: None,
            delay_ms: 0,
            labels: Vec::new(),
            redact: Vec::new(),
        }
    }

    /// How long after the attempt it is due.
    pub fn delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    /// Whether callbacks of a message with the header `source` can be sent, by the rules for all
    /// messages.
    fn check(
        &self,
        source: &EnvelopeHeader,
        now_ms: u64,
        limits: &Limits,
    ) -> Result<(), NewMessageError> {
        self.message(source)?.build(now_ms, limits).map(drop)
    }

    /// The callback that tells the encoded [`report`](super::CallbackReport) of the message
    /// `source`. `body_of` is the key that holds the source's body; `None` when it has none.
    ///
    /// Refused only if this was never checked, as building its message does.
    pub fn envelope(
        &self,
        source: (&MessageId, &EnvelopeHeader),
        report: Bytes,
        body_of: Option<String>,
        now_ms: u64,
    ) -> Result<Envelope, NewMessageError> {
        let (id, header) = source;
        // What was accepted is told, whatever the limits are by now.
        let message = self.message(header)?.build(now_ms, &Limits::BOUNDLESS)?;
        let mut envelope = message.into_envelope();
        envelope.header.callback_of = Some(*id);
        envelope.header.body_of = body_of;
        envelope.body = report;
        Ok(envelope)
    }

    fn message(&self, source: &EnvelopeHeader) -> Result<NewMessageBuilder, HeaderError> {
        let mut headers = self.headers.clone();
        if headers.get(&CONTENT_TYPE).is_none() {
            let json = HeaderSource::literal("application/json");
            headers.append(CONTENT_TYPE.as_str().as_bytes(), json)?;
        }
        let timeout_ms = self.timeout_ms.unwrap_or(source.timeout_ms);
        let message = NewMessage::to(self.url.clone())
            .method(self.method)
            .headers(headers)
            .retries(self.retries.unwrap_or(source.retries))
            .timeout(Duration::from_millis(timeout_ms))
            .when(When::After(self.delay()))
            .labels(self.labels.clone())
            .fallback(source.fallback)
            .redact(self.hidden(source));
        let retry_delay = self.retry_delay.as_ref().or(source.retry_delay.as_ref());
        Ok(match retry_delay {
            Some(expression) => message.retry_delay(expression.clone()),
            None => message,
        })
    }

    fn hidden(&self, source: &EnvelopeHeader) -> Vec<RedactField> {
        let body = (!source.redact.is_empty()).then_some(RedactField::Body);
        let mut hidden: Vec<RedactField> = Vec::new();
        for field in self.redact.iter().chain(&source.redact).chain(&body) {
            if !hidden.contains(field) {
                hidden.push(field.clone());
            }
        }
        hidden
    }
}
