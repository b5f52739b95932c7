//! The stored message: everything needed to deliver it, except its id.
//!
//! `HS1:` + header length + JSON header + body. A header may name another key of its shard as its
//! body instead, so that a group's members share one. Secrets are not in it: templates are.

use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::callback::{CallbackKind, CallbackSpec};
use super::callback_report::{CallbackReport, composed_bytes};
use super::dedup::DedupId;
use super::destination::Destination;
use super::framing::{self, Found, FrameError};
use super::id::MessageId;
use super::lane::{Lane, LaneKind};
use super::policy::{Fallback, FlowLimits, GroupEndpoint, Method, RedactField, RetryDelay};
use crate::headers::Headers;

const VERSION: [u8; 4] = *b"HS1:";

/// Why an envelope could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("handle a stored message: {0}")]
pub struct EnvelopeError(#[from] FrameError);

/// A message without its id.
#[derive(Clone, PartialEq, Eq)]
pub struct Envelope {
    /// Where and how to deliver.
    pub header: EnvelopeHeader,
    /// What to deliver; empty when the header names another body. Of a callback, what it tells.
    pub body: Bytes,
}

/// Where and how to deliver a message. Absent fields are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvelopeHeader {
    /// The message that this one is a callback of; then the body is an encoded
    /// [`CallbackReport`], and the body that it names is its source's. Stored first, so that
    /// [`Envelope::is_callback`] sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_of: Option<MessageId>,
    /// The destination as published.
    pub url: Destination,
    /// The method; `POST` when absent.
    #[serde(default, skip_serializing_if = "framing::is_default")]
    pub method: Method,
    /// Headers for the destination, `Content-Type` included.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// Retries after the first attempt.
    pub retries: u32,
    /// Expression for the delay between attempts; the default schedule when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_delay: Option<RetryDelay>,
    /// Total deadline of one attempt in milliseconds.
    pub timeout_ms: u64,
    /// Milliseconds since the epoch before which nothing is sent; absent = at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before_ms: Option<u64>,
    /// The queue or flow-control lane; absent = the destination's host lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// Limits that came with the flow-control key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowLimits>,
    /// The deduplication id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup: Option<DedupId>,
    /// Labels, the first of which is *the* label.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// What to do when the message cannot be signed.
    #[serde(default, skip_serializing_if = "framing::is_default")]
    pub fallback: Fallback,
    /// Address of the publisher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_ip: Option<IpAddr>,
    /// Parts that views show only as a hash.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redact: Vec<RedactField>,
    /// The endpoint of a URL group that this message goes to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<GroupEndpoint>,
    /// The schedule that made the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Who is told of every attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Box<CallbackSpec>>,
    /// Who is told when the message is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_callback: Option<Box<CallbackSpec>>,
    /// Another key of the same shard that holds an envelope with the body; absent = the body
    /// follows the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_of: Option<String>,
}

impl EnvelopeHeader {
    /// The lane the message waits in.
    pub fn lane(&self) -> &Lane {
        self.lane.as_ref().unwrap_or_else(|| self.url.host_lane())
    }

    /// The callbacks that it asks for.
    pub fn callbacks(&self) -> impl Iterator<Item = (CallbackKind, &CallbackSpec)> {
        let of = |kind| move |callback| (kind, callback);
        let callback = self.callback.as_deref();
        let failure = self.failure_callback.as_deref();
        let callback = callback.map(of(CallbackKind::Callback));
        callback
            .into_iter()
            .chain(failure.map(of(CallbackKind::Failure)))
    }

    /// The name of the queue, when the message is in one.
    pub fn queue(&self) -> Option<String> {
        self.plain_name(LaneKind::Queue)
    }

    /// The flow-control key, when the message has one. Bytes that are not UTF-8 are replaced.
    pub fn flow_key(&self) -> Option<String> {
        self.plain_name(LaneKind::Flow)
    }

    fn plain_name(&self, kind: LaneKind) -> Option<String> {
        let lane = self.lane.as_ref().filter(|lane| lane.kind() == kind)?;
        Some(String::from_utf8_lossy(&lane.plain_name()).into_owned())
    }
}

