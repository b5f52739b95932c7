//! Rows "Hooks and decisions" of the public reports, as far as they are not a vector already. Others
//! stand where their subject is: `k04` in `controls`, `k09` and `k11` with the matcher, `k14` in
//! `headers`.

use hookstash_producer::hooks::*;
use serde_json::json;

use crate::controls::blocked;
use crate::support::*;

async fn asked(body: &str, on_error: OnError) -> (Verdict, String) {
    let logs = Logs::capture();
    let scene = Scene::local(Receiver::always(Answer::ok().body(body)));
    scene.register(vec![
        scene.control("guard", on_error),
        scene.control("next", on_error),
    ]);
    (scene.evaluate().await, logs.text())
}

#[tokio::test]
async fn k01_a_deny_in_the_wrong_place_is_no_decision_and_the_log_says_so() {
    let (verdict, _) = asked(r#"{"decision":"deny"}"#, OnError::Block).await;
    assert_eq!(verdict, blocked("Blocked by beforeToolCall hook."));
    for body in [
        r#"{"hookSpecificOutput":{"permissionDecision":"deny"}}"#,
        r#"[{"decision":"deny"}]"#,
        r#""deny""#,
        "null",
        "{}",
        "",
    ] {
        let (verdict, log) = asked(body, OnError::Block).await;
        assert_eq!(verdict, Verdict::Allow, "{body}");
        let told = log
            .lines()
            .filter(|line| line.contains("no decision"))
            .count();
        assert_eq!(told, 2, "{body}: of both controls");
        assert!(log.contains("\"guard\""), "{log}");
    }
}

#[tokio::test]
async fn k02_a_deny_counts_for_every_kind_of_tool_also_in_parallel() {
    let scene = Scene::local(Receiver::always(
        Answer::ok().body(r#"{"decision":"deny"}"#),
    ));
    scene.register(vec![scene.control("guard", OnError::Block)]);
    let tools = [
        "builtin/read",
        "my-server/read_file",
        "sandbox/exec",
        "mcp__x__y/z",
    ];
    let calls = tools.into_iter().flat_map(|tool| {
        [Executor::Server, Executor::Client].map(|executor| ToolCall {
            executor,
            ..call(tool)
        })
    });
    let verdicts = calls.map(|call| scene.evaluate_call(call));
    for verdict in futures::future::join_all(verdicts).await {
        assert_eq!(verdict, blocked("Blocked by beforeToolCall hook."));
    }
    assert_eq!(scene.receiver.count(), 8);
}

#[tokio::test]
async fn k06_noise_around_the_json_is_told_with_the_name_of_the_hook() {
    for body in [
        "hello\n{\"decision\":\"deny\"}",
        "{\"decision\":\"deny\"} trailing",
        "{\"decision\":\"deny\"}{\"decision\":\"deny\"}",
        "<!doctype html><p>deny",
    ] {
        let (verdict, log) = asked(body, OnError::Block).await;
        assert_eq!(verdict, Verdict::Allow, "{body}");
        let warning = log
            .lines()
            .find(|line| line.contains("not JSON"))
            .expect("a warning");
        assert!(
            warning.contains("WARN") && warning.contains("\"guard\""),
            "{warning}"
        );
    }
    let (verdict, _) = asked("{\"decision\":\"deny\"}\r\n ", OnError::Block).await;
    assert_eq!(verdict, blocked("Blocked by beforeToolCall hook."));
}

#[tokio::test]
async fn k11_a_bad_matcher_is_refused_by_id_and_place_and_good_hooks_go_on() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("good", HookType::AfterToolCall)]);
    let huge = "a".repeat(1024 * 1024);
    for matcher in ["[", "(", "**", "a{2,1}", huge.as_str()] {
        let hooks = vec![
            scene.hook("fine", HookType::AfterToolCall),
            scene
                .hook("bad-rule", HookType::AfterToolCall)
                .matching(matcher),
        ];
        let error = scene.hooks.register(OP, hooks).unwrap_err().to_string();
        assert!(
            error.starts_with("hook 1 (\"bad-rule\"): Invalid hook matcher"),
            "{error}"
        );
        assert!(error.len() < 300, "{error}");
    }
    scene.dispatch(after("fs/x")).await.unwrap();
    assert_eq!(scene.paths(), ["/good"]);
}

