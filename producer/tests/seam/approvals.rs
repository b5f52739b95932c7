//! 25.15: what a human decides, and what is answered in place of a tool.

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};

use crate::support::*;

/// A row that waits for a human, of the operation `original`.
fn pending(id: &str) -> ToolRow {
    ToolRow {
        id: id.to_owned(),
        call: call(id),
        error: Some(json!("the original error")),
        intervention: Some(Intervention {
            operation_id: Some("original".to_owned()),
            ..Intervention::default()
        }),
        ..ToolRow::default()
    }
}

fn approve(ids: &[&str], answer: Option<&str>) -> Approval {
    let resolution = |id: &&str| Resolution {
        tool_message_id: (*id).to_owned(),
        decision: Decision::Approve,
        answer: answer.map(result),
    };
    Approval {
        request_id: "request".to_owned(),
        resolutions: ids.iter().map(resolution).collect(),
    }
}

fn reject(id: &str, decision: Decision) -> Approval {
    Approval {
        request_id: "request".to_owned(),
        resolutions: vec![Resolution {
            tool_message_id: id.to_owned(),
            decision,
            answer: None,
        }],
    }
}

async fn error_of(world: &World, approval: Approval) -> String {
    let claimed = world.runtime.claim_approval(approval).await;
    claimed.unwrap_err().to_string()
}

