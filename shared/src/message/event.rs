//! What the event log says of a message: a copy of the fields people search by, since the message
//! itself is gone soon after its end.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::EnvelopeHeader;
use crate::error_class::ErrorClass;

/// One entry of the event log, next to the message id, the kind of event and the host's time, which
/// the store adds. Absent fields are not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct LoggedEvent {
    /// The destination as published.
    #[serde(rename = "u", default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    /// The queue or flow-control lane.
    #[serde(rename = "q", default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<String>,
    /// Labels.
    #[serde(rename = "l", default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Status of the attempt's response.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Class of the attempt's failure.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub class: Option<ErrorClass>,
    /// The attempt's failure in words.
    #[serde(rename = "e", default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// Milliseconds until the next attempt.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl LoggedEvent {
    /// The event of a message that just came in.
    pub fn of(header: &EnvelopeHeader) -> Self {
        Self {
            url: header.url.as_str().to_owned(),
            lane: header.lane.as_ref().map(|lane| lane.as_str().to_owned()),
            labels: header.labels.clone(),
            ..Self::default()
        }
    }

    /// The bytes to store; empty in the impossible case that they cannot be written.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}
