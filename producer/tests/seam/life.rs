//! 25.15 and section 7: the life of an operation and its steps.

use std::sync::Arc;
use std::time::Duration;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use hookstash_shared::clock::ManualClock;
use serde_json::{Value, json};

use crate::support::*;

fn end_handlers(world: &World) -> Vec<AgentHook> {
    vec![
        noting::<OnComplete>("complete", &world.notes),
        noting::<OnErrorEvent>("error", &world.notes),
    ]
}

#[tokio::test]
async fn vector_218_every_end_is_told_once_and_waiting_for_tools_is_none() {
    for reason in [
        RunReason::Done,
        RunReason::MaxSteps,
        RunReason::CostLimit,
        RunReason::Interrupted,
    ] {
        let world = World::new(Mode::Local);
        let operation = world.start(end_handlers(&world)).await;
        operation.end(reason, RunEnd::default()).await.unwrap();
        let told = noted(&world.notes, "complete");
        assert_eq!(told.len(), 1);
        assert_eq!(
            (&told[0]["reason"], &told[0]["status"]),
            (&json!(reason.as_str()), &json!(reason.as_str()))
        );
        assert_eq!(
            (&told[0]["userId"], &told[0]["agentId"]),
            (&json!("u1"), &json!("a1"))
        );
        assert_eq!(
            (&told[0]["errorMessage"], noted(&world.notes, "error").len()),
            (&json!(""), 0)
        );
        assert!(!world.runtime.hooks().has_hooks(OP), "cleaned up");
    }
    // Waiting for tools: there is no end to tell, and the hooks stay.
    let world = World::new(Mode::Local);
    let operation = world.start(end_handlers(&world)).await;
    let tool = world.tool(|_| {
        Ok(ToolRunResult {
            deferred: Some(true),
            ..ToolRunResult::default()
        })
    });
    let outcome = operation
        .run_tools(vec![vec![request("c1", &tool)]])
        .await
        .unwrap();
    assert_eq!(outcome.state, RunState::WaitingForAsyncTool);
    world.drain().await;
    assert_eq!(world.notes.of("hook"), Vec::<String>::new());
    assert!(world.runtime.hooks().has_hooks(OP));
}

#[tokio::test]
async fn vector_219_a_failed_run_tells_its_end_and_then_its_error_with_the_same_detail() {
    let world = World::new(Mode::Local);
    let operation = world.start(end_handlers(&world)).await;
    let detail = json!({"type": "Quota", "message": "spent"});
    let failed = RunEnd {
        error_message: error_text(&detail),
        error_detail: Some(detail.clone()),
        ..RunEnd::default()
    };
    operation.end(RunReason::Error, failed).await.unwrap();
    let order: Vec<_> = world.notes.all();
    assert!(order[0].starts_with("hook complete") && order[1].starts_with("hook error"));
    let (complete, error) = (
        noted(&world.notes, "complete"),
        noted(&world.notes, "error"),
    );
    assert_eq!(complete, error);
    assert_eq!(
        (&error[0]["errorDetail"], &error[0]["errorMessage"]),
        (&detail, &json!("spent"))
    );
    assert_eq!(error[0]["reason"], "error");
}

#[tokio::test]
async fn vector_220_a_failing_hook_of_a_step_fails_nothing() {
    let world = World::answering(Mode::Queue, |_| Some(Reply::status(500)));
    let critical =
        |id: &str, moment| AgentHook::webhook(id, moment, Webhook::to(world.url(id)).critical());
    let hooks = vec![
        critical("before", HookType::BeforeStep),
        critical("after", HookType::AfterStep),
    ];
    let operation = world.start(hooks).await;
    operation.before_step(BeforeStep::default()).await;
    operation
        .after_step(AfterStep::default(), &mut StepTracker::default())
        .await;
    assert_eq!(world.receiver.count(), 2);
    let outcome = run(&operation, "c1", &world.saying("content")).await;
    assert_eq!(outcome.end, CallEnd::Published);
}

#[tokio::test]
async fn a_critical_end_that_is_not_handed_over_comes_back_and_nothing_follows_it() {
    let world = World::answering(Mode::Queue, |request| {
        Some(Reply::status(if request.path == "/critical" {
            500
        } else {
            200
        }))
    });
    let hook = |id: &str, moment| AgentHook::webhook(id, moment, Webhook::to(world.url(id)));
    let critical = Webhook::to(world.url("critical")).critical();
    let hooks = vec![
        AgentHook::webhook("critical", HookType::OnComplete, critical),
        hook("sibling", HookType::OnComplete),
        hook("error", HookType::OnError),
    ];
    let operation = world.start(hooks).await;
    let failed = operation.end(RunReason::Error, RunEnd::default()).await;
    let text = failed.unwrap_err().to_string();
    assert_eq!(text, "Critical webhook delivery failed: critical");
    assert_eq!(
        world.notes.of("http").len(),
        2,
        "the sibling, but no onError"
    );
    // The queue tries again, in any process.
    let again = world.restarted(Mode::Queue).resume(OP).await.unwrap();
    assert!(
        again
            .end(RunReason::Error, RunEnd::default())
            .await
            .is_err()
    );
    assert_eq!(world.bodies("critical").len(), 2);
    assert_eq!(world.bodies("error").len(), 0);
}

