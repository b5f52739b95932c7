//! 25.15: agents that are started by tools, and how their ends come back.

use std::sync::Arc;
use std::time::Duration;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};

use crate::support::*;

/// Calls one agent.
struct CallsAgent(AgentCall);

impl Tool for CallsAgent {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move { run.call_agent(self.0.clone()).await })
    }
}

/// Calls a group.
struct CallsGroup(GroupCall);

impl Tool for CallsGroup {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move { run.call_group(self.0.clone()).await })
    }
}

fn agent(id: &str) -> AgentCall {
    AgentCall {
        agent_id: id.to_owned(),
        instruction: format!("{}🚀 go", "x".repeat(199)),
        thread_id: Some(format!("thread-{id}")),
    }
}

fn group(members: &[&str]) -> GroupCall {
    GroupCall {
        members: members.iter().map(|id| agent(id)).collect(),
        mode: GroupMode::Isolated,
        on_complete: Some("finish".to_owned()),
        deadline_at: None,
    }
}

/// Starts the parent with these hooks and lets it call.
async fn call_from(world: &World, hooks: Vec<AgentHook>, tool: Arc<dyn Tool>) -> CallOutcome {
    let operation = world.start(hooks).await;
    let outcome = run(&operation, "c1", &tool).await;
    world.others.park(OP);
    world.drain().await;
    outcome
}

/// The operation of the agent that was started.
async fn child(world: &World, id: &str) -> Operation {
    let started = {
        let mut all = world.others.started.lock().unwrap();
        let index = all
            .iter()
            .position(|one| one.agent_id == id)
            .expect("started");
        all.remove(index)
    };
    let new = NewOperation {
        id: format!("sub-{id}"),
        agent_id: id.to_owned(),
        parent_operation_id: Some(started.parent_operation_id),
        group_member_bridge: started.group_member_bridge,
        ..new_operation("", vec![started.bridge])
    };
    world.runtime.start(new).await.expect("started")
}

/// Ends the agent with this text.
async fn ends(world: &World, id: &str, reason: RunReason, answer: Answer) {
    world.others.answer_with(&format!("sub-{id}"), answer);
    let operation = child(world, id).await;
    operation
        .end(reason, RunEnd::default())
        .await
        .expect("told");
}

fn says(text: &str) -> Answer {
    Answer {
        text: text.to_owned(),
        ..Answer::default()
    }
}

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
async fn vector_208_a_denied_member_keeps_what_its_group_does_afterwards() {
    let world = World::new(Mode::Local);
    let tool = Arc::new(CallsGroup(group(&["a", "b"])));
    call_from(&world, vec![world.after("deny-R")], tool).await;
    ends(&world, "a", RunReason::Done, says(SECRET)).await;
    let anchor = world.rows.of_call("c1::m0");
    assert_eq!(state(&anchor)["onComplete"], "finish");
    assert_eq!(anchor.content, "R");
    let body = &world.bodies("deny-R")[0];
    assert_eq!(
        (&body["apiName"], &body["toolCallId"]),
        (&json!("write"), &json!("c1"))
    );
    assert_eq!(body["toolMessageId"], json!(anchor.id));
}

#[tokio::test]
async fn vector_215_a_member_that_cannot_be_started_is_reviewed_like_any_other() {
    for (answer, expected) in [
        ("slow", "Agent member \"bad\" failed to start."),
        ("deny-R", "R"),
    ] {
        let world = World::new(Mode::Local);
        world.others.broken.lock().unwrap().insert("bad".to_owned());
        let tool: Arc<dyn Tool> = Arc::new(CallsGroup(group(&["good", "bad"])));
        let operation = world.start(vec![world.after(answer)]).await;
        let look = async {
            world.receiver.wait_for(1, SOON).await;
            if answer == "slow" {
                assert_eq!(
                    world.rows.of_call("c1::m1").content,
                    "",
                    "until its control returns"
                );
            }
        };
        let (outcome, ()) = futures::future::join(run(&operation, "c1", &tool), look).await;
        world.others.park(OP);
        assert_eq!(world.rows.of_call("c1::m1").content, expected);
        assert_eq!(
            world.rows.of_call("c1::m0").content,
            "",
            "the sibling goes on"
        );
        assert!(!world.runtime.check_barrier(OP).await.unwrap());
        ends(&world, "good", RunReason::Done, says("done")).await;
        assert!(world.rows.get(&outcome.tool_message_id).is_final);
        assert_eq!(world.notes.of("resume"), ["resume op"], "once");
        assert!(!world.runtime.check_barrier(OP).await.unwrap());
        assert_eq!(world.notes.of("resume"), ["resume op"]);
    }
}

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

#[tokio::test]
async fn a_group_of_which_nobody_starts_leaves_one_row_with_an_error() {
    let world = World::new(Mode::Local);
    world
        .others
        .broken
        .lock()
        .unwrap()
        .extend(["a".to_owned(), "b".to_owned()]);
    let outcome = call_from(&world, vec![], Arc::new(CallsGroup(group(&["a", "b"])))).await;
    assert_eq!(outcome.end, CallEnd::Published);
    assert_eq!(world.rows.all().len(), 1, "{:?}", world.rows.all());
    assert_eq!(
        world.rows.of_call("c1").content,
        "No agent member could be started."
    );
}

