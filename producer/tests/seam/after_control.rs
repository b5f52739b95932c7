//! 25.10: what a control after the call does.

use std::time::Duration;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::json;

use crate::support::*;

fn secret() -> ToolRunResult {
    ToolRunResult {
        error: Some(json!(SECRET)),
        execution_time: Some(42.0),
        state: Some(object(json!({"note": SECRET}))),
        work_registration: Some(json!({"type": "skill", "args": SECRET})),
        ..result(SECRET)
    }
}

#[tokio::test]
async fn vector_144_a_denied_result_leaves_nothing_but_what_it_took() {
    for world in World::both() {
        // A cold process: what it knows comes from the stored record.
        world.start(vec![world.after("deny-R")]).await;
        let cold = world.restarted(Mode::Queue);
        let operation = cold.resume(OP).await.unwrap();
        let tool = world.tool(|_| Ok(secret()));
        let outcome = operation
            .run_tools(vec![vec![request("c1", &tool)]])
            .await
            .unwrap();
        let row = world.rows.of_call("c1");
        assert_eq!(
            (row.content.as_str(), &row.error),
            ("R", &Some(json!("hook_denied")))
        );
        let blocked = json!({"phase": "afterToolCall", "reason": "R", "type": "blocked"});
        assert_eq!(state(&row), blocked);
        assert_eq!(
            intervention(&row),
            json!({"status": "rejected", "rejectedReason": "R"})
        );
        world.assert_nowhere(SECRET);
        assert!(!format!("{outcome:?}").contains(SECRET));
        assert!(world.attic.kept.lock().unwrap().is_empty(), "not archived");
        assert!((outcome.cost - 5.0).abs() < f64::EPSILON);
        let end = world.screen.end_of("c1");
        assert_eq!((end.attempts, end.max_attempts), (1, 3));
        assert!((end.execution_time - 42.0).abs() < f64::EPSILON);
        assert_eq!(world.runs(), 1);
    }
}

#[tokio::test]
async fn vector_145_a_denial_without_a_reason_gets_the_usual_one() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("deny-")]).await;
    run(&operation, "c1", &world.saying(SECRET)).await;
    let row = world.rows.of_call("c1");
    assert_eq!(row.content, "Blocked by afterToolCall hook.");
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn vector_146_the_receiver_alone_decides_about_its_reason() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("deny-hidden")]).await;
    run(&operation, "c1", &world.saying("hidden")).await;
    let row = world.rows.of_call("c1");
    assert_eq!(
        (row.content.as_str(), row.error),
        ("hidden", Some(json!("hook_denied")))
    );
}

#[tokio::test]
async fn vector_147_an_allowed_result_is_archived_whole_and_shown_short() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("allow")]).await;
    let whole = ToolRunResult {
        work_registration: Some(json!({"type": "skill", "args": {"x": 1}, "data": "d"})),
        ..result("long text")
    };
    let given = whole.clone();
    let tool = world.tool(move |_| Ok(given.clone()));
    run(&operation, "c1", &tool).await;
    let seen = &world.bodies("allow")[0]["result"];
    assert_eq!(seen["content"], "long text");
    assert_eq!(
        seen["workRegistration"],
        whole.work_registration.clone().unwrap()
    );
    let kept = world.attic.kept.lock().unwrap().clone();
    assert_eq!((kept.len(), &kept[0].content), (1, &whole.content));
    assert_eq!(kept[0].work_registration, whole.work_registration);
    assert_eq!(world.rows.of_call("c1").content, "long ");
    let mut order = world.notes.all();
    order.retain(|note| !note.starts_with("hook"));
    assert_eq!(
        order,
        [
            "run c1",
            "http /allow c1",
            "archive c1",
            "row c1",
            "tool_end c1"
        ]
    );
}

