//! A call whose run is cancelled while it is made.

use std::sync::atomic::Ordering;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;

use super::*;

#[tokio::test]
async fn a_call_that_is_cancelled_while_its_tool_waits_leaves_no_placeholder() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    let (tool, mut told, stop) = asks();
    let stops = async {
        let place = told.recv().await.unwrap();
        stop.now();
        place.tool_message_id
    };
    let (outcome, row) = futures::future::join(run(&operation, "c1", &tool), stops).await;
    assert_eq!(outcome.end, CallEnd::Interrupted);
    let settled = world.rows.get(&row);
    assert_eq!(intervention(&settled)["status"], json!("aborted"));
    assert_closed(&world, &row).await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_its_placeholder_is_opened_leaves_none() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    // The row is put, its placeholder opened, and the row looked at once more: then it happens.
    let (tool, _told, stop) = asks();
    let stops = async move {
        stop.now();
        std::future::pending::<()>().await;
    };
    after_next(&world.rows, stops);
    let outcome = run(&operation, "c1", &tool).await;
    assert_eq!(outcome.end, CallEnd::Interrupted);
    let row = world.rows.of_call("c1").id;
    assert_eq!(outcome.tool_message_id, row);
    let settled = world.rows.get(&row);
    assert_eq!(intervention(&settled)["status"], json!("aborted"));
    assert_closed(&world, &row).await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_during_a_review_leaves_no_placeholder() {
    for before in [true, false] {
        let (world, gate) = gated();
        let control = if before {
            world.before("gate-allow").matching("^again/")
        } else {
            world.after("gate-allow")
        };
        let operation = world.start(vec![control]).await;
        let (row, stop) = dies_waiting(&operation, "c1").await;
        let again = calling("again", "c1", &world.saying(SECRET));
        let stops = async {
            until(&world, "http /gate", 1).await;
            stop.now();
        };
        let (outcome, ()) =
            futures::future::join(operation.run_tools(vec![vec![again]]), stops).await;
        gate.open();
        assert_eq!(outcome.unwrap().state, RunState::Interrupted);
        let shown = world.rows.get(&row);
        assert_eq!(shown.intervention.is_some(), before, "aborted before only");
        assert_closed(&world, &row).await;
        world.assert_nowhere(SECRET);
        // Nor does a settled row get one when the call is made again.
        if before {
            open(&world.store, &row).await;
            let again = world.runtime.resume(OP).await.unwrap();
            let outcome = run(&again, "c1", &world.saying("x")).await;
            assert_eq!((outcome.end, world.runs()), (CallEnd::Interrupted, 0));
            assert_closed(&world, &row).await;
        }
    }
}

#[tokio::test]
async fn a_cancelled_call_does_not_touch_a_result_that_came_first() {
    for fills_row in [true, false] {
        let (world, gate) = gated();
        let control = world.before("gate-allow").matching("^again/");
        let operation = world.start(vec![control]).await;
        let (row, stop) = dies_waiting(&operation, "c1").await;
        let again = calling("again", "c1", &world.saying("x"));
        let stops = async {
            until(&world, "http /gate", 1).await;
            complete_elsewhere(&world, &row).await;
            if fills_row {
                world.runtime.collect(OP, &row).await.unwrap().unwrap();
            }
            stop.now();
        };
        let (outcome, ()) =
            futures::future::join(operation.run_tools(vec![vec![again]]), stops).await;
        gate.open();
        assert_eq!(outcome.unwrap().state, RunState::Interrupted);
        let row = world.rows.get(&row);
        assert_eq!((row.content.as_str(), row.is_final), ("first", true));
        assert_eq!(row.intervention, None, "not aborted");
    }
}

#[tokio::test]
async fn a_result_that_is_written_while_a_cancelled_call_is_settled_stays() {
    let (world, gate) = gated();
    let control = world.before("gate-allow").matching("^again/");
    let operation = world.start(vec![control]).await;
    let (row, stop) = dies_waiting(&operation, "c1").await;
    let again = calling("again", "c1", &world.saying("x"));
    let mut theirs = world.rows.get(&row);
    denied_elsewhere(&mut theirs);
    let stops = async {
        until(&world, "http /gate", 1).await;
        let (rows, theirs) = (Arc::clone(&world.rows), theirs.clone());
        *world.rows.meanwhile.lock().unwrap() = Some(Box::pin(async move { rows.put(theirs) }));
        stop.now();
    };
    let (outcome, ()) = futures::future::join(operation.run_tools(vec![vec![again]]), stops).await;
    gate.open();
    assert_eq!(outcome.unwrap().state, RunState::Interrupted);
    assert_eq!(world.rows.get(&row), theirs, "not aborted");
}

