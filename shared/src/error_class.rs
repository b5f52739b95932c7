//! Why an attempt failed, in one word: stored with dead letters, logged, counted, shown.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The class of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The message or this process is set up wrongly, for example an unset header variable.
    Configuration,
    /// The egress policy refuses the destination.
    Egress,
    /// The destination's name did not resolve.
    Dns,
    /// No connection was made.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// A deadline passed.
    Timeout,
    /// The connection broke.
    Network,
    /// The destination answered with a redirect, which is never followed.
    Redirect,
    /// The destination answered with another status that is not a success.
    Status,
    /// The destination answered 410: it is gone for good.
    Gone,
    /// The answer was larger than its reader accepts.
    ResponseTooLarge,
    /// The answer was not valid HTTP, or not in an accepted coding.
    InvalidResponse,
    /// The stored body is missing.
    BodyMissing,
    /// Too many workers were lost while they held the message.
    WorkerLost,
    /// The message must not be sent unsigned and no signing key is configured.
    Critical,
}

impl ErrorClass {
    /// The word used in records, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Egress => "egress",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::Redirect => "redirect",
            Self::Status => "status",
            Self::Gone => "gone",
            Self::ResponseTooLarge => "response_too_large",
            Self::InvalidResponse => "invalid_response",
            Self::BodyMissing => "body_missing",
            Self::WorkerLost => "worker_lost",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
