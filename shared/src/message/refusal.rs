//! Why a message is refused.

use std::time::Duration;

use super::callback::CallbackKind;
use super::dedup::DedupError;
use super::destination::DestinationError;
use super::lane::LaneError;
use crate::duration;
use crate::headers::HeaderError;

/// Most retries: with the longest default delay of a day, nearly three years.
pub(super) const RETRIES_MAX: u32 = 1000;
/// Most labels of one message.
pub(super) const LABELS_MAX: usize = 100;
/// Longest label in bytes.
pub(super) const LABEL_BYTES_MAX: usize = 256;
/// Most redacted fields of one message.
pub(super) const REDACT_MAX: usize = 100;

/// Why a message is refused. Every text names the field at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NewMessageError {
    /// The destination is not valid.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// A header is not valid.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The queue name or flow-control key is not valid.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// The deduplication id is not valid.
    #[error(transparent)]
    Dedup(#[from] DedupError),
    /// The body is too large. Clients match on the phrase.
    #[error("quota maxMessageSize exceeded: the body has {bytes} bytes, the limit is {max}")]
    BodyTooLarge {
        /// Bytes given.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// Too many retries.
    #[error("invalid Upstash-Retries: the maximum is {RETRIES_MAX}")]
    Retries,
    /// The timeout is zero or too long.
    #[error("invalid Upstash-Timeout: expected more than 0 and at most {}", duration::display(*.0))]
    Timeout(Duration),
    /// The delay is too long.
    #[error("invalid Upstash-Delay: the maximum is {}", duration::display(*.0))]
    Delay(Duration),
    /// The time lies too far ahead.
    #[error(
        "invalid Upstash-Not-Before: expected unix seconds at most {} ahead", duration::display(*.0)
    )]
    NotBefore(Duration),
    /// A label is empty or too long, or there are too many.
    #[error("invalid Upstash-Label: at most {LABELS_MAX} labels of 1 to {LABEL_BYTES_MAX} bytes")]
    Labels,
    /// Too many redacted fields.
    #[error("invalid Upstash-Redact-Fields: at most {REDACT_MAX} fields")]
    Redact,
    /// The limits of a flow-control key make no sense.
    #[error(
        "invalid Upstash-Flow-Control-Value: expected parallelism or rate of at least 1 and a \
         period of at most 7 days"
    )]
    FlowLimits,
    /// A queue and a flow-control key on one message.
    #[error("Upstash-Queue-Name together with Upstash-Flow-Control-Key is not supported")]
    QueueAndFlow,
    /// A delayed callback of a message in a queue, which waits for its callbacks.
    #[error(
        "invalid {}-Delay: the queue of a message waits for its callbacks, so a delay would stop \
         the queue; leave it out, or publish without a queue", .0.header_name()
    )]
    CallbackDelay(CallbackKind),
    /// A callback of the message could not be sent.
    #[error("{}", of_callback(*.0, .1))]
    Callback(CallbackKind, Box<NewMessageError>),
}

/// The same refusal with the name that the option has for a callback.
fn of_callback(kind: CallbackKind, refusal: &NewMessageError) -> String {
    let (name, text) = (kind.header_name(), refusal.to_string());
    match text.split_once("Upstash-") {
        Some((before, after)) => format!("{before}{name}-{after}"),
        None => format!("invalid {name}: {text}"),
    }
}
