//! What this process tells about its attempts: the log, and an observer for tools.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::message::MessageId;
use hookstash_shared::retry::judge::Outcome;
use hookstash_shared::telemetry::MaskedUrl;

use crate::attempt::Attempt;
use crate::job::Job;

/// One attempt that has ended. Holds no header value and no body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptReport {
    /// The message.
    pub id: MessageId,
    /// Its destination with credentials and query hidden; empty when the message is unreadable.
    pub url: String,
    /// Failures before this attempt.
    pub retried: u32,
    /// What becomes of the message.
    pub outcome: Outcome,
    /// Status of the answer; `None` when there was none.
    pub status: Option<u16>,
    /// Why it failed; `None` for a success.
    pub class: Option<ErrorClass>,
    /// How long the call took.
    pub took: Duration,
}

/// Is told of every attempt, on the thread that made it: it must be quick and must not panic.
pub type Observer = Arc<dyn Fn(AttemptReport) + Send + Sync>;

/// Logs an attempt and tells the observer.
pub(crate) fn report(observer: Option<&Observer>, job: &Job, attempt: &Attempt) {
    let Attempt {
        outcome,
        status,
        class,
        error,
        took,
        ..
    } = attempt;
    let (id, retried) = (job.lease.id, job.lease.failed);
    let header = job.message().header.as_ref();
    let url = MaskedUrl(header.map_or("", |header| header.url.as_str()));
    let took_ms = took.as_millis();
    match outcome {
        Outcome::Delivered => {
            tracing::debug!(%id, %url, retried, status, took_ms, outcome = "delivered", "attempt");
        }
        Outcome::Retry { after } => {
            let (class, after_ms) = (Shown(*class), after.as_millis());
            let outcome = "retry";
            tracing::info!(%id, %url, retried, status, %class, error, took_ms, outcome, after_ms, "attempt");
        }
        Outcome::Dead { class } => {
            let outcome = "dead";
            tracing::warn!(%id, %url, retried, status, %class, error, took_ms, outcome, "attempt");
        }
    }
    if let Some(observer) = observer {
        observer(AttemptReport {
            id,
            url: url.to_string(),
            retried,
            outcome: *outcome,
            status: *status,
            class: *class,
            took: *took,
        });
    }
}

struct Shown(Option<ErrorClass>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |class| class.fmt(f))
    }
}