#[tokio::test]
async fn the_last_answer_is_read_again_when_the_run_does_not_know_it() {
    let world = World::new(Mode::Local);
    world.others.answer_with(
        OP,
        Answer {
            text: "the answer".to_owned(),
            ..Answer::default()
        },
    );
    for (reason, said, expected) in [
        (RunReason::Done, None, json!("the answer")),
        (RunReason::Done, Some(" "), json!("the answer")),
        (RunReason::Done, Some("known"), json!("known")),
        (RunReason::Interrupted, None, Value::Null),
    ] {
        let operation = world.start(end_handlers(&world)).await;
        let run = RunEnd {
            last_assistant_content: said.map(str::to_owned),
            ..RunEnd::default()
        };
        operation.end(reason, run).await.unwrap();
        let told = noted(&world.notes, "complete");
        assert_eq!(told.last().unwrap()["lastAssistantContent"], expected);
    }
}

#[tokio::test]
async fn hooks_that_cannot_be_made_durable_keep_an_operation_from_starting() {
    for (hook, member, text) in [
        (
            HookType::AfterToolCall,
            None,
            "Failed to durably persist afterToolCall control policy before dispatch",
        ),
        (
            HookType::BeforeToolCall,
            Some(json!({})),
            "Failed to durably persist group member op before dispatch",
        ),
        (
            HookType::BeforeToolCall,
            None,
            "Failed to durably persist operation op before dispatch",
        ),
    ] {
        let world = World::new(Mode::Queue);
        world.faults.set("save");
        let new = NewOperation {
            group_member_bridge: member,
            ..new_operation(OP, vec![world.control(hook, "allow")])
        };
        let failed = world.runtime.start(new).await;
        assert_eq!(failed.unwrap_err().to_string(), text);
        assert!(
            !world.runtime.hooks().has_hooks(OP),
            "nothing of it is left"
        );
    }
}

