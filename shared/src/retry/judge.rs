//! The judge: what one attempt means for its message.

use std::time::Duration;

use http::{HeaderMap, StatusCode};

use super::expression::Expression;
use super::{backoff, hint};
use crate::boolean;
use crate::error_class::ErrorClass;

/// The status with which a destination may ask never to be tried again.
const STATUS_NON_RETRYABLE: u16 = 489;

/// The header that must be true beside [`STATUS_NON_RETRYABLE`].
const HEADER_NON_RETRYABLE: &str = "upstash-nonretryable-error";

/// What one attempt gave.
#[derive(Debug, Clone, Copy)]
pub enum AttemptResult<'a> {
    /// The destination answered.
    Answered {
        /// Its status.
        status: StatusCode,
        /// Its headers, for hints.
        headers: &'a HeaderMap,
    },
    /// There was no answer, or none that could be read.
    Failed(ErrorClass),
}

/// How a message wants to be retried.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Retries after the first attempt; 0 is one attempt in all.
    pub retries: u32,
    /// The message's own delay; `None` is the default backoff.
    pub expression: Option<Expression>,
    /// Proportion of the default backoff that is random, 0 to 1; 0 is none.
    pub jitter: f64,
}

/// What becomes of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The destination accepted it.
    Delivered,
    /// Another attempt is due `after` this one ended; zero is at once.
    Retry {
        /// The delay, at most one day.
        after: Duration,
    },
    /// No attempt will follow.
    Dead {
        /// Why the last attempt failed.
        class: ErrorClass,
    },
}

/// Judges an attempt that ended at `now_ms`, before which `failed` others had failed (the attempt
/// carried `failed` as `Upstash-Retried`). `random` is 64 uniform bits and only matters when the
/// policy has jitter.
///
/// Only 2xx is success. A failure is final when the destination says so ([`is_final`]) or when
/// the budget is used up; otherwise the delay is the destination's hint, else the message's
/// expression, else the default backoff.
pub fn judge(
    result: AttemptResult<'_>,
    policy: &Policy,
    failed: u32,
    now_ms: u64,
    random: u64,
) -> Outcome {
    let Some(class) = failure_class(result) else {
        return Outcome::Delivered;
    };
    if failed >= policy.retries || is_final(result, class) {
        return Outcome::Dead { class };
    }
    let hint = match result {
        AttemptResult::Answered { headers, .. } => hint::delay(headers, now_ms),
        AttemptResult::Failed(_) => None,
    };
    let after = hint.unwrap_or_else(|| {
        if let Some(expression) = &policy.expression {
            expression.delay(failed)
        } else {
            let delay = backoff::delay(failed.saturating_add(1));
            backoff::with_jitter(delay, policy.jitter, random)
        }
    });
    Outcome::Retry { after }
}

/// Why the attempt failed; `None` when it succeeded.
pub fn failure_class(result: AttemptResult<'_>) -> Option<ErrorClass> {
    match result {
        AttemptResult::Failed(class) => Some(class),
        AttemptResult::Answered { status, .. } => match status {
            _ if status.is_success() => None,
            _ if status.is_redirection() => Some(ErrorClass::Redirect),
            StatusCode::GONE => Some(ErrorClass::Gone),
            _ => Some(ErrorClass::Status),
        },
    }
}

/// Whether no further attempt can help: the destination is gone or asked to stop, our own policy
/// refuses it, or the message itself cannot be sent any more.
fn is_final(result: AttemptResult<'_>, class: ErrorClass) -> bool {
    match class {
        ErrorClass::Gone
        | ErrorClass::Egress
        | ErrorClass::Critical
        | ErrorClass::BodyMissing
        | ErrorClass::WorkerLost => true,
        ErrorClass::Status => is_non_retryable(result),
        ErrorClass::Configuration
        | ErrorClass::Dns
        | ErrorClass::Connect
        | ErrorClass::Tls
        | ErrorClass::Timeout
        | ErrorClass::Network
        | ErrorClass::Redirect
        | ErrorClass::ResponseTooLarge
        | ErrorClass::InvalidResponse => false,
    }
}

