use super::super::{CallbackReport, MessageId};
use super::*;
use crate::headers::HeaderSource;
use crate::random::SeededRandom;

const NOW_MS: u64 = 1_800_000_000_000;
const DAY: Duration = Duration::from_hours(24);

fn to(url: &str) -> NewMessageBuilder {
    NewMessage::to(Destination::parse(url).unwrap())
}

fn build(builder: NewMessageBuilder) -> Result<NewMessage, NewMessageError> {
    builder.build(NOW_MS, &Limits::default())
}

fn headers(name: &str, value: &str) -> Headers {
    let mut headers = Headers::default();
    headers
        .append(name.as_bytes(), HeaderSource::literal(value))
        .unwrap();
    headers
}

#[test]
fn a_plain_message_gets_the_defaults() {
    let message = build(to("http://h/p")).unwrap();
    let header = message.header();
    assert_eq!(header.method, Method::Post);
    assert_eq!((header.retries, header.timeout_ms), (3, 900_000));
    assert_eq!(header.fallback, Fallback::Fetch);
    assert_eq!(message.when(), When::Now);
    assert_eq!(message.lane().as_str(), "h:h");
    assert_eq!(message.dedup_name(), None);
}

#[test]
fn d01_delays_are_kept_or_refused_and_never_cut() {
    for days in [24, 25, 50, 366] {
        let message = build(to("http://h").when(When::After(DAY * days))).unwrap();
        assert_eq!(message.when(), When::After(DAY * days));
        let due_ms = NOW_MS + u64::from(days) * 86_400_000;
        assert_eq!(message.header().not_before_ms, Some(due_ms));
    }
    for delay in [
        DAY * 400,
        Duration::from_secs(9_223_372_036_854_775_807),
        Duration::MAX,
    ] {
        let error = build(to("http://h").when(When::After(delay))).unwrap_err();
        assert!(error.to_string().contains("Upstash-Delay"), "{error}");
    }
    let at = NOW_MS + 50 * 86_400_000;
    let message = build(to("http://h").when(When::At(at))).unwrap();
    assert_eq!(
        (message.when(), message.header().not_before_ms),
        (When::At(at), Some(at))
    );
}

#[test]
fn d01_a_time_in_the_past_is_now_and_milliseconds_for_seconds_are_refused() {
    for when in [When::At(0), When::At(NOW_MS), When::After(Duration::ZERO)] {
        let message = build(to("http://h").when(when)).unwrap();
        assert_eq!(
            (message.when(), message.header().not_before_ms),
            (When::Now, None)
        );
    }
    for at in [NOW_MS * 1000, u64::MAX] {
        let error = build(to("http://h").when(When::At(at))).unwrap_err();
        assert!(error.to_string().contains("Upstash-Not-Before"), "{error}");
    }
}

#[test]
fn a_body_above_the_limit_gets_the_exact_phrase() {
    let limits = Limits {
        body_bytes_max: 4,
        ..Limits::default()
    };
    assert!(to("http://h").body("1234").build(NOW_MS, &limits).is_ok());
    let error = to("http://h")
        .body("12345")
        .build(NOW_MS, &limits)
        .unwrap_err();
    assert!(
        error.to_string().contains("quota maxMessageSize exceeded"),
        "{error}"
    );
}

#[test]
fn timeouts_are_refused_by_the_name_of_their_header() {
    assert!(build(to("http://h").timeout(Duration::from_hours(2))).is_ok());
    assert!(build(to("http://h").timeout(Duration::from_millis(1))).is_ok());
    for timeout in [
        Duration::ZERO,
        Duration::from_hours(2) + Duration::from_millis(1),
    ] {
        let error = build(to("http://h").timeout(timeout)).unwrap_err();
        assert!(error.to_string().contains("Upstash-Timeout"), "{error}");
    }
}

#[test]
fn no_retry_is_a_choice_and_too_many_an_error() {
    assert_eq!(
        build(to("http://h").retries(0)).unwrap().header().retries,
        0
    );
    assert_eq!(
        build(to("http://h").retries(1001)),
        Err(NewMessageError::Retries)
    );
}

#[test]
fn headers_of_the_delivery_cannot_be_given() {
    for name in ["Upstash-Signature", "host", "Content-Length", "Connection"] {
        let error = build(to("http://h").headers(headers(name, "v"))).unwrap_err();
        assert!(error.to_string().contains(&name.to_lowercase()), "{error}");
    }
}

#[test]
fn a_queue_and_a_flow_key_exclude_each_other() {
    let queued = to("http://h").queue("orders").unwrap();
    assert_eq!(build(queued.clone()).unwrap().lane().as_str(), "q:orders");
    let both = queued.flow_control(b"k", Some(1), None, None).unwrap();
    let error = build(both).unwrap_err();
    assert!(error.to_string().contains("not supported"), "{error}");
    assert!(to("http://h").queue("a b").is_err());
}

