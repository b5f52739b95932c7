//! Default headers of a URL group: options and forwarded headers of every publish to it, unless the
//! publish says something else.

use std::collections::BTreeMap;

use hookstash_shared::message::Destination;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::accept::Asked;
use super::error::ApiError;
use super::{ApiState, callback_headers, destination, publish_headers};

/// Options that say the same in other words: a publish with one of them takes no default of its
/// companions.
const TOGETHER: [&[&str]; 3] = [
    &["upstash-delay", "upstash-not-before"],
    &[
        "upstash-deduplication-id",
        "upstash-content-based-deduplication",
    ],
    &[
        QUEUE,
        "upstash-flow-control-key",
        "upstash-flow-control-value",
    ],
];
const QUEUE: &str = "upstash-queue-name";

/// Headers by name, in lower case.
type Defaults = BTreeMap<String, Vec<String>>;

/// The headers of the publish, and those of the group that it does not have.
pub(super) fn with_defaults(asked: &Asked<'_>, defaults: &Defaults) -> Result<HeaderMap, ApiError> {
    let mut headers = asked.headers.clone();
    let is_said = |name: &str| {
        let in_query = asked
            .options
            .iter()
            .any(|(option, _)| option.eq_ignore_ascii_case(name));
        in_query || asked.headers.contains_key(name) || (name == QUEUE && asked.queue.is_some())
    };
    for (name, values) in defaults {
        let mut companions = TOGETHER
            .iter()
            .filter(|names| names.contains(&name.as_str()));
        let is_said_otherwise = companions.any(|names| names.iter().any(|name| is_said(name)));
        // What is for the group's callback (a secret, say) is not for that of the publish.
        let is_of_another = callback_headers::owner(name).is_some_and(is_said);
        if !is_said(name) && !is_said_otherwise && !is_of_another {
            append(&mut headers, name, values)?;
        }
    }
    Ok(headers)
}

/// Refuses defaults that a publish could not have, so that none fails because of them.
pub(super) fn check(state: &ApiState, now_ms: u64, defaults: &Defaults) -> Result<(), ApiError> {
    let mut headers = HeaderMap::new();
    for (name, values) in defaults {
        if name != "content-type" && !name.starts_with("upstash-") {
            let expected = "expected Content-Type and names that begin with Upstash-";
            return Err(ApiError::invalid("headers", expected));
        }
        append(&mut headers, name, values)?;
    }
    let anywhere = Destination::parse("https://example.com/");
    let anywhere = anywhere.map_err(|_| ApiError::Internal("no destination to check with"))?;
    let check = |url: &str| destination::check(url, &state.egress, &*state.environment);
    let message = publish_headers::configure(anywhere, &headers, &[], &check)?;
    message.build(now_ms, &state.limits)?;
    Ok(())
}

fn append(headers: &mut HeaderMap, name: &str, values: &[String]) -> Result<(), ApiError> {
    for value in values {
        let refused = |why| ApiError::invalid("headers", why);
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| refused("a name is not that of a header"))?;
        let value = HeaderValue::from_bytes(value.as_bytes())
            .map_err(|_| refused("a value holds a control character"))?;
        headers
            .try_append(name, value)
            .map_err(|_| refused("there are too many"))?;
    }
    Ok(())
}
