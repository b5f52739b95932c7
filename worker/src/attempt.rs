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
    /// Whether the destination was called at all.
    pub(crate) is_called: bool,
    /// What it answered, for the dead letter and for callbacks.
    pub(crate) answer: Option<Response>,
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
        let answer = match result {
            Ok(answer) => answer,
            Err(AttemptError { class, message }) => {
                let refused = Refused::new(class, message);
                return Self {
                    is_called: true,
                    ..Self::failed(Some(header), refused, judging)
                };
            }
        };
        let answered = AttemptResult::Answered {
            status: answer.status,
            headers: &answer.headers,
        };
        let class = failure_class(answered);
        let status = answer.status.as_u16();
        let error = class.map(|_| format!("status {status}"));
        Self {
            outcome: judged(Some(header), answered, judging),
            status: Some(status),
            class,
            error: error.unwrap_or_default(),
            is_called: true,
            answer: Some(answer),
            took: judging.took,
        }
    }

    /// Judges an attempt without a call. Without a header nothing says how often to retry, so
    /// the message is dead.
    pub(crate) fn failed(
        header: Option<&EnvelopeHeader>,
        Refused { class, text: error }: Refused,
        judging: Judging,
    ) -> Self {
        Self {
            outcome: judged(header, AttemptResult::Failed(class), judging),
            status: None,
            class: Some(class),
            error,
            is_called: false,
            answer: None,
            took: judging.took,
        }
    }

    /// Its end, as the store takes it.
    pub(crate) fn store_outcome(&self) -> store::Outcome {
        match self.outcome {
            Outcome::Delivered => store::Outcome::Delivered,
            Outcome::Retry { after } => store::Outcome::Retry { after },
            Outcome::Dead { class } => store::Outcome::Dead {
                response: self.last_response(class).encode().unwrap_or_default(),
            },
        }
    }

    /// What is kept with a dead letter.
    fn last_response(&self, class: ErrorClass) -> LastResponse {
        match &self.answer {
            Some(Response {
                status,
                headers,
                body,
                is_truncated,
            }) => LastResponse::answer(status.as_u16(), headers, body, *is_truncated)
                .with_error(class, &self.error),
            None => LastResponse::without_answer(class, &self.error),
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