#[tokio::test]
async fn callers_hooks_are_enforced_after_a_restart_and_handlers_and_environment_are_not_stored() {
    let world = World::new(Mode::Local);
    world.environment.set_controls(&world.url("allow"));
    let handler = noting::<AfterToolCall>("handler", &world.notes);
    world.start(vec![world.before("deny-R"), handler]).await;
    let stored = world.records.load(OP).await.unwrap().unwrap();
    let hooks = stored.hooks.unwrap();
    assert_eq!(hooks.as_array().unwrap().len(), 1, "{hooks}");
    assert_eq!(hooks[0]["id"], "deny-R");
    for mode in [Mode::Local, Mode::Queue] {
        let operation = world.restarted(mode).resume(OP).await.unwrap();
        let call = if mode == Mode::Local { "c1" } else { "c2" };
        let outcome = run(&operation, call, &world.saying("content")).await;
        assert_eq!(outcome.end, CallEnd::DeniedBefore);
    }
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn an_operation_whose_record_is_wrong_or_gone_is_not_resumed() {
    let world = World::new(Mode::Queue);
    assert!(world.runtime.resume("unknown").await.is_err());
    let record = OperationRecord {
        hooks: Some(json!([{"id": "x", "type": "afterToolCall", "webhook": {"url": 7}}])),
        ..OperationRecord::default()
    };
    world.records.save(OP, &record).await.unwrap();
    assert!(world.runtime.resume(OP).await.is_err());
    world.faults.set("load");
    assert!(world.runtime.resume(OP).await.is_err());
}

#[tokio::test]
async fn the_hooks_of_a_run_that_waits_for_a_human_stay_in_the_process() {
    let world = World::new(Mode::Local);
    let operation = world.start(end_handlers(&world)).await;
    operation
        .end(RunReason::WaitingForHuman, RunEnd::default())
        .await
        .unwrap();
    assert!(world.runtime.hooks().has_hooks(OP));
    operation
        .end(RunReason::Done, RunEnd::default())
        .await
        .unwrap();
    let told = noted(&world.notes, "complete");
    let reasons: Vec<_> = told.iter().map(|end| end["reason"].clone()).collect();
    assert_eq!(reasons, ["waiting_for_human", "done"]);
}

#[tokio::test]
async fn the_record_of_an_operation_goes_a_while_after_every_end_but_not_while_a_human_is_waited_for()
 {
    const ALMOST_A_MONTH: Duration = Duration::from_secs(30 * 24 * 3600 - 1);
    for (reason, goes) in [
        (RunReason::Done, true),
        (RunReason::Error, true),
        (RunReason::MaxSteps, true),
        (RunReason::CostLimit, true),
        (RunReason::Interrupted, true),
        (RunReason::WaitingForHuman, false),
    ] {
        let clock = Arc::new(ManualClock::at(1_800_000_000_000));
        let records = Arc::new(StoredOperations::new(store_at(clock.clone())));
        let world = World::new(Mode::Local);
        let runtime = world.with_records(records.clone());
        let operation = runtime.start(new_operation(OP, vec![])).await.unwrap();
        operation.end(reason, RunEnd::default()).await.unwrap();
        clock.advance(ALMOST_A_MONTH);
        assert!(records.load(OP).await.unwrap().is_some(), "{reason:?}");
        clock.advance(Duration::from_secs(2));
        let is_gone = records.load(OP).await.unwrap().is_none();
        assert_eq!(is_gone, goes, "{reason:?}");
    }
}

#[tokio::test]
async fn compressing_is_told_with_a_short_summary_or_with_its_error_or_not_again() {
    let world = World::new(Mode::Local);
    let hooks = vec![
        noting::<BeforeCompact>("before", &world.notes),
        noting::<AfterCompact>("after", &world.notes),
        noting::<OnCompactError>("error", &world.notes),
    ];
    let operation = world.start(hooks).await;
    let what = Compaction {
        step_index: 3,
        message_count: 40,
        token_count: 9_000,
    };
    let summary = "🚀".repeat(300);
    let done = Compacted {
        group_id: "g".to_owned(),
        message_count: 5,
        summary: format!("x{summary}"),
    };
    operation
        .compact(what, async { Ok::<_, String>(Some(done)) })
        .await
        .unwrap();
    operation
        .compact(what, async { Ok::<_, String>(None) })
        .await
        .unwrap();
    operation
        .compact(what, async { Err::<Option<Compacted>, _>("no model") })
        .await
        .unwrap_err();
    world.drain().await;
    assert_eq!(noted(&world.notes, "before").len(), 3);
    let after = noted(&world.notes, "after");
    assert_eq!(after.len(), 1);
    let shown = format!("x{}", "🚀".repeat(249));
    assert_eq!(after[0]["summary"], json!(shown), "cut before the pair");
    let counts = (&after[0]["messagesBefore"], &after[0]["messagesAfter"]);
    assert_eq!(counts, (&json!(40), &json!(5)));
    let error = noted(&world.notes, "error");
    assert_eq!((error.len(), &error[0]["error"]), (1, &json!("no model")));
}

#[tokio::test]
async fn progress_is_tracked_when_anybody_listens_to_steps_the_operator_too() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    let step = || AfterStep {
        content: Some("said".to_owned()),
        ..AfterStep::default()
    };
    let mut tracker = StepTracker::default();
    operation.after_step(step(), &mut tracker).await;
    assert_eq!(tracker, StepTracker::default(), "nobody listens");
    world
        .environment
        .set("AGENT_HOOK_WEBHOOK_URL", &world.url("operator"));
    world.environment.set("AGENT_HOOK_WEBHOOK_TOKEN", "token");
    world
        .environment
        .set("AGENT_HOOK_WEBHOOK_EVENTS", "afterStep");
    operation.after_step(step(), &mut tracker).await;
    assert_eq!(tracker.last_llm_content.as_deref(), Some("said"));
    let body = &world.bodies("operator")[0];
    assert_eq!(
        (&body["stepType"], &body["thinking"]),
        (&json!("call_llm"), &json!(true))
    );
    assert_eq!(body["agentId"], "a1");
}

#[tokio::test]
async fn an_operation_without_an_id_is_not_started_and_not_resumed() {
    let world = World::new(Mode::Queue);
    let failed = world.runtime.start(new_operation("", vec![])).await;
    assert!(matches!(failed, Err(StartError::NoId)));
    let record = OperationRecord::default();
    world.records.save("", &record).await.unwrap();
    assert!(world.runtime.resume("").await.is_err());
}

#[tokio::test]
async fn a_start_that_is_dropped_while_it_is_stored_leaves_no_hook() {
    let world = World::new(Mode::Local);
    let never = std::sync::Arc::new(Never::default());
    let runtime = world.with_records(never.clone());
    let starting = runtime.start(new_operation(OP, end_handlers(&world)));
    let saving = async {
        never.saving.notified().await;
        assert!(runtime.hooks().has_hooks(OP), "until it is known");
    };
    tokio::select! {
        started = starting => panic!("{started:?}"),
        () = saving => {}
    }
    assert!(!runtime.hooks().has_hooks(OP));
}

/// Records that are never stored.
#[derive(Default)]
struct Never {
    saving: tokio::sync::Notify,
}

impl OperationStore for Never {
    fn save<'a>(&'a self, _: &'a str, _: &'a OperationRecord) -> PortResult<'a, ()> {
        self.saving.notify_one();
        Box::pin(std::future::pending())
    }

    fn load<'a>(&'a self, _: &'a str) -> PortResult<'a, Option<OperationRecord>> {
        Box::pin(async { Ok(None) })
    }

    fn retire<'a>(&'a self, _: &'a str) -> PortResult<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}
