//! One attempt: what is sent, what came of it, and what that means for the message.

use std::time::Duration;

use bytes::Bytes;
use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::http::{AttemptError, Response};
use hookstash_shared::message::{EnvelopeHeader, LastResponse, LoggedEvent};
use hookstash_shared::retry::judge::{AttemptResult, Outcome, Policy, failure_class, judge};
use hookstash_shared::store;

use crate::request::Refused;

/// A judged attempt.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// What becomes of the message.
    pub(crate) outcome: Outcome,
    /// Status of the answer; `None` when there was none.
    pub(crate) status: Option<u16>,
    /// Why it failed.
    pub(crate) class: Option<ErrorClass>,
    /// The failure in words; empty for a success.
    pub(crate) error: String,
    /// What is kept with a dead letter.
    last: Option<LastResponse>,
    /// How long the call took.
    pub(crate) took: Duration,
}

/// What judging an attempt needs besides its result.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judging {
    pub(crate) failed: u32,
    pub(crate) jitter: f64,
    pub(crate) now_ms: u64,
    pub(crate) random: u64,
    pub(crate) took: Duration,
}

impl Attempt {
    /// Judges a call to the destination of `header`.
    pub(crate) fn called(
        header: &EnvelopeHeader,
        result: Result<Response, AttemptError>,
        judging: Judging,
    ) -> Self {
        let result = match result {
            Ok(response) => response,
            Err(AttemptError { class, message }) => {
                return Self::failed(Some(header), Refused::new(class, message), judging);
            }
        };
        let answered = AttemptResult::Answered {
            status: result.status,
            headers: &result.headers,
        };
        let outcome = judged(Some(header), answered, judging);
        let class = failure_class(answered);
        let status = result.status.as_u16();
        let error = class
            .map(|_| format!("status {status}"))
            .unwrap_or_default();
        let last = class
            .filter(|_| matches!(outcome, Outcome::Dead { .. }))
            .map(|class| {
                LastResponse::answer(status, &result.headers, &result.body, result.is_truncated)
                    .with_error(class, &error)
            });
        Self {
            outcome,
            status: Some(status),
            class,
            error,
            last,
            took: judging.took,
        }
    }

    /// Judges an attempt without an answer. Without a header nothing says how often to retry, so
    /// the message is dead.
    pub(crate) fn failed(
        header: Option<&EnvelopeHeader>,
        Refused { class, text: error }: Refused,
        judging: Judging,
    ) -> Self {
        let outcome = judged(header, AttemptResult::Failed(class), judging);
        let last = matches!(outcome, Outcome::Dead { .. })
            .then(|| LastResponse::without_answer(class, &error));
        Self {
            outcome,
            status: None,
            class: Some(class),
            error,
            last,
            took: judging.took,
        }
    }

    /// Its end, as the store takes it.
    pub(crate) fn store_outcome(&self) -> store::Outcome {
        match self.outcome {
            Outcome::Delivered => store::Outcome::Delivered,
            Outcome::Retry { after } => store::Outcome::Retry { after },
            Outcome::Dead { .. } => {
                let encoded = self.last.as_ref().and_then(|last| last.encode().ok());
                store::Outcome::Dead {
                    response: encoded.unwrap_or_default(),
                }
            }
        }
    }

    /// Its entry in the event log.
    pub(crate) fn event(&self, header: Option<&EnvelopeHeader>) -> Bytes {
        let mut event = header.map(LoggedEvent::of).unwrap_or_default();
        event.status = self.status;
        event.class = self.class;
        event.error.clone_from(&self.error);
        if let Outcome::Retry { after } = self.outcome {
            event.retry_after_ms = Some(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        }
        event.encode()
    }
}

fn judged(header: Option<&EnvelopeHeader>, result: AttemptResult<'_>, judging: Judging) -> Outcome {
    let expression = header.and_then(|header| header.retry_delay.as_ref());
    let policy = Policy {
        retries: header.map_or(0, |header| header.retries),
        expression: expression.map(|delay| delay.expression().clone()),
        jitter: judging.jitter,
    };
    judge(
        result,
        &policy,
        judging.failed,
        judging.now_ms,
        judging.random,
    )
}
