use std::collections::BTreeMap;

use hookstash_shared::http::EgressPolicy;
use hookstash_shared::message::{Limits, NewMessage, RetryDelay};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::{destination, publish_headers};
use super::*;

const URL: &str = "https://callback/p?q=%20";

fn built(headers: &[(&str, &str)], query: &[(&str, &str)]) -> Result<NewMessage, ApiError> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    let option = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
    let query: Vec<_> = query.iter().map(option).collect();
    let check = |url: &str| {
        let nothing: BTreeMap<String, String> = BTreeMap::new();
        destination::check(url, &EgressPolicy::default(), &nothing)
    };
    let to = Destination::parse("https://h/p").unwrap();
    let message = publish_headers::configure(to, &map, &query, &check)?;
    Ok(message.build(1_800_000_000_000, &Limits::default())?)
}

fn refused(headers: &[(&str, &str)]) -> String {
    built(headers, &[]).unwrap_err().to_string()
}

#[test]
fn every_option_of_both_callbacks_is_read_in_any_case() {
    for name in ["Upstash-Callback", "UPSTASH-FAILURE-CALLBACK"] {
        let of = |option: &str| format!("{name}-{option}");
        let options = [
            (name.to_owned(), URL),
            (of("Method"), "put"),
            (of("retries"), "0"),
            (of("Retry-Delay"), "1000 * retried"),
            (of("Timeout"), "30s"),
            (of("Delay"), "2m"),
            (of("Label"), "a, b"),
            (of("Redact-Fields"), "body"),
            (of("Forward-X-Own"), "1"),
            (of("Forward-X-Own"), "2"),
        ];
        let options: Vec<_> = options
            .iter()
            .map(|(name, value)| (&**name, *value))
            .collect();
        let message = built(&options, &[]).unwrap();
        let mut callbacks = message.header().callbacks();
        let (kind, callback) = callbacks.next().unwrap();
        assert!(name.eq_ignore_ascii_case(kind.header_name()) && callbacks.next().is_none());
        assert_eq!(callback.url.as_str(), URL);
        assert_eq!((callback.method, callback.retries), (Method::Put, Some(0)));
        let delay = RetryDelay::parse("1000 * retried").unwrap();
        assert_eq!(callback.retry_delay, Some(delay));
        assert_eq!(
            (callback.timeout_ms, callback.delay_ms),
            (Some(30_000), 120_000)
        );
        assert_eq!(callback.labels, ["a", "b"]);
        assert_eq!(callback.redact, [RedactField::Body]);
        assert_eq!(callback.headers.len(), 2);
        assert!(message.header().headers.is_empty());
    }
}

#[test]
fn both_callbacks_stand_in_the_query_too() {
    let query = [
        ("upstash-callback", "https://callback/"),
        ("upstash-callback-retries", "1"),
        ("upstash-failure-callback", "https://failed/"),
        ("upstash-failure-callback-forward-x", "y"),
    ];
    let message = built(&[], &query).unwrap();
    let urls: Vec<_> = message
        .header()
        .callbacks()
        .map(|(_, one)| one.url.as_str())
        .collect();
    assert_eq!(urls, ["https://callback/", "https://failed/"]);
    // A header wins.
    let message = built(&[("Upstash-Callback", URL)], &query).unwrap();
    assert_eq!(
        message.header().callback.as_ref().unwrap().url.as_str(),
        URL
    );
}

#[test]
fn refusals_name_the_header_of_the_callback() {
    for (name, value, why) in [
        ("Method", "HEAD", "expected GET, POST, PUT, PATCH or DELETE"),
        ("Retries", "-1", "expected a whole number"),
        ("Retries", "1001", "the maximum is 1000"),
        ("Retry-Delay", "system(1)", ""),
        ("Timeout", "3h", "at most 2h"),
        ("Delay", "soon", ""),
        ("Delay", "367d", "the maximum is"),
        ("Label", ",", "at most 100 labels"),
        (
            "Redact-Fields",
            "title",
            "expected body, header or header[Name]",
        ),
        ("Forward-Host", "h", "header host"),
        ("Queue-Name", "q", "a callback waits in no queue"),
        ("Flow-Control-Key", "k", "a callback waits in no queue"),
        (
            "Flow-Control-Value",
            "rate=1",
            "a callback waits in no queue",
        ),
        ("Not-Before", "1", "a callback has Method"),
        ("Deduplication-Id", "x", "a callback has Method"),
        ("Cron", "* * * * *", "a callback has Method"),
        ("Callback", "https://h/", "a callback has Method"),
    ] {
        for kind in ["Upstash-Callback", "Upstash-Failure-Callback"] {
            let option = format!("{kind}-{name}");
            let text = refused(&[(kind, URL), (&option, value)]);
            let is_named = text.starts_with(&format!("invalid {option}: "))
                || (name.starts_with("Forward") && text.contains(kind));
            assert!(is_named && text.contains(why), "{option}: {text}");
        }
    }
}

#[test]
fn an_unknown_option_of_a_callback_is_ignored() {
    for kind in ["Upstash-Callback", "Upstash-Failure-Callback"] {
        let option = format!("{kind}-X-Foo");
        let with = built(&[(kind, URL), (&option, "1")], &[]).unwrap();
        let without = built(&[(kind, URL)], &[]).unwrap();
        assert_eq!(with.header(), without.header());
        let alone = built(&[(&option, "1")], &[]).unwrap();
        assert_eq!(alone.header().callbacks().count(), 0);
    }
}

#[test]
fn an_option_without_its_callback_is_refused() {
    let text = refused(&[
        ("Upstash-Callback", URL),
        ("Upstash-Failure-Callback-Retries", "1"),
    ]);
    let expected = "Upstash-Failure-Callback-Retries is given without Upstash-Failure-Callback, \
                    the URL that it is for";
    assert_eq!(text, expected);
}

#[test]
fn the_url_of_a_callback_is_checked_like_a_destination() {
    for (url, why) in [
        ("", "endpoint has invalid scheme, add http:// or https://"),
        (
            "my-group",
            "endpoint has invalid scheme, add http:// or https://",
        ),
        (
            "http://127.0.0.1/x",
            "endpoint resolves to a loopback address: 127.0.0.1",
        ),
        (
            "http://localhost/x",
            "endpoint resolves to a loopback address: ::1",
        ),
    ] {
        for kind in ["Upstash-Callback", "Upstash-Failure-Callback"] {
            assert_eq!(refused(&[(kind, url)]), format!("invalid {kind}: {why}"));
        }
    }
    let private = refused(&[("Upstash-Callback", "http://10.0.0.1/")]);
    assert!(
        private.starts_with("invalid Upstash-Callback: "),
        "{private}"
    );
    let twice = refused(&[("Upstash-Callback", URL), ("Upstash-Callback", URL)]);
    assert_eq!(
        twice,
        "invalid Upstash-Callback: it is given more than once"
    );
}

#[test]
fn options_of_workflows_are_not_built_for_callbacks_either() {
    for option in ["Workflow-Runid", "Feature-Set"] {
        let name = format!("Upstash-Callback-{option}");
        let text = refused(&[("Upstash-Callback", URL), (&name, "x")]);
        assert_eq!(text, format!("{name} is not supported by this server yet"));
    }
}
