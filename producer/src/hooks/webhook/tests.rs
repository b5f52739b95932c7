use serde_json::json;

use super::*;

#[test]
fn k26_timeouts_are_whole_milliseconds_rounded_up_and_30_seconds_unless_set() {
    for (seconds, ms) in [
        (json!(0.0001), 1),
        (json!(1.0005), 1_001),
        (json!(0.5), 500),
        (json!(2), 2_000),
        (json!(2_147_483.647), 2_147_483_647),
    ] {
        let config = WebhookConfig::parse(&json!({"url": "/x", "timeout": seconds})).unwrap();
        assert_eq!(config.timeout, Duration::from_millis(ms), "{seconds}");
    }
    let config = WebhookConfig::parse(&json!({"url": "/x"})).unwrap();
    assert_eq!(config.timeout, Duration::from_secs(30));
}

#[test]
fn the_builder_writes_only_what_was_said_and_all_of_it_is_read_back() {
    let body = json!({"ticket": 42});
    let webhook = Webhook::to("/done")
        .durable()
        .critical()
        .timeout(Duration::from_millis(1_500))
        .header("A", "1")
        .header("B", "${X}")
        .allow_env_var("X")
        .body(body.as_object().unwrap().clone())
        .event_fields(["operationId"]);
    let json = Value::from(webhook);
    let expected = json!({
        "url": "/done", "delivery": "qstash", "fallback": "none", "timeout": 1.5,
        "headers": {"A": "1", "B": "${X}"}, "allowedEnvVars": ["X"], "body": {"ticket": 42},
        "eventFields": ["operationId"],
    });
    assert_eq!(json.to_string(), expected.to_string());
    let config = WebhookConfig::parse(&json).unwrap();
    assert!(config.is_critical && config.delivery == Delivery::Queue);
    assert_eq!(
        Value::from(Webhook::to("/x")).to_string(),
        r#"{"url":"/x"}"#
    );
}

#[test]
fn what_is_shown_of_a_webhook_holds_no_value_of_a_header_and_no_query() {
    let body = json!({"note": "CANARY"});
    let webhook = Webhook::to("https://user.test/hook?key=CANARY#CANARY")
        .header("Authorization", "Bearer CANARY")
        .body(body.as_object().unwrap().clone());
    let config = WebhookConfig::parse(&Value::from(webhook.clone())).unwrap();
    for shown in [format!("{webhook:?}"), format!("{config:?}")] {
        assert!(!shown.contains("CANARY"), "{shown}");
        assert!(shown.contains("user.test/hook") && shown.contains("Authorization"));
    }
    let broken = Webhook::from_json(json!(["CANARY"]));
    assert!(!format!("{broken:?}").contains("CANARY"));
}

#[test]
fn a_callers_hook_cannot_send_what_is_the_operators_own() {
    for name in [
        "AGENT_HOOK_WEBHOOK_TOKEN",
        "VERCEL_AUTOMATION_BYPASS_SECRET",
    ] {
        let json = json!({
            "url": "https://elsewhere.test/", "headers": {"A": format!("${{{name}}}")},
            "allowedEnvVars": ["MINE", name],
        });
        let refusal = WebhookConfig::parse(&json).unwrap_err().to_string();
        let expected = "Invalid webhook allowedEnvVars.1: expected a variable that is not the \
                        operator's own";
        assert_eq!(refusal, expected);
    }
}