#[tokio::test]
async fn a_call_that_is_stopped_while_its_result_is_written_stays_stopped() {
    for status in [InterventionStatus::Aborted, InterventionStatus::Rejected] {
        let world = World::new(Mode::Local);
        let operation = world.start(vec![]).await;
        let (row, _) = dies_waiting(&operation, "c1").await;
        let rows = Arc::clone(&world.rows);
        let mut theirs = rows.get(&row);
        theirs.intervention.get_or_insert_default().status = status;
        let stopped = theirs.clone();
        let stops = async move { rows.put(theirs) };
        *world.rows.meanwhile.lock().unwrap() = Some(Box::pin(stops));
        let outcome = run(&operation, "c1", &world.saying(SECRET)).await;
        assert_eq!(outcome.end, CallEnd::Interrupted);
        assert_eq!(world.rows.get(&row), stopped);
        assert_eq!(world.notes.of("tool_end"), Vec::<String>::new());
        assert!(!format!("{outcome:?}").contains(SECRET));
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_another_process_begins_it_is_settled() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    operation.cancel().await.unwrap();
    let rows = Arc::clone(&world.rows);
    let begins = async move { rows.put(row_of("theirs", "c1")) };
    before(&world.rows, 1, begins);
    let outcome = run(&operation, "c1", &world.saying(SECRET)).await;
    assert_eq!(outcome.end, CallEnd::Interrupted);
    let settled = world.rows.of_call("c1");
    assert_eq!(intervention(&settled)["status"], json!("aborted"));
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_its_placeholder_is_opened_for_it_is_interrupted() {
    for number in [1, 2] {
        let world = World::new(Mode::Local);
        let operation = world.start(vec![]).await;
        let cancels = operation.clone();
        before(&world.rows, number, async move {
            cancels.cancel().await.unwrap();
        });
        let tool = super::parked::later(&world);
        let outcome = run(&operation, "c1", &tool).await;
        assert_eq!(outcome.end, CallEnd::Interrupted, "{number}");
        super::parked::assert_taken_back(&world, &outcome.tool_message_id).await;
    }
}

#[tokio::test]
async fn a_cancel_stops_what_runs_before_anybody_waits_for_it() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    drop(operation.cancel());
    assert!(operation.is_cancelled());
}

#[tokio::test]
async fn a_handler_that_hangs_holds_up_no_cancellation() {
    let world = World::new(Mode::Local);
    let notes = world.notes.clone();
    let hangs = AgentHook::handler("hangs", move |_: Arc<BeforeToolCall>| {
        notes.add("handler");
        std::future::pending()
    });
    let operation = world.start(vec![hangs]).await;
    let tool = world.saying("x");
    let stops = async {
        until(&world, "handler", 1).await;
        operation.cancel().await.unwrap();
    };
    let both = futures::future::join(run(&operation, "c1", &tool), stops);
    let (outcome, ()) = tokio::time::timeout(SOON, both).await.expect("it ends");
    assert_eq!((outcome.end, world.runs()), (CallEnd::Interrupted, 0));
    let row = world.rows.of_call("c1");
    assert_eq!(intervention(&row)["status"], json!("aborted"));
}

#[tokio::test]
async fn a_mock_that_comes_together_with_a_cancellation_is_dropped() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    let cancels = operation.clone();
    let mock = AgentHook::handler("mock", move |event: Arc<BeforeToolCall>| {
        let cancels = cancels.clone();
        async move {
            event.mock(result(SECRET));
            cancels.cancel().await.unwrap();
            Ok(())
        }
    });
    world.runtime.hooks().register(OP, vec![mock]).unwrap();
    let outcome = run(&operation, "c1", &world.saying("x")).await;
    assert_eq!((outcome.end, world.runs()), (CallEnd::Interrupted, 0));
    let row = world.rows.of_call("c1");
    assert_eq!(intervention(&row)["status"], json!("aborted"));
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn an_archive_that_hangs_holds_up_no_cancellation() {
    let world = World::new(Mode::Local);
    world.attic.hangs.store(true, Ordering::SeqCst);
    let operation = world.start(vec![]).await;
    let tool = world.saying(SECRET);
    let stops = async {
        until(&world, "archive", 1).await;
        operation.cancel().await.unwrap();
    };
    let both = futures::future::join(run(&operation, "c1", &tool), stops);
    let (outcome, ()) = tokio::time::timeout(SOON, both).await.expect("it ends");
    assert_eq!(outcome.end, CallEnd::Interrupted);
    world.assert_nowhere(SECRET);
}
