//! Why a call brought no answer, as one class and one line that is safe to store and show.

use std::error::Error;
use std::io;
use std::time::Duration;

use super::egress::EgressRefusal;
use crate::error_class::ErrorClass;

/// Longest message of an [`AttemptError`] in bytes.
pub const ATTEMPT_MESSAGE_BYTES_MAX: usize = 300;

/// A call that brought no complete answer. The receiver may or may not have seen the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AttemptError {
    /// What kind of failure it was.
    pub class: ErrorClass,
    /// One line of at most [`ATTEMPT_MESSAGE_BYTES_MAX`] bytes without control characters. Holds
    /// no header, no body and no part of the URL but its host name.
    pub message: String,
}

impl AttemptError {
    /// The call cannot be made as it is written.
    pub(super) fn configuration(message: &str) -> Self {
        Self::new(ErrorClass::Configuration, message)
    }

    /// No complete answer within `timeout`.
    pub(super) fn timeout(timeout: Duration) -> Self {
        let message = format!("no complete answer within {timeout:?}");
        Self::new(ErrorClass::Timeout, &message)
    }

    pub(super) fn egress(refusal: &EgressRefusal) -> Self {
        Self::new(ErrorClass::Egress, &refusal.to_string())
    }

    /// Classifies what the HTTP stack reports. Only the innermost cause is quoted: the outer ones
    /// name the URL, which may hold credentials.
    pub(super) fn from_reqwest(error: &reqwest::Error, is_https: bool) -> Self {
        let causes = causes(error);
        if let Some(refusal) = causes.iter().find_map(|cause| cause.downcast_ref()) {
            return Self::egress(refusal);
        }
        let class = class_of(error, &causes, is_https);
        let what = match class {
            ErrorClass::Configuration => "the request cannot be built",
            ErrorClass::Dns => "the host name does not resolve",
            ErrorClass::Connect => "no connection",
            ErrorClass::Tls => "the TLS handshake failed",
            ErrorClass::Timeout => "the connection took too long",
            ErrorClass::InvalidResponse => "the answer is not valid HTTP",
            ErrorClass::ResponseTooLarge => "the head of the answer is too large",
            _ => "the connection broke",
        };
        match causes.last() {
            Some(cause) => Self::new(class, &format!("{what}: {cause}")),
            None => Self::new(class, what),
        }
    }

    fn new(class: ErrorClass, message: &str) -> Self {
        let mut message = message.replace(char::is_control, " ");
        message.truncate(message.floor_char_boundary(ATTEMPT_MESSAGE_BYTES_MAX));
        Self { class, message }
    }
}

/// Whether this process, or the machine, has no file left for a socket.
pub(super) fn is_out_of_files(error: &reqwest::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    error.is_connect()
        && causes(error)
            .iter()
            .filter_map(|cause| cause.downcast_ref::<io::Error>())
            .any(|cause| matches!(cause.raw_os_error(), Some(ENFILE | EMFILE)))
}

/// The causes below `error`, outermost first. An `io::Error` hides the error it wraps from
/// `source`, so that one is asked for by name.
fn causes(error: &reqwest::Error) -> Vec<&(dyn Error + 'static)> {
    /// Deepest chain looked at; the real ones have five or six links.
    const DEPTH_MAX: usize = 32;
    let mut found = Vec::new();
    let mut cause = error.source();
    while let Some(current) = cause.filter(|_| found.len() < DEPTH_MAX) {
        found.push(current);
        cause = match current
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => current.source(),
        };
    }
    found
}

fn class_of(
    error: &reqwest::Error,
    causes: &[&(dyn Error + 'static)],
    is_https: bool,
) -> ErrorClass {
    // The innermost: layers above wrap it under kinds of their own.
    let io_kind = causes
        .iter()
        .rev()
        .find_map(|cause| cause.downcast_ref::<io::Error>())
        .map(io::Error::kind);
    let hyper = causes
        .iter()
        .find_map(|cause| cause.downcast_ref::<hyper::Error>());
    if error.is_builder() {
        ErrorClass::Configuration
    } else if error.is_dns() {
        ErrorClass::Dns
    } else if error.is_timeout() {
        ErrorClass::Timeout
    } else if causes.iter().any(|cause| cause.is::<rustls::Error>()) {
        ErrorClass::Tls
    } else if error.is_connect() {
        // Before the handshake the system refuses; within it the peer hangs up.
        match io_kind {
            Some(
                io::ErrorKind::UnexpectedEof
                | io::ErrorKind::InvalidData
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe,
            ) if is_https => ErrorClass::Tls,
            _ => ErrorClass::Connect,
        }
    } else if hyper.is_some_and(hyper::Error::is_parse_too_large) {
        ErrorClass::ResponseTooLarge
    } else if hyper.is_some_and(hyper::Error::is_parse)
        // A chunk that is not one.
        || matches!(io_kind, Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData))
    {
        ErrorClass::InvalidResponse
    } else {
        ErrorClass::Network
    }
}