#[test]
fn flow_limits_must_limit_something() {
    let flow = |parallelism, rate, period| {
        to("http://h")
            .flow_control(b"k", parallelism, rate, period)
            .map(|_| ())
    };
    assert!(flow(Some(1), None, None).is_ok());
    assert!(flow(None, Some(5), Some(DAY * 7)).is_ok());
    for (parallelism, rate, period) in [
        (None, None, None),
        (Some(0), None, None),
        (Some(1), Some(0), None),
        (None, Some(1), Some(Duration::ZERO)),
        (None, Some(1), Some(DAY * 8)),
    ] {
        assert_eq!(
            flow(parallelism, rate, period),
            Err(NewMessageError::FlowLimits)
        );
    }
    let message = to("http://h")
        .flow_control("ü".as_bytes(), None, Some(5), None)
        .unwrap();
    let message = build(message).unwrap();
    assert_eq!(message.header().flow_key().as_deref(), Some("ü"));
    assert_eq!(message.header().flow.map(|flow| flow.period_ms), Some(1000));
}

#[test]
fn deduplication_by_content_is_scoped_by_the_queue() {
    let message = |queue: Option<&str>| {
        let builder = to("http://h").body("x").content_deduplication(true);
        match queue {
            Some(name) => builder.queue(name).unwrap(),
            None => builder,
        }
    };
    let plain = build(message(None)).unwrap().dedup_name().unwrap();
    let queued = build(message(Some("q"))).unwrap().dedup_name().unwrap();
    assert_eq!(queued, format!("q:q{plain}"));
    let given = message(None).dedup(DedupId::parse("mine").unwrap());
    assert_eq!(build(given).unwrap().dedup_name().unwrap(), ":mine");
}

#[test]
fn labels_have_bounds() {
    assert!(build(to("http://h").labels(vec!["a".into(), "é".into()])).is_ok());
    for labels in [
        vec![String::new()],
        vec!["x".repeat(257)],
        vec!["x".into(); 101],
    ] {
        assert_eq!(
            build(to("http://h").labels(labels)),
            Err(NewMessageError::Labels)
        );
    }
}

#[test]
fn redacted_fields_have_bounds() {
    let fields = vec![RedactField::Body; 101];
    assert_eq!(
        build(to("http://h").redact(fields)),
        Err(NewMessageError::Redact)
    );
    let long = format!("header[{}]", "x".repeat(257));
    assert!(long.parse::<RedactField>().is_err());
}

#[test]
fn the_largest_message_has_a_header_that_can_be_stored() {
    let mut headers = Headers::default();
    let value = vec![b'"'; 8 * 1024];
    while headers.append(b"x", HeaderSource::literal(&value)).is_ok() {}
    let url = format!("http://h/{}", "\"".repeat(8_000));
    let hidden: Vec<_> = (0..99)
        .map(|n| RedactField::Header(format!("{n:0256}")))
        .collect();
    let mut callback = CallbackSpec::to(Destination::parse(&url).unwrap());
    callback
        .headers
        .append(b"content-type", HeaderSource::literal("x"))
        .unwrap();
    while callback
        .headers
        .append(b"x", HeaderSource::literal(&value))
        .is_ok()
    {}
    callback.labels = vec!["\u{1}".repeat(256); 100];
    callback.redact.clone_from(&hidden);
    let message = to(&url)
        .headers(headers.clone())
        .labels(vec!["\u{1}".repeat(256); 100])
        .dedup(DedupId::parse(&"\u{1}".repeat(1024)).unwrap())
        .redact(hidden)
        .callback(callback.clone())
        .failure_callback(callback.clone());
    let envelope = build(message).unwrap().into_envelope();
    assert_eq!(
        Envelope::decode(&envelope.encode().unwrap()).unwrap(),
        envelope
    );
    // And so has each of its callbacks, and what that tells of the largest answer.
    let (random, header) = (SeededRandom::new(1), &envelope.header);
    let id = MessageId::new(Shard::default(), NOW_MS, &random);
    let mut answer = http::HeaderMap::new();
    for _ in 0..7 {
        answer.append("x", http::HeaderValue::from_bytes(&value).unwrap());
    }
    let report = CallbackReport::new(id, header, 1).answered(500, &answer, Bytes::new());
    let told = callback
        .envelope((&id, header), report.encode().unwrap(), None, NOW_MS)
        .unwrap();
    let read = Envelope::decode(&told.encode().unwrap()).unwrap();
    assert!(read.payload(&Bytes::new()).is_ok());
}

#[test]
fn the_envelope_carries_everything() {
    let message = to("https://h/p?q=1")
        .method(Method::Put)
        .headers(headers("Content-Type", "text/plain"))
        .body("hello")
        .retry_delay(RetryDelay::parse("1000").unwrap())
        .fallback(Fallback::None)
        .caller_ip("10.0.0.1".parse().unwrap())
        .redact(vec![RedactField::Body]);
    let envelope = build(message).unwrap().into_envelope();
    let read = Envelope::decode(&envelope.encode().unwrap()).unwrap();
    assert_eq!(read, envelope);
    assert_eq!(read.body, "hello");
    assert_eq!(read.header.method.as_str(), "PUT");
}
