//! The header table of a publish: what each `Upstash-*` header asks for. Every option may also
//! stand in the query, in lower case; a header wins. Every refusal names the header.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use hookstash_shared::headers::{HeaderSource, Headers, is_reserved};
use hookstash_shared::message::{
    DedupId, Destination, NewMessage, NewMessageBuilder, RedactField, RetryDelay, When,
};
use hookstash_shared::{boolean, duration};
use http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_TYPE, EXPECT};
use http::{HeaderMap, HeaderName};

use super::callback_headers::{self, Check};
use super::canonical::canonical;
use super::error::ApiError;
use super::flow_control_header as flow_control;

const PREFIX: &str = "upstash-";
pub(super) const FORWARD_PREFIX: &str = "upstash-forward-";
/// Asks for all headers of the call.
const FORWARD_ALL: &str = "upstash-header-forward";
const FLOW_KEY: &str = flow_control::KEY;
const FLOW_VALUE: &str = flow_control::VALUE;
/// Options of a schedule, not of a message.
pub(super) const CRON: &str = "upstash-cron";
pub(super) const SCHEDULE_ID: &str = "upstash-schedule-id";
const TELEMETRY_PREFIX: &str = "upstash-telemetry-";
/// Options of the protocol that must not be accepted and dropped, each with all that begins so.
const NOT_BUILT: [&str; 2] = ["upstash-workflow-", "upstash-feature-set"];
/// Headers of the call to us, not of the message.
const NOT_FORWARDED: [HeaderName; 4] = [ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, EXPECT];

/// The values of one option, in order. Options are keyed by their name in lower case.
pub(super) type Options = BTreeMap<String, Vec<Vec<u8>>>;

/// A message to `destination` as `headers` and the `options` of the query ask for it. `check` is asked
/// about other URLs that they name.
pub(super) fn configure(
    destination: Destination,
    headers: &HeaderMap,
    options: &[(String, Vec<u8>)],
    check: &Check<'_>,
) -> Result<NewMessageBuilder, ApiError> {
    check_names(options)?;
    let options = collect(headers, options);
    let mut message = NewMessage::to(destination).headers(forwarded(headers, &options)?);
    let mut delay = None;
    let mut not_before = None;
    for (name, values) in &options {
        if name.starts_with(FORWARD_PREFIX) || name.starts_with(TELEMETRY_PREFIX) {
            continue;
        }
        if is_not_built(name) {
            return Err(ApiError::not_built(&canonical(name)));
        }
        message = match name.as_str() {
            FORWARD_ALL | FLOW_KEY | FLOW_VALUE => message,
            CRON | SCHEDULE_ID => {
                let why = "it belongs to POST /v2/schedules/{destination}";
                return Err(ApiError::invalid(&canonical(name), why));
            }
            of_callback if callback_headers::is_option(of_callback) => message,
            "upstash-queue-name" => message
                .queue(text(name, values)?)
                .map_err(|error| named(error.to_string()))?,
            "upstash-method" => message.method(parsed(name, values)?),
            "upstash-delay" => {
                delay = Some(When::After(read_duration(name, values)?));
                message
            }
            "upstash-not-before" => {
                not_before = Some(When::At(read_unix_seconds(name, values)?));
                message
            }
            "upstash-retries" => message.retries(read_count(name, values)?),
            "upstash-retry-delay" => message.retry_delay(read_expression(name, values)?),
            "upstash-timeout" => message.timeout(read_duration(name, values)?),
            "upstash-deduplication-id" => message.dedup(
                DedupId::parse(text(name, values)?).map_err(|error| named(error.to_string()))?,
            ),
            "upstash-content-based-deduplication" => {
                message.content_deduplication(read_flag(name, values)?)
            }
            "upstash-label" => message.labels(list(text(name, values)?).collect()),
            "upstash-redact-fields" => message.redact(read_redact(name, values)?),
            _ => {
                tracing::warn!(header = %name, "an unknown header of a publish is ignored");
                message
            }
        };
    }
    let message = message.when(not_before.or(delay).unwrap_or_default());
    let message = callback_headers::apply(message, &options, check)?;
    flow_control::apply(message, &options)
}

/// The options in `headers` and `in_query` that ask for anything.
pub(super) fn given(
    headers: &HeaderMap,
    in_query: &[(String, Vec<u8>)],
) -> Result<Options, ApiError> {
    check_names(in_query)?;
    let mut options = collect(headers, in_query);
    options.retain(|name, _| !name.starts_with(TELEMETRY_PREFIX));
    Ok(options)
}

/// An option of the query is named like a header. Its name goes into logs and answers, which a
/// line break in it would forge; so the refusal does not repeat it.
pub(super) fn check_names(in_query: &[(String, Vec<u8>)]) -> Result<(), ApiError> {
    let is_name = |name: &str| HeaderName::from_bytes(name.as_bytes()).is_ok();
    if in_query.iter().all(|(name, _)| is_name(name)) {
        return Ok(());
    }
    Err(ApiError::invalid(
        "header name in the query",
        "an option that begins with upstash- is named like a header: letters, digits and hyphens",
    ))
}

fn is_not_built(name: &str) -> bool {
    NOT_BUILT.iter().any(|known| starts_option(name, known))
}

