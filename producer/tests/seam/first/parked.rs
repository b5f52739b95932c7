//! An operation that is cancelled, or ends, while it waits for results: none of them is taken any
//! more, and one that came first stays.

use std::sync::Arc;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;

use super::*;

/// A tool that leaves a placeholder.
pub(super) fn later(world: &World) -> Arc<dyn Tool> {
    world.tool(|_| {
        Ok(ToolRunResult {
            deferred: Some(true),
            ..ToolRunResult::default()
        })
    })
}

/// Parks an operation on this call; its row.
async fn park(world: &World, operation: &Operation, id: &str) -> String {
    let outcome = run(operation, id, &later(world)).await;
    assert_eq!(outcome.end, CallEnd::Deferred);
    world.others.park(OP);
    outcome.tool_message_id
}

pub(super) async fn assert_taken_back(world: &World, row: &str) {
    let shown = world.rows.get(row);
    assert_eq!(
        intervention(&shown)["status"],
        json!("aborted"),
        "{shown:?}"
    );
    assert!(!shown.is_final && shown.content.is_empty());
    assert_closed(world, row).await;
    let never = CancellationToken::new();
    let elsewhere = world.elsewhere();
    let late = elsewhere.complete(OP, row, result(SECRET), &never).await;
    assert!(matches!(late, Err(CompleteError::Unknown)), "{late:?}");
    let open = world.store.open_completions(OP).await.unwrap();
    assert_eq!(open, Vec::<String>::new(), "nothing stays open");
    assert!(!world.runtime.check_barrier(OP).await.unwrap());
    assert_eq!(world.notes.of("resume"), Vec::<String>::new());
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn a_parked_operation_that_is_cancelled_takes_no_late_result() {
    for is_another_process in [false, true] {
        let world = World::new(Mode::Queue);
        let operation = world.start(vec![world.after("allow")]).await;
        let row = park(&world, &operation, "c1").await;
        let canceller = if is_another_process {
            world.restarted(Mode::Queue).resume(OP).await.unwrap()
        } else {
            operation
        };
        for _ in 0..2 {
            canceller.cancel().await.unwrap();
            assert_taken_back(&world, &row).await;
        }
        assert_eq!(world.receiver.count(), 0, "nobody was asked about it");
        // Nor is its call made again.
        let again = world.runtime.resume(OP).await.unwrap();
        let outcome = run(&again, "c1", &later(&world)).await;
        assert_eq!(outcome.end, CallEnd::Interrupted);
        assert_taken_back(&world, &row).await;
    }
}

#[tokio::test]
async fn an_operation_that_ends_because_it_was_stopped_takes_no_late_result() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    let row = park(&world, &operation, "c1").await;
    let ends = || operation.end(RunReason::Interrupted, RunEnd::default());
    world.faults.set("load");
    let failed = ends().await;
    assert!(matches!(failed, Err(EndError::TakeBack(_))), "{failed:?}");
    world.faults.clear();
    ends().await.unwrap();
    assert_taken_back(&world, &row).await;
    // Others take what comes late, and those that wait for a human do anyway.
    for reason in [RunReason::WaitingForHuman, RunReason::Error] {
        let world = World::new(Mode::Queue);
        let operation = world.start(vec![]).await;
        let row = park(&world, &operation, "c1").await;
        operation.end(reason, RunEnd::default()).await.unwrap();
        let completed = world.runtime.complete(OP, &row, result("x")).await;
        assert!(completed.unwrap().applied, "{reason:?}");
    }
}

#[tokio::test]
async fn a_placeholder_of_an_attempt_that_died_is_taken_back_by_a_cancel_in_another_process() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    let (row, _) = dies_waiting(&operation, "c1").await;
    let other = world.restarted(Mode::Queue).resume(OP).await.unwrap();
    other.cancel().await.unwrap();
    assert_taken_back(&world, &row).await;
}

