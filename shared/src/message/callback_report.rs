//! What a callback tells of one attempt, and how: the JSON body that its receiver gets.
//!
//! Stored as the body of the callback's envelope: `HC1:` + header length + JSON header + the bytes
//! of the response. The source's body is not in it: the callback's envelope names the key that
//! holds it, and the whole is composed when it is sent or shown.

use std::fmt;
use std::net::IpAddr;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::HeaderMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use super::envelope::{EnvelopeError, EnvelopeHeader};
use super::framing::{self, FrameError};
use super::id::MessageId;
use crate::headers::Headers;
use crate::headers::canonical::value_text;

const VERSION: [u8; 4] = *b"HC1:";

/// What one attempt gave, for those who asked to be told.
#[derive(Clone, PartialEq, Eq)]
pub struct CallbackReport {
    header: ReportHeader,
    response: Bytes,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ReportHeader {
    id: MessageId,
    #[serde(default, skip_serializing_if = "framing::is_default")]
    retried: u32,
    #[serde(default, skip_serializing_if = "framing::is_default")]
    status: u16,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    #[serde(default, skip_serializing_if = "framing::is_default")]
    is_dead: bool,
    source: EnvelopeHeader,
}

impl CallbackReport {
    /// Of an attempt of the message `id` without an answer, after `retried` others had failed.
    pub fn new(id: MessageId, source: &EnvelopeHeader, retried: u32) -> Self {
        let mut source = source.clone();
        // What the callback tells nothing of.
        source.callback = None;
        source.failure_callback = None;
        source.body_of = None;
        Self {
            header: ReportHeader {
                id,
                retried,
                status: 0,
                headers: Headers::default(),
                is_dead: false,
                source,
            },
            response: Bytes::new(),
        }
    }

    /// The same with an answer: as many of its headers as the limits allow, and the bytes that were
    /// kept of its body.
    #[must_use]
    pub fn answered(mut self, status: u16, headers: &HeaderMap, body: Bytes) -> Self {
        self.header.status = status;
        self.header.headers = Headers::kept_from(headers);
        self.response = body;
        self
    }

    /// The same for a message that is a dead letter by this attempt.
    #[must_use]
    pub fn dead(mut self) -> Self {
        self.header.is_dead = true;
        self
    }

    /// The bytes to store.
    pub fn encode(&self) -> Result<Bytes, EnvelopeError> {
        Ok(framing::write(VERSION, &self.header, &self.response)?)
    }

    /// Reads what [`Self::encode`] wrote. Anything else is an error, never a panic.
    pub fn decode(value: &Bytes) -> Result<Self, EnvelopeError> {
        let (header, response) = framing::read(VERSION, value)?;
        Ok(Self { header, response })
    }

    /// The body of the callback: these bytes are signed and sent. `source_body` is what the source
    /// delivered, whole.
    pub fn compose(&self, source_body: &[u8]) -> Result<Bytes, EnvelopeError> {
        let ReportHeader {
            id,
            retried,
            status,
            ref headers,
            is_dead,
            ref source,
        } = self.header;
        let endpoint = source.endpoint.as_ref();
        let composed = Composed {
            status,
            header: shown(headers),
            body: Base64(&self.response),
            retried,
            max_retries: source.retries,
            dlq_id: is_dead.then_some(id),
            source_message_id: id,
            topic_name: endpoint.map(|endpoint| endpoint.group.as_str()),
            endpoint_name: endpoint.and_then(|endpoint| endpoint.name.as_deref()),
            url: source.url.as_str(),
            method: source.method.as_str(),
            source_header: shown(&source.headers),
            source_body: Base64(source_body),
            not_before: source.not_before_ms.unwrap_or(id.created_ms()),
            created_at: id.created_ms(),
            schedule_id: source.schedule.as_deref(),
            caller_ip: source.caller_ip,
        };
        let stored = framing::FRAME_PREFIX_BYTES + self.response.len();
        let mut body = Vec::with_capacity(composed_bytes(stored, source_body.len()));
        serde_json::to_writer(&mut body, &composed).map_err(FrameError::Header)?;
        Ok(body.into())
    }
}

/// About how many bytes [`CallbackReport::compose`] makes of so many stored ones and of the source's
/// body.
pub(super) fn composed_bytes(stored: usize, source_body: usize) -> usize {
    /// Names of the fields and what is not in base64.
    const FIELDS_BYTES: usize = 1024;
    (stored + source_body).saturating_mul(4) / 3 + FIELDS_BYTES
}

/// The body of a callback. Numbers in milliseconds; empty fields are left out, `retried` is not.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Composed<'a> {
    status: u16,
    #[serde(skip_serializing_if = "Map::is_empty")]
    header: Map<String, Value>,
    #[serde(skip_serializing_if = "Base64::is_empty")]
    body: Base64<'a>,
    retried: u32,
    max_retries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    dlq_id: Option<MessageId>,
    source_message_id: MessageId,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_name: Option<&'a str>,
    url: &'a str,
    method: &'static str,
    #[serde(skip_serializing_if = "Map::is_empty")]
    source_header: Map<String, Value>,
    #[serde(skip_serializing_if = "Base64::is_empty")]
    source_body: Base64<'a>,
    not_before: u64,
    created_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule_id: Option<&'a str>,
    #[serde(rename = "callerIP", skip_serializing_if = "Option::is_none")]
    caller_ip: Option<IpAddr>,
}

/// Bytes written in base64, without a copy of the whole in between.
struct Base64<'a>(&'a [u8]);

impl Base64<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(self.0, &BASE64))
    }
}

fn shown(headers: &Headers) -> Map<String, Value> {
    headers.grouped(|_, value| value_text(value))
}

/// Shows the size of the response, not its bytes.
impl fmt::Debug for CallbackReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallbackReport")
            .field("header", &self.header)
            .field("response_bytes", &self.response.len())
            .finish()
    }
}

#[cfg(test)]
#[path = "callback_tests.rs"]
mod tests;
