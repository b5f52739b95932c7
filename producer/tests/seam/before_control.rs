//! 25.9: what a control before the call does.

use std::sync::Arc;
use std::time::Duration;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn vector_130_a_denial_without_a_reason_runs_nothing_and_costs_nothing() {
    for answer in ["deny", "deny-"] {
        for world in World::both() {
            let mock = AgentHook::handler("mock", |event: Arc<BeforeToolCall>| async move {
                event.mock(result("mocked"));
                Ok(())
            });
            let operation = world.start(vec![world.before(answer), mock]).await;
            let tool = world.saying("written");
            let outcome = operation.run_tools(vec![vec![request("c1", &tool)]]).await;
            let outcome = outcome.unwrap();
            let reason = "Blocked by beforeToolCall hook.";
            let row = world.rows.of_call("c1");
            assert_eq!(state(&row), json!({"reason": reason, "type": "blocked"}));
            assert_eq!(
                (world.runs(), outcome.cost, outcome.state),
                (0, 0.0, RunState::Running)
            );
            let end = world.screen.end_of("c1");
            assert_eq!((end.attempts, end.max_attempts, end.cost), (0, 0, 0.0));
            assert!(!end.is_success && !outcome.calls[0].mocked);
            assert_eq!(world.receiver.count(), 1, "one request");
        }
    }
}

#[tokio::test]
async fn vector_131_the_reason_becomes_the_row_and_the_event() {
    const REASON: &str = "Workspace policy forbids this write.";
    // Spaces have no place in a path, so the receiver says it by itself.
    let world = World::answering(Mode::Queue, |_| {
        let denial = json!({"decision": "deny", "reason": REASON});
        Some(Reply::ok().body(denial.to_string()))
    });
    let operation = world.start(vec![world.before("policy")]).await;
    let tool = world.saying("written");
    for lanes in [
        vec![vec![request("single", &tool)]],
        vec![vec![request("a", &tool)], vec![request("b", &tool)]],
    ] {
        let outcome = operation.run_tools(lanes).await.unwrap();
        for call in outcome.calls {
            let row = world.rows.get(&call.tool_message_id);
            assert_eq!(
                (row.content.as_str(), &row.error),
                (REASON, &Some(json!("hook_denied")))
            );
            let rejected = json!({"status": "rejected", "rejectedReason": REASON});
            assert_eq!(intervention(&row), rejected);
            let end = world.screen.end_of(&call.call.tool_call_id);
            let shown = json!(end.result);
            assert_eq!(
                shown,
                json!({"content": REASON, "error": "hook_denied", "executionTime": 0,
                       "state": {"reason": REASON, "type": "blocked"}, "success": false})
            );
            assert_eq!(json!(call.result.unwrap()), shown);
        }
    }
}

#[tokio::test]
async fn vector_132_an_invalid_decision_blocks_with_the_error_of_controls() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![world.before("nonsense")]).await;
    let outcome = run(&operation, "c1", &world.saying("written")).await;
    let row = world.rows.of_call("c1");
    assert_eq!((outcome.end, world.runs()), (CallEnd::DeniedBefore, 0));
    assert_eq!(row.content, "hook_control_error");
    assert_eq!(row.error, Some(json!("hook_denied")));
    assert_eq!(
        state(&row),
        json!({"reason": "hook_control_error", "type": "blocked"})
    );
}

#[tokio::test]
async fn vector_133_a_denial_of_an_approved_call_rejects_its_row() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.before("deny-no")]).await;
    world.rows.put(ToolRow {
        id: "approved".to_owned(),
        call: call("c1"),
        intervention: Some(Intervention {
            status: InterventionStatus::Approved,
            ..Intervention::default()
        }),
        ..ToolRow::default()
    });
    run(&operation, "c1", &world.saying("written")).await;
    let row = world.rows.of_call("c1");
    assert_eq!((row.id.as_str(), row.content.as_str()), ("approved", "no"));
    assert_eq!(
        intervention(&row),
        json!({"status": "rejected", "rejectedReason": "no"})
    );
    assert_eq!(world.runs(), 0);
}

#[tokio::test]
async fn vector_134_a_call_that_needs_approval_waits_and_no_control_is_asked() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.before("deny")]).await;
    let tool = world.saying("written");
    let waiting = ToolRequest {
        permission: Permission::NeedsApproval,
        ..request("c1", &tool)
    };
    for _ in 0..2 {
        let outcome = operation
            .run_tools(vec![vec![waiting.clone()]])
            .await
            .unwrap();
        assert_eq!(outcome.state, RunState::WaitingForHuman);
        let row = world.rows.of_call("c1");
        assert_eq!(
            intervention(&row),
            json!({"status": "pending", "operationId": OP})
        );
    }
    assert_eq!((world.receiver.count(), world.runs()), (0, 0));
}

