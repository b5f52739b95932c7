//! 25.8: asking controls, by receivers that behave and by those that do not.

use std::sync::Arc;
use std::time::Duration;

use hookstash_producer::hooks::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::*;

const ALLOW: &str = r#"{"decision":"allow"}"#;
const DENY: &str = r#"{"decision":"deny","reason":"R"}"#;

fn allow() -> Answer {
    Answer::ok().body(ALLOW)
}

fn deny() -> Answer {
    Answer::ok().body(DENY)
}

pub(crate) fn blocked(reason: &str) -> Verdict {
    Verdict::Blocked {
        reason: reason.to_owned(),
    }
}

/// A receiver that answers by path.
fn by_path(answers: &[(&'static str, Answer)]) -> Receiver {
    let answers = answers.to_vec();
    Receiver::with(move |request| {
        let mut found = answers.iter().filter(|(path, _)| *path == request.path);
        found
            .next()
            .map_or_else(Answer::ok, |(_, answer)| answer.clone())
    })
}

#[tokio::test]
async fn vector_117_the_first_deny_ends_it() {
    let scene = Scene::local(by_path(&[
        ("/one", allow()),
        ("/two", deny()),
        ("/three", allow()),
    ]));
    let control = |id| scene.control(id, OnError::Continue);
    scene.register(vec![control("one"), control("two"), control("three")]);
    assert_eq!(scene.evaluate().await, blocked("R"));
    assert_eq!(scene.paths(), ["/one", "/two"]);
}

#[tokio::test]
async fn vector_118_controls_for_other_tools_are_not_asked() {
    let scene = Scene::local(by_path(&[("/allow", allow()), ("/deny", deny())]));
    let control = |id| scene.control(id, OnError::Continue);
    let skipped = control("skip").matching("^other/");
    scene.register(vec![
        control("allow"),
        skipped,
        control("deny"),
        control("unreached"),
    ]);
    assert_eq!(scene.evaluate().await, blocked("R"));
    assert_eq!(scene.paths(), ["/allow", "/deny"]);
}

#[tokio::test]
async fn vector_119_no_decision_lets_the_next_control_be_asked() {
    let scene = Scene::local(by_path(&[("/one", Answer::status(204)), ("/two", deny())]));
    let control = |id| scene.control(id, OnError::Block);
    scene.register(vec![control("one"), control("two")]);
    assert_eq!(scene.evaluate().await, blocked("R"));
    assert_eq!(scene.paths(), ["/one", "/two"]);
}

#[tokio::test]
async fn vector_120_an_error_blocks_or_does_not_as_the_hook_says() {
    for (on_error, expected) in [
        (OnError::Block, blocked("hook_control_error")),
        (OnError::Continue, Verdict::Allow),
    ] {
        let scene = Scene::local(Receiver::always(Answer::status(503)));
        scene.register(vec![scene.control("c", on_error)]);
        assert_eq!(scene.evaluate().await, expected);
    }
}

#[tokio::test]
async fn vector_121_a_control_that_runs_out_of_time_is_asked_once() {
    for (on_error, expected) in [
        (OnError::Block, blocked("hook_control_error")),
        (OnError::Continue, Verdict::Allow),
    ] {
        let scene = Scene::local(Receiver::always(Answer::hang()));
        let webhook = Webhook::to(scene.url("/c"))
            .timeout(Duration::from_millis(300))
            .control(on_error);
        scene.register(vec![AgentHook::webhook(
            "c",
            HookType::BeforeToolCall,
            webhook,
        )]);
        assert_eq!(scene.evaluate().await, expected);
        assert_eq!(scene.receiver.count(), 1);
    }
}

async fn cancelled_while<F: Future<Output = ()>>(
    scene: &Scene,
    user: &str,
    during: impl FnOnce(CancellationToken) -> F,
) -> Verdict {
    let cancel = CancellationToken::new();
    let mut event = call("fs/readFile");
    event.user_id = Some(user.to_owned());
    let included = EnvironmentHooks::Included;
    let evaluation = scene.hooks.evaluate(event, None, included, &cancel);
    let (verdict, ()) = tokio::join!(evaluation, during(cancel.clone()));
    verdict.unwrap()
}

#[tokio::test]
async fn vector_122_a_cancelled_operation_asks_nobody() {
    let scene = Scene::local(Receiver::always(allow()));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let included = EnvironmentHooks::Included;
    let evaluate = async || {
        let event = call("fs/readFile");
        scene
            .hooks
            .evaluate(event, None, included, &cancel)
            .await
            .unwrap()
    };
    assert_eq!(
        evaluate().await,
        Verdict::Cancelled,
        "without any control too"
    );
    scene.register(vec![scene.control("c", OnError::Continue)]);
    assert_eq!(evaluate().await, Verdict::Cancelled);
    assert!(scene.receiver.count() == 0 && scene.users.asked().is_empty());
}

#[tokio::test]
async fn vector_123_a_cancellation_while_the_e_mail_is_looked_up_sends_nothing() {
    let scene = Scene::local(Receiver::always(allow()));
    scene.register(vec![scene.control("c", OnError::Continue)]);
    let users = Arc::clone(&scene.users);
    let sibling = cancelled_while(&scene, "slow1", async |_| {});
    let cancelled = cancelled_while(&scene, "slow1", async |cancel| {
        while users.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cancel.cancel();
    });
    let release = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(scene.receiver.count(), 0);
        scene.users.let_go();
    };
    let (sibling, cancelled, ()) = tokio::join!(sibling, cancelled, release);
    assert_eq!((sibling, cancelled), (Verdict::Allow, Verdict::Cancelled));
    assert_eq!(scene.receiver.count(), 1, "the sibling's");
    assert_eq!(scene.users.asked().len(), 1, "they shared the lookup");
}

#[tokio::test]
async fn vector_124_a_cancellation_wins_over_an_allow_that_comes_with_it() {
    let cancel = CancellationToken::new();
    let shared = cancel.clone();
    let scene = Scene::local(Receiver::with(move |_| {
        shared.cancel();
        allow()
    }));
    scene.register(vec![scene.control("c", OnError::Continue)]);
    let included = EnvironmentHooks::Included;
    let verdict = scene
        .hooks
        .evaluate(call("fs/x"), None, included, &cancel)
        .await;
    assert_eq!(verdict.unwrap(), Verdict::Cancelled);
}

#[tokio::test]
async fn vector_125_a_cancellation_during_the_call_wins_over_continue() {
    for on_error in [OnError::Continue, OnError::Block] {
        let scene = Scene::local(Receiver::always(Answer::hang()));
        scene.register(vec![scene.control("c", on_error)]);
        let verdict = cancelled_while(&scene, "u1", async |cancel| {
            scene.receiver.wait_for(1, SOON).await;
            cancel.cancel();
        });
        assert_eq!(verdict.await, Verdict::Cancelled);
    }
}

#[tokio::test]
async fn vector_126_a_control_gets_the_whole_context_and_the_true_address() {
    let scene = Scene::local(Receiver::always(allow()));
    scene.register(vec![scene.control("policy", OnError::Block)]);
    assert_eq!(scene.evaluate().await, Verdict::Allow);
    let expected = json!({
        "agentId": "a1", "apiName": "readFile", "args": {"path": "x"},
        "assistantMessageId": "m1", "callIndex": 1, "executor": "server", "identifier": "fs",
        "operationId": "op", "stepIndex": 0, "toolCallId": "call_9", "userId": "u1",
        "hookId": "policy", "hookType": "beforeToolCall", "userEmail": "u1@mail.test",
    });
    assert_eq!(
        scene.receiver.received()[0].text(),
        expected.to_string(),
        "in this order"
    );
}

#[tokio::test]
async fn vector_127_a_failed_lookup_keeps_no_control_from_being_asked() {
    let logs = Logs::capture();
    let scene = Scene::local(Receiver::always(deny()));
    scene.register(vec![scene.control("c", OnError::Block)]);
    let verdict = cancelled_while(&scene, "bad1", async |_| {}).await;
    assert_eq!(verdict, blocked("R"));
    assert!(scene.body().get("userEmail").is_none());
    assert!(
        logs.text()
            .contains("[HookDispatcher] Failed to resolve webhook user email")
    );
    assert!(!logs.text().contains("SECRET"));
}

#[tokio::test]
async fn vector_128_without_controls_nobody_is_asked() {
    let scene = Scene::local(Receiver::start());
    scene.register(vec![scene.hook("h", HookType::BeforeToolCall)]);
    assert_eq!(scene.evaluate().await, Verdict::Allow);
    assert_eq!(scene.receiver.count(), 0);
}

#[tokio::test]
async fn vector_129_a_call_with_a_known_id_is_asked_about_again() {
    let scene = Scene::local(Receiver::answering(vec![allow(), deny(), allow(), deny()]));
    scene.register(vec![scene.control("c", OnError::Block)]);
    for id in ["constructor", "__proto__"] {
        let event = ToolCall {
            tool_call_id: id.to_owned(),
            ..call("fs/readFile")
        };
        assert_eq!(scene.evaluate_call(event.clone()).await, Verdict::Allow);
        assert_eq!(scene.evaluate_call(event).await, blocked("R"));
    }
}

#[tokio::test]
async fn default_reasons_name_the_type_of_the_hook() {
    let answer = Answer::ok().body(r#"{"decision":"deny","reason":""}"#);
    let scene = Scene::local(Receiver::always(answer));
    let after_control = Webhook::to(scene.url("/a")).control(OnError::Continue);
    scene.register(vec![
        scene.control("b", OnError::Continue),
        AgentHook::webhook("a", HookType::AfterToolCall, after_control),
    ]);
    assert_eq!(
        scene.evaluate().await,
        blocked("Blocked by beforeToolCall hook.")
    );
    let verdict = scene.evaluate_call(after("fs/readFile")).await;
    assert_eq!(verdict, blocked("Blocked by afterToolCall hook."));
}

#[tokio::test]
async fn a_wrong_environment_is_an_error_and_no_verdict() {
    let scene = Scene::local(Receiver::always(allow()));
    scene.register(vec![scene.control("c", OnError::Continue)]);
    scene.environment.set("AGENT_HOOK_WEBHOOK_ON_ERROR", "blok");
    let cancel = CancellationToken::new();
    for included in [EnvironmentHooks::Included, EnvironmentHooks::Excluded] {
        let result = scene
            .hooks
            .evaluate(call("fs/x"), None, included, &cancel)
            .await;
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("AGENT_HOOK_WEBHOOK_ON_ERROR")
        );
    }
    assert_eq!(scene.receiver.count(), 0);
}

#[tokio::test]
async fn the_environments_controls_are_left_out_of_a_round_on_request() {
    let scene = Scene::local(Receiver::always(deny()));
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_URL", &scene.url("/env"));
    scene.environment.set("AGENT_HOOK_WEBHOOK_TOKEN", "t");
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_EVENTS", "beforeToolCall");
    scene
        .environment
        .set("AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING", "toolCall");
    let cancel = CancellationToken::new();
    let evaluate = async |included| {
        scene
            .hooks
            .evaluate(call("fs/x"), None, included, &cancel)
            .await
            .unwrap()
    };
    assert_eq!(evaluate(EnvironmentHooks::Excluded).await, Verdict::Allow);
    assert_eq!(evaluate(EnvironmentHooks::Included).await, blocked("R"));
    assert_eq!(scene.paths(), ["/env"]);
}

#[tokio::test]
async fn a_matcher_that_hits_its_limit_follows_on_error() {
    let tool = format!("fs/{}", "x".repeat(5_000));
    for (on_error, expected) in [
        (OnError::Block, blocked("hook_control_error")),
        (OnError::Continue, Verdict::Allow),
    ] {
        let scene = Scene::local(Receiver::always(allow()));
        scene.register(vec![scene.control("c", on_error).matching("^http/")]);
        assert_eq!(scene.evaluate_call(call(&tool)).await, expected);
        assert_eq!(scene.receiver.count(), 0);
    }
}

/// Calls the tool, which writes a file, when the verdict allows it; whether the file is there.
async fn tool_writes(scene: &Scene) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("written by the tool");
    if scene.evaluate().await == Verdict::Allow {
        std::fs::write(&file, "x").unwrap();
    }
    file.exists()
}