#[tokio::test]
async fn a_group_has_its_receipt_when_the_last_member_has_its_result() {
    let world = World::new(Mode::Local);
    let outcome = call_from(
        &world,
        vec![],
        Arc::new(CallsGroup(group(&["a", "b", "c"]))),
    )
    .await;
    let expected = json!({"expectedMembers": 3, "onComplete": "finish", "status": "pending"});
    assert_eq!(state(&world.rows.get(&outcome.tool_message_id)), expected);
    ends(&world, "a", RunReason::Done, says("one")).await;
    ends(&world, "b", RunReason::Error, Answer::default()).await;
    assert!(!world.rows.get(&outcome.tool_message_id).is_final);
    ends(&world, "c", RunReason::Done, says("")).await;
    let contents: Vec<_> = (0..3)
        .map(|index| world.rows.of_call(&format!("c1::m{index}")).content)
        .collect();
    assert_eq!(
        contents,
        [
            "one",
            "Agent member did not complete (error).",
            "Agent member completed without a textual answer."
        ]
    );
    let group = world.rows.get(&outcome.tool_message_id);
    assert_eq!(group.content, "All 3 agent members completed.");
    assert_eq!(state(&group)["onComplete"], "finish", "merged");
    assert_eq!(world.notes.of("resume"), ["resume op"]);
}

#[tokio::test]
async fn a_single_member_uses_the_row_of_its_group() {
    let world = World::new(Mode::Local);
    let shared = GroupCall {
        mode: GroupMode::Shared,
        ..group(&["a"])
    };
    let outcome = call_from(&world, vec![], Arc::new(CallsGroup(shared))).await;
    ends(&world, "a", RunReason::Done, says("said to all")).await;
    assert_eq!(world.rows.all().len(), 1);
    let row = world.rows.get(&outcome.tool_message_id);
    assert_eq!(row.content, "Agent a responded in the group.");
    assert_eq!(world.notes.of("resume"), ["resume op"]);
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

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_is_looked_at_again_five_times() {
    let world = World::new(Mode::Queue);
    let outcome = call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
    assert!(!world.runtime.watch(OP).await.unwrap());
    let start = tokio::time::Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if world.notes.of("status").len() > seen.len() {
            seen.push(start.elapsed().as_secs());
        }
        assert!(start.elapsed() < Duration::from_mins(10));
    }
    let looks: Vec<_> = [15, 45, 105, 225, 465].into();
    for (seen, expected) in seen.iter().zip(looks) {
        assert!(seen.abs_diff(expected) <= 1, "{seen} is not {expected}");
    }
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.notes.of("status").len(), 5);
    assert!(!world.rows.get(&outcome.tool_message_id).is_final);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_nobody_told_about_is_found_and_a_run_that_is_over_is_left() {
    let world = World::new(Mode::Queue);
    let outcome = call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
    world.runtime.watch(OP).await.unwrap();
    let elsewhere = Completions::new(
        world.runtime.hooks().clone(),
        world.store.clone(),
        world.records.clone(),
    );
    let never = tokio_util::sync::CancellationToken::new();
    let id = &outcome.tool_message_id;
    elsewhere
        .complete(OP, id, result("late"), &never)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(world.rows.get(id).content, "late");
    assert_eq!(world.notes.of("resume"), ["resume op"]);
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(
        world.notes.of("status").len(),
        1,
        "nothing is watched any more"
    );

    let world = World::new(Mode::Queue);
    call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
    world.others.over.lock().unwrap().insert(OP.to_owned());
    world.runtime.watch(OP).await.unwrap();
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.notes.of("status").len(), 1, "it is over");
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
async fn when_some_members_fail_to_start_the_others_still_bring_the_group_to_its_end() {
    let world = World::new(Mode::Queue);
    world.environment.set("APP_URL", "https://app.test");
    world
        .others
        .broken
        .lock()
        .unwrap()
        .extend(["b".to_owned(), "d".to_owned()]);
    let members = group(&["a", "b", "c", "d"]);
    let outcome = call_from(&world, vec![], Arc::new(CallsGroup(members))).await;
    for id in ["a", "c"] {
        ends(&world, id, RunReason::Done, says(id)).await;
    }
    let queued = world.queued().await;
    assert_eq!(queued.len(), 2);
    let mut resumed = Vec::new();
    for message in queued {
        let body: Value = serde_json::from_slice(&message.body).unwrap();
        assert_eq!(
            (&body["mode"], &body["expectedMembers"]),
            (&json!("isolated"), &json!(4))
        );
        assert_eq!(body["groupToolMessageId"], json!(outcome.tool_message_id));
        let cold = world.restarted(Mode::Queue);
        resumed.push(cold.member_callback(&message.body).await.unwrap().resumed);
    }
    assert_eq!(resumed, [false, true]);
    let contents: Vec<_> = (0..4)
        .map(|index| world.rows.of_call(&format!("c1::m{index}")).content)
        .collect();
    let failed = |id: &str| format!("Agent member \"{id}\" failed to start.");
    assert_eq!(
        contents,
        ["a".to_owned(), failed("b"), "c".to_owned(), failed("d")]
    );
    let receipt = world.rows.get(&outcome.tool_message_id).content;
    assert_eq!(receipt, "All 4 agent members completed.");
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