#[tokio::test]
async fn vector_148_while_a_decision_is_pending_nothing_is_anywhere() {
    let world = World::new(Mode::Local);
    let handler = noting::<AfterToolCall>("after", &world.notes);
    let operation = world.start(vec![world.after("hang"), handler]).await;
    let tool = world.saying(SECRET);
    let look = async {
        world.receiver.wait_for(1, SOON).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(world.notes.all(), ["run c1", "http /hang c1"]);
        assert!(world.rows.all().is_empty());
        operation.cancel().await.unwrap();
    };
    let (outcome, ()) = futures::future::join(run(&operation, "c1", &tool), look).await;
    assert_eq!(outcome.end, CallEnd::Interrupted);
    world.drain().await;
    assert_eq!(world.notes.all().len(), 2, "and nothing is told afterwards");
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn vector_149_results_of_every_origin_are_reviewed_once() {
    let world = World::new(Mode::Local);
    let mock = AgentHook::handler("mock", |event: std::sync::Arc<BeforeToolCall>| async move {
        if event.call.tool_call_id == "mocked" {
            event.mock(result("mocked"));
        }
        Ok(())
    });
    let operation = world.start(vec![world.after("allow"), mock]).await;
    let tool = world.saying("real");
    let mut by_client = request("client", &tool);
    by_client.call.executor = Executor::Client;
    let lane = vec![
        request("server", &tool),
        by_client,
        request("mocked", &tool),
    ];
    operation.run_tools(vec![lane]).await.unwrap();
    let bodies = world.bodies("allow");
    let seen: Vec<_> = bodies
        .iter()
        .map(|body| {
            (
                body["toolCallId"].as_str().unwrap(),
                body["mocked"].as_bool().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [("server", false), ("client", false), ("mocked", true)]
    );
    assert_eq!(world.notes.of("run "), ["run server", "run client"]);
}

#[tokio::test]
async fn vector_150_a_result_that_failed_three_times_is_reviewed_once() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("allow")]).await;
    let tool = world.tool(|attempt| {
        Ok(ToolRunResult {
            success: false,
            ..result(&format!("failed {attempt}"))
        })
    });
    let outcome = run(&operation, "c1", &tool).await;
    assert_eq!((world.runs(), outcome.attempts), (3, 3));
    let bodies = world.bodies("allow");
    assert_eq!(bodies.len(), 1);
    assert_eq!(bodies[0]["result"]["success"], false);
    assert_eq!(bodies[0]["result"]["content"], "failed 3");
}

#[tokio::test]
async fn vector_151_a_denied_result_still_stops_the_run() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("deny-R")]).await;
    let tool = world.tool(|_| {
        Ok(ToolRunResult {
            stop: Some(true),
            ..result(SECRET)
        })
    });
    let outcome = operation
        .run_tools(vec![vec![request("c1", &tool)]])
        .await
        .unwrap();
    assert_eq!(outcome.state, RunState::Done);
    assert_eq!(world.rows.of_call("c1").content, "R");
}

#[tokio::test]
async fn vector_152_a_tool_that_looks_like_a_verdict_is_no_verdict() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("allow")]).await;
    let looks = json!({"phase": "afterToolCall", "type": "blocked"});
    let given = looks.clone();
    let tool = world.tool(move |_| {
        Ok(ToolRunResult {
            state: Some(object(given.clone())),
            ..result("content")
        })
    });
    let outcome = run(&operation, "c1", &tool).await;
    let row = world.rows.of_call("c1");
    assert_eq!((row.content.as_str(), state(&row)), ("content", looks));
    assert_eq!(row.intervention, None);
    assert!((outcome.cost - 5.0).abs() < f64::EPSILON);
}

#[tokio::test]
async fn a_tool_that_blocks_itself_is_free_and_its_card_rejected() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("allow")]).await;
    let tool = world.tool(|_| {
        Ok(ToolRunResult {
            state: Some(object(json!({"type": "blocked", "reason": "quota"}))),
            success: false,
            ..result("no more")
        })
    });
    let outcome = operation
        .run_tools(vec![vec![request("c1", &tool)]])
        .await
        .unwrap();
    assert!(outcome.cost.abs() < f64::EPSILON);
    let row = world.rows.of_call("c1");
    assert_eq!(
        intervention(&row),
        json!({"status": "rejected", "rejectedReason": "quota"})
    );
}

#[tokio::test]
async fn vector_153_a_denied_result_does_not_touch_its_sibling() {
    let world = World::new(Mode::Queue);
    let denied = world.after("deny-R").matching("^denied/");
    let operation = world.start(vec![denied]).await;
    let tool = world.saying("content");
    let mut first = request("c1", &tool);
    "denied".clone_into(&mut first.call.identifier);
    let lanes = vec![vec![first], vec![request("c2", &tool)]];
    let outcome = operation.run_tools(lanes).await.unwrap();
    assert_eq!(world.rows.of_call("c1").content, "R");
    assert_eq!(world.rows.of_call("c2").content, "content");
    assert!((outcome.cost - 10.0).abs() < f64::EPSILON);
}

#[tokio::test]
async fn vector_154_a_denial_replaces_all_that_a_reused_row_had() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("deny-R")]).await;
    world.rows.put(ToolRow {
        id: "reused".to_owned(),
        call: call("c1"),
        content: SECRET.to_owned(),
        state: Some(object(json!({"old": SECRET}))),
        intervention: Some(Intervention {
            status: InterventionStatus::Approved,
            ..Intervention::default()
        }),
        ..ToolRow::default()
    });
    run(&operation, "c1", &world.saying("new")).await;
    let row = world.rows.get("reused");
    let blocked = json!({"phase": "afterToolCall", "reason": "R", "type": "blocked"});
    assert_eq!((row.content.as_str(), state(&row)), ("R", blocked));
    assert_eq!(world.bodies("deny-R")[0]["toolMessageId"], "reused");
}