#[tokio::test]
async fn vector_135_a_tool_that_is_not_allowed_reaches_no_control() {
    let world = World::new(Mode::Queue);
    let operation = world
        .start(vec![world.before("allow"), world.after("allow")])
        .await;
    let forbidden = ToolRequest {
        permission: Permission::NotAllowed,
        ..request("c1", &world.saying("written"))
    };
    let outcome = operation.run_tools(vec![vec![forbidden]]).await.unwrap();
    assert_eq!(outcome.calls[0].end, CallEnd::NotAllowed);
    assert_eq!(
        (world.receiver.count(), world.runs(), outcome.cost),
        (0, 0, 0.0)
    );
    let row = world.rows.of_call("c1");
    assert_eq!(state(&row)["reason"], "tool_not_allowed");
}

#[tokio::test]
async fn vector_136_a_lane_goes_on_in_order_after_a_denial() {
    let world = World::answering(Mode::Queue, |request| {
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        let decision = if body["toolCallId"] == "native-2" {
            "deny"
        } else {
            "allow"
        };
        Some(Reply::ok().body(json!({"decision": decision}).to_string()))
    });
    let operation = world.start(vec![world.before("policy")]).await;
    let tool = world.saying("written");
    let lane = ["native-1", "native-2", "native-3"].map(|id| request(id, &tool));
    let outcome = operation.run_tools(vec![lane.into()]).await.unwrap();
    let mut order = world.notes.all();
    order.retain(|note| note.starts_with("http") || note.starts_with("run"));
    assert_eq!(
        order,
        [
            "http /policy native-1",
            "run native-1",
            "http /policy native-2",
            "http /policy native-3",
            "run native-3"
        ]
    );
    assert!((outcome.cost - 10.0).abs() < f64::EPSILON);
}

#[tokio::test]
async fn vector_137_a_slow_control_delays_its_own_lane_only() {
    let world = World::new(Mode::Queue);
    let slow = world.before("slow").matching("^slow/");
    let operation = world.start(vec![slow]).await;
    let tool = world.saying("written");
    let mut waits = request("waits", &tool);
    "slow".clone_into(&mut waits.call.identifier);
    let lanes = vec![vec![waits], vec![request("free", &tool)]];
    operation.run_tools(lanes).await.unwrap();
    assert_eq!(world.notes.of("run "), ["run free", "run waits"]);
    assert_eq!(
        world.notes.of("tool_end "),
        ["tool_end free", "tool_end waits"]
    );
}

#[tokio::test]
async fn vector_138_controls_and_observers_are_outside_of_the_repeats() {
    let world = World::new(Mode::Queue);
    let observer = AgentHook::webhook(
        "observer",
        HookType::BeforeToolCall,
        Webhook::to(world.url("observer")),
    );
    let operation = world.start(vec![world.before("allow"), observer]).await;
    let tool = world.tool(|attempt| {
        let mut tried = result("written");
        tried.success = attempt > 1;
        Ok(tried)
    });
    let outcome = run(&operation, "c1", &tool).await;
    world.drain().await;
    assert_eq!(
        (world.runs(), outcome.attempts, outcome.attempts_max),
        (2, 2, 3)
    );
    assert_eq!(world.bodies("allow").len(), 1);
    assert_eq!(world.bodies("observer").len(), 1);
}

/// Hands its call to the user's client.
struct ForClient {
    notes: Notes,
    /// Whether it waits for the client's answer, as behind a gateway.
    waits: bool,
}

impl Tool for ForClient {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            if self.waits {
                self.notes.add(format!("client {}", run.call.tool_call_id));
                return Ok(result("done by the client"));
            }
            let deferred = run.defer().await?;
            self.notes.add(format!("client {}", run.call.tool_call_id));
            assert_eq!(deferred.operation_id, OP);
            Ok(ToolRunResult {
                deferred: Some(true),
                ..ToolRunResult::default()
            })
        })
    }
}

/// Runs an allowed and a denied call of such a tool.
async fn to_the_client(world: &World, waits: bool) -> ToolsOutcome {
    let denied = world.before("deny").matching("^denied/");
    let slow = world.before("slow").matching("^fs/");
    let operation = world.start(vec![denied, slow]).await;
    let tool: Arc<dyn Tool> = Arc::new(ForClient {
        notes: world.notes.clone(),
        waits,
    });
    let mut denied = request("denied", &tool);
    "denied".clone_into(&mut denied.call.identifier);
    let lanes = vec![vec![request("allowed", &tool)], vec![denied]];
    let before = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        assert_eq!(
            world.notes.of("client"),
            Vec::<String>::new(),
            "it waits for its verdict"
        );
    };
    let (outcome, ()) = futures::future::join(operation.run_tools(lanes), before).await;
    outcome.unwrap()
}

