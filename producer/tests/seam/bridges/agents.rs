//! One agent that a tool calls.

use std::sync::Arc;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::json;

use super::*;

#[tokio::test]
async fn vector_207_a_blocked_child_keeps_its_counters_and_nothing_else() {
    let world = World::new(Mode::Local);
    let tool = Arc::new(CallsAgent(agent("a")));
    let outcome = call_from(&world, vec![world.after("deny-R")], tool).await;
    let usage = object(json!({"totalCost": 0.25, "note": SECRET, "totalTokens": "many"}));
    let answer = Answer {
        usage,
        ..says(SECRET)
    };
    ends(&world, "a", RunReason::Done, answer).await;
    let row = world.rows.get(&outcome.tool_message_id);
    assert_eq!(
        state(&row),
        json!({"phase": "afterToolCall", "reason": "R", "type": "blocked", "totalCost": 0.25})
    );
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn vector_217_an_interrupted_sub_agent_says_so() {
    for (reason, answer, expected) in [
        (
            RunReason::Interrupted,
            says("x"),
            "Sub-agent did not complete (interrupted).",
        ),
        (
            RunReason::Error,
            Answer {
                error: Some("no quota".to_owned()),
                ..Answer::default()
            },
            "Sub-agent did not complete (error): no quota",
        ),
        (
            RunReason::Done,
            says(" "),
            "Sub-agent completed without a textual answer.",
        ),
        (RunReason::MaxSteps, says("so far"), "so far"),
    ] {
        let world = World::new(Mode::Local);
        let outcome = call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
        ends(&world, "a", reason, answer).await;
        assert_eq!(world.rows.get(&outcome.tool_message_id).content, expected);
    }
}

#[tokio::test]
async fn a_sub_agent_that_waits_for_a_human_lets_its_parent_wait() {
    let world = World::new(Mode::Local);
    let outcome = call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
    let operation = child(&world, "a").await;
    operation
        .end(RunReason::WaitingForHuman, RunEnd::default())
        .await
        .unwrap();
    assert!(!world.rows.get(&outcome.tool_message_id).is_final);
    world.others.answer_with("sub-a", says("done"));
    operation
        .end(RunReason::Done, RunEnd::default())
        .await
        .unwrap();
    assert_eq!(world.rows.get(&outcome.tool_message_id).content, "done");
    assert_eq!(world.notes.of("resume"), ["resume op"]);
}

#[tokio::test]
async fn starting_an_agent_is_told_on_the_parent_with_a_short_instruction() {
    let world = World::new(Mode::Local);
    let hooks = vec![
        noting::<BeforeCallAgent>("before", &world.notes),
        noting::<AfterCallAgent>("after", &world.notes),
        noting::<OnCallAgentError>("error", &world.notes),
    ];
    world.others.broken.lock().unwrap().insert("bad".to_owned());
    call_from(&world, hooks, Arc::new(CallsAgent(agent("a")))).await;
    let operation = world.runtime.resume(OP).await.unwrap();
    let tool: Arc<dyn Tool> = Arc::new(CallsAgent(agent("bad")));
    let failed = run(&operation, "c2", &tool).await;
    world.drain().await;
    let before = noted(&world.notes, "before");
    assert_eq!((&before[0]["operationId"], before.len()), (&json!(OP), 2));
    assert_eq!(before[0]["instruction"], json!("x".repeat(199)));
    let after = noted(&world.notes, "after");
    assert_eq!(
        after,
        [
            json!({"operationId": OP, "agentId": "a", "subOperationId": "sub-a", "success": true,
            "threadId": "thread-a", "userId": "u1"})
        ]
    );
    let error = noted(&world.notes, "error");
    assert_eq!(
        (error.len(), &error[0]["error"]),
        (1, &json!("bad is broken"))
    );
    // The error is the result, and nothing waits.
    assert_eq!(failed.end, CallEnd::Published);
    assert_eq!(world.rows.of_call("c2").content, "bad is broken");
    let late = world
        .runtime
        .complete(OP, &failed.tool_message_id, result("late"))
        .await;
    assert!(matches!(late, Err(CompleteError::Unknown)));
}