/// What the beginning of an envelope tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peek {
    /// The header, complete.
    Header(Box<EnvelopeHeader>),
    /// The header is longer: this many bytes from the beginning are needed.
    NeedMore {
        /// Bytes of the value, counted from its beginning.
        total: usize,
    },
}

impl Envelope {
    /// The bytes to store under `b:<id>`.
    pub fn encode(&self) -> Result<Bytes, EnvelopeError> {
        let body: &[u8] = match (&self.header.body_of, self.header.callback_of) {
            (Some(_), None) => &[],
            _ => &self.body,
        };
        Ok(framing::write(VERSION, &self.header, body)?)
    }

    /// The bytes to deliver. `named` is the body that the header names; empty when it names none.
    pub fn payload(&self, named: &Bytes) -> Result<Bytes, EnvelopeError> {
        if self.header.callback_of.is_some() {
            return CallbackReport::decode(&self.body)?.compose(named);
        }
        Ok(match self.header.body_of {
            Some(_) => named.clone(),
            None => self.body.clone(),
        })
    }

    /// Whether a stored value is a callback's, told by its first bytes alone.
    pub fn is_callback(value: &[u8]) -> bool {
        let header = value.get(framing::FRAME_PREFIX_BYTES..);
        header.is_some_and(|header| header.starts_with(b"{\"callback_of\":"))
    }

    /// How many bytes must be held to deliver a stored message of `own` bytes that names a body
    /// stored in `named` bytes: a callback is composed beside both.
    pub fn bytes_held(own: usize, named: usize, is_callback: bool) -> usize {
        let composed = is_callback.then(|| composed_bytes(own, named));
        own.saturating_add(named)
            .saturating_add(composed.unwrap_or_default())
    }

    /// Reads what [`Self::encode`] wrote. Anything else is an error, never a panic.
    pub fn decode(value: &Bytes) -> Result<Self, EnvelopeError> {
        let (header, body) = framing::read(VERSION, value)?;
        Ok(Self { header, body })
    }

    /// Reads the header from the beginning of an envelope.
    pub fn decode_header(start: &[u8]) -> Result<Peek, EnvelopeError> {
        Ok(match framing::read_header(VERSION, start)? {
            Found::Header(header, _) => Peek::Header(Box::new(header)),
            Found::NeedMore(total) => Peek::NeedMore { total },
        })
    }
}

