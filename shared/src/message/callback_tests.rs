use http::HeaderValue;
use proptest::prelude::*;
use serde_json::json;

use super::super::{
    CallbackSpec, Destination, Envelope, GroupEndpoint, Limits, Method, NewMessage,
    NewMessageBuilder, NewMessageError, RedactField, RetryDelay, Shard, When,
};
use super::*;
use crate::headers::HeaderSource;
use crate::random::SeededRandom;

const CREATED_MS: u64 = 1_800_000_000_000;
const CALLBACK: &str = "https://callback/";

fn destination(url: &str) -> Destination {
    Destination::parse(url).unwrap()
}

fn source() -> NewMessageBuilder {
    NewMessage::to(destination("https://source/p?q=1"))
}

fn header_of(message: NewMessageBuilder) -> EnvelopeHeader {
    let message = message.build(CREATED_MS, &Limits::default()).unwrap();
    message.header().clone()
}

fn id() -> MessageId {
    MessageId::new(Shard::default(), CREATED_MS, &SeededRandom::new(1))
}

fn composed(report: &CallbackReport, source_body: &[u8]) -> Value {
    let stored = CallbackReport::decode(&report.encode().unwrap()).unwrap();
    assert_eq!(stored, *report);
    serde_json::from_slice(&stored.compose(source_body).unwrap()).unwrap()
}

fn headers(name: &str, value: &[u8]) -> Headers {
    let mut headers = Headers::default();
    headers
        .append(name.as_bytes(), HeaderSource::literal(value))
        .unwrap();
    headers
}

/// The callback of `source` as it is stored, without what it tells.
fn callback_of(source: &EnvelopeHeader) -> EnvelopeHeader {
    let (_, callback) = source.callbacks().next().unwrap();
    let envelope = callback
        .envelope((&id(), source), Bytes::new(), None, CREATED_MS)
        .unwrap();
    envelope.header
}

#[test]
fn an_attempt_without_an_answer_is_told_without_empty_fields() {
    let header = header_of(source().retries(0));
    let expected = json!({
        "status": 0, "retried": 0, "maxRetries": 0, "sourceMessageId": id(),
        "url": "https://source/p?q=1", "method": "POST",
        "notBefore": CREATED_MS, "createdAt": CREATED_MS,
    });
    assert_eq!(
        composed(&CallbackReport::new(id(), &header, 0), b""),
        expected
    );
}

#[test]
fn everything_that_is_known_is_told() {
    let endpoint = GroupEndpoint {
        group: "g".into(),
        name: Some("n".into()),
    };
    let message = source()
        .method(Method::Put)
        .headers(headers("x-own", b"caf\xe9"))
        .when(When::At(CREATED_MS + 5_000))
        .to_endpoint(destination("https://member/"), endpoint)
        .schedule("scd_1")
        .caller_ip([192, 0, 2, 7].into())
        .callback(CallbackSpec::to(destination(CALLBACK)));
    let mut answer = HeaderMap::new();
    answer.append("x-many", HeaderValue::from_static("1"));
    answer.append("x-many", HeaderValue::from_static("2"));
    let report = CallbackReport::new(id(), &header_of(message), 2)
        .answered(503, &answer, Bytes::from_static(b"\xff\xfe?"))
        .dead();
    let expected = json!({
        "status": 503, "header": { "X-Many": ["1", "2"] }, "body": "//4/",
        "retried": 2, "maxRetries": 3, "dlqId": id(), "sourceMessageId": id(),
        "topicName": "g", "endpointName": "n", "url": "https://member/", "method": "PUT",
        "sourceHeader": { "X-Own": ["café"] }, "sourceBody": "AAA=",
        "notBefore": CREATED_MS + 5_000, "createdAt": CREATED_MS,
        "scheduleId": "scd_1", "callerIP": "192.0.2.7",
    });
    assert_eq!(composed(&report, &[0, 0]), expected);
}