#[tokio::test]
async fn a_call_that_was_deferred_beside_one_that_is_cancelled_takes_no_late_result() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    let (tool, mut told, _) = asks();
    let cancels = async {
        told.recv().await.unwrap();
        until(&world, "run c1", 1).await;
        operation.cancel().await.unwrap();
    };
    let lanes = vec![
        vec![request("c1", &later(&world))],
        vec![request("c2", &tool)],
    ];
    let (outcome, ()) = futures::future::join(operation.run_tools(lanes), cancels).await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.state, RunState::Interrupted);
    for call in outcome.calls {
        assert_eq!(call.end, CallEnd::Interrupted);
        assert_taken_back(&world, &call.tool_message_id).await;
    }
    let record = world.records.load(OP).await.unwrap().unwrap();
    assert_eq!(record.waiting_for, Vec::<String>::new());
}

#[tokio::test]
async fn a_cancel_that_failed_between_placeholder_and_row_settles_the_row_when_repeated() {
    for (fault, is_parked) in [
        ("change", true),
        ("commit", true),
        ("load", true),
        ("save", true),
        ("change", false),
        ("commit", false),
    ] {
        let world = World::new(Mode::Queue);
        let operation = world.start(vec![]).await;
        let row = if is_parked {
            park(&world, &operation, "c1").await
        } else {
            dies_waiting(&operation, "c1").await.0
        };
        world.faults.set(fault);
        operation.cancel().await.unwrap_err();
        world.faults.clear();
        assert_closed(&world, &row).await;
        operation.cancel().await.unwrap();
        assert_taken_back(&world, &row).await;
        let record = world.records.load(OP).await.unwrap().unwrap();
        assert_eq!(record.waiting_for, Vec::<String>::new(), "{fault}");
        let again = world.restarted(Mode::Queue).resume(OP).await.unwrap();
        let runs = world.runs();
        let outcome = run(&again, "c1", &later(&world)).await;
        assert_eq!((outcome.end, world.runs()), (CallEnd::Interrupted, runs));
    }
}

#[tokio::test]
async fn a_result_that_came_before_the_cancel_stays_and_is_shown() {
    for fills_row in [true, false] {
        let world = World::new(Mode::Queue);
        let operation = world.start(vec![]).await;
        let row = park(&world, &operation, "c1").await;
        complete_elsewhere(&world, &row).await;
        if fills_row {
            world.runtime.collect(OP, &row).await.unwrap().unwrap();
        }
        operation.cancel().await.unwrap();
        let shown = world.rows.get(&row);
        assert_eq!((shown.content.as_str(), shown.is_final), ("first", true));
        assert_eq!(shown.intervention, None, "not aborted");
    }
}

#[tokio::test]
async fn a_result_that_is_reviewed_while_its_operation_is_cancelled_is_not_taken() {
    let (world, gate) = gated();
    let operation = world.start(vec![world.after("gate-allow")]).await;
    let row = park(&world, &operation, "c1").await;
    let cancels = async {
        until(&world, "http /gate", 1).await;
        operation.cancel().await.unwrap();
        gate.open();
    };
    let completes = world.runtime.complete(OP, &row, result(SECRET));
    let (late, ()) = futures::future::join(completes, cancels).await;
    assert!(matches!(late, Err(CompleteError::Unknown)), "{late:?}");
    assert_taken_back(&world, &row).await;
}

#[tokio::test]
async fn many_placeholders_of_one_operation_are_all_taken_back() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    let lanes = (0..130).map(|number| vec![request(&format!("c:{number}%3A"), &later(&world))]);
    let outcome = operation.run_tools(lanes.collect()).await.unwrap();
    assert_eq!(outcome.state, RunState::WaitingForAsyncTool);
    // As after a crash, before the record says what is waited for.
    let mut record = world.records.load(OP).await.unwrap().unwrap();
    assert_eq!(std::mem::take(&mut record.waiting_for).len(), 130);
    world.records.save(OP, &record).await.unwrap();
    operation.cancel().await.unwrap();
    for call in [0, 64, 129].map(|index| &outcome.calls[index]) {
        assert_taken_back(&world, &call.tool_message_id).await;
    }
}
