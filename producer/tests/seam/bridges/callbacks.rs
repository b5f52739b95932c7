//! The posted end of an agent, in queue mode.

use std::sync::Arc;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};

use super::*;

#[tokio::test]
async fn vector_216_a_bridge_in_queue_mode_carries_these_fields_and_no_other() {
    let world = World::new(Mode::Queue);
    world.environment.set("APP_URL", "https://app.test");
    let tool = Arc::new(CallsAgent(agent("a")));
    let outcome = call_from(&world, vec![], tool).await;
    ends(&world, "a", RunReason::Done, says("done")).await;
    let queued = world.queued().await;
    assert_eq!(queued.len(), 1);
    let body: Value = serde_json::from_slice(&queued[0].body).unwrap();
    let expected = json!({
        "operationId": "sub-a", "reason": "done", "status": "done",
        "hookId": "sub-agent-bridge", "hookType": "onComplete",
        "parentOperationId": OP, "threadId": "thread-a",
        "toolMessageId": outcome.tool_message_id,
    });
    assert_eq!(body, expected);
    // And what its receiver does with it.
    let receipt = world
        .restarted(Mode::Queue)
        .agent_callback(&queued[0].body)
        .await
        .unwrap();
    assert_eq!(
        json!(receipt),
        json!({"operationId": "sub-a", "parentOperationId": OP, "resumed": true, "success": true})
    );
    assert_eq!(world.rows.get(&outcome.tool_message_id).content, "done");
}

#[tokio::test]
async fn a_callback_is_answered_by_what_is_wrong_with_it() {
    let world = World::new(Mode::Queue);
    let body = json!({"operationId": "sub-a", "reason": "done", "parentOperationId": OP,
        "toolMessageId": "row"});
    for (body, status) in [
        ("not JSON".to_owned(), 400),
        (json!({"operationId": "x"}).to_string(), 400),
        (body.to_string(), 401),
    ] {
        let failed = world
            .runtime
            .agent_callback(body.as_bytes())
            .await
            .unwrap_err();
        assert_eq!(failed.status(), status, "{body}");
    }
    // Of another parent, or of none: nobody's business here.
    for parent in [None, Some("another")] {
        let stranger = NewOperation {
            parent_operation_id: parent.map(str::to_owned),
            ..new_operation("sub-a", vec![])
        };
        world.runtime.start(stranger).await.unwrap();
        let body = body.to_string();
        let failed = world.runtime.agent_callback(body.as_bytes()).await;
        assert_eq!(failed.unwrap_err().status(), 401);
    }
    let child = NewOperation {
        parent_operation_id: Some(OP.to_owned()),
        ..new_operation("sub-a", vec![])
    };
    world.runtime.start(child).await.unwrap();
    // Its call may be made again, and then there is a placeholder.
    let waits = ToolRow {
        id: "row".to_owned(),
        ..ToolRow::default()
    };
    world.rows.put(waits);
    let failed = world
        .runtime
        .agent_callback(body.to_string().as_bytes())
        .await
        .unwrap_err();
    assert_eq!(failed.status(), 500, "the queue delivers it again");
    world.faults.set("load");
    let failed = world
        .runtime
        .member_callback(body.to_string().as_bytes())
        .await
        .unwrap_err();
    assert_eq!(failed.status(), 400, "a member's has other ids");
}

#[tokio::test]
async fn a_callback_whose_row_cannot_be_written_is_refused_and_succeeds_when_repeated() {
    let world = World::new(Mode::Queue);
    let outcome = call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
    world.others.answer_with("sub-a", says("done"));
    child(&world, "a").await;
    let body = json!({"operationId": "sub-a", "reason": "done", "parentOperationId": OP,
        "toolMessageId": outcome.tool_message_id})
    .to_string();
    world.faults.set("commit");
    let failed = world
        .runtime
        .agent_callback(body.as_bytes())
        .await
        .unwrap_err();
    assert_eq!(failed.status(), 500);
    world.faults.clear();
    assert!(
        world
            .runtime
            .agent_callback(body.as_bytes())
            .await
            .unwrap()
            .resumed
    );
    assert!(
        !world
            .runtime
            .agent_callback(body.as_bytes())
            .await
            .unwrap()
            .resumed
    );
    assert_eq!(world.rows.get(&outcome.tool_message_id).content, "done");
}