#[tokio::test]
async fn vector_155_what_cannot_be_asked_blocks_or_not_as_its_hook_says() {
    for answer in ["nonsense", "hang"] {
        for (on_error, expected) in [
            (OnError::Block, "hook_control_error"),
            (OnError::Continue, "content"),
        ] {
            let world = World::new(Mode::Queue);
            let webhook = Webhook::to(world.url(answer))
                .timeout(Duration::from_millis(100))
                .control(on_error);
            let control = AgentHook::webhook("policy", HookType::AfterToolCall, webhook);
            let operation = world.start(vec![control]).await;
            run(&operation, "c1", &world.saying("content")).await;
            let row = world.rows.of_call("c1");
            assert_eq!(row.content, expected, "{answer} {on_error:?}");
            if on_error == OnError::Block {
                assert_eq!(state(&row)["reason"], expected);
                assert_eq!(row.error, Some(json!("hook_denied")));
            }
        }
    }
}

#[tokio::test]
async fn vector_156_a_placeholder_is_not_reviewed() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("deny")]).await;
    let tool = world.tool(|_| {
        Ok(ToolRunResult {
            deferred: Some(true),
            ..result("")
        })
    });
    let outcome = operation
        .run_tools(vec![vec![request("c1", &tool)]])
        .await
        .unwrap();
    assert_eq!(outcome.state, RunState::WaitingForAsyncTool);
    world.drain().await;
    assert_eq!(world.receiver.count(), 0);
    let row = world.rows.of_call("c1");
    assert_eq!(
        (row.content.as_str(), state(&row)),
        ("", json!({"status": "pending"}))
    );
}

#[tokio::test]
async fn vector_157_a_run_that_is_cancelled_while_its_result_is_reviewed_publishes_nothing() {
    let world = World::new(Mode::Local);
    let webhook = Webhook::to(world.url("slow")).control(OnError::Continue);
    let control = AgentHook::webhook("policy", HookType::AfterToolCall, webhook);
    let handlers = [
        noting::<AfterToolCall>("after", &world.notes),
        noting::<OnToolCallError>("error", &world.notes),
    ];
    let operation = world.start([vec![control], handlers.into()].concat()).await;
    let tool = world.saying(SECRET);
    let stop = async {
        world.receiver.wait_for(1, SOON).await;
        operation.cancel().await.unwrap();
    };
    let (outcome, ()) = futures::future::join(run(&operation, "c1", &tool), stop).await;
    assert_eq!((outcome.end, outcome.result), (CallEnd::Interrupted, None));
    world.drain().await;
    assert_eq!(world.notes.all(), ["run c1", "http /slow c1"]);
    assert!(world.rows.all().is_empty());
}

#[tokio::test]
async fn vector_158_controls_that_decide_nothing_let_everything_pass() {
    for body in ["{}", "", "not JSON"] {
        let world = World::answering(Mode::Queue, move |_| Some(Reply::ok().body(body)));
        world.environment.set_controls(&world.url("operator"));
        let operation = world.start(vec![]).await;
        run(&operation, "c1", &world.saying("content")).await;
        assert_eq!(world.rows.of_call("c1").content, "content", "{body:?}");
        assert_eq!(world.bodies("operator").len(), 2);
    }
}

#[tokio::test]
async fn a_call_that_fails_without_a_result_is_told_as_an_error_and_not_reviewed() {
    let world = World::new(Mode::Local);
    let handler = noting::<OnToolCallError>("error", &world.notes);
    let operation = world.start(vec![world.after("deny"), handler]).await;
    let outcome = run(&operation, "c1", &world.tool(|_| Err("broken".into()))).await;
    world.drain().await;
    assert_eq!((outcome.end, outcome.attempts), (CallEnd::Failed, 1));
    assert_eq!(world.receiver.count(), 0);
    assert_eq!(noted(&world.notes, "error")[0]["error"], "broken");
    assert_eq!(world.rows.of_call("c1").content, "broken");
}

#[tokio::test]
async fn a_call_that_has_its_result_is_not_made_again() {
    let world = World::new(Mode::Queue);
    let operation = world
        .start(vec![world.before("allow"), world.after("allow")])
        .await;
    let tool = world.saying("");
    run(&operation, "c1", &tool).await;
    let again = world.restarted(Mode::Queue).resume(OP).await.unwrap();
    let outcome = run(&again, "c1", &tool).await;
    assert_eq!(
        (outcome.end, world.runs(), world.receiver.count()),
        (CallEnd::Published, 1, 2)
    );
    assert_eq!(
        world.notes.of("tool_end"),
        ["tool_end c1", "tool_end c1"],
        "told once more"
    );
}
