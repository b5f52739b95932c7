//! 25.2 and 25.3: the configuration of webhooks, and matchers as callers meet them.

use hookstash_producer::hooks::*;
use serde_json::{Value, json};

use crate::support::*;

fn read(hook: Value) -> Result<PersistedHooks, String> {
    PersistedHooks::from_json(Value::Array(vec![hook])).map_err(|error| {
        let reason = error.hook_error().map(ToString::to_string);
        reason.unwrap_or_else(|| error.to_string())
    })
}

fn webhook(hook_type: &str, webhook: Value) -> Result<PersistedHooks, String> {
    let mut hook = json!({"id": "h", "type": hook_type});
    hook["webhook"] = webhook;
    read(hook)
}

fn control(extra: Value) -> Result<PersistedHooks, String> {
    let mut config = object(&json!({"url": "/hook", "responseHandling": "toolCall"}));
    if let Value::Object(extra) = extra {
        config.extend(extra);
    }
    webhook("beforeToolCall", config.into())
}

#[test]
fn vector_021_a_control_round_trips_with_its_template_and_key_order() {
    let text = r#"[{"matcher":"^files/","webhook":{"onError":"block","url":"/policy","allowedEnvVars":["POLICY_KEY"],"headers":{"Z":"1","Authorization":"Bearer ${POLICY_KEY}"},"timeout":2,"fallback":"none","delivery":"fetch","responseHandling":"toolCall"},"type":"beforeToolCall","id":"policy"}]"#;
    let hooks = PersistedHooks::from_json(serde_json::from_str(text).unwrap()).unwrap();
    assert_eq!(serde_json::to_string(&hooks).unwrap(), text);
    let again = PersistedHooks::from_json(serde_json::to_value(&hooks).unwrap()).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), text);
}

#[test]
fn vector_022_every_type_takes_a_webhook_that_shapes_its_payload() {
    for hook_type in HookType::ALL {
        let config = json!({
            "url": "/hook", "body": {"custom": true}, "eventFields": ["operationId"],
            "fallback": "none",
        });
        assert!(webhook(hook_type.as_str(), config).is_ok(), "{hook_type}");
    }
}

#[test]
fn vector_023_only_tool_calls_and_their_results_can_be_controlled() {
    let config = json!({"url": "/hook", "responseHandling": "toolCall"});
    for hook_type in HookType::ALL {
        let read = webhook(hook_type.as_str(), config.clone());
        if hook_type.is_controllable() {
            assert!(read.is_ok(), "{hook_type}");
        } else {
            let text = "toolCall response handling requires beforeToolCall or afterToolCall";
            assert_eq!(read.unwrap_err(), text, "{hook_type}");
        }
    }
}

#[test]
fn vector_024_a_control_cannot_be_queued() {
    let refusal = control(json!({"delivery": "qstash"})).unwrap_err();
    assert_eq!(
        refusal,
        "toolCall response handling requires fetch delivery"
    );
}

#[test]
fn vector_025_a_control_cannot_select_fields_not_even_none() {
    let refusal = control(json!({"eventFields": []})).unwrap_err();
    assert_eq!(
        refusal,
        "Control hooks cannot filter or override the event payload"
    );
}

#[test]
fn vector_026_a_control_cannot_add_fields_not_even_none() {
    let refusal = control(json!({"body": {}})).unwrap_err();
    assert_eq!(
        refusal,
        "Control hooks cannot filter or override the event payload"
    );
}