/// Shows the size of the body, not the body.
impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope")
            .field("header", &self.header)
            .field("body_bytes", &self.body.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::headers::HeaderSource;

    fn envelope(url: &str, body: &[u8]) -> Envelope {
        Envelope {
            header: EnvelopeHeader {
                url: Destination::parse(url).unwrap(),
                method: Method::Post,
                headers: Headers::default(),
                retries: 3,
                retry_delay: None,
                timeout_ms: 900_000,
                not_before_ms: None,
                lane: None,
                flow: None,
                dedup: None,
                labels: vec![],
                fallback: Fallback::Fetch,
                caller_ip: None,
                redact: vec![],
                endpoint: None,
                schedule: None,
                callback: None,
                failure_callback: None,
                callback_of: None,
                body_of: None,
            },
            body: Bytes::copy_from_slice(body),
        }
    }

    #[test]
    fn the_stored_form_is_fixed() {
        let value = envelope("http://h/p", b"hello").encode().unwrap();
        let header = r#"{"url":"http://h/p","retries":3,"timeout_ms":900000}"#;
        assert_eq!(value, format!("HS1:{:08x}{header}hello", header.len()));
    }

    #[test]
    fn a_header_that_names_another_body_carries_none() {
        let mut member = envelope("http://h/p", b"not stored");
        member.header.body_of = Some("b:msg_x".into());
        let read = Envelope::decode(&member.encode().unwrap()).unwrap();
        assert_eq!(read.header, member.header);
        assert!(read.body.is_empty());
    }

    #[test]
    fn a_header_is_read_from_as_many_bytes_as_it_has() {
        let value = envelope("http://h/p", b"body").encode().unwrap();
        let end = value.len() - 4;
        for cut in 0..end {
            let total = if cut < 12 { 12 } else { end };
            let peek = Envelope::decode_header(&value[..cut]).unwrap();
            assert_eq!(peek, Peek::NeedMore { total });
        }
        let peek = Envelope::decode_header(&value[..end]).unwrap();
        let Peek::Header(header) = peek else {
            panic!("{peek:?}")
        };
        assert_eq!(*header, envelope("http://h/p", b"").header);
    }

    #[test]
    fn other_versions_and_broken_values_are_errors() {
        for value in [
            "HS2:00000002{}",
            "{}",
            "HS1:0000000x{}",
            "HS1:+0000002{}",
            "HS1:ffffffff{}",
            "HS1:00000002{}",
            "HS1:00000003{}",
            "HS1:",
            "",
        ] {
            assert!(Envelope::decode(&Bytes::from(value)).is_err(), "{value}");
        }
    }

    #[test]
    fn debug_shows_neither_body_nor_values() {
        let mut envelope = envelope("http://u:SECRET@h/p?k=SECRET", b"SECRET");
        let source = HeaderSource::literal("SECRET");
        envelope.header.headers.append(b"x", source).unwrap();
        assert!(!format!("{envelope:?}").contains("SECRET"));
    }

    prop_compose! {
        fn any_envelope()(
            path in "[a-z/?=&%0-9é]{0,40}",
            body in proptest::collection::vec(any::<u8>(), 0..300),
            headers in proptest::collection::vec(
                ("[a-zA-Z-]{1,12}", proptest::collection::vec(0x20u8..0x7f, 0..20)), 0..6),
            raw in proptest::collection::vec(0x80u8..=0xff, 0..6),
            retries in 0u32..=1000,
            timeout_ms: u64,
            not_before_ms: Option<u64>,
            dedup in proptest::option::of("[^:]{1,20}"),
            labels in proptest::collection::vec(".{0,10}", 0..3),
            queue in proptest::option::of("[A-Za-z0-9._-]{1,20}"),
            ip: Option<IpAddr>,
            limits: Option<(u32, u32, u64)>,
        ) -> Envelope {
            let mut envelope = envelope(&format!("http://h/{path}"), &body);
            let header = &mut envelope.header;
            for (name, value) in headers {
                header.headers.append(name.as_bytes(), HeaderSource::literal(value)).unwrap();
            }
            header.headers.append(b"x-raw", HeaderSource::literal(raw)).unwrap();
            header.retries = retries;
            header.timeout_ms = timeout_ms;
            header.not_before_ms = not_before_ms;
            header.dedup = dedup.map(|id| DedupId::parse(&id).unwrap());
            header.labels = labels;
            header.lane = queue.map(|name| Lane::queue(&name).unwrap());
            header.caller_ip = ip;
            header.flow = limits.map(|(parallelism, rate, period_ms)| FlowLimits {
                parallelism: Some(parallelism), rate: Some(rate), period_ms,
            });
            header.method = if retries % 2 == 0 { Method::Get } else { Method::Post };
            header.fallback = if retries % 3 == 0 { Fallback::None } else { Fallback::Fetch };
            header.redact = vec![RedactField::Body, RedactField::Header("x-a".into())];
            header.retry_delay = Some(RetryDelay::parse("1000 * retried").unwrap());
            header.endpoint = (retries % 5 == 0).then(|| GroupEndpoint {
                group: "g".into(), name: (retries % 2 == 0).then(|| "n".into()),
            });
            header.schedule = (retries % 7 == 0).then(|| "s".into());
            envelope
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(envelope in any_envelope()) {
            let value = envelope.encode().unwrap();
            prop_assert_eq!(Envelope::decode(&value).unwrap(), envelope);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Envelope::decode(&Bytes::from(bytes.clone()));
            let _ = Envelope::decode_header(&bytes);
        }

        #[test]
        fn a_damaged_envelope_never_panics(
            envelope in any_envelope(), at: proptest::sample::Index, byte: u8, cut: proptest::sample::Index,
        ) {
            let mut value = envelope.encode().unwrap().to_vec();
            let at = at.index(value.len());
            value[at] = byte;
            value.truncate(cut.index(value.len() + 1));
            let _ = Envelope::decode_header(&value);
            let _ = Envelope::decode(&Bytes::from(value));
        }
    }
}