fn is_non_retryable(result: AttemptResult<'_>) -> bool {
    let AttemptResult::Answered { status, headers } = result else {
        return false;
    };
    let asks = |value: &http::HeaderValue| {
        value
            .to_str()
            .is_ok_and(|text| boolean::parse(text) == Ok(true))
    };
    status.as_u16() == STATUS_NON_RETRYABLE && headers.get(HEADER_NON_RETRYABLE).is_some_and(asks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn policy(retries: u32, expression: Option<&str>) -> Policy {
        let expression = expression.map(|text| Expression::parse(text).unwrap());
        Policy {
            retries,
            expression,
            jitter: 0.0,
        }
    }

    fn answer(status: u16, header: Option<(&'static str, &str)>) -> (StatusCode, HeaderMap) {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        (StatusCode::from_u16(status).unwrap(), headers)
    }

    fn judge_answer(
        (status, headers): &(StatusCode, HeaderMap),
        policy: &Policy,
        failed: u32,
    ) -> Outcome {
        let result = AttemptResult::Answered {
            status: *status,
            headers,
        };
        judge(result, policy, failed, NOW_MS, 0)
    }

    fn retry(ms: u64) -> Outcome {
        Outcome::Retry {
            after: Duration::from_millis(ms),
        }
    }

    const DEAD_STATUS: Outcome = Outcome::Dead {
        class: ErrorClass::Status,
    };

    #[test]
    fn only_2xx_is_success() {
        for status in 100..=999 {
            let delivered = judge_answer(&answer(status, None), &policy(3, None), 0);
            assert_eq!(
                delivered == Outcome::Delivered,
                (200..300).contains(&status),
                "{status}"
            );
        }
    }

    #[test]
    fn a_redirect_uses_the_budget_and_has_its_own_class() {
        for status in [300, 301, 302, 303, 304, 307, 308, 399] {
            let redirect = answer(status, Some(("location", "http://127.0.0.1/")));
            assert_eq!(judge_answer(&redirect, &policy(1, Some("5")), 0), retry(5));
            let dead = Outcome::Dead {
                class: ErrorClass::Redirect,
            };
            assert_eq!(judge_answer(&redirect, &policy(1, Some("5")), 1), dead);
        }
    }

    #[test]
    fn r03_a_status_that_never_changes_ends_after_the_budget() {
        let forbidden = answer(403, None);
        let policy = policy(3, None);
        let ends = [0, 1, 2, 3, 4].map(|failed| judge_answer(&forbidden, &policy, failed));
        let after = |failed| Outcome::Retry {
            after: backoff::delay(failed),
        };
        assert_eq!(
            ends,
            [after(1), after(2), after(3), DEAD_STATUS, DEAD_STATUS]
        );
    }

    #[test]
    fn zero_retries_is_one_attempt() {
        assert_eq!(
            judge_answer(&answer(500, None), &policy(0, None), 0),
            DEAD_STATUS
        );
        let hinted = answer(503, Some(("retry-after", "1")));
        assert_eq!(judge_answer(&hinted, &policy(0, None), 0), DEAD_STATUS);
    }

    #[test]
    fn r12_final_answers_are_not_retried_and_others_are() {
        let header = "upstash-nonretryable-error";
        let generous = policy(100, Some("5"));
        for (status, value, expected) in [
            (
                410,
                None,
                Outcome::Dead {
                    class: ErrorClass::Gone,
                },
            ),
            (489, Some("true"), DEAD_STATUS),
            (489, Some("True"), DEAD_STATUS),
            (489, Some("false"), retry(5)),
            (489, Some(""), retry(5)),
            (489, None, retry(5)),
            (400, Some("true"), retry(5)),
            (500, Some("true"), retry(5)),
            (400, None, retry(5)),
            (401, None, retry(5)),
            (404, None, retry(5)),
            (200, Some("true"), Outcome::Delivered),
        ] {
            let answer = answer(status, value.map(|value| (header, value)));
            assert_eq!(
                judge_answer(&answer, &generous, 0),
                expected,
                "{status} {value:?}"
            );
        }
    }

    #[test]
    fn r01_a_hint_beats_the_expression_which_beats_the_backoff() {
        for status in [429, 503, 500, 302, 489] {
            for (name, value) in [("retry-after", "3"), ("x-ratelimit-reset", "3")] {
                let hinted = answer(status, Some((name, value)));
                assert_eq!(
                    judge_answer(&hinted, &policy(3, Some("9000")), 0),
                    retry(3_000)
                );
                assert_eq!(judge_answer(&hinted, &policy(3, None), 2), retry(3_000));
            }
            let at_once = answer(status, Some(("retry-after", "0")));
            assert_eq!(judge_answer(&at_once, &policy(3, None), 0), retry(0));
            let too_far = answer(status, Some(("retry-after", "86401")));
            assert_eq!(
                judge_answer(&too_far, &policy(3, Some("9000")), 0),
                retry(9_000)
            );
        }
    }

    #[test]
    fn the_expression_sees_zero_at_the_first_retry() {
        let policy = policy(3, Some("1000 * (1 + retried)"));
        let answer = answer(500, None);
        assert_eq!(judge_answer(&answer, &policy, 0), retry(1_000));
        assert_eq!(judge_answer(&answer, &policy, 1), retry(2_000));
    }

    #[test]
    fn r06_classes_that_may_pass_use_the_budget_and_the_others_do_not() {
        use ErrorClass as C;
        let judge_class = |class, failed| {
            judge(
                AttemptResult::Failed(class),
                &policy(2, Some("5")),
                failed,
                NOW_MS,
                0,
            )
        };
        for class in [
            C::Configuration,
            C::Dns,
            C::Connect,
            C::Tls,
            C::Timeout,
            C::Network,
            C::ResponseTooLarge,
            C::InvalidResponse,
        ] {
            let dead = Outcome::Dead { class };
            let outcomes = [0, 1, 2].map(|failed| judge_class(class, failed));
            assert_eq!(outcomes, [retry(5), retry(5), dead], "{class}");
        }
        for class in [
            C::Egress,
            C::Critical,
            C::BodyMissing,
            C::WorkerLost,
            C::Gone,
        ] {
            assert_eq!(judge_class(class, 0), Outcome::Dead { class });
        }
    }

    #[test]
    fn jitter_moves_the_backoff_only() {
        let mut policy = policy(3, None);
        policy.jitter = 0.5;
        let failed = AttemptResult::Failed(ErrorClass::Timeout);
        let half = backoff::delay(1).mul_f64(0.5);
        let outcome = judge(failed, &policy, 0, NOW_MS, u64::MAX);
        assert_eq!(outcome, Outcome::Retry { after: half });
        policy.expression = Some(Expression::parse("9000").unwrap());
        assert_eq!(judge(failed, &policy, 0, NOW_MS, u64::MAX), retry(9_000));
    }

    proptest! {
        #[test]
        fn every_message_ends_and_no_delay_passes_a_day(
            status in 100_u16..1_000, retries in 0_u32..20, hint in "[0-9]{0,6}|[a-z ]{0,5}",
            jitter in 0.0..=1.0, random in any::<u64>(),
        ) {
            let (status, headers) = answer(status, Some(("retry-after", &hint)));
            let result = AttemptResult::Answered { status, headers: &headers };
            let policy = Policy { retries, expression: None, jitter };
            let mut failed = 0;
            while let Outcome::Retry { after } = judge(result, &policy, failed, NOW_MS, random) {
                prop_assert!(after <= super::super::DELAY_MAX);
                failed += 1;
                prop_assert!(failed <= retries);
            }
        }
    }
}