fn gzip_bomb() -> Vec<u8> {
    use std::io::Write as _;
    let best = flate2::Compression::best();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), best);
    let megabyte = vec![b' '; 1024 * 1024];
    for _ in 0..50 {
        encoder.write_all(&megabyte).unwrap();
    }
    encoder.finish().unwrap()
}

/// Every way to answer badly. All but the last two would allow if they were believed.
fn misbehaviours() -> Vec<(&'static str, Option<Answer>)> {
    let head = "HTTP/1.1 200 OK\r\n";
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
    let target = Receiver::always(allow());
    let redirect = Answer::status(307)
        .header("Location", &target.url("/allow"))
        .body(ALLOW);
    // The target must outlive the tests: what it would say is "allow".
    std::mem::forget(target);
    let oversize = format!("{ALLOW}{}", " ".repeat(200_000));
    let wrong_length = format!("{head}Content-Length: 100\r\n\r\n{ALLOW}");
    let mid_body = format!("{chunked}14\r\n{{\"decision\":\"al");
    let bomb = gzip_bomb();
    let bomb_head = format!(
        "{head}Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        bomb.len()
    );
    let ms = Duration::from_millis;
    vec![
        ("refuse", None),
        ("accept and say nothing", Some(Answer::hang())),
        ("close at once", Some(Answer::close())),
        (
            "drip one byte per second",
            Some(Answer::stream(
                format!("{head}Content-Length: 20\r\n\r\n"),
                "{",
                ms(1_000),
            )),
        ),
        (
            "drip one byte of the head per second",
            Some(Answer::stream("", "H", ms(1_000))),
        ),
        (
            "headers for ever",
            Some(Answer::stream(head, "X-A: b\r\n".repeat(100), ms(1))),
        ),
        (
            "one header for ever",
            Some(Answer::stream(
                format!("{head}X-A: "),
                "b".repeat(10_000),
                ms(1),
            )),
        ),
        (
            "informational answers for ever",
            Some(Answer::stream(
                "",
                "HTTP/1.1 102 Processing\r\n\r\n",
                ms(20),
            )),
        ),
        ("close mid-body, chunked", Some(Answer::raw(mid_body))),
        ("wrong length", Some(Answer::raw(wrong_length))),
        (
            "oversize with a length",
            Some(Answer::ok().body(oversize.clone())),
        ),
        (
            "oversize without a length",
            Some(Answer::stream(
                chunked,
                format!("{:x}\r\n{oversize}\r\n", oversize.len()),
                ms(1),
            )),
        ),
        (
            "gzip bomb",
            Some(Answer::raw([bomb_head.as_bytes(), &bomb].concat())),
        ),
        ("redirect to an endpoint that allows", Some(redirect)),
        ("500 with an allow", Some(Answer::status(500).body(ALLOW))),
        ("401 with an allow", Some(Answer::status(401).body(ALLOW))),
        ("not HTTP", Some(Answer::raw("allow\r\n\r\n"))),
        (
            "an unknown coding",
            Some(Answer::ok().header("Content-Encoding", "br").body(ALLOW)),
        ),
        (
            "bytes that are not UTF-8",
            Some(Answer::ok().body(b"{\"decision\":\"allow\",\"x\":\"\xff\"}")),
        ),
        (
            "a wrong decision",
            Some(Answer::ok().body(r#"{"decision":"Allow"}"#)),
        ),
    ]
}

async fn misbehaved(answer: Option<Answer>, on_error: OnError) -> bool {
    let scene = Scene::local(Receiver::always(answer.clone().unwrap_or_else(Answer::ok)));
    let url = match answer {
        Some(_) => scene.url("/c"),
        None => "http://127.0.0.1:9/refused".to_owned(),
    };
    let webhook = Webhook::to(url)
        .timeout(Duration::from_secs(2))
        .control(on_error);
    scene.register(vec![AgentHook::webhook(
        "c",
        HookType::BeforeToolCall,
        webhook,
    )]);
    tokio::time::timeout(SOON, tool_writes(&scene))
        .await
        .expect("every call has an end")
}

#[tokio::test]
async fn k04_no_misbehaviour_of_a_receiver_lets_a_guarded_tool_run() {
    let runs = misbehaviours().into_iter().map(async |(name, answer)| {
        let blocked = misbehaved(answer.clone(), OnError::Block).await;
        let continued = misbehaved(answer, OnError::Continue).await;
        (name, blocked, continued)
    });
    for (name, blocked, continued) in futures::future::join_all(runs).await {
        assert!(!blocked, "{name}: the tool has run although errors block");
        assert!(
            continued,
            "{name}: the tool has not run although errors do not block"
        );
    }
}

#[tokio::test]
async fn an_answer_without_a_decision_is_no_error() {
    for answer in [Answer::status(204), Answer::ok(), Answer::ok().body("{}")] {
        for on_error in [OnError::Block, OnError::Continue] {
            assert!(misbehaved(Some(answer.clone()), on_error).await);
        }
    }
}

/// Peak of the resident memory of this process so far, in MiB.
fn peak_mib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<usize>()
        .unwrap()
        / 1024
}

#[tokio::test]
async fn memory_stays_bounded_whatever_receivers_send() {
    let bomb = gzip_bomb();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        bomb.len()
    );
    let endless = "HTTP/1.1 200 OK\r\n\r\n";
    let piece = vec![b' '; 1024 * 1024];
    let answers = [
        Answer::raw([head.as_bytes(), &bomb].concat()),
        Answer::stream(endless, piece, Duration::from_millis(1)),
        Answer::stream(
            "HTTP/1.1 200 OK\r\n",
            "X-A: b\r\n".repeat(1_000),
            Duration::ZERO,
        ),
    ];
    let before = peak_mib();
    for answer in answers {
        let scene = Scene::local(Receiver::always(answer));
        scene.register(vec![scene.control("c", OnError::Block)]);
        let all = (0..60).map(|_| scene.evaluate());
        for verdict in futures::future::join_all(all).await {
            assert_eq!(verdict, blocked("hook_control_error"));
        }
    }
    // Decoded, the bombs alone are 3,000 MiB.
    let grown = peak_mib() - before;
    assert!(grown < 600, "{grown} MiB");
}