#[test]
fn a_template_of_the_source_is_told_as_a_template() {
    let mut given = Headers::default();
    let template = HeaderSource::Template {
        text: "Bearer ${TOKEN}".to_owned(),
        allowed_env_vars: vec!["TOKEN".to_owned()],
    };
    given.append(b"authorization", template).unwrap();
    let report = CallbackReport::new(id(), &header_of(source().headers(given)), 0);
    let told = composed(&report, b"");
    assert_eq!(
        told["sourceHeader"]["Authorization"],
        json!(["Bearer ${TOKEN}"])
    );
}

#[test]
fn a_callback_takes_from_its_message_what_it_does_not_say() {
    let plain = CallbackSpec::to(destination(CALLBACK));
    let message = source()
        .method(Method::Get)
        .headers(headers("x-own", b"1"))
        .labels(vec!["l".into()])
        .retries(7)
        .retry_delay(RetryDelay::parse("1").unwrap())
        .timeout(std::time::Duration::from_secs(9));
    let callback = callback_of(&header_of(message.clone().callback(plain.clone())));
    assert_eq!(callback.url.as_str(), CALLBACK);
    assert_eq!((callback.method, callback.retries), (Method::Post, 7));
    assert_eq!(callback.timeout_ms, 9_000);
    assert_eq!(callback.retry_delay, Some(RetryDelay::parse("1").unwrap()));
    let json = HeaderSource::literal("application/json");
    assert_eq!(
        callback.headers.get(&http::header::CONTENT_TYPE),
        Some(&json)
    );
    assert_eq!((callback.headers.len(), callback.labels.len()), (1, 0));
    assert_eq!(callback.callback_of, Some(id()));
    assert_eq!(callback.callbacks().count(), 0);
    assert_eq!(callback.not_before_ms, None);

    let own = CallbackSpec {
        method: Method::Put,
        headers: headers("content-type", b"text/x"),
        retries: Some(0),
        retry_delay: Some(RetryDelay::parse("2").unwrap()),
        timeout_ms: Some(1),
        delay_ms: 30,
        labels: vec!["own".into()],
        ..plain
    };
    let callback = callback_of(&header_of(message.failure_callback(own)));
    assert_eq!((callback.method, callback.retries), (Method::Put, 0));
    assert_eq!((callback.timeout_ms, callback.labels.len()), (1, 1));
    assert_eq!(callback.retry_delay, Some(RetryDelay::parse("2").unwrap()));
    let given = HeaderSource::literal("text/x");
    assert_eq!(
        callback.headers.get(&http::header::CONTENT_TYPE),
        Some(&given)
    );
    assert_eq!(callback.not_before_ms, Some(CREATED_MS + 30));
}

#[test]
fn a_callback_hides_what_its_message_hides_and_then_its_body() {
    let mut spec = CallbackSpec::to(destination(CALLBACK));
    let open = callback_of(&header_of(source().callback(spec.clone())));
    assert!(open.redact.is_empty());
    let named = RedactField::Header("x-key".into());
    let message = source().redact(vec![named.clone()]);
    let hiding = callback_of(&header_of(message.clone().callback(spec.clone())));
    assert_eq!(hiding.redact, [named.clone(), RedactField::Body]);
    spec.redact = vec![RedactField::Body];
    let both = callback_of(&header_of(message.callback(spec)));
    assert_eq!(both.redact, [RedactField::Body, named]);
}

#[test]
fn a_delayed_callback_in_a_queue_is_refused_because_the_queue_would_wait() {
    let mut delayed = CallbackSpec::to(destination(CALLBACK));
    delayed.delay_ms = 1;
    let build = |message: NewMessageBuilder| message.build(CREATED_MS, &Limits::default());
    for (message, name) in [
        (source().callback(delayed.clone()), "Upstash-Callback-Delay"),
        (
            source().failure_callback(delayed.clone()),
            "Upstash-Failure-Callback-Delay",
        ),
    ] {
        assert!(build(message.clone()).is_ok(), "{name}");
        let text = build(message.queue("q").unwrap()).unwrap_err().to_string();
        assert!(text.starts_with(&format!("invalid {name}: ")), "{text}");
        assert!(text.contains("stop the queue"), "{text}");
    }
    let at_once = CallbackSpec::to(destination(CALLBACK));
    assert!(build(source().callback(at_once).queue("q").unwrap()).is_ok());
}

