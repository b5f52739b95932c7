//! The headers of one attempt: what the publisher forwards, then what the delivery sets itself.

use hookstash_shared::environment::Environment;
use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::headers::is_reserved;
use hookstash_shared::message::{EnvelopeHeader, Fallback, MessageId};
use hookstash_shared::random::Random;
use hookstash_shared::signing::Signer;
use http::{HeaderMap, HeaderName, HeaderValue, header};

const USER_AGENT: HeaderValue = HeaderValue::from_static("Upstash-QStash");
const MESSAGE_ID: HeaderName = HeaderName::from_static("upstash-message-id");
const RETRIED: HeaderName = HeaderName::from_static("upstash-retried");
const TOPIC_NAME: HeaderName = HeaderName::from_static("upstash-topic-name");
const SCHEDULE_ID: HeaderName = HeaderName::from_static("upstash-schedule-id");
const CALLER_IP: HeaderName = HeaderName::from_static("upstash-caller-ip");

/// A request that must not be sent, and why, without any value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Refused {
    pub(crate) class: ErrorClass,
    pub(crate) text: String,
}

impl Refused {
    pub(crate) fn new(class: ErrorClass, text: impl Into<String>) -> Self {
        Self {
            class,
            text: text.into(),
        }
    }
}

/// Which attempt of which message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttemptOf<'a> {
    pub(crate) id: &'a MessageId,
    /// Failures before it.
    pub(crate) retried: u32,
    /// The exact bytes that are sent.
    pub(crate) body: &'a [u8],
    pub(crate) now_s: u64,
}

