use super::*;
use hookstash_shared::message::{Limits, Method};

const BY_CONTENT: &str = "Upstash-Content-Based-Deduplication";
const NOW_MS: u64 = 1_800_000_000_000;

fn built(headers: &[(&str, &str)], query: &[(&str, &str)]) -> Result<NewMessage, ApiError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(
            name,
            http::HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        );
    }
    let query: Vec<_> = query
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
        .collect();
    let destination = Destination::parse("https://h/p").unwrap();
    let check = |url: &str| Ok(Destination::parse(url).unwrap());
    Ok(configure(destination, &map, &query, &check)?.build(NOW_MS, &Limits::default())?)
}

fn one(name: &str, value: &str) -> Result<NewMessage, ApiError> {
    built(&[(name, value)], &[])
}

fn header_of(message: &NewMessage, name: &str) -> Vec<String> {
    let all = message.header().headers.iter();
    all.filter(|(other, _)| other.as_str() == name)
        .map(|(_, source)| match source {
            HeaderSource::Literal(value) => String::from_utf8_lossy(value).into_owned(),
            HeaderSource::Template { .. } => panic!("the HTTP API never makes a template"),
        })
        .collect()
}

#[test]
fn every_option_is_read_in_any_case_of_its_name() {
    let message = built(
        &[
            ("UPSTASH-METHOD", "put"),
            ("Upstash-Retries", "0"),
            ("upstash-retry-delay", "1000 * (1 + retried)"),
            ("Upstash-Timeout", "30s"),
            ("Upstash-Delay", "1d10h30m"),
            ("Upstash-Deduplication-Id", "abc"),
            ("Upstash-Label", "a, b"),
            ("Upstash-Redact-Fields", "body, headers[X-Key]"),
            ("Upstash-Telemetry-Sdk", "x"),
            ("Upstash-Unheard-Of", "x"),
        ],
        &[],
    )
    .unwrap();
    let header = message.header();
    assert_eq!(header.method, Method::Put);
    assert_eq!(header.retries, 0);
    assert_eq!(
        header.retry_delay.as_ref().unwrap().as_str(),
        "1000 * (1 + retried)"
    );
    assert_eq!(header.timeout_ms, 30_000);
    let delay = Duration::from_mins(34 * 60 + 30);
    assert_eq!(message.when(), When::After(delay));
    assert_eq!(header.dedup.as_ref().unwrap().as_str(), "abc");
    assert_eq!(header.labels, ["a", "b"]);
    assert_eq!(
        header.redact,
        [RedactField::Body, RedactField::Header("x-key".into())]
    );
    assert!(header.headers.is_empty());
}

#[test]
fn without_options_the_defaults_hold() {
    let message = built(&[("accept", "*/*"), ("authorization", "Bearer t")], &[]).unwrap();
    let header = message.header();
    assert_eq!(
        (header.method, header.retries, header.timeout_ms),
        (Method::Post, 3, 900_000)
    );
    assert!(header.headers.is_empty() && header.dedup.is_none());
    assert_eq!(message.when(), When::Now);
}

#[test]
fn refusals_name_the_header() {
    for (name, value, expected) in [
        ("Upstash-Method", "HEAD", "invalid Upstash-Method: "),
        ("Upstash-Delay", "", "invalid Upstash-Delay: "),
        ("Upstash-Delay", "soon", "invalid Upstash-Delay: "),
        ("Upstash-Not-Before", "1.5", "invalid Upstash-Not-Before: "),
        ("Upstash-Not-Before", "-1", "invalid Upstash-Not-Before: "),
        ("Upstash-Retries", "", "invalid Upstash-Retries: "),
        ("Upstash-Retries", "-1", "invalid Upstash-Retries: "),
        ("Upstash-Retries", "+1", "invalid Upstash-Retries: "),
        ("Upstash-Retries", "3.0", "invalid Upstash-Retries: "),
        (
            "Upstash-Retries",
            "99999999999",
            "invalid Upstash-Retries: ",
        ),
        ("Upstash-Retries", "1001", "invalid Upstash-Retries: "),
        (
            "Upstash-Retry-Delay",
            "system(1)",
            "invalid Upstash-Retry-Delay: ",
        ),
        (
            "Upstash-Retry-Delay",
            "1 +",
            "invalid Upstash-Retry-Delay: ",
        ),
        ("Upstash-Timeout", "0s", "invalid Upstash-Timeout: "),
        ("Upstash-Timeout", "3h", "invalid Upstash-Timeout: "),
        ("Upstash-Timeout", "x", "invalid Upstash-Timeout: "),
        (
            "Upstash-Deduplication-Id",
            "a:b",
            "DeduplicationId cannot contain ':'",
        ),
        ("Upstash-Deduplication-Id", "", "DeduplicationId must have"),
        (
            "Upstash-Content-Based-Deduplication",
            "maybe",
            "invalid Upstash-Content-Based-Deduplication: ",
        ),
        (
            "Upstash-Header-Forward",
            "2",
            "invalid Upstash-Header-Forward: ",
        ),
        ("Upstash-Label", "a,,b", "invalid Upstash-Label: "),
        (
            "Upstash-Redact-Fields",
            "url",
            "invalid Upstash-Redact-Fields: ",
        ),
        (
            "Upstash-Forward-Host",
            "h",
            "header host is set by the delivery",
        ),
        (
            "Upstash-Forward-Upstash-Signature",
            "x",
            "header upstash-signature is set by",
        ),
        ("Upstash-Forward-", "x", "invalid header name"),
    ] {
        let error = one(name, value).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{name}: {value:?}: {error}");
    }
    let twice = built(&[("Upstash-Delay", "1s"), ("Upstash-Delay", "2s")], &[]).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "invalid Upstash-Delay: it is given more than once"
    );
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    for name in [
        "Upstash-Workflow-Init",
        "Upstash-Workflow-Runid",
        "Upstash-Feature-Set",
    ] {
        let error = one(name, "x").unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{name} is not supported by this server yet")
        );
        let in_query = built(&[], &[(&name.to_ascii_lowercase(), "x")]).unwrap_err();
        assert_eq!(in_query.to_string(), error.to_string());
    }
    assert!(one("Upstash-Callbacks", "x").is_ok());
}

