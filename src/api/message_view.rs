//! A message as clients see it. Absent fields are left out, never null or empty.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hookstash_shared::headers::Headers;
use hookstash_shared::headers::canonical::value_text;
use hookstash_shared::message::{
    CallbackKind, EnvelopeHeader, FlowLimits, GroupEndpoint, MessageId, RedactField, RetryDelay,
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// A JSON object in the making.
pub(super) type Object = Map<String, Value>;

/// All that is stored of the message `id`, with its redacted parts as hashes.
pub(super) fn view(id: &MessageId, header: &EnvelopeHeader, body: &[u8]) -> Object {
    let created_at = id.created_ms();
    let mut object = Object::new();
    put(&mut object, "messageId", Some(id));
    put(&mut object, "url", Some(header.url.as_str()));
    put(&mut object, "method", Some(header.method.as_str()));
    put_headers(&mut object, "header", &header.headers, &header.redact);
    put_body(
        &mut object,
        ["body", "bodyBase64"],
        body,
        header.redact.contains(&RedactField::Body),
    );
    put(&mut object, "maxRetries", Some(header.retries));
    put(
        &mut object,
        "notBefore",
        Some(header.not_before_ms.unwrap_or(created_at)),
    );
    put(&mut object, "createdAt", Some(created_at));
    put(&mut object, "timeout", Some(header.timeout_ms));
    put(&mut object, "callerIP", header.caller_ip);
    let delay = header.retry_delay.as_ref();
    put(
        &mut object,
        "retryDelayExpression",
        delay.map(RetryDelay::as_str),
    );
    put(&mut object, "label", header.labels.first());
    put(
        &mut object,
        "labels",
        Some(&header.labels).filter(|labels| !labels.is_empty()),
    );
    put(&mut object, "queueName", header.queue());
    put(&mut object, "scheduleId", header.schedule.as_ref());
    put_endpoint(&mut object, header.endpoint.as_ref());
    put_callbacks(&mut object, header);
    put(&mut object, "flowControlKey", header.flow_key());
    put_flow(&mut object, header.flow);
    object
}

/// Sets the callbacks; what the message hides is hidden of their headers too.
pub(super) fn put_callbacks(object: &mut Object, header: &EnvelopeHeader) {
    for (kind, callback) in header.callbacks() {
        let [url, headers] = match kind {
            CallbackKind::Callback => ["callback", "callbackHeader"],
            CallbackKind::Failure => ["failureCallback", "failureCallbackHeader"],
        };
        put(object, url, Some(callback.url.as_str()));
        let redact = [&header.redact[..], &callback.redact].concat();
        put_headers(object, headers, &callback.headers, &redact);
    }
}

/// Sets the URL group and the endpoint's name.
pub(super) fn put_endpoint(object: &mut Object, endpoint: Option<&GroupEndpoint>) {
    let name = endpoint.and_then(|endpoint| endpoint.name.as_ref());
    put(
        object,
        "topicName",
        endpoint.map(|endpoint| &endpoint.group),
    );
    put(object, "endpointName", name);
}

/// Sets the limits that a message brought to its flow-control key; the period in seconds.
pub(super) fn put_flow(object: &mut Object, flow: Option<FlowLimits>) {
    let Some(flow) = flow else {
        return;
    };
    put(object, "parallelism", flow.parallelism);
    put(object, "rate", flow.rate);
    put(object, "period", Some(flow.period_ms / 1_000));
}

/// Sets `key` if there is a value.
pub(super) fn put(object: &mut Object, key: &str, value: Option<impl serde::Serialize>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), json!(value));
    }
}

/// Sets `key` to the headers by canonical name, in arrays, if there are any.
pub(super) fn put_headers(
    object: &mut Object,
    key: &str,
    headers: &Headers,
    redact: &[RedactField],
) {
    let shown = headers.grouped(|name, value| {
        let is_redacted = redact.iter().any(|field| match field {
            RedactField::Headers => true,
            RedactField::Header(redacted) => redacted == name.as_str(),
            RedactField::Body => false,
        });
        if is_redacted {
            redacted(value)
        } else {
            value_text(value)
        }
    });
    put(object, key, Some(shown).filter(|shown| !shown.is_empty()));
}