/// The headers to send. Whatever the publisher gave, the delivery's own win. Without a `signer`
/// the request is unsigned, or refused when its message says so.
pub(crate) fn headers(
    header: &EnvelopeHeader,
    attempt: AttemptOf<'_>,
    signer: Option<&Signer>,
    environment: &dyn Environment,
    random: &dyn Random,
) -> Result<HeaderMap, Refused> {
    let configuration = |text: String| Refused::new(ErrorClass::Configuration, text);
    let given = header.headers.resolve(environment);
    let mut headers = given.map_err(|error| configuration(error.to_string()))?;
    let reserved: Vec<HeaderName> = headers
        .keys()
        .filter(|name| is_reserved(name))
        .cloned()
        .collect();
    for name in reserved {
        headers.remove(name);
    }
    headers.insert(header::USER_AGENT, USER_AGENT);
    let mut set = |name: HeaderName, value: &str| -> Result<(), Refused> {
        let value = HeaderValue::from_str(value)
            .map_err(|_| configuration(format!("header {name} cannot be sent")))?;
        headers.insert(name, value);
        Ok(())
    };
    set(MESSAGE_ID, attempt.id.as_str())?;
    set(RETRIED, &attempt.retried.to_string())?;
    if let Some(address) = header.caller_ip {
        set(CALLER_IP, &address.to_string())?;
    }
    if let Some(endpoint) = &header.endpoint {
        set(TOPIC_NAME, &endpoint.group)?;
    }
    if let Some(schedule) = &header.schedule {
        set(SCHEDULE_ID, schedule)?;
    }
    match signer {
        Some(signer) => {
            let AttemptOf {
                id, body, now_s, ..
            } = attempt;
            let added = signer.sign(header.url.as_str(), id.as_str(), body, now_s, random);
            for (name, value) in added {
                set(HeaderName::from_static(name), &value)?;
            }
        }
        None if header.fallback == Fallback::None => {
            let text = "no signing key is configured and the message must not be sent unsigned";
            return Err(Refused::new(ErrorClass::Critical, text));
        }
        None => {}
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use hookstash_shared::headers::{HeaderSource, Headers};
    use hookstash_shared::message::{Destination, Limits, NewMessage, Shard};
    use hookstash_shared::random::SeededRandom;
    use hookstash_shared::signing::{SigningKeys, WebhookSecret};

    use super::*;

    fn header(headers: Headers) -> EnvelopeHeader {
        let destination = Destination::parse("https://h/p").unwrap();
        let message = NewMessage::to(destination)
            .headers(headers)
            .caller_ip("192.0.2.7".parse().unwrap())
            .schedule("daily")
            .build(0, &Limits::default())
            .unwrap();
        message.header().clone()
    }

    fn made(header: &EnvelopeHeader, signer: Option<&Signer>) -> Result<HeaderMap, Refused> {
        let environment = BTreeMap::from([("TOKEN".to_owned(), "t0k".to_owned())]);
        let random = SeededRandom::new(1);
        let id = MessageId::new(Shard::default(), 1, &random);
        let attempt = AttemptOf {
            id: &id,
            retried: 2,
            body: b"x",
            now_s: 1_700_000_000,
        };
        super::headers(header, attempt, signer, &environment, &random)
    }

    fn signer() -> Signer {
        let secret = WebhookSecret::parse("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX").unwrap();
        Signer::new(&SigningKeys::development(), Some(&secret))
    }

    #[test]
    fn every_header_of_a_delivery_is_there() {
        let mut given = Headers::default();
        let template = HeaderSource::Template {
            text: "Bearer ${TOKEN}".to_owned(),
            allowed_env_vars: vec!["TOKEN".to_owned()],
        };
        given.append(b"authorization", template).unwrap();
        given
            .append(b"content-type", HeaderSource::literal("text/plain"))
            .unwrap();
        let made = made(&header(given), Some(&signer())).unwrap();
        for (name, value) in [
            ("user-agent", "Upstash-QStash"),
            ("content-type", "text/plain"),
            ("authorization", "Bearer t0k"),
            ("upstash-retried", "2"),
            ("upstash-caller-ip", "192.0.2.7"),
            ("upstash-schedule-id", "daily"),
            ("webhook-timestamp", "1700000000"),
        ] {
            assert_eq!(made.get(name).unwrap(), value, "{name}");
        }
        assert_eq!(made.get("upstash-message-id"), made.get("webhook-id"));
        assert!(made.contains_key("upstash-signature") && made.contains_key("webhook-signature"));
    }

    #[test]
    fn a_publishers_headers_never_replace_the_deliverys_own() {
        let mut given = Headers::default();
        for name in ["User-Agent", "Webhook-Id", "Webhook-Signature", "X-Free"] {
            given
                .append(name.as_bytes(), HeaderSource::literal("theirs"))
                .unwrap();
        }
        let mut header = header(given);
        // As an envelope written by another version might hold.
        for name in ["Upstash-Retried", "Upstash-Other", "Host", "Content-Length"] {
            header
                .headers
                .append(name.as_bytes(), HeaderSource::literal("theirs"))
                .unwrap();
        }
        let made = made(&header, Some(&signer())).unwrap();
        let theirs: Vec<_> = made
            .iter()
            .filter(|(_, value)| *value == "theirs")
            .map(|(name, _)| name)
            .collect();
        assert_eq!(theirs, ["x-free"]);
        assert!(!made.contains_key("host") && !made.contains_key("upstash-other"));
    }

    #[test]
    fn an_unset_variable_is_a_configuration_error_that_shows_no_value() {
        let mut given = Headers::default();
        let template = HeaderSource::Template {
            text: "Bearer SECRET ${MISSING}".to_owned(),
            allowed_env_vars: vec!["MISSING".to_owned()],
        };
        given.append(b"authorization", template).unwrap();
        let refused = made(&header(given), None).unwrap_err();
        assert_eq!(refused.class, ErrorClass::Configuration);
        assert!(refused.text.contains("MISSING") && !refused.text.contains("SECRET"));
    }

    #[test]
    fn without_a_key_the_fallback_decides() {
        let mut header = header(Headers::default());
        let unsigned = made(&header, None).unwrap();
        assert!(!unsigned.contains_key("upstash-signature"));
        header.fallback = Fallback::None;
        assert_eq!(made(&header, None).unwrap_err().class, ErrorClass::Critical);
        assert!(made(&header, Some(&signer())).is_ok());
    }
}
