//! `Upstash-Callback`, `Upstash-Failure-Callback` and the options of each: who is told what became
//! of a message. `Upstash-Callback-Retries: 0` is to a callback what `Upstash-Retries: 0` is to a
//! message. A known option that callbacks do not have is refused, never dropped; an unknown one is
//! ignored as that of a message is.

use hookstash_shared::headers::HeaderSource;
use hookstash_shared::message::{
    CallbackKind, CallbackSpec, Destination, Method, NewMessageBuilder, RedactField,
};

use super::canonical::canonical;
use super::error::ApiError;
use super::publish_headers::{
    Options, list, read_count, read_duration, read_expression, starts_option, text,
};

/// Checks the text of a URL as the destination of a message.
pub(super) type Check<'a> = dyn Fn(&str) -> Result<Destination, ApiError> + 'a;

/// The failure callback's name in lower case, with which its options begin.
pub(super) const FAILURE: &str = "upstash-failure-callback";
/// Both kinds with their names in lower case.
const KINDS: [(CallbackKind, &str); 2] = [
    (CallbackKind::Callback, "upstash-callback"),
    (CallbackKind::Failure, FAILURE),
];
/// Options of the protocol for agent workflows, which are not built.
const WORKFLOW: [&str; 2] = ["workflow-", "feature-set"];
/// Options that would let a callback wait in a lane of its own.
const LANES: [&str; 3] = ["queue-name", "flow-control-key", "flow-control-value"];

/// Options of a message that a callback cannot have.
const REFUSED: [&str; 7] = [
    "not-before",
    "deduplication-id",
    "content-based-deduplication",
    "callback",
    "failure-callback",
    "cron",
    "schedule-id",
];
/// Options of a callback, besides the headers for it.
const OWN: [&str; 7] = [
    "method",
    "retries",
    "retry-delay",
    "timeout",
    "delay",
    "label",
    "redact-fields",
];
/// What names of headers for the callback begin with.
const FORWARD: &str = "forward-";

/// Whether the option belongs to a callback.
pub(super) fn is_option(name: &str) -> bool {
    owner(name).is_some()
}

/// The name of the callback that the option belongs to, in lower case.
pub(super) fn owner(name: &str) -> Option<&'static str> {
    let mut names = KINDS.iter().map(|(_, known)| *known);
    names.find(|known| starts_option(name, known))
}

/// Whether the option, without the name of its callback, is part of the protocol.
fn is_known(rest: &str) -> bool {
    rest.starts_with(FORWARD)
        || OWN.contains(&rest)
        || LANES.contains(&rest)
        || REFUSED.iter().any(|known| starts_option(rest, known))
        || WORKFLOW.iter().any(|known| rest.starts_with(known))
}

/// Gives the message the callbacks of the options, if they name any.
pub(super) fn apply(
    mut message: NewMessageBuilder,
    options: &Options,
    check: &Check<'_>,
) -> Result<NewMessageBuilder, ApiError> {
    for (kind, name) in KINDS {
        let Some(callback) = read(name, options, check)? else {
            continue;
        };
        message = match kind {
            CallbackKind::Callback => message.callback(callback),
            CallbackKind::Failure => message.failure_callback(callback),
        };
    }
    Ok(message)
}

fn read(
    name: &str,
    options: &Options,
    check: &Check<'_>,
) -> Result<Option<CallbackSpec>, ApiError> {
    let prefix = format!("{name}-");
    let mut own = options
        .iter()
        .filter_map(|(option, values)| Some((option, option.strip_prefix(&prefix)?, values)))
        .filter(|(option, rest, _)| {
            let is_known = is_known(rest);
            if !is_known {
                tracing::warn!(header = %option, "an unknown header of a callback is ignored");
            }
            is_known
        })
        .peekable();
    let Some(urls) = options.get(name) else {
        return match own.peek() {
            Some((option, ..)) => Err(ApiError::Invalid(format!(
                "{} is given without {}, the URL that it is for",
                canonical(option),
                canonical(name)
            ))),
            None => Ok(None),
        };
    };
    let url = check(text(name, urls)?).map_err(|refusal| of_callback(name, &refusal))?;
    let mut callback = CallbackSpec::to(url);
    for (option, rest, values) in own {
        set(&mut callback, (option, rest), values)?;
    }
    Ok(Some(callback))
}

/// Sets what `option` asks for; `rest` is its name behind that of the callback.
fn set(
    callback: &mut CallbackSpec,
    (option, rest): (&str, &str),
    values: &[Vec<u8>],
) -> Result<(), ApiError> {
    let refused = |why: &str| ApiError::invalid(&canonical(option), why);
    let millis =
        |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if let Some(header) = rest.strip_prefix(FORWARD) {
        for value in values {
            let appended = callback
                .headers
                .append(header.as_bytes(), HeaderSource::literal(value));
            appended.map_err(|error| refused(&error.to_string()))?;
        }
        return Ok(());
    }
    match rest {
        "method" => {
            let method = text(option, values)?.parse::<Method>();
            callback.method =
                method.map_err(|_| refused("expected GET, POST, PUT, PATCH or DELETE"))?;
        }
        "retries" => callback.retries = Some(read_count(option, values)?),
        "retry-delay" => callback.retry_delay = Some(read_expression(option, values)?),
        "timeout" => callback.timeout_ms = Some(millis(read_duration(option, values)?)),
        "delay" => callback.delay_ms = millis(read_duration(option, values)?),
        "label" => callback.labels = list(text(option, values)?).collect(),
        "redact-fields" => {
            let fields = list(text(option, values)?).map(|field| field.parse::<RedactField>());
            callback.redact = fields
                .collect::<Result<_, _>>()
                .map_err(|_| refused("expected body, header or header[Name]"))?;
        }
        lane if LANES.contains(&lane) => {
            return Err(refused(
                "a callback waits in no queue and under no flow-control key of its own; the queue \
                 of its message waits for it",
            ));
        }
        other if WORKFLOW.iter().any(|known| other.starts_with(known)) => {
            return Err(ApiError::not_built(&canonical(option)));
        }
        _ => {
            return Err(refused(
                "a callback has Method, Retries, Retry-Delay, Timeout, Delay, Label, Redact-Fields \
                 and Forward-*",
            ));
        }
    }
    Ok(())
}

/// A refusal of the URL that names the header instead of the destination.
fn of_callback(name: &str, refusal: &ApiError) -> ApiError {
    let text = refusal.to_string();
    let why = text.strip_prefix("invalid destination url: ");
    ApiError::invalid(&canonical(name), why.unwrap_or(&text))
}

#[cfg(test)]
#[path = "callback_headers_tests.rs"]
mod tests;