/// Sets the first key to a body in UTF-8 or the second to another one in base64, if there is any.
pub(super) fn put_body(object: &mut Object, keys: [&str; 2], body: &[u8], is_redacted: bool) {
    let [text_key, base64_key] = keys;
    if body.is_empty() {
        return;
    }
    match std::str::from_utf8(body) {
        _ if is_redacted => put(object, text_key, Some(redacted(body))),
        Ok(text) => put(object, text_key, Some(text)),
        Err(_) => put(object, base64_key, Some(BASE64.encode(body))),
    }
}

/// What stands for a redacted value: equal for equal values.
fn redacted(value: &[u8]) -> String {
    let digest = Sha256::digest(value);
    let mut shown = String::from("REDACTED:");
    for byte in digest {
        let _ = write!(shown, "{byte:02x}");
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hookstash_shared::headers::HeaderSource;
    use hookstash_shared::message::{
        Destination, Limits, NewMessage, NewMessageBuilder, Shard, When,
    };
    use hookstash_shared::random::SeededRandom;

    use super::*;

    fn shown(message: NewMessageBuilder) -> Value {
        let id = MessageId::new(Shard::default(), 1_000, &SeededRandom::new(1));
        let message = message.build(1_000, &Limits::default()).unwrap();
        let mut object = view(&id, message.header(), message.body());
        assert_eq!(object.remove("messageId").unwrap(), json!(id));
        Value::Object(object)
    }

    fn to(url: &str) -> NewMessageBuilder {
        NewMessage::to(Destination::parse(url).unwrap())
    }

    #[test]
    fn a_plain_message_has_no_empty_fields() {
        let expected = json!({
            "url": "https://H/p?x=%20", "method": "POST", "maxRetries": 3,
            "notBefore": 1_000, "createdAt": 1_000, "timeout": 900_000,
        });
        assert_eq!(shown(to("https://H/p?x=%20")), expected);
    }

    #[test]
    fn everything_that_was_given_is_shown() {
        let mut headers = Headers::default();
        for (name, value) in [
            ("content-type", &b"text/plain"[..]),
            ("x-many", b"1"),
            ("x-many", b"2"),
            ("x-latin", b"\xfc"),
        ] {
            headers
                .append(name.as_bytes(), HeaderSource::literal(value))
                .unwrap();
        }
        let message = to("https://h/")
            .headers(headers)
            .body(&b"\xff"[..])
            .when(When::After(Duration::from_secs(5)))
            .labels(vec!["a".into(), "b".into()])
            .caller_ip([10, 0, 0, 1].into())
            .flow_control(b"key", None, Some(2), None)
            .unwrap();
        let shown = shown(message);
        let expected = json!({
            "url": "https://h/", "method": "POST",
            "header": {
                "Content-Type": ["text/plain"], "X-Many": ["1", "2"], "X-Latin": ["ü"],
            },
            "bodyBase64": "/w==", "maxRetries": 3, "notBefore": 6_000, "createdAt": 1_000,
            "timeout": 900_000, "callerIP": "10.0.0.1", "label": "a", "labels": ["a", "b"],
            "flowControlKey": "key", "rate": 2, "period": 1,
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn redacted_parts_are_shown_as_hashes() {
        let mut headers = Headers::default();
        for name in ["x-secret", "x-open"] {
            headers
                .append(name.as_bytes(), HeaderSource::literal("abc"))
                .unwrap();
        }
        let fields = vec![RedactField::Body, RedactField::Header("x-secret".into())];
        let message = to("https://h/").headers(headers).body("abc").redact(fields);
        let hash = "REDACTED:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let shown = shown(message);
        assert_eq!(shown["body"], hash);
        assert_eq!(shown["header"]["X-Secret"], json!([hash]));
        assert_eq!(shown["header"]["X-Open"], json!(["abc"]));
    }
}