/// Whether `name` is the option `known` or one of those that begin with it.
pub(super) fn starts_option(name: &str, known: &str) -> bool {
    let rest = name.strip_prefix(known);
    rest.is_some_and(|rest| rest.is_empty() || known.ends_with('-') || rest.starts_with('-'))
}

fn collect(headers: &HeaderMap, in_query: &[(String, Vec<u8>)]) -> Options {
    let mut options = Options::new();
    for (name, value) in headers {
        if name.as_str().starts_with(PREFIX) {
            let values = options.entry(name.as_str().to_owned()).or_default();
            values.push(value.as_bytes().to_vec());
        }
    }
    for (name, value) in in_query {
        if !headers.contains_key(name) {
            options
                .entry(name.to_ascii_lowercase())
                .or_default()
                .push(value.clone());
        }
    }
    options
}

/// The headers of the message: those asked for by name, and all of the call if it says so.
fn forwarded(call: &HeaderMap, options: &Options) -> Result<Headers, ApiError> {
    let refused = |error: hookstash_shared::headers::HeaderError| named(error.to_string());
    let mut headers = Headers::default();
    for (option, values) in options {
        let Some(name) = option.strip_prefix(FORWARD_PREFIX) else {
            continue;
        };
        for value in values {
            headers
                .append(name.as_bytes(), HeaderSource::literal(value))
                .map_err(refused)?;
        }
    }
    if options
        .get(FORWARD_ALL)
        .map(|values| read_flag(FORWARD_ALL, values))
        .transpose()?
        .unwrap_or_default()
    {
        let of_connection = connection_names(call);
        for (name, value) in call {
            let is_taken = options.contains_key(&format!("{FORWARD_PREFIX}{name}"));
            let is_ours = is_reserved(name) || NOT_FORWARDED.contains(name);
            if !is_taken && !is_ours && !of_connection.contains(name) {
                let value = HeaderSource::literal(value);
                headers
                    .append(name.as_str().as_bytes(), value)
                    .map_err(refused)?;
            }
        }
    }
    if let Some(value) = call.get(CONTENT_TYPE) {
        let value = HeaderSource::literal(value);
        headers
            .set(CONTENT_TYPE.as_str().as_bytes(), value)
            .map_err(refused)?;
    }
    Ok(headers)
}

/// The headers that `Connection` names as its own.
fn connection_names(call: &HeaderMap) -> Vec<HeaderName> {
    let values = call
        .get_all(CONNECTION)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect()
}

/// A refusal whose text names the header by itself.
fn named(text: String) -> ApiError {
    ApiError::Invalid(text)
}

/// The one value of an option.
pub(super) fn text<'v>(name: &str, values: &'v [Vec<u8>]) -> Result<&'v str, ApiError> {
    let [value] = values else {
        return Err(ApiError::invalid(
            &canonical(name),
            "it is given more than once",
        ));
    };
    let text = std::str::from_utf8(value)
        .map_err(|_| ApiError::invalid(&canonical(name), "it is not UTF-8"))?;
    Ok(text.trim())
}

fn parsed<T>(name: &str, values: &[Vec<u8>]) -> Result<T, ApiError>
where
    T: FromStr<Err: ToString>,
{
    text(name, values)?
        .parse()
        .map_err(|error: T::Err| named(error.to_string()))
}

pub(super) fn read_duration(name: &str, values: &[Vec<u8>]) -> Result<Duration, ApiError> {
    duration::parse(text(name, values)?).map_err(|error| ApiError::invalid(&canonical(name), error))
}

fn read_flag(name: &str, values: &[Vec<u8>]) -> Result<bool, ApiError> {
    boolean::parse(text(name, values)?).map_err(|error| ApiError::invalid(&canonical(name), error))
}

/// Digits only: `+3` and `3.0` are refused.
fn read_number<T: FromStr>(name: &str, values: &[Vec<u8>]) -> Result<T, ApiError> {
    let text = text(name, values)?;
    let digits = Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| {
            ApiError::invalid(
                &canonical(name),
                "expected a whole number that is not negative",
            )
        })
}

pub(super) fn read_count(name: &str, values: &[Vec<u8>]) -> Result<u32, ApiError> {
    read_number(name, values)
}

/// Unix seconds, as milliseconds. What does not fit is further ahead than any limit.
fn read_unix_seconds(name: &str, values: &[Vec<u8>]) -> Result<u64, ApiError> {
    Ok(read_number::<u64>(name, values)?.saturating_mul(1_000))
}

pub(super) fn read_expression(name: &str, values: &[Vec<u8>]) -> Result<RetryDelay, ApiError> {
    RetryDelay::parse(text(name, values)?)
        .map_err(|error| ApiError::invalid(&canonical(name), error))
}

fn read_redact(name: &str, values: &[Vec<u8>]) -> Result<Vec<RedactField>, ApiError> {
    let fields = list(text(name, values)?).map(|field| field.parse::<RedactField>());
    fields
        .collect::<Result<_, _>>()
        .map_err(|error| named(error.to_string()))
}

pub(super) fn list(text: &str) -> impl Iterator<Item = String> {
    text.split(',').map(|item| item.trim().to_owned())
}

#[cfg(test)]
#[path = "publish_headers_tests.rs"]
mod tests;
