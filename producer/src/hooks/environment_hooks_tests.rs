use std::collections::BTreeMap;

use super::*;

const GOOD: [(&str, &str); 3] = [
    (URL, "https://policy.example/x"),
    (TOKEN, "t0ken-SECRET"),
    (EVENTS, "beforeToolCall"),
];

/// The good settings with these changes; `None` unsets.
fn with(changes: &[(&str, Option<&str>)]) -> Result<Vec<Hook>, EnvironmentError> {
    let mut environment: BTreeMap<String, String> = GOOD
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    for (name, value) in changes {
        match value {
            Some(value) => environment.insert((*name).to_owned(), (*value).to_owned()),
            None => environment.remove(*name),
        };
    }
    resolve(&environment)
}

fn refusal(changes: &[(&str, Option<&str>)]) -> String {
    with(changes).err().expect("a refusal").to_string()
}

#[test]
fn vector_160_the_list_of_events_is_trimmed_and_has_no_repeats() {
    let hooks = with(&[(
        EVENTS,
        Some(" beforeToolCall, ,afterToolCall,beforeToolCall, "),
    )])
    .unwrap();
    let types: Vec<_> = hooks.iter().map(|hook| hook.moment).collect();
    assert_eq!(types, [HookType::BeforeToolCall, HookType::AfterToolCall]);
    for hook in &hooks {
        let webhook = hook.webhook.as_ref().unwrap();
        assert!(!webhook.is_control() && webhook.on_error == OnError::Continue);
        assert!(!webhook.is_critical && hook.json.is_none());
        let authorization = &webhook.headers[0];
        assert_eq!(authorization.1, "Bearer ${AGENT_HOOK_WEBHOOK_TOKEN}");
    }
}

#[test]
fn vector_161_every_wrong_setting_is_named_and_no_value_shown() {
    let invalid = |name: &str| format!("Invalid Agent Hook environment: {name}");
    for (name, value, text) in [
        (
            TOKEN,
            None,
            "AGENT_HOOK_WEBHOOK_URL requires non-empty AGENT_HOOK_WEBHOOK_TOKEN".to_owned(),
        ),
        (TOKEN, Some(" \t "), invalid(TOKEN)),
        (TOKEN, Some(""), invalid(TOKEN)),
        (
            EVENTS,
            None,
            "AGENT_HOOK_WEBHOOK_URL requires non-empty AGENT_HOOK_WEBHOOK_EVENTS".to_owned(),
        ),
        (EVENTS, Some(" , , "), invalid(EVENTS)),
        (
            EVENTS,
            Some("beforeToolCall,..."),
            invalid("AGENT_HOOK_WEBHOOK_EVENTS.1"),
        ),
        (
            EVENTS,
            Some("onUserPrompt"),
            invalid("AGENT_HOOK_WEBHOOK_EVENTS.0"),
        ),
        (
            EVENTS,
            Some("BeforeToolCall"),
            invalid("AGENT_HOOK_WEBHOOK_EVENTS.0"),
        ),
        (URL, Some("ftp://x"), invalid(URL)),
        (URL, Some("https://u:p@x"), invalid(URL)),
        (URL, Some(""), invalid(URL)),
        (
            RESPONSE_HANDLING,
            Some("invalid"),
            invalid(RESPONSE_HANDLING),
        ),
        (
            RESPONSE_HANDLING,
            Some("toolResult"),
            invalid(RESPONSE_HANDLING),
        ),
        (
            RESPONSE_HANDLING,
            Some("toolCallAndResult"),
            invalid(RESPONSE_HANDLING),
        ),
        (RESPONSE_HANDLING, Some(""), invalid(RESPONSE_HANDLING)),
        (ON_ERROR, Some("invalid"), invalid(ON_ERROR)),
        (ON_ERROR, Some(""), invalid(ON_ERROR)),
        (
            ON_ERROR,
            Some("block"),
            "AGENT_HOOK_WEBHOOK_ON_ERROR=block requires \
             AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING=toolCall"
                .to_owned(),
        ),
    ] {
        let refusal = refusal(&[(name, value)]);
        assert_eq!(refusal, text, "{name}={value:?}");
        assert!(!refusal.contains("SECRET"), "{refusal}");
    }
    let all = refusal(&[
        (URL, Some("x")),
        (EVENTS, Some("a,b")),
        (ON_ERROR, Some("c")),
    ]);
    let expected = "Invalid Agent Hook environment: AGENT_HOOK_WEBHOOK_URL, \
                    AGENT_HOOK_WEBHOOK_EVENTS.0, AGENT_HOOK_WEBHOOK_EVENTS.1, \
                    AGENT_HOOK_WEBHOOK_ON_ERROR";
    assert_eq!(all, expected);
}

const CONTROL: (&str, Option<&str>) = (RESPONSE_HANDLING, Some("toolCall"));
const BLOCK: (&str, Option<&str>) = (ON_ERROR, Some("block"));

#[test]
fn vector_162_results_can_be_controlled_too() {
    let hooks = with(&[(EVENTS, Some("afterToolCall")), CONTROL, BLOCK]).unwrap();
    assert!(hooks[0].is_control());
}

#[test]
fn vector_163_a_control_needs_an_event_that_can_be_controlled() {
    let refusal = refusal(&[(EVENTS, Some("onToolCallError")), CONTROL]);
    assert_eq!(
        refusal,
        "AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING=toolCall requires beforeToolCall or afterToolCall in \
         AGENT_HOOK_WEBHOOK_EVENTS"
    );
}

#[test]
fn vector_164_settings_are_checked_without_a_url_too() {
    assert!(refusal(&[(URL, None), BLOCK]).contains(ON_ERROR));
    assert!(refusal(&[(URL, None), (EVENTS, Some("onError")), CONTROL]).contains("beforeToolCall"));
    assert!(refusal(&[(URL, None), (EVENTS, Some("x"))]).contains(EVENTS));
    assert!(with(&[(URL, None)]).unwrap().is_empty());
    assert!(
        with(&[(URL, None), (TOKEN, None), (EVENTS, None)])
            .unwrap()
            .is_empty()
    );
}

#[test]
fn vector_165_only_tool_calls_and_results_become_controls() {
    let events = "beforeToolCall,afterToolCall,onToolCallError";
    let hooks = with(&[(EVENTS, Some(events)), CONTROL, BLOCK]).unwrap();
    let seen: Vec<_> = hooks
        .iter()
        .map(|hook| {
            let webhook = hook.webhook.as_ref().unwrap();
            (hook.id.as_str(), webhook.is_control(), webhook.on_error)
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("server-env-webhook:beforeToolCall", true, OnError::Block),
            ("server-env-webhook:afterToolCall", true, OnError::Block),
            (
                "server-env-webhook:onToolCallError",
                false,
                OnError::Continue
            ),
        ]
    );
}

#[test]
fn a_setting_that_is_no_text_is_wrong_and_not_absent() {
    struct NotText;

    impl Environment for NotText {
        fn get(&self, _: &str) -> Option<String> {
            None
        }

        fn is_set(&self, name: &str) -> bool {
            name == URL
        }

        fn names(&self) -> Vec<String> {
            Vec::new()
        }
    }

    let refusal = resolve(&NotText).err().expect("a refusal").to_string();
    assert_eq!(
        refusal,
        "Invalid Agent Hook environment: AGENT_HOOK_WEBHOOK_URL"
    );
}