#[tokio::test]
async fn a_duplicate_callback_after_the_policy_is_gone_changes_nothing() {
    let world = World::new(Mode::Queue);
    let tool = Arc::new(CallsAgent(agent("a")));
    let outcome = call_from(&world, vec![world.after("deny-R")], tool).await;
    world.others.answer_with("sub-a", says(SECRET));
    child(&world, "a").await;
    let body = json!({"operationId": "sub-a", "reason": "done", "parentOperationId": OP,
        "toolMessageId": outcome.tool_message_id})
    .to_string();
    assert!(
        world
            .runtime
            .agent_callback(body.as_bytes())
            .await
            .unwrap()
            .resumed
    );
    let record = OperationRecord {
        hooks: Some(json!([])),
        user_id: Some("u1".to_owned()),
        ..OperationRecord::default()
    };
    world.records.save(OP, &record).await.unwrap();
    let cold = world.restarted(Mode::Queue);
    let again = cold.agent_callback(body.as_bytes()).await.unwrap();
    assert!(again.success && !again.resumed);
    assert_eq!(world.rows.get(&outcome.tool_message_id).content, "R");
    assert_eq!(world.bodies("deny-R").len(), 1);
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn an_operation_brings_nothing_to_a_placeholder_of_one_that_has_not_started_it() {
    let world = World::new(Mode::Queue);
    let outcome = call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
    let id = outcome.tool_message_id;
    world.start_as("stranger", vec![]).await;
    world.others.answer_with("stranger", says(SECRET));
    let agent = json!({"operationId": "stranger", "reason": "done", "parentOperationId": OP,
        "toolMessageId": id});
    let agent = agent.to_string();
    let refused = world.runtime.agent_callback(agent.as_bytes()).await;
    assert_eq!(refused.unwrap_err().status(), 401);
    for mode in ["isolated", "shared"] {
        let member = json!({"operationId": "stranger", "reason": "done", "parentOperationId": OP,
            "anchorMessageId": id, "groupToolMessageId": id, "expectedMembers": 1, "mode": mode});
        let member = member.to_string();
        let refused = world.runtime.member_callback(member.as_bytes()).await;
        assert_eq!(refused.unwrap_err().status(), 401);
    }
    assert!(!world.rows.get(&id).is_final);
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn the_late_end_of_an_agent_of_a_cancelled_parent_is_received_and_changes_nothing() {
    for members in [&["a"][..], &["a", "b"]] {
        let world = World::new(Mode::Queue);
        let tool: Arc<dyn Tool> = if members.len() == 1 {
            Arc::new(CallsAgent(agent("a")))
        } else {
            Arc::new(CallsGroup(group(members)))
        };
        call_from(&world, vec![], tool).await;
        let parent = world.runtime.resume(OP).await.unwrap();
        parent.cancel().await.unwrap();
        let cancelled = world.rows.all();
        let is_aborted = |row: &ToolRow| intervention(row)["status"] == "aborted";
        assert!(cancelled.iter().all(is_aborted), "{cancelled:?}");
        world.others.answer_with("sub-a", says(SECRET));
        child(&world, "a").await;
        let anchor = &cancelled.last().unwrap().id;
        let body = json!({"operationId": "sub-a", "reason": "done", "parentOperationId": OP,
            "toolMessageId": anchor, "anchorMessageId": anchor, "groupToolMessageId": anchor,
            "expectedMembers": members.len(), "mode": "isolated"})
        .to_string();
        let body = body.as_bytes();
        for receipt in [
            world.runtime.agent_callback(body).await.unwrap(),
            world.runtime.member_callback(body).await.unwrap(),
        ] {
            assert!(receipt.success && !receipt.resumed, "{receipt:?}");
        }
        assert_eq!(world.rows.all(), cancelled);
        world.assert_nowhere(SECRET);
    }
}
