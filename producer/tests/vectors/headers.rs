//! 25.5, first half: header templates.

use hookstash_producer::hooks::*;

use crate::support::*;

/// A scene, and the header that its receiver got for this template, or how the delivery failed.
async fn sent(
    template: &str,
    allowed: &[&str],
    variables: &[(&str, &str)],
) -> Result<Option<String>, DeliveryError> {
    let scene = Scene::local(Receiver::start());
    for (name, value) in variables {
        scene.environment.set(name, value);
    }
    let mut webhook = Webhook::to(scene.url("/h")).header("X-Key", template);
    for name in allowed {
        webhook = webhook.allow_env_var(*name);
    }
    let result = scene.deliver(webhook).await;
    let count = scene.receiver.count();
    assert_eq!(
        count,
        usize::from(result.is_ok()),
        "an error is found before anything is sent"
    );
    result.map(|()| {
        scene.receiver.received()[0]
            .header("x-key")
            .map(str::to_owned)
    })
}

fn is_configuration(result: &Result<Option<String>, DeliveryError>) -> bool {
    matches!(result, Err(error) if error.to_string() == "Hook HTTP request failed: configuration")
}

#[tokio::test]
async fn vector_061_a_template_is_filled_at_every_send_and_stays_as_it_is() {
    let scene = Scene::local(Receiver::start());
    scene.environment.set("HOOK_TOKEN", "first-secret");
    let webhook = Webhook::to(scene.url("/h"))
        .header("Authorization", "Bearer ${HOOK_TOKEN}")
        .allow_env_var("HOOK_TOKEN");
    scene.register(vec![AgentHook::webhook("h", HookType::OnComplete, webhook)]);
    scene.complete().await.unwrap();
    scene.environment.set("HOOK_TOKEN", "second-secret");
    scene.complete().await.unwrap();
    let received = scene.receiver.received();
    assert_eq!(
        received[0].header("authorization"),
        Some("Bearer first-secret")
    );
    assert_eq!(
        received[1].header("authorization"),
        Some("Bearer second-secret")
    );
    let stored = serde_json::to_string(&scene.hooks.serialized(OP)).unwrap();
    assert!(
        stored.contains("${HOOK_TOKEN}") && !stored.contains("secret"),
        "{stored}"
    );
}

#[tokio::test]
async fn vector_062_a_variable_that_is_not_allowed_is_a_configuration_error() {
    let result = sent("Bearer ${HOOK_TOKEN}", &[], &[("HOOK_TOKEN", "SECRET")]).await;
    assert!(is_configuration(&result), "{result:?}");
}

#[tokio::test]
async fn vector_063_a_variable_that_is_not_set_is_a_configuration_error() {
    let result = sent("Bearer ${HOOK_TOKEN}", &["HOOK_TOKEN"], &[]).await;
    assert!(is_configuration(&result), "{result:?}");
}

#[tokio::test]
async fn vector_064_an_empty_variable_is_fine() {
    let result = sent(
        "Bearer ${HOOK_TOKEN}",
        &["HOOK_TOKEN"],
        &[("HOOK_TOKEN", "")],
    )
    .await;
    assert_eq!(result.unwrap().as_deref(), Some("Bearer"));
}

#[tokio::test]
async fn vector_065_broken_templates_are_configuration_errors() {
    for template in ["${NOPE}", "bad\r\nsecret", "${broken"] {
        let result = sent(template, &["broken"], &[("broken", "x")]).await;
        assert!(is_configuration(&result), "{template:?}: {result:?}");
    }
}

#[tokio::test]
async fn vector_066_headers_that_belong_to_the_delivery_are_configuration_errors() {
    for name in [
        "Host",
        "Content-Length",
        "Upstash-Callback",
        "proxy-authorization",
        "Sec-Fetch-Mode",
        "CONNECTION",
        "transfer-encoding",
        "Trailer",
        "Upgrade",
        "keep-alive",
        "Expect",
    ] {
        let scene = Scene::local(Receiver::start());
        let failure = scene
            .failure(Webhook::to(scene.url("/h")).header(name, "x"))
            .await;
        assert_eq!(failure.code, HookErrorCode::Configuration, "{name}");
        assert_eq!(scene.receiver.count(), 0);
    }
}