#[tokio::test]
async fn vector_211_a_claim_keeps_the_answer_private_and_the_first_publication_stays() {
    let world = World::new(Mode::Queue);
    world
        .start_as("original", vec![world.after("deny-R")])
        .await;
    let operation = world.start_as("next", vec![]).await;
    world.rows.put(pending("c1"));
    let claim = world
        .runtime
        .claim_approval(approve(&["c1"], Some(SECRET)))
        .await
        .unwrap();
    assert_eq!(claim.resolved(), Resolved::Applied);
    let row = world.rows.get("c1");
    assert_eq!((row.content.as_str(), row.is_final), ("", false));
    assert!(!format!("{claim:?}").contains(SECRET));
    let rows = operation.continue_after(&claim).await.unwrap();
    assert_eq!(rows[0].content, "R");
    let replay = world
        .runtime
        .claim_approval(approve(&["c1"], Some(SECRET)))
        .await
        .unwrap();
    assert_eq!(replay.resolved(), Resolved::Idempotent);
    let rows = operation.continue_after(&replay).await.unwrap();
    assert_eq!(rows[0].content, "R", "the first published result");
    assert_eq!(world.rows.get("c1").content, "R");
    assert_eq!(world.receiver.count(), 1, "nobody is asked again");
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn vector_212_a_blocked_answer_is_replaced_before_anybody_reads_the_history() {
    let world = World::new(Mode::Local);
    world
        .start_as("original", vec![world.after("deny-R")])
        .await;
    let operation = world.start_as("next", vec![]).await;
    world.rows.put(ToolRow {
        state: Some(object(json!({"draft": SECRET}))),
        ..pending("c1")
    });
    let claim = world
        .runtime
        .claim_approval(approve(&["c1"], Some(SECRET)))
        .await
        .unwrap();
    let rows = operation.continue_after(&claim).await.unwrap();
    let blocked = json!({"phase": "afterToolCall", "reason": "R", "type": "blocked"});
    assert_eq!((rows[0].content.as_str(), state(&rows[0])), ("R", blocked));
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn vector_213_nothing_goes_on_when_the_answer_cannot_be_published() {
    let world = World::new(Mode::Local);
    let handler = noting::<AfterHumanIntervention>("decided", &world.notes);
    world.start_as("original", vec![]).await;
    let operation = world.start_as("next", vec![handler]).await;
    world.rows.put(pending("c1"));
    let claim = world
        .runtime
        .claim_approval(approve(&["c1"], Some("answer")))
        .await
        .unwrap();
    world.faults.set("commit");
    let failed = operation.continue_after(&claim).await;
    assert!(matches!(failed, Err(ApprovalError::Rows(_))));
    world.drain().await;
    assert_eq!(noted(&world.notes, "decided"), Vec::<Value>::new());
    assert!(!world.rows.get("c1").is_final);
    world.faults.clear();
    let rows = operation.continue_after(&claim).await.unwrap();
    world.drain().await;
    assert_eq!(rows[0].content, "answer");
    assert_eq!(noted(&world.notes, "decided").len(), 1);
}

#[tokio::test]
async fn vector_214_a_failed_start_puts_everything_back_and_a_retry_may_succeed() {
    let world = World::new(Mode::Queue);
    world.start_as("original", vec![]).await;
    let before = pending("c1");
    world.rows.put(before.clone());
    let claim = world
        .runtime
        .claim_approval(approve(&["c1"], Some("answer")))
        .await
        .unwrap();
    assert_ne!(world.rows.get("c1"), before);
    claim.restore().await.unwrap();
    assert_eq!(world.rows.get("c1"), before, "the original error too");
    let claim = world
        .runtime
        .claim_approval(approve(&["c1"], Some("answer")))
        .await
        .unwrap();
    assert_eq!(claim.resolved(), Resolved::Applied);
    let operation = world.start_as("next", vec![]).await;
    let rows = operation.continue_after(&claim).await.unwrap();
    assert_eq!(
        (rows[0].content.as_str(), &rows[0].error),
        ("answer", &None)
    );
}

#[tokio::test]
async fn a_claim_of_another_request_is_not_put_back() {
    let world = World::new(Mode::Queue);
    world.rows.put(pending("c1"));
    let claim = world
        .runtime
        .claim_approval(approve(&["c1"], None))
        .await
        .unwrap();
    let mut row = world.rows.get("c1");
    row.intervention.as_mut().unwrap().resolution_request_id = Some("other".to_owned());
    world.rows.put(row.clone());
    claim.restore().await.unwrap();
    assert_eq!(world.rows.get("c1"), row);
}

#[tokio::test]
async fn a_batch_is_claimed_whole_or_not_at_all() {
    let world = World::new(Mode::Queue);
    world.rows.put(pending("a"));
    world.rows.put(pending("b"));
    for (ids, text) in [
        (
            vec!["a", "a"],
            "Human approval batch contains duplicate tool messages",
        ),
        (vec!["a", "none"], "Plugin not found: none"),
    ] {
        assert_eq!(error_of(&world, approve(&ids, None)).await, text);
    }
    assert_eq!(world.rows.get("a"), pending("a"), "nothing was claimed");
    world
        .runtime
        .claim_approval(approve(&["a"], None))
        .await
        .unwrap();
    assert_eq!(
        error_of(&world, approve(&["a", "b"], None)).await,
        "Human approval batch contains a partial idempotent claim"
    );
    assert_eq!(world.rows.get("b"), pending("b"));
    let other = Approval {
        request_id: "other".to_owned(),
        ..approve(&["a"], None)
    };
    assert_eq!(
        error_of(&world, other).await,
        "Human approval already resolved: a"
    );
    let changed = reject("a", Decision::RejectAndContinue { reason: None });
    assert_eq!(
        error_of(&world, changed).await,
        "Human approval already resolved: a"
    );
}

#[tokio::test]
async fn a_rejection_is_a_receipt_and_hooks_are_told_what_follows() {
    for (decision, text, hook) in [
        (
            Decision::RejectAndContinue {
                reason: Some("too risky".to_owned()),
            },
            "User reject this tool calling with reason: too risky",
            "decided",
        ),
        (
            Decision::RejectAndContinue { reason: None },
            "User reject this tool calling without reason",
            "decided",
        ),
        (
            Decision::RejectAndStop { reason: None },
            "User reject this tool calling without reason",
            "stopped",
        ),
    ] {
        let world = World::new(Mode::Local);
        let handlers = vec![
            noting::<AfterHumanIntervention>("decided", &world.notes),
            noting::<OnStopByHumanIntervention>("stopped", &world.notes),
            world.after("deny"),
        ];
        let operation = world.start_as("original", handlers).await;
        world.rows.put(pending("c1"));
        let claim = world
            .runtime
            .claim_approval(reject("c1", decision.clone()))
            .await
            .unwrap();
        assert_eq!(
            world.rows.get("c1").content,
            text,
            "published with the claim"
        );
        assert_eq!(claim.is_stop(), hook == "stopped");
        operation.continue_after(&claim).await.unwrap();
        world.drain().await;
        assert_eq!(world.receiver.count(), 0, "it is our own text");
        let told = [
            noted(&world.notes, "decided"),
            noted(&world.notes, "stopped"),
        ]
        .concat();
        assert_eq!(told.len(), 1);
        assert_eq!(noted(&world.notes, hook), told);
        assert_eq!(told[0]["toolCallId"], "c1");
        if hook == "decided" {
            assert_eq!(told[0]["action"], "rejectAndContinue");
        }
    }
}

#[tokio::test]
async fn a_call_that_waits_is_told_before_and_runs_after_its_approval() {
    let world = World::new(Mode::Local);
    let handlers = vec![
        noting::<BeforeHumanIntervention>("asks", &world.notes),
        noting::<AfterHumanIntervention>("decided", &world.notes),
        world.before("allow"),
    ];
    let operation = world.start_as("original", handlers).await;
    let waiting = ToolRequest {
        permission: Permission::NeedsApproval,
        ..request("c1", &world.saying("done"))
    };
    let outcome = operation
        .run_tools(vec![vec![waiting.clone()]])
        .await
        .unwrap();
    assert_eq!(outcome.state, RunState::WaitingForHuman);
    operation
        .end(RunReason::WaitingForHuman, RunEnd::default())
        .await
        .unwrap();
    world.drain().await;
    let asked = noted(&world.notes, "asks");
    let pending_tools = json!([{"apiName": "write", "identifier": "fs"}]);
    assert_eq!(
        (asked.len(), &asked[0]["pendingTools"]),
        (1, &pending_tools)
    );
    let id = outcome.calls[0].tool_message_id.clone();
    let claim = world
        .runtime
        .claim_approval(approve(&[&id], None))
        .await
        .unwrap();
    let again = world.runtime.resume("original").await.unwrap();
    again.continue_after(&claim).await.unwrap();
    let outcome = again.run_tools(vec![vec![waiting]]).await.unwrap();
    world.drain().await;
    assert_eq!(noted(&world.notes, "decided")[0]["action"], "approve");
    assert_eq!(
        (outcome.calls[0].end, world.runs()),
        (CallEnd::Published, 1)
    );
    assert_eq!(
        world.notes.of("http"),
        ["http /allow c1"],
        "an approval is no verdict"
    );
    let row = world.rows.get(&id);
    assert_eq!(
        (row.content.as_str(), &intervention(&row)["status"]),
        ("done", &json!("approved"))
    );
}

/// A call that waits in `original` and goes on in `next`, with the operator's controls as they are
/// then.
async fn goes_on_after(world: &World, change: impl FnOnce()) -> ToolRow {
    world.start_as("original", vec![world.after("allow")]).await;
    world.rows.put(pending("c1"));
    let claim = world
        .runtime
        .claim_approval(approve(&["c1"], Some("answer")))
        .await
        .unwrap();
    change();
    let cold = world.restarted(Mode::Queue);
    let operation = cold.start(new_operation("next", vec![])).await.unwrap();
    operation.continue_after(&claim).await.unwrap().remove(0)
}

#[tokio::test]
async fn an_environment_hook_that_is_removed_during_an_approval_is_not_asked() {
    let world = World::new(Mode::Queue);
    world.environment.set_controls(&world.url("deny-operator"));
    let row = goes_on_after(&world, || world.environment.unset("AGENT_HOOK_WEBHOOK_URL")).await;
    assert_eq!(row.content, "answer");
    assert_eq!(world.bodies("allow").len(), 1, "the caller's control is");
}

#[tokio::test]
async fn an_environment_hook_that_is_added_during_an_approval_is_asked() {
    let world = World::new(Mode::Queue);
    let url = world.url("deny-operator");
    let row = goes_on_after(&world, || world.environment.set_controls(&url)).await;
    assert_eq!(row.content, "operator");
    assert_eq!(world.bodies("allow").len(), 1);
}

/// The same when the operation that waited has ended long ago and only its record is left.
async fn completes_after(world: &World, change: impl FnOnce()) -> ToolRow {
    let operation = world.start_as("original", vec![world.after("allow")]).await;
    let tool = world.tool(|_| {
        Ok(ToolRunResult {
            deferred: Some(true),
            ..ToolRunResult::default()
        })
    });
    let row = run(&operation, "c1", &tool).await.tool_message_id;
    operation
        .end(RunReason::Error, RunEnd::default())
        .await
        .unwrap();
    change();
    let cold = world.restarted(Mode::Local);
    cold.complete("original", &row, result("answer"))
        .await
        .unwrap();
    world.rows.get(&row)
}

#[tokio::test]
async fn an_environment_hook_that_is_removed_is_not_asked_after_the_state_expired() {
    let world = World::new(Mode::Local);
    world.environment.set_controls(&world.url("deny-operator"));
    world
        .environment
        .set("AGENT_HOOK_WEBHOOK_EVENTS", "afterToolCall");
    let row = completes_after(&world, || world.environment.unset("AGENT_HOOK_WEBHOOK_URL")).await;
    assert_eq!(
        (row.content.as_str(), world.bodies("allow").len()),
        ("answer", 1)
    );
}

#[tokio::test]
async fn an_environment_hook_that_is_added_is_asked_after_the_state_expired() {
    let world = World::new(Mode::Local);
    let url = world.url("deny-operator");
    let row = completes_after(&world, || world.environment.set_controls(&url)).await;
    assert_eq!(
        (row.content.as_str(), world.bodies("allow").len()),
        ("operator", 1)
    );
}

#[tokio::test]
async fn an_answer_is_held_privately_while_its_hook_runs() {
    let world = World::new(Mode::Queue);
    world.start_as("original", vec![world.after("hang")]).await;
    let operation = world.start_as("next", vec![]).await;
    world.rows.put(pending("c1"));
    let claim = world
        .runtime
        .claim_approval(approve(&["c1"], Some(SECRET)))
        .await
        .unwrap();
    let look = async {
        world.receiver.wait_for(1, SOON).await;
        world.assert_nowhere(SECRET);
        operation.cancel().await.unwrap();
    };
    let (ended, ()) = futures::future::join(operation.continue_after(&claim), look).await;
    assert!(matches!(ended, Err(ApprovalError::Cancelled)));
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn a_batch_of_answers_is_published_whole_or_rolled_back() {
    let world = World::new(Mode::Queue);
    world.start_as("original", vec![]).await;
    let operation = world.start_as("next", vec![]).await;
    world.rows.put(pending("a"));
    world.rows.put(pending("b"));
    let claim = world
        .runtime
        .claim_approval(approve(&["a", "b"], Some("x")))
        .await
        .unwrap();
    world.faults.set("commit");
    assert!(operation.continue_after(&claim).await.is_err());
    assert!(world.rows.all().iter().all(|row| row.content.is_empty()));
    world.faults.clear();
    operation.continue_after(&claim).await.unwrap();
    assert!(world.rows.all().iter().all(|row| row.content == "x"));
}

#[tokio::test]
async fn a_call_that_waited_needs_its_owner_to_be_reviewed() {
    let world = World::new(Mode::Queue);
    world.start_as("original", vec![]).await;
    let ownerless = OperationRecord {
        hooks: Some(json!([])),
        ..OperationRecord::default()
    };
    world.records.save("next", &ownerless).await.unwrap();
    let operation = world.runtime.resume("next").await.unwrap();
    world.rows.put(pending("c1"));
    let claim = world
        .runtime
        .claim_approval(approve(&["c1"], Some("x")))
        .await
        .unwrap();
    let failed = operation.continue_after(&claim).await;
    assert_eq!(
        failed.unwrap_err().to_string(),
        "Cannot review a resumed tool result without its runtime owner and dispatcher"
    );
}

#[tokio::test]
async fn what_an_approved_call_has_published_is_not_taken_back_and_a_receipt_is() {
    let world = World::new(Mode::Queue);
    world.start_as("original", vec![]).await;
    let operation = world.start_as("next", vec![]).await;
    world.rows.put(pending("a"));
    let claim = world
        .runtime
        .claim_approval(approve(&["a"], Some("answer")));
    let claim = claim.await.unwrap();
    operation.continue_after(&claim).await.unwrap();
    let published = world.rows.get("a");
    claim.restore().await.unwrap();
    assert_eq!(world.rows.get("a"), published);
    let before = ToolRow {
        id: "b".to_owned(),
        ..pending("b")
    };
    world.rows.put(before.clone());
    let rejected = reject("b", Decision::RejectAndContinue { reason: None });
    let claim = world.runtime.claim_approval(rejected).await.unwrap();
    assert!(world.rows.get("b").is_final);
    claim.restore().await.unwrap();
    assert_eq!(world.rows.get("b"), before);
}