#[test]
fn a_callback_that_could_not_be_sent_is_refused_by_its_own_name() {
    let spec = |change: fn(&mut CallbackSpec)| {
        let mut spec = CallbackSpec::to(destination(CALLBACK));
        change(&mut spec);
        spec
    };
    let refused = |message: NewMessageBuilder| -> String {
        let error: NewMessageError = message.build(CREATED_MS, &Limits::default()).unwrap_err();
        error.to_string()
    };
    let retries = spec(|spec| spec.retries = Some(1_001));
    let text = refused(source().callback(retries));
    assert!(
        text.starts_with("invalid Upstash-Callback-Retries: "),
        "{text}"
    );
    let timeout = spec(|spec| spec.timeout_ms = Some(0));
    let text = refused(source().failure_callback(timeout));
    let expected = "invalid Upstash-Failure-Callback-Timeout: ";
    assert!(text.starts_with(expected), "{text}");
    let delay = spec(|spec| spec.delay_ms = u64::MAX);
    let text = refused(source().callback(delay));
    assert!(
        text.starts_with("invalid Upstash-Callback-Delay: "),
        "{text}"
    );
    let reserved = spec(|spec| spec.headers = headers("upstash-retried", b"1"));
    let text = refused(source().callback(reserved));
    assert!(
        text.contains("Upstash-Callback") && text.contains("upstash-retried"),
        "{text}"
    );
}

#[test]
fn the_envelope_of_a_callback_carries_what_it_tells_and_names_its_sources_body() {
    let header = header_of(source().callback(CallbackSpec::to(destination(CALLBACK))));
    let report = CallbackReport::new(id(), &header, 1);
    let (_, callback) = header.callbacks().next().unwrap();
    let body_of = Some(id().to_string());
    let source_of = (&id(), &header);
    let envelope = callback
        .envelope(source_of, report.encode().unwrap(), body_of, CREATED_MS)
        .unwrap();
    let stored = envelope.encode().unwrap();
    assert!(Envelope::is_callback(&stored));
    assert_eq!(Envelope::decode(&stored).unwrap(), envelope);
    let named = Bytes::from_static(b"source");
    let told = envelope.payload(&named).unwrap();
    assert_eq!(told, report.compose(b"source").unwrap());
    let held = Envelope::bytes_held(stored.len(), 1_000, true);
    assert!(held >= stored.len() + 1_000 + told.len(), "{held}");
}

#[test]
fn other_messages_deliver_their_own_body_or_the_one_they_name() {
    let message = source()
        .body("callback_of")
        .build(CREATED_MS, &Limits::default());
    let mut envelope = message.unwrap().into_envelope();
    assert!(!Envelope::is_callback(&envelope.encode().unwrap()));
    assert!(!Envelope::is_callback(b""));
    let named = Bytes::from_static(b"named");
    assert_eq!(envelope.payload(&named).unwrap(), "callback_of");
    envelope.header.body_of = Some("k".into());
    assert_eq!(envelope.payload(&named).unwrap(), named);
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let framed = [b"HC1:0000000a", bytes.as_slice()].concat();
        let _ = CallbackReport::decode(&Bytes::from(bytes));
        let _ = CallbackReport::decode(&Bytes::from(framed));
    }

    #[test]
    fn bytes_of_any_kind_and_length_are_told_in_base64(
        response in proptest::collection::vec(any::<u8>(), 0..3_000),
        body in proptest::collection::vec(any::<u8>(), 0..3_000),
    ) {
        let report = CallbackReport::new(id(), &header_of(source()), 0)
            .answered(200, &HeaderMap::new(), Bytes::from(response.clone()));
        let told = composed(&report, &body);
        for (key, bytes) in [("body", response), ("sourceBody", body)] {
            let expected = base64::Engine::encode(&BASE64, &bytes);
            prop_assert_eq!(told[key].as_str().unwrap_or_default(), expected);
        }
    }
}