#[tokio::test]
async fn k16_templates_stand_in_headers_only() {
    let scene = Scene::local(Receiver::start());
    for url in ["https://${H}/x", "https://h/${P}", "/${P}"] {
        let hook = AgentHook::webhook("h", HookType::OnComplete, Webhook::to(url));
        let error = scene
            .hooks
            .register(OP, vec![hook])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("Webhook URL cannot contain ${VAR}"),
            "{error}"
        );
    }
    scene.register(vec![
        scene.hook("m", HookType::AfterToolCall).matching("${M}"),
    ]);
}

#[tokio::test]
async fn k20_a_callers_hook_and_the_operators_fire_once_each() {
    let scene = Scene::local(Receiver::start());
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_URL", &scene.url("/same"));
    scene.environment.set("AGENT_HOOK_WEBHOOK_TOKEN", "t");
    let events = " afterToolCall,afterToolCall, ,onComplete ";
    scene.environment.set("AGENT_HOOK_WEBHOOK_EVENTS", events);
    let webhook = Webhook::to(scene.url("/same"));
    scene.register(vec![AgentHook::webhook(
        "same",
        HookType::AfterToolCall,
        webhook,
    )]);
    scene.dispatch(after("fs/x")).await.unwrap();
    let ids: Vec<_> = scene
        .bodies()
        .into_iter()
        .map(|body| body["hookId"].clone())
        .collect();
    assert_eq!(ids, ["same", "server-env-webhook:afterToolCall"]);
}

#[tokio::test]
async fn k23_a_reason_is_kept_as_it_is_or_made_up_when_there_is_none() {
    let long = "x".repeat(64 * 1024 - r#"{"decision":"deny","reason":""}"#.len());
    for (reason, expected) in [
        (None, "Blocked by beforeToolCall hook."),
        (Some(""), "Blocked by beforeToolCall hook."),
        (Some("   "), "   "),
        (Some("two\nlines"), "two\nlines"),
        (Some("**no** `x` <b>"), "**no** `x` <b>"),
        (Some("🚫 nein"), "🚫 nein"),
        (Some(&*long), &*long),
    ] {
        let mut answer = json!({"decision": "deny"});
        if let Some(reason) = reason {
            answer["reason"] = reason.into();
        }
        let (verdict, _) = asked(&answer.to_string(), OnError::Block).await;
        assert_eq!(verdict, blocked(expected));
    }
}

#[tokio::test]
async fn k27_results_that_failed_or_were_mocked_reach_the_after_hook_and_errors_the_error_hook() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![
        scene.hook("after", HookType::AfterToolCall),
        scene.hook("error", HookType::OnToolCallError),
    ]);
    let mut failed = after("fs/x");
    failed.result.success = false;
    let mut mocked = after("fs/x");
    mocked.mocked = true;
    scene.dispatch(failed).await.unwrap();
    scene.dispatch(mocked).await.unwrap();
    scene
        .dispatch(event(HookType::OnToolCallError))
        .await
        .unwrap();
    assert_eq!(scene.paths(), ["/after", "/after", "/error"]);
    let bodies = scene.bodies();
    assert_eq!(
        (&bodies[0]["result"]["success"], &bodies[0]["mocked"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(
        (&bodies[1]["result"]["success"], &bodies[1]["mocked"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(bodies[2]["error"], "no");
}

#[tokio::test]
async fn k29_settings_that_are_half_there_refuse_the_start_by_name() {
    let all = [
        ("AGENT_HOOK_WEBHOOK_URL", "https://policy.example/x"),
        ("AGENT_HOOK_WEBHOOK_TOKEN", "SECRET"),
        ("AGENT_HOOK_WEBHOOK_EVENTS", "beforeToolCall"),
    ];
    for (name, value) in [
        ("AGENT_HOOK_WEBHOOK_TOKEN", None),
        ("AGENT_HOOK_WEBHOOK_TOKEN", Some("   ")),
        ("AGENT_HOOK_WEBHOOK_EVENTS", Some("beforeTool")),
        ("AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING", Some("toolResult")),
        ("AGENT_HOOK_WEBHOOK_ON_ERROR", Some("block")),
    ] {
        let environment = Variables::of(&all);
        match value {
            Some(value) => environment.set(name, value),
            None => environment.unset(name),
        }
        let http = http(
            environment.clone(),
            hookstash_shared::http::EgressPolicy::default(),
        );
        let clock = std::sync::Arc::new(hookstash_shared::clock::SystemClock::new());
        let built = HookDispatcher::builder(Mode::Local, http, environment, clock).build();
        let error = built.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains("SECRET"), "{error}");
    }
    let environment = Variables::of(&all);
    environment.set("AGENT_HOOK_WEBHOOK_URL", "/relative");
    assert_eq!(check_environment(&*environment), Ok(()));
}