#[test]
fn vector_027_timeouts_are_seconds_within_31_bits_of_milliseconds() {
    for (timeout, is_valid) in [
        ("0", false),
        ("-1", false),
        ("2147484", false),
        ("2147483.648", false),
        ("\"5\"", false),
        ("\"30\"", false),
        ("\"NaN\"", false),
        ("null", false),
        ("true", false),
        ("2147483.647", true),
        ("0.0001", true),
        ("0.5", true),
        ("5", true),
        ("5.0", true),
    ] {
        let text = format!(r#"{{"url":"/hook","timeout":{timeout}}}"#);
        let read = webhook("onComplete", serde_json::from_str(&text).unwrap());
        assert_eq!(read.is_ok(), is_valid, "{timeout}");
        if let Err(refusal) = read {
            assert!(refusal.contains("timeout"), "{refusal}");
        }
    }
    // Infinity does not even get through the JSON.
    assert!(serde_json::from_str::<Value>(r#"{"timeout":1e999}"#).is_err());
}

#[test]
fn vector_028_urls_that_are_neither_http_nor_a_path_are_refused() {
    for url in [
        "file:///etc/passwd",
        "//evil.example/path",
        "https://name:password@example.com",
        "https://name@example.com",
        "ftp://x",
        "javascript:alert(1)",
        "a/b",
        "?q",
        "/a\\b",
        "https:\\\\x",
        "http://",
        "",
    ] {
        let refusal = webhook("onComplete", json!({"url": url})).unwrap_err();
        let text =
            "Webhook URL must be HTTP(S) or an application-relative path without credentials";
        assert_eq!(refusal, text, "{url}");
    }
    assert!(webhook("onComplete", json!({})).is_err());
    assert!(webhook("onComplete", json!({"url": null})).is_err());
}

#[test]
fn vector_029_odd_but_valid_urls_are_taken() {
    for url in [
        "/api/hook",
        "/",
        "/a?b=c",
        "http://webhook-service/ingress",
        "https://@x",
        "HTTP://x",
        "http:x",
        "http:/x",
        " https://x ",
        "http://127.1",
        "http://0x7f.1",
    ] {
        assert!(webhook("onComplete", json!({"url": url})).is_ok(), "{url}");
    }
}

#[test]
fn vector_030_unknown_keys_and_nulls_are_refused() {
    let refusal = webhook("onComplete", json!({"url": "/x", "surprise": true})).unwrap_err();
    assert_eq!(refusal, "Unrecognized key in webhook: \"surprise\"");
    for key in [
        "timeout",
        "delivery",
        "fallback",
        "headers",
        "allowedEnvVars",
        "body",
        "eventFields",
        "responseHandling",
        "onError",
    ] {
        let mut config = object(&json!({"url": "/x"}));
        config.insert(key.to_owned(), Value::Null);
        let refusal = webhook("onComplete", config.into()).unwrap_err();
        assert!(
            refusal.starts_with(&format!("Invalid webhook {key}")),
            "{refusal}"
        );
    }
    let hook = json!({"id": "h", "type": "onComplete", "webhook": {"url": "/x"}, "name": "x"});
    assert_eq!(
        read(hook).unwrap_err(),
        "Unrecognized key in hook: \"name\""
    );
    assert!(read(json!({"id": "h", "type": "onComplete", "webhook": null})).is_err());
}

#[test]
fn vector_031_only_a_control_can_block() {
    let refusal = webhook("onComplete", json!({"url": "/hook", "onError": "block"})).unwrap_err();
    assert_eq!(refusal, "onError:block requires toolCall response handling");
    assert!(webhook("onComplete", json!({"url": "/hook", "onError": "continue"})).is_ok());
}

#[test]
fn vector_032_an_unknown_handling_of_a_persisted_hook_is_refused_not_ignored() {
    let config = json!({"url": "/hook", "responseHandling": "futureControl"});
    let refusal = webhook("beforeToolCall", config).unwrap_err();
    assert!(refusal.contains("responseHandling"), "{refusal}");
    for removed in ["toolResult", "toolCallAndResult"] {
        let config = json!({"url": "/hook", "responseHandling": removed});
        let refusal = webhook("afterToolCall", config).unwrap_err();
        assert!(
            refusal.contains(removed) && refusal.contains("use \"toolCall\""),
            "{refusal}"
        );
    }
}

#[test]
fn vector_033_allow_lists_hold_variable_names() {
    for name in ["A", "a_1", "_"] {
        let config = json!({"url": "/x", "allowedEnvVars": [name]});
        assert!(webhook("onComplete", config).is_ok(), "{name}");
    }
    for name in ["1A", "A-B", "", "A B", "É"] {
        let config = json!({"url": "/x", "allowedEnvVars": ["OK", name]});
        let refusal = webhook("onComplete", config).unwrap_err();
        assert!(refusal.contains("allowedEnvVars.1"), "{refusal}");
    }
}

#[test]
fn vector_034_matchers_are_for_tool_events() {
    for hook_type in HookType::ALL {
        for matcher in ["", "*", "^fs/readFile$"] {
            let hook = json!({
                "id": "h", "type": hook_type, "webhook": {"url": "/x"}, "matcher": matcher,
            });
            assert_eq!(
                read(hook).is_ok(),
                hook_type.is_tool_event(),
                "{hook_type} {matcher}"
            );
        }
    }
}

/// Whether a hook with `matcher` is called for `tool`.
async fn is_called(matcher: Option<&str>, tool: &str) -> bool {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    let mut hook = noting::<AfterToolCall>("h", &notes);
    if let Some(matcher) = matcher {
        hook = hook.matching(matcher);
    }
    scene.register(vec![hook]);
    scene.dispatch(after(tool)).await.unwrap();
    !notes.all().is_empty()
}

#[tokio::test]
async fn vector_035_an_absent_or_empty_matcher_and_a_star_match_every_tool() {
    for matcher in [None, Some(""), Some("*")] {
        for tool in ["fs/readFile", "x/y", "/"] {
            assert!(is_called(matcher, tool).await, "{matcher:?} {tool}");
        }
    }
}

#[tokio::test]
async fn vector_036_a_matcher_keeps_no_state() {
    let scene = Scene::local(Receiver::start());
    let notes = Notes::default();
    scene.register(vec![
        noting::<AfterToolCall>("h", &notes).matching("^fs/read"),
    ]);
    for _ in 0..3 {
        scene.dispatch(after("fs/readFile")).await.unwrap();
    }
    assert_eq!(notes.all().len(), 3);
    assert!(!is_called(Some("^fs/read"), "fs/writeFile").await);
    assert!(!is_called(Some("^fs/read"), "http/readFile").await);
}

#[tokio::test]
async fn vector_037_anchored_alternatives_match_whole_names() {
    let matcher = Some("^(fs/readFile|http/get)$");
    for (tool, matches) in [
        ("fs/readFile", true),
        ("http/get", true),
        ("fs/get", false),
        ("http/readFile", false),
    ] {
        assert_eq!(is_called(matcher, tool).await, matches, "{tool}");
    }
}

#[tokio::test]
async fn vector_038_a_matcher_is_found_anywhere() {
    assert!(is_called(Some("read"), "fs/readFile").await);
}

#[tokio::test]
async fn vector_039_a_matcher_is_case_sensitive() {
    assert!(!is_called(Some("FS/"), "fs/x").await);
}

#[tokio::test]
async fn vector_041_a_star_inside_a_matcher_is_no_glob() {
    assert!(is_called(Some("fs/*"), "fs/readFile").await);
    assert!(is_called(Some("fs/*"), "fsx/y").await);
}

#[test]
fn vector_042_syntax_is_judged_as_javascript_does_without_flags() {
    let matcher = |pattern: &str| {
        read(json!({
            "id": "h", "type": "beforeToolCall", "webhook": {"url": "/x"}, "matcher": pattern,
        }))
    };
    assert!(matcher("(?i)fs").is_err());
    for pattern in ["(?<=x)y", r"\p{L}", "{", "a{"] {
        assert!(matcher(pattern).is_ok(), "{pattern}");
    }
}

#[tokio::test]
async fn vector_043_one_bad_matcher_refuses_the_whole_persisted_list() {
    let receiver = Receiver::start();
    let good = json!({"id": "g", "type": "onComplete", "webhook": {"url": receiver.url("/g")}});
    let bad = json!({
        "id": "b", "type": "beforeToolCall", "matcher": "[", "webhook": {"url": receiver.url("/b")},
    });
    let error = PersistedHooks::from_json(json!([good, bad])).unwrap_err();
    assert!(error.to_string().contains("hook 1 (\"b\")"), "{error}");
    assert_eq!(receiver.count(), 0);
}
