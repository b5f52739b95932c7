//! What the event log says of a message: a copy of the fields people search by, since the message
//! itself is gone soon after its end.

use std::net::IpAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{CallbackSpec, EnvelopeHeader, FlowLimits, GroupEndpoint, Method};
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
    /// The method; `POST` when absent.
    #[serde(
        rename = "m",
        default,
        skip_serializing_if = "super::framing::is_default"
    )]
    pub method: Method,
    /// Retries after the first attempt; absent when the message could not be read.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<u32>,
    /// Expression for the delay between attempts.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub retry_delay: Option<String>,
    /// Address of the publisher.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub caller_ip: Option<IpAddr>,
    /// The URL group and the name of its endpoint.
    #[serde(rename = "g", default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<GroupEndpoint>,
    /// The schedule that made the message.
    #[serde(rename = "h", default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Limits that came with the flow-control key.
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowLimits>,
    /// Who is told of every attempt: the URL.
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// Who is told when the message is dead: the URL.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub failure_callback: Option<String>,
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
        let url = |callback: &Option<Box<CallbackSpec>>| {
            callback
                .as_ref()
                .map(|callback| callback.url.as_str().to_owned())
        };
        Self {
            url: header.url.as_str().to_owned(),
            lane: header.lane.as_ref().map(|lane| lane.as_str().to_owned()),
            labels: header.labels.clone(),
            method: header.method,
            retries: Some(header.retries),
            retry_delay: header
                .retry_delay
                .as_ref()
                .map(|delay| delay.as_str().to_owned()),
            caller_ip: header.caller_ip,
            endpoint: header.endpoint.clone(),
            schedule: header.schedule.clone(),
            flow: header.flow,
            callback: url(&header.callback),
            failure_callback: url(&header.failure_callback),
            ..Self::default()
        }
    }

    /// Reads what [`Self::encode`] wrote; the empty event when it is anything else.
    pub fn decode(stored: &[u8]) -> Self {
        serde_json::from_slice(stored).unwrap_or_default()
    }

    /// The bytes to store; empty in the impossible case that they cannot be written.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}