/// What the receiver answers to the evaluation of this number, and what may come of it.
fn fault(number: usize) -> (Answer, fn(usize, &Verdict) -> bool) {
    let is_denied = |number: usize, verdict: &Verdict| *verdict == blocked(&format!("R{number}"));
    match number % 10 {
        0..4 => {
            let body = json!({"decision": "deny", "reason": format!("R{number}")});
            (Answer::ok().body(body.to_string()), is_denied)
        }
        4 | 5 => (allow(), |_, verdict| *verdict == Verdict::Allow),
        6 => (Answer::status(503).body(ALLOW), |_, _| false),
        7 => (Answer::close(), |_, _| false),
        8 => (Answer::ok().body("{\"decision\":1}"), |_, _| false),
        _ => (
            Answer::raw("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"),
            |_, _| false,
        ),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_ten_thousand_concurrent_evaluations_no_deny_is_lost_and_no_cancellation_grants() {
    let receiver = Receiver::with(|request| {
        let event: Value = serde_json::from_slice(&request.body).unwrap();
        fault(usize::try_from(event["stepIndex"].as_u64().unwrap()).unwrap()).0
    });
    let scene = Arc::new(Scene::local(receiver));
    // Errors block, so that a lack of sockets on the test's machine cannot look like an allow.
    scene.register(vec![scene.control("c", OnError::Block)]);
    let evaluations = (0..10_000_usize).map(|number| {
        let scene = Arc::clone(&scene);
        tokio::spawn(async move {
            let event = ToolCall {
                step_index: number as u64,
                user_id: None,
                ..call("fs/readFile")
            };
            let cancel = CancellationToken::new();
            let is_cancelled_before = number % 13 == 0;
            let is_cancelled_during = number % 17 == 0;
            if is_cancelled_before {
                cancel.cancel();
            }
            let included = EnvironmentHooks::Included;
            let evaluation = scene.hooks.evaluate(event, None, included, &cancel);
            let during = async {
                if is_cancelled_during {
                    tokio::time::sleep(Duration::from_millis(number as u64 % 300)).await;
                    cancel.cancel();
                }
            };
            let (verdict, ()) = tokio::join!(evaluation, during);
            let verdict = verdict.unwrap();
            let is_expected = fault(number).1(number, &verdict);
            let is_error = verdict == blocked(HOOK_CONTROL_ERROR);
            let is_cancelled = verdict == Verdict::Cancelled;
            let is_sound = match (is_cancelled_before, is_cancelled_during) {
                (true, _) => is_cancelled,
                (false, true) => is_expected || is_error || is_cancelled,
                (false, false) => is_expected || is_error,
            };
            assert!(is_sound, "{number}: {verdict:?}");
            is_expected
        })
    });
    let ended = futures::future::join_all(evaluations).await;
    let expected = ended
        .into_iter()
        .filter(|ended| *ended.as_ref().unwrap())
        .count();
    assert!(expected > 3_000, "only {expected} got as far as an answer");
}
