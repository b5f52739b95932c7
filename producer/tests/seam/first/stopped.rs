//! An operation that is cancelled while another process goes on with it, or while its agents are
//! started: nothing that it has begun stays without an end.

use std::sync::Arc;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;

use super::parked::{assert_taken_back, later};
use super::*;

/// What a tool with a placeholder does.
#[derive(Clone, Copy, Debug)]
enum What {
    Defers,
    CallsAgent,
    CallsGroup,
}

/// Does it, and never ends if it is told to wait.
struct Does {
    what: What,
    waits: bool,
    stop: Stop,
}

fn agent(id: &str) -> AgentCall {
    AgentCall {
        agent_id: id.to_owned(),
        ..AgentCall::default()
    }
}

impl Does {
    async fn work(&self, run: ToolRun<'_>) -> Result<ToolRunResult, PortError> {
        run.cancel().clone_into(&mut self.stop.0.lock().unwrap());
        let result = match self.what {
            What::Defers => {
                run.defer().await?;
                ToolRunResult {
                    deferred: Some(true),
                    ..ToolRunResult::default()
                }
            }
            What::CallsAgent => run.call_agent(agent("a")).await?,
            What::CallsGroup => {
                let group = GroupCall {
                    members: vec![agent("a"), agent("b")],
                    mode: GroupMode::Isolated,
                    on_complete: None,
                    deadline_at: None,
                };
                run.call_group(group).await?
            }
        };
        if self.waits {
            std::future::pending::<()>().await;
        }
        Ok(result)
    }
}

impl Tool for Does {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(self.work(run))
    }
}

/// The end of member `a`, whose row this is.
async fn member_ends(world: &World, row: &str, group: &str) -> Result<bool, CallbackError> {
    let child = NewOperation {
        parent_operation_id: Some(OP.to_owned()),
        ..new_operation("sub-a", vec![])
    };
    world.runtime.start(child).await.unwrap();
    let answer = Answer {
        text: SECRET.to_owned(),
        ..Answer::default()
    };
    world.others.answer_with("sub-a", answer);
    let body = json!({"operationId": "sub-a", "reason": "done", "parentOperationId": OP,
        "anchorMessageId": row, "groupToolMessageId": group, "expectedMembers": 2,
        "mode": "isolated"});
    let receipt = world
        .runtime
        .member_callback(body.to_string().as_bytes())
        .await?;
    assert!(receipt.success);
    Ok(receipt.resumed)
}

#[tokio::test]
async fn a_group_that_is_cancelled_while_it_starts_leaves_no_member_without_an_end() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    let stop = Stop::default();
    let tool: Arc<dyn Tool> = Arc::new(Does {
        what: What::CallsGroup,
        waits: true,
        stop: stop.clone(),
    });
    let stops = async {
        until(&world, "start ", 2).await;
        stop.now();
    };
    let (outcome, ()) = futures::future::join(run(&operation, "c1", &tool), stops).await;
    assert_eq!(outcome.end, CallEnd::Interrupted);
    let member = world.rows.of_call("c1::m0").id;
    let resumed = member_ends(&world, &member, &outcome.tool_message_id).await;
    assert!(!resumed.unwrap());
    for row in world.rows.all() {
        assert_taken_back(&world, &row.id).await;
    }
}

/// Another process cancels: now, or just before the call writes or reads rows for the `number`th time.
async fn cancelled_elsewhere(world: &World, number: usize) {
    let other = world.restarted(Mode::Queue).resume(OP).await.unwrap();
    let cancels = async move { other.cancel().await.unwrap() };
    if number == 0 {
        cancels.await;
    } else {
        before(&world.rows, number, cancels);
    }
}

#[tokio::test]
async fn nothing_is_opened_or_started_after_a_cancel_in_another_process() {
    for (what, writes) in [
        (What::Defers, 2),
        (What::CallsAgent, 2),
        (What::CallsGroup, 4),
    ] {
        // Before the call, and just before each time that it writes or reads rows.
        for number in 0..=writes {
            let world = World::new(Mode::Queue);
            let operation = world.start(vec![]).await;
            cancelled_elsewhere(&world, number).await;
            let tool: Arc<dyn Tool> = Arc::new(Does {
                what,
                waits: false,
                stop: Stop::default(),
            });
            let outcome = run(&operation, "c1", &tool).await;
            assert_eq!(outcome.end, CallEnd::Interrupted, "{what:?} {number}");
            assert_eq!(
                world.notes.of("start "),
                Vec::<String>::new(),
                "{what:?} {number}"
            );
            assert!(
                world.rows.meanwhile.lock().unwrap().is_none(),
                "{what:?} {number}"
            );
            for row in world.rows.all() {
                assert_taken_back(&world, &row.id).await;
            }
        }
    }
}