#[test]
fn what_belongs_to_a_schedule_is_refused_on_a_message() {
    for name in ["Upstash-Cron", "Upstash-Schedule-Id"] {
        let error = one(name, "x").unwrap_err().to_string();
        let expected = "it belongs to POST /v2/schedules/{destination}";
        assert_eq!(error, format!("invalid {name}: {expected}"));
    }
}

#[test]
fn a_queue_or_a_flow_control_key_is_where_the_message_waits() {
    let flow = [
        ("Upstash-Flow-Control-Key", "a b"),
        ("Upstash-Flow-Control-Value", "rate=5, period=1m"),
    ];
    let queued = one("Upstash-Queue-Name", "q").unwrap();
    assert_eq!(queued.lane().as_str(), "q:q");
    let limited = built(&flow, &[]).unwrap();
    assert_eq!(limited.lane().as_str(), "f:a%20b");
    let limits = limited.header().flow.unwrap();
    assert_eq!(
        (limits.parallelism, limits.rate, limits.period_ms),
        (None, Some(5), 60_000)
    );
    let [key, value] = flow;
    for (headers, named) in [
        (vec![key], "Upstash-Flow-Control-Value"),
        (vec![value], "Upstash-Flow-Control-Key"),
        (
            vec![key, value, ("Upstash-Queue-Name", "q")],
            "Upstash-Queue-Name",
        ),
        (vec![("Upstash-Queue-Name", "a b")], "queue name"),
    ] {
        let error = built(&headers, &[]).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn forwarded_headers_lose_their_prefix_and_nothing_else_is_sent() {
    let message = built(
        &[
            ("Upstash-Forward-X-A", "1"),
            ("upstash-forward-x-a", "2"),
            ("Upstash-Forward-Authorization", "Bearer theirs"),
            ("Upstash-Forward-X-Template", "${PATH}"),
            ("Authorization", "Bearer ours"),
            ("X-B", "not forwarded"),
        ],
        &[],
    )
    .unwrap();
    assert_eq!(header_of(&message, "x-a"), ["1", "2"]);
    assert_eq!(header_of(&message, "authorization"), ["Bearer theirs"]);
    assert_eq!(header_of(&message, "x-template"), ["${PATH}"]);
    assert_eq!(message.header().headers.len(), 4);
}

#[test]
fn content_type_beats_its_forwarded_twin() {
    let both = [
        ("Upstash-Forward-Content-Type", "text/a"),
        ("Content-Type", "text/b"),
    ];
    assert_eq!(
        header_of(&built(&both, &[]).unwrap(), "content-type"),
        ["text/b"]
    );
    let [forwarded, _] = both;
    assert_eq!(
        header_of(&built(&[forwarded], &[]).unwrap(), "content-type"),
        ["text/a"]
    );
}

#[test]
fn header_forward_sends_all_but_what_belongs_to_the_call() {
    let call = [
        ("Upstash-Header-Forward", "True"),
        ("Authorization", "Bearer ours"),
        ("Host", "us"),
        ("Content-Length", "1"),
        ("Connection", "x-hop, keep-alive"),
        ("X-Hop", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Upstash-Telemetry-Sdk", "x"),
        ("Content-Type", "text/b"),
        ("X-Github-Event", "push"),
        ("X-Both", "of the call"),
        ("Upstash-Forward-X-Both", "asked for"),
    ];
    let message = built(&call, &[]).unwrap();
    let mut names: Vec<_> = message
        .header()
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["content-type", "x-both", "x-github-event"]);
    assert_eq!(header_of(&message, "x-both"), ["asked for"]);
    let [_, rest @ ..] = call;
    assert_eq!(built(&rest, &[]).unwrap().header().headers.len(), 2);
}

#[test]
fn options_in_the_query_count_unless_a_header_says_otherwise() {
    let query = [
        ("upstash-retries", "7"),
        ("upstash-delay", "100s"),
        ("upstash-forward-x", "1"),
    ];
    let message = built(&[("Upstash-Retries", "2")], &query).unwrap();
    assert_eq!(message.header().retries, 2);
    assert_eq!(message.when(), When::After(Duration::from_secs(100)));
    assert_eq!(header_of(&message, "x"), ["1"]);
}

#[test]
fn a_content_makes_its_own_deduplication_id() {
    let id = |headers: &[(&str, &str)]| built(headers, &[]).unwrap().header().dedup.clone();
    assert_eq!(id(&[(BY_CONTENT, "False")]), None);
    assert_eq!(id(&[(BY_CONTENT, "True")]), id(&[(BY_CONTENT, "true")]));
    assert!(id(&[(BY_CONTENT, "true")]).is_some());
    let given = id(&[(BY_CONTENT, "true"), ("Upstash-Deduplication-Id", "mine")]);
    assert_eq!(given.unwrap().as_str(), "mine");
}

#[test]
fn d01_delays_are_kept_exactly_or_refused() {
    let day = Duration::from_hours(24);
    for (text, delay) in [
        ("24d", day * 24),
        ("25d", day * 25),
        ("50d", day * 50),
        ("366d", day * 366),
        ("1.5s", Duration::from_millis(1_500)),
        ("10m5s", Duration::from_secs(605)),
        ("30", Duration::from_secs(30)),
    ] {
        let message = one("Upstash-Delay", text).unwrap();
        assert_eq!(message.when(), When::After(delay), "{text}");
        let due = NOW_MS + u64::try_from(delay.as_millis()).unwrap();
        assert_eq!(message.header().not_before_ms, Some(due), "{text}");
    }
    for text in [
        "400d",
        "9223372036854775807s",
        "-1s",
        "1e3s",
        "99999999999999999999d",
    ] {
        let error = one("Upstash-Delay", text).unwrap_err().to_string();
        assert!(
            error.starts_with("invalid Upstash-Delay: "),
            "{text}: {error}"
        );
    }
}

#[test]
fn d01_a_not_before_is_in_seconds_and_wins_over_a_delay() {
    let seconds = NOW_MS / 1_000;
    let at = |value: u64| one("Upstash-Not-Before", &value.to_string());
    assert_eq!(at(seconds + 60).unwrap().when(), When::At(NOW_MS + 60_000));
    assert_eq!(at(seconds - 60).unwrap().when(), When::Now);
    assert_eq!(at(0).unwrap().when(), When::Now);
    for far in [NOW_MS, u64::MAX] {
        let error = at(far).unwrap_err().to_string();
        assert!(error.starts_with("invalid Upstash-Not-Before: "), "{error}");
    }
    let later = (seconds + 60).to_string();
    let both = [
        ("Upstash-Delay", "1h"),
        ("Upstash-Not-Before", later.as_str()),
    ];
    assert_eq!(built(&both, &[]).unwrap().when(), When::At(NOW_MS + 60_000));
}

#[test]
fn h18_a_value_that_cannot_be_sent_is_refused_by_name() {
    let long = "x".repeat(9_000);
    for (value, is_fine) in [
        ("é", true),
        ("🚀", true),
        (" spaced ", true),
        ("a\tb", true),
        ("", true),
        (long.as_str(), false),
    ] {
        let made = one("Upstash-Forward-X-N", value);
        assert_eq!(made.is_ok(), is_fine, "{value:?}");
        match made {
            Ok(message) => assert_eq!(header_of(&message, "x-n"), [value.trim()]),
            Err(error) => assert!(error.to_string().contains("x-n"), "{error}"),
        }
    }
    let in_query = built(&[], &[("upstash-forward-x-n", "a\r\nb")]).unwrap_err();
    assert!(in_query.to_string().contains("x-n"), "{in_query}");
    for name in [
        "upstash-forward-a b",
        "upstash-forward-a:b",
        "upstash-forward-ü",
    ] {
        let error = built(&[], &[(name, "x")]).unwrap_err().to_string();
        assert!(error.starts_with("invalid header name"), "{error}");
    }
    let names: Vec<String> = (0..200).map(|n| format!("upstash-forward-x-{n}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let error = built(&many, &[]).unwrap_err().to_string();
    assert!(error.contains("one too many"), "{error}");
}