#[tokio::test]
async fn vector_067_variables_are_named_exactly_and_only_in_braces() {
    let variables = [("HOOK_TOKEN", "SECRET")];
    let result = sent("${ HOOK_TOKEN }", &["HOOK_TOKEN"], &variables).await;
    assert!(is_configuration(&result), "{result:?}");
    let result = sent("$HOOK_TOKEN", &["HOOK_TOKEN"], &variables).await;
    assert_eq!(result.unwrap().as_deref(), Some("$HOOK_TOKEN"));
}

#[tokio::test]
async fn vector_068_values_that_break_a_header_are_configuration_errors() {
    for value in ["a${b}", "a\rb", "a\nb", "a\0b"] {
        let result = sent("${A}", &["A"], &[("A", value)]).await;
        assert!(is_configuration(&result), "{value:?}: {result:?}");
    }
}

#[tokio::test]
async fn vector_069_blanks_around_a_value_go_and_what_is_not_latin_1_is_refused() {
    assert_eq!(sent("  v  ", &[], &[]).await.unwrap().as_deref(), Some("v"));
    assert!(is_configuration(&sent("中", &[], &[]).await));
    let scene = Scene::local(Receiver::start());
    let failure = scene
        .failure(Webhook::to(scene.url("/h")).header("bad name", "x"))
        .await;
    assert_eq!(failure.code, HookErrorCode::Configuration);
}

#[tokio::test]
async fn vector_070_a_later_header_of_the_same_name_wins() {
    let scene = Scene::local(Receiver::start());
    let webhook = Webhook::to(scene.url("/h"))
        .header("X-A", "1")
        .header("x-a", "2");
    scene.deliver(webhook).await.unwrap();
    let received = &scene.receiver.received()[0];
    let named = received
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("x-a"));
    let values: Vec<_> = named.map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["2"]);
}

#[tokio::test]
async fn vector_071_the_content_type_of_a_direct_call_can_be_set() {
    let scene = Scene::local(Receiver::start());
    let plain = Webhook::to(scene.url("/h"));
    scene.deliver(plain.clone()).await.unwrap();
    scene
        .deliver(plain.header("Content-Type", "text/plain"))
        .await
        .unwrap();
    let received = scene.receiver.received();
    assert_eq!(received[0].header("content-type"), Some("application/json"));
    assert_eq!(received[1].header("content-type"), Some("text/plain"));
}

#[tokio::test]
async fn k14_every_form_of_a_token_is_sent_whole_or_not_at_all() {
    let variables = [("T", "v")];
    for (template, allowed, set, expected) in [
        ("Bearer ${T}", true, true, Some("Bearer v")),
        ("Bearer ${T}", true, false, None),
        ("Bearer ${T}", false, true, None),
        ("${T}${T}", true, true, Some("vv")),
        ("$T", true, true, Some("$T")),
        ("${}", true, true, None),
        ("${T:-x}", true, true, None),
        ("$${T}", true, true, Some("$v")),
    ] {
        let allowed: &[&str] = if allowed { &["T"] } else { &[] };
        let variables: &[(&str, &str)] = if set { &variables } else { &[] };
        let result = sent(template, allowed, variables).await;
        match expected {
            Some(value) => assert_eq!(result.unwrap().as_deref(), Some(value), "{template}"),
            None => assert!(is_configuration(&result), "{template}: {result:?}"),
        }
    }
}

#[tokio::test]
async fn our_own_secrets_fill_no_template() {
    for name in ["HOOKSTASH_SECRET_KEY", "QSTASH_TOKEN", "REDIS_URL"] {
        let result = sent(&format!("${{{name}}}"), &[name], &[(name, "SECRET")]).await;
        assert!(is_configuration(&result), "{name}: {result:?}");
    }
}
