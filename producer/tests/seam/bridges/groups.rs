//! Several agents that a tool calls together.

use std::sync::Arc;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};

use super::*;

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