#[tokio::test]
async fn vector_139_nothing_goes_to_the_client_before_its_verdict() {
    let world = World::new(Mode::Queue);
    let outcome = to_the_client(&world, false).await;
    assert_eq!(world.notes.of("client"), ["client allowed"]);
    assert_eq!(outcome.state, RunState::WaitingForAsyncTool);
    let row = world.rows.of_call("denied");
    assert_eq!(
        (row.is_final, row.error),
        (true, Some(json!("hook_denied")))
    );
}

#[tokio::test]
async fn vector_140_a_call_through_a_gateway_is_dispatched_once_or_not_at_all() {
    let world = World::new(Mode::Queue);
    let outcome = to_the_client(&world, true).await;
    assert_eq!(world.notes.of("client"), ["client allowed"]);
    assert_eq!(outcome.state, RunState::Running);
    assert_eq!(world.rows.of_call("allowed").content, "done by the client");
}

#[tokio::test]
async fn vector_141_control_handler_and_webhook_take_their_turns_by_mode() {
    for (mode, expected) in [
        (Mode::Local, vec!["/allow", "/http"]),
        (Mode::Queue, vec!["/allow", "/dual", "/http"]),
    ] {
        let world = World::new(mode);
        let observer = |id: &str| Webhook::to(world.url(id));
        let dual = noting::<BeforeToolCall>("dual", &world.notes).with_webhook(observer("dual"));
        let http = AgentHook::webhook("http", HookType::BeforeToolCall, observer("http"));
        let operation = world.start(vec![world.before("allow"), dual, http]).await;
        run(&operation, "c1", &world.saying("written")).await;
        world.drain().await;
        let received = world.receiver.received();
        let paths: Vec<_> = received.iter().map(|one| one.path.as_str()).collect();
        assert_eq!(paths, expected);
        let handled = noted(&world.notes, "dual").len();
        assert_eq!(handled, usize::from(mode == Mode::Local));
    }
}

#[tokio::test]
async fn vector_142_a_denied_call_is_still_told_to_after_handlers() {
    let world = World::new(Mode::Local);
    let handler = noting::<AfterToolCall>("after", &world.notes);
    let operation = world.start(vec![world.before("deny-R"), handler]).await;
    run(&operation, "c1", &world.saying("written")).await;
    world.drain().await;
    let events = noted(&world.notes, "after");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["mocked"], false);
    assert_eq!(events[0]["result"]["success"], false);
    let blocked = json!({"reason": "R", "type": "blocked"});
    assert_eq!(events[0]["result"]["state"], blocked);
}

#[tokio::test]
async fn vector_143_a_denied_call_reaches_no_after_control() {
    let world = World::new(Mode::Queue);
    let operation = world
        .start(vec![world.after("allow"), world.before("deny")])
        .await;
    run(&operation, "c1", &world.saying("written")).await;
    world.drain().await;
    assert_eq!(world.notes.of("http"), ["http /deny c1"]);
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_its_verdict_starts_nothing() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.before("slow")]).await;
    let tool = world.saying("written");
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        operation.cancel().await.unwrap();
    };
    let (outcome, ()) = futures::future::join(run(&operation, "c1", &tool), stop).await;
    assert_eq!((outcome.end, outcome.attempts), (CallEnd::Interrupted, 0));
    assert_eq!(world.runs(), 0, "a late allow starts nothing");
    let row = world.rows.of_call("c1");
    assert_eq!(intervention(&row), json!({"status": "aborted"}));
    assert_eq!((row.content.as_str(), row.is_final), ("", false));
}

#[tokio::test]
async fn an_environment_that_cannot_be_read_lets_no_call_pass() {
    let world = World::new(Mode::Local);
    let handler = noting::<OnToolCallError>("error", &world.notes);
    let operation = world.start(vec![handler]).await;
    world
        .environment
        .set("AGENT_HOOK_WEBHOOK_ON_ERROR", "perhaps");
    let outcome = run(&operation, "c1", &world.saying("written")).await;
    assert_eq!((outcome.end, world.runs()), (CallEnd::Failed, 0));
    let row = world.rows.of_call("c1");
    assert!(
        row.content.contains("AGENT_HOOK_WEBHOOK_ON_ERROR"),
        "{row:?}"
    );
}

#[tokio::test]
async fn a_call_that_was_aborted_or_rejected_is_never_made() {
    for status in [InterventionStatus::Aborted, InterventionStatus::Rejected] {
        for permission in [Permission::Granted, Permission::NeedsApproval] {
            let world = World::new(Mode::Queue);
            let operation = world.start(vec![]).await;
            world.rows.put(ToolRow {
                id: "settled".to_owned(),
                call: call("c1"),
                intervention: Some(Intervention {
                    status,
                    ..Intervention::default()
                }),
                ..ToolRow::default()
            });
            let again = ToolRequest {
                permission,
                ..request("c1", &world.saying("written"))
            };
            let outcome = operation.run_tools(vec![vec![again]]).await.unwrap();
            assert_eq!((outcome.state, world.runs()), (RunState::Interrupted, 0));
        }
    }
}
