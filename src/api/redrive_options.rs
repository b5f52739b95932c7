//! Options on the redrive of one dead letter: each replaces what the letter had. Options that make
//! no sense for a message that was accepted before (its queue, its deduplication id, what is hidden
//! of it) are refused by name.

use hookstash_shared::headers::Headers;
use hookstash_shared::message::{EnvelopeHeader, Limits, When};
use http::HeaderMap;

use super::callback_headers::{self, Check};
use super::canonical::canonical;
use super::error::ApiError;
use super::publish_headers::{self, FORWARD_PREFIX, starts_option};

/// Changes `header` as the options of a request ask for; when the message is then due. `None` when
/// they ask for nothing.
pub(super) fn change(
    header: &mut EnvelopeHeader,
    call: &HeaderMap,
    in_query: &[(String, Vec<u8>)],
    check: &Check<'_>,
    (now_ms, limits): (u64, &Limits),
) -> Result<Option<When>, ApiError> {
    let options = publish_headers::given(call, in_query)?;
    if options.is_empty() {
        return Ok(None);
    }
    // Read and checked as those of a publish to the same destination.
    let asked = publish_headers::configure(header.url.clone(), call, in_query, check)?;
    let asked = asked.build(now_ms, limits)?;
    let (when, asked) = (asked.when(), asked.header());
    header.not_before_ms = None;
    for name in options.keys() {
        match name.as_str() {
            "upstash-method" => header.method = asked.method,
            "upstash-retries" => header.retries = asked.retries,
            "upstash-retry-delay" => header.retry_delay.clone_from(&asked.retry_delay),
            "upstash-timeout" => header.timeout_ms = asked.timeout_ms,
            "upstash-label" => header.labels.clone_from(&asked.labels),
            "upstash-delay" | "upstash-not-before" => header.not_before_ms = asked.not_before_ms,
            of_callback if callback_headers::is_option(of_callback) => {
                if header.callback_of.is_some() {
                    return Err(ApiError::invalid(
                        &canonical(name),
                        "a callback has no callbacks of its own",
                    ));
                }
                let (own, asked) = if starts_option(of_callback, callback_headers::FAILURE) {
                    (&mut header.failure_callback, &asked.failure_callback)
                } else {
                    (&mut header.callback, &asked.callback)
                };
                // An unknown option alone asks for none.
                if asked.is_some() {
                    own.clone_from(asked);
                }
            }
            forwarded => {
                let Some(own) = forwarded.strip_prefix(FORWARD_PREFIX) else {
                    return Err(ApiError::invalid(
                        &canonical(name),
                        "it cannot be changed when a dead letter is sent again",
                    ));
                };
                header.headers = replaced(&header.headers, &asked.headers, own)?;
            }
        }
    }
    // What a callback does not say it takes from the message, which may have been changed.
    header.check_callbacks(now_ms, limits)?;
    Ok(Some(when))
}

/// `kept` with the headers of this name as they are in `given`.
fn replaced(kept: &Headers, given: &Headers, name: &str) -> Result<Headers, ApiError> {
    let mut headers = Headers::default();
    let others = kept.iter().filter(|(other, _)| other.as_str() != name);
    let new = given.iter().filter(|(other, _)| other.as_str() == name);
    for (name, source) in others.chain(new) {
        headers
            .append(name.as_str().as_bytes(), source.clone())
            .map_err(|error| ApiError::Invalid(error.to_string()))?;
    }
    Ok(headers)
}