#[tokio::test]
async fn a_tool_whose_placeholder_the_seam_opens_is_interrupted_by_a_cancel_in_another_process() {
    for number in 0..=2 {
        let world = World::new(Mode::Queue);
        let operation = world.start(vec![]).await;
        cancelled_elsewhere(&world, number).await;
        let outcome = run(&operation, "c1", &later(&world)).await;
        assert_eq!(outcome.end, CallEnd::Interrupted, "{number}");
        assert_taken_back(&world, &outcome.tool_message_id).await;
    }
}

#[tokio::test]
async fn the_end_of_an_agent_is_received_when_nobody_can_wait_for_it_any_more() {
    let waits = |id: &str| row_of(id, id);
    let is_final = |id: &str| ToolRow {
        is_final: true,
        ..waits(id)
    };
    let settled = |id: &str, status| ToolRow {
        intervention: Some(Intervention {
            status,
            ..Intervention::default()
        }),
        ..waits(id)
    };
    let aborted = |id| settled(id, InterventionStatus::Aborted);
    let rejected = |id| settled(id, InterventionStatus::Rejected);
    for (row, group, is_cancelled, is_received) in [
        (Some(waits("row")), Some(waits("group")), false, false),
        (Some(waits("row")), Some(waits("group")), true, true),
        (Some(is_final("row")), Some(waits("group")), false, true),
        (Some(aborted("row")), Some(waits("group")), false, true),
        (Some(rejected("row")), Some(waits("group")), false, true),
        (None, Some(waits("group")), false, true),
        (Some(waits("row")), Some(is_final("group")), false, true),
        (Some(waits("row")), Some(aborted("group")), false, true),
        (Some(waits("row")), None, false, true),
    ] {
        let world = World::new(Mode::Queue);
        let operation = world.start(vec![]).await;
        if is_cancelled {
            operation.cancel().await.unwrap();
        }
        for row in [&row, &group].into_iter().flatten() {
            world.rows.put(row.clone());
        }
        let rows = world.rows.all();
        let ended = member_ends(&world, "row", "group").await;
        match ended {
            Ok(resumed) => assert!(is_received && !resumed, "{row:?} {group:?}"),
            Err(error) => {
                assert_eq!(error.status(), 500);
                assert!(!is_received, "{row:?} {group:?}");
            }
        }
        assert_eq!(world.rows.all(), rows);
    }
}

#[tokio::test]
async fn the_end_of_an_agent_whose_row_was_removed_is_received_and_lets_its_parent_go_on() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    let outcome = run(&operation, "c1", &later(&world)).await;
    world.others.park(OP);
    let row = outcome.tool_message_id;
    world.rows.remove(&row).await.unwrap();
    assert!(member_ends(&world, &row, &row).await.unwrap());
    assert!(!member_ends(&world, &row, &row).await.unwrap(), "once");
    // One that is there and another user's stays as it is.
    let theirs = ToolRow {
        call: ToolCall {
            user_id: Some("u2".to_owned()),
            ..call("c2")
        },
        ..row_of(&row, "c2")
    };
    world.rows.put(theirs.clone());
    let refused = member_ends(&world, &row, &row).await.unwrap_err();
    assert_eq!(refused.status(), 500);
    assert_eq!(world.rows.all(), [theirs]);
}

#[tokio::test]
async fn a_cancel_that_does_not_take_back_all_at_one_time_says_so_and_goes_on_when_repeated() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    for number in 0..=64 * 64 {
        open(&world.store, &format!("row-{number}")).await;
    }
    operation.cancel().await.unwrap_err();
    let left = world.store.open_completions(OP).await.unwrap();
    assert_eq!(left, ["row-4096"]);
    operation.cancel().await.unwrap();
    let left = world.store.open_completions(OP).await.unwrap();
    assert_eq!(left, Vec::<String>::new());
}
