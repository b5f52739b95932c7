//! The first final result wins, also when a call is made again, by two processes at once, or
//! cancelled: no placeholder outlives it, and what lost is nowhere.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// Keeps a control from answering until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let is_open = self.0.0.lock().unwrap();
        let waited = self
            .0
            .1
            .wait_timeout_while(is_open, SOON, |is_open| !*is_open);
        assert!(!waited.unwrap().1.timed_out(), "the gate is opened");
    }
}

/// A world whose receiver waits at `/gate-X` for the gate, and answers then as at `/X`.
fn gated() -> (World, Gate) {
    let gate = Gate::default();
    let at = gate.clone();
    let world = World::answering(Mode::Local, move |request| {
        let answer = request.path.strip_prefix("/gate-")?;
        at.wait();
        Some(by_path(answer))
    });
    (world, gate)
}

/// Waits until something that begins like this was noted so often.
async fn until(world: &World, start: &str, count: usize) {
    let noted = async {
        while world.notes.of(start).len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let noted = tokio::time::timeout(SOON, noted).await;
    noted.unwrap_or_else(|_| panic!("{start}: {:?}", world.notes.all()));
}

/// Asks for a placeholder, says where it is, and never ends.
struct Asks(mpsc::UnboundedSender<Deferred>);

impl Tool for Asks {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            self.0.send(run.defer().await?)?;
            std::future::pending().await
        })
    }
}

/// A first attempt that opens its placeholder and dies with it open; its row.
async fn dies_waiting(operation: &Operation, id: &str) -> String {
    let (tell, mut told) = mpsc::unbounded_channel();
    let tool: Arc<dyn Tool> = Arc::new(Asks(tell));
    tokio::select! {
        outcome = run(operation, id, &tool) => panic!("{outcome:?}"),
        place = told.recv() => place.unwrap().tool_message_id,
    }
}

async fn assert_closed(world: &World, row: &str) {
    let before = world.rows.get(row);
    let late = world.runtime.complete(OP, row, result("late")).await;
    assert!(matches!(late, Err(CompleteError::Unknown)), "{late:?}");
    assert_eq!(world.rows.get(row), before);
}

/// An operation whose calls of the tool `denied` are denied before, those of `withheld` after.
async fn judging(world: &World) -> Operation {
    let hooks = vec![
        world.before("deny-R").matching("^denied/"),
        world.after("deny-W").matching("^withheld/"),
    ];
    world.start(hooks).await
}

#[tokio::test]
async fn a_call_that_ends_otherwise_the_second_time_leaves_no_placeholder_of_the_first() {
    for (identifier, permission, expected) in [
        ("denied", Permission::Granted, CallEnd::DeniedBefore),
        ("withheld", Permission::Granted, CallEnd::DeniedAfter),
        ("fs", Permission::Granted, CallEnd::Published),
        ("broken", Permission::Granted, CallEnd::Failed),
        ("fs", Permission::NotAllowed, CallEnd::NotAllowed),
    ] {
        let world = World::new(Mode::Local);
        let operation = judging(&world).await;
        let row = dies_waiting(&operation, "c1").await;
        let tool = world.tool(move |_| match identifier {
            "broken" => Err("broken".into()),
            _ => Ok(result("at once")),
        });
        let mut again = ToolRequest {
            permission,
            ..request("c1", &tool)
        };
        identifier.clone_into(&mut again.call.identifier);
        let outcome = operation.run_tools(vec![vec![again]]).await.unwrap();
        assert_eq!(outcome.calls[0].end, expected);
        assert_eq!(outcome.calls[0].tool_message_id, row);
        assert_closed(&world, &row).await;
        // Nor is one left that was opened when the row had its result.
        open(&world.store, &row).await;
        run(&operation, "c1", &tool).await;
        assert_closed(&world, &row).await;
    }
}

#[tokio::test]
async fn a_mocked_result_of_the_second_attempt_leaves_no_placeholder_of_the_first() {
    let world = World::new(Mode::Local);
    let mock = AgentHook::handler("mock", |event: Arc<BeforeToolCall>| async move {
        event.mock(result("mocked"));
        Ok(())
    });
    let row = dies_waiting(&world.start(vec![]).await, "c1").await;
    world.runtime.hooks().register(OP, vec![mock]).unwrap();
    let again = world.runtime.resume(OP).await.unwrap();
    let outcome = run(&again, "c1", &world.saying("real")).await;
    assert_eq!((outcome.mocked, world.runs()), (true, 0));
    assert_closed(&world, &row).await;
}

#[tokio::test]
async fn a_group_that_is_denied_the_second_time_leaves_no_placeholder_of_its_members() {
    struct Calls;
    impl Tool for Calls {
        fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
            let member = |id: &str| AgentCall {
                agent_id: id.to_owned(),
                ..AgentCall::default()
            };
            let group = GroupCall {
                members: vec![member("a"), member("b")],
                mode: GroupMode::Isolated,
                on_complete: None,
                deadline_at: None,
            };
            Box::pin(run_group(run, group))
        }
    }
    async fn run_group(run: ToolRun<'_>, group: GroupCall) -> Result<ToolRunResult, PortError> {
        run.call_group(group).await?;
        std::future::pending().await
    }
    let world = World::new(Mode::Local);
    let operation = judging(&world).await;
    let tool: Arc<dyn Tool> = Arc::new(Calls);
    tokio::select! {
        outcome = run(&operation, "c1", &tool) => panic!("{outcome:?}"),
        () = until(&world, "start ", 2) => {}
    }
    let mut again = request("c1", &tool);
    "denied".clone_into(&mut again.call.identifier);
    operation.run_tools(vec![vec![again]]).await.unwrap();
    for call in ["c1", "c1::m0", "c1::m1"] {
        assert_closed(&world, &world.rows.of_call(call).id).await;
    }
}

/// Completes `row` from a process without rows.
async fn complete_elsewhere(world: &World, row: &str) -> Publication {
    let elsewhere = Completions::new(
        world.runtime.hooks().clone(),
        world.store.clone(),
        world.records.clone(),
    );
    let never = CancellationToken::new();
    let first = elsewhere.complete(OP, row, result("first"), &never).await;
    let first = first.unwrap();
    assert!(first.applied);
    first.publication
}

#[tokio::test]
async fn a_result_that_comes_while_the_second_attempt_is_reviewed_is_the_outcome() {
    for (answer, fills_row) in [
        ("gate-deny", false),
        ("gate-deny", true),
        ("gate-allow", false),
    ] {
        let (world, gate) = gated();
        let control = world.before(answer).matching("^again/");
        let operation = world.start(vec![control]).await;
        let row = dies_waiting(&operation, "c1").await;
        let mut again = request("c1", &world.saying("second"));
        "again".clone_into(&mut again.call.identifier);
        let comes = async {
            until(&world, "http /gate", 1).await;
            let publication = complete_elsewhere(&world, &row).await;
            if fills_row {
                world.runtime.collect(OP, &row).await.unwrap().unwrap();
            }
            gate.open();
            publication
        };
        let (outcome, first) =
            futures::future::join(operation.run_tools(vec![vec![again]]), comes).await;
        let outcome = outcome.unwrap().calls.remove(0);
        let shown = world.rows.get(&row);
        assert_eq!((outcome.end, world.runs()), (CallEnd::Published, 0));
        assert_eq!(first.result.content, "first");
        assert_eq!((shown.content.as_str(), shown.is_final), ("first", true));
        assert_eq!(outcome.result.unwrap().content, "first");
        assert_eq!(world.screen.end_of("c1").result.content, "first");
    }
}

/// A row of `c1` that another process has given a denial.
fn denied_elsewhere(row: &mut ToolRow) {
    "denied elsewhere".clone_into(&mut row.content);
    row.error = Some(json!("hook_denied"));
    let state = json!({"phase": "afterToolCall", "reason": "denied elsewhere", "type": "blocked"});
    row.state = Some(object(state));
    row.intervention = Some(Intervention {
        status: InterventionStatus::Rejected,
        rejected_reason: Some("denied elsewhere".to_owned()),
        ..Intervention::default()
    });
    row.is_final = true;
}

/// Asks for a placeholder if it is told so, and answers at once.
struct Answers {
    asks: bool,
}

impl Tool for Answers {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            if self.asks {
                run.defer().await?;
            }
            Ok(result(SECRET))
        })
    }

    fn cost(&self) -> f64 {
        5.0
    }
}

fn assert_denied_elsewhere(world: &World, outcome: &CallOutcome) {
    assert_eq!(outcome.end, CallEnd::DeniedAfter);
    let text = "denied elsewhere";
    assert_eq!(outcome.result.as_ref().unwrap().content, text);
    assert_eq!(world.screen.end_of("c1").result.content, text);
    assert_eq!(world.rows.of_call("c1").content, text);
    assert!(!format!("{outcome:?}").contains(SECRET));
    world.assert_nowhere(SECRET);
    assert!((outcome.cost - 5.0).abs() < f64::EPSILON, "it was spent");
}

#[tokio::test]
async fn a_denial_that_another_process_writes_during_the_review_is_the_outcome() {
    for asks in [true, false] {
        let (world, gate) = gated();
        let told = noting::<AfterToolCall>("told", &world.notes);
        let operation = world.start(vec![world.after("gate-allow"), told]).await;
        let tool: Arc<dyn Tool> = Arc::new(Answers { asks });
        let comes = async {
            until(&world, "http /gate", 1).await;
            let mut row = if asks {
                world.rows.of_call("c1")
            } else {
                ToolRow {
                    id: "theirs".to_owned(),
                    call: call("c1"),
                    ..ToolRow::default()
                }
            };
            denied_elsewhere(&mut row);
            world.rows.put(row);
            gate.open();
        };
        let (outcome, ()) = futures::future::join(run(&operation, "c1", &tool), comes).await;
        assert_denied_elsewhere(&world, &outcome);
        world.drain().await;
        assert_eq!(noted(&world.notes, "told"), Vec::<Value>::new());
    }
}

#[tokio::test]
async fn a_row_that_another_process_puts_at_the_last_moment_is_the_outcome() {
    for is_final in [true, false] {
        let world = World::new(Mode::Local);
        let operation = world.start(vec![]).await;
        let rows = Arc::clone(&world.rows);
        let meanwhile = async move {
            let mut theirs = ToolRow {
                id: "theirs".to_owned(),
                call: call("c1"),
                ..ToolRow::default()
            };
            if is_final {
                denied_elsewhere(&mut theirs);
            }
            rows.put(theirs);
        };
        *world.rows.meanwhile.lock().unwrap() = Some(Box::pin(meanwhile));
        let tool: Arc<dyn Tool> = Arc::new(Answers { asks: false });
        let outcome = run(&operation, "c1", &tool).await;
        assert_eq!(outcome.tool_message_id, "theirs");
        if is_final {
            let text = "denied elsewhere";
            assert_eq!(outcome.end, CallEnd::DeniedAfter);
            assert_eq!(world.screen.end_of("c1").result.content, text);
            assert_eq!(world.rows.of_call("c1").content, text);
        } else {
            assert_eq!(outcome.end, CallEnd::Published);
            assert_eq!(world.rows.of_call("c1").content, SECRET);
        }
    }
}

/// Opens the placeholder of `row` by hand.
async fn open(store: &hookstash_shared::store::Store, row: &str) {
    let key = hookstash_shared::store::CompletionKey::new(OP, row, store.shards());
    let context = json!({"call": call("c1"), "operations": [OP]}).to_string();
    store.open_completion(&key, context.into()).await.unwrap();
}

#[tokio::test]
async fn a_placeholder_that_is_opened_while_a_row_is_written_is_closed_or_wins() {
    for is_completed in [false, true] {
        let world = World::new(Mode::Local);
        let operation = world.start(vec![world.before("deny-R")]).await;
        let mut waiting = ToolRow {
            id: "row".to_owned(),
            call: call("c1"),
            ..ToolRow::default()
        };
        waiting.state = Some(object(json!({"status": "pending"})));
        world.rows.put(waiting);
        let (store, hooks, records) = (
            world.store.clone(),
            world.runtime.hooks().clone(),
            Arc::clone(&world.records),
        );
        let meanwhile = async move {
            open(&store, "row").await;
            if is_completed {
                let elsewhere = Completions::new(hooks, store, records);
                let never = CancellationToken::new();
                let won = elsewhere.complete(OP, "row", result("first"), &never).await;
                assert!(won.unwrap().applied);
            }
        };
        *world.rows.meanwhile.lock().unwrap() = Some(Box::pin(meanwhile));
        let outcome = run(&operation, "c1", &world.saying("x")).await;
        let (content, end) = if is_completed {
            ("first", CallEnd::Published)
        } else {
            ("R", CallEnd::DeniedBefore)
        };
        let row = world.rows.get("row");
        assert_eq!((outcome.end, row.content.as_str()), (end, content));
        assert_eq!(row.intervention.is_some(), !is_completed, "{row:?}");
        assert_eq!(world.screen.end_of("c1").result.content, content);
        assert_eq!(outcome.result.unwrap().content, content);
        let late = world.runtime.complete(OP, "row", result("late")).await;
        match late {
            Ok(late) => assert!(is_completed && late.publication.result.content == "first"),
            Err(error) => assert!(matches!(error, CompleteError::Unknown) && !is_completed),
        }
    }
}

#[tokio::test]
async fn a_placeholder_is_not_opened_for_a_call_that_has_its_result() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    for at_last_moment in [false, true] {
        let id = if at_last_moment { "late" } else { "early" };
        let (rows, given) = (Arc::clone(&world.rows), call(id));
        let put = move || {
            let mut theirs = ToolRow {
                id: given.tool_call_id.clone(),
                call: given.clone(),
                ..ToolRow::default()
            };
            denied_elsewhere(&mut theirs);
            rows.put(theirs);
        };
        let mut tool = DefersAfter {
            first: Mutex::new(None),
        };
        if at_last_moment {
            *world.rows.meanwhile.lock().unwrap() = Some(Box::pin(async move { put() }));
        } else {
            tool.first = Mutex::new(Some(Box::new(put)));
        }
        let tool: Arc<dyn Tool> = Arc::new(tool);
        let outcome = run(&operation, id, &tool).await;
        assert_eq!(outcome.end, CallEnd::DeniedAfter);
        assert_eq!(outcome.result.unwrap().content, "denied elsewhere");
        assert_closed(&world, id).await;
    }
}

/// Lets something happen, and asks for a placeholder then.
struct DefersAfter {
    first: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Tool for DefersAfter {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            if let Some(first) = self.first.lock().unwrap().take() {
                first();
            }
            let place = run.defer().await?;
            panic!("{place:?}");
        })
    }
}

#[tokio::test]
async fn a_row_that_is_removed_during_the_review_is_an_error_and_nothing_is_shown() {
    let (world, gate) = gated();
    let operation = world.start(vec![world.after("gate-allow")]).await;
    let tool: Arc<dyn Tool> = Arc::new(Answers { asks: true });
    let comes = async {
        until(&world, "http /gate", 1).await;
        let row = world.rows.of_call("c1");
        world.rows.remove(&row.id).await.unwrap();
        gate.open();
    };
    let running = operation.run_tools(vec![vec![request("c1", &tool)]]);
    let (failed, ()) = futures::future::join(running, comes).await;
    assert!(matches!(failed, Err(PipelineError::Rows(_))), "{failed:?}");
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_its_tool_waits_leaves_no_placeholder() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    let (tell, mut told) = mpsc::unbounded_channel();
    let tool: Arc<dyn Tool> = Arc::new(Asks(tell));
    let stop = async {
        let place = told.recv().await.unwrap();
        operation.cancel();
        place.tool_message_id
    };
    let (outcome, row) = futures::future::join(run(&operation, "c1", &tool), stop).await;
    assert_eq!(outcome.end, CallEnd::Interrupted);
    assert_closed(&world, &row).await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_while_its_placeholder_is_opened_leaves_none() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    // The row is put, its placeholder opened, and the row looked at once more: then it happens.
    let (rows, cancel) = (Arc::clone(&world.rows), operation.clone());
    let cancels = Box::pin(async move {
        let (again, cancel) = (Arc::clone(&rows), cancel.clone());
        *again.meanwhile.lock().unwrap() = Some(Box::pin(async move {
            cancel.cancel();
            std::future::pending::<()>().await;
        }));
    });
    *world.rows.meanwhile.lock().unwrap() = Some(cancels);
    let (tell, _told) = mpsc::unbounded_channel();
    let tool: Arc<dyn Tool> = Arc::new(Asks(tell));
    let outcome = run(&operation, "c1", &tool).await;
    assert_eq!(outcome.end, CallEnd::Interrupted);
    let row = world.rows.of_call("c1").id;
    assert_eq!(outcome.tool_message_id, row);
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
        let row = dies_waiting(&operation, "c1").await;
        let mut again = request("c1", &world.saying(SECRET));
        "again".clone_into(&mut again.call.identifier);
        let stop = async {
            until(&world, "http /gate", 1).await;
            operation.cancel();
        };
        let (outcome, ()) =
            futures::future::join(operation.run_tools(vec![vec![again]]), stop).await;
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
        let row = dies_waiting(&operation, "c1").await;
        let mut again = request("c1", &world.saying("x"));
        "again".clone_into(&mut again.call.identifier);
        let stop = async {
            until(&world, "http /gate", 1).await;
            complete_elsewhere(&world, &row).await;
            if fills_row {
                world.runtime.collect(OP, &row).await.unwrap().unwrap();
            }
            operation.cancel();
        };
        let (outcome, ()) =
            futures::future::join(operation.run_tools(vec![vec![again]]), stop).await;
        gate.open();
        assert_eq!(outcome.unwrap().state, RunState::Interrupted);
        let row = world.rows.get(&row);
        assert_eq!((row.content.as_str(), row.is_final), ("first", true));
        assert_eq!(row.intervention, None, "not aborted");
    }
}

#[tokio::test]
async fn a_denied_call_that_is_made_again_is_still_denied() {
    let world = World::new(Mode::Local);
    let operation = judging(&world).await;
    for (identifier, expected) in [
        ("denied", CallEnd::DeniedBefore),
        ("withheld", CallEnd::DeniedAfter),
        ("fs", CallEnd::Published),
    ] {
        for _ in 0..2 {
            let mut call = request(identifier, &world.saying("content"));
            identifier.clone_into(&mut call.call.identifier);
            let outcome = operation.run_tools(vec![vec![call]]).await.unwrap();
            assert_eq!(outcome.calls[0].end, expected);
        }
    }
}

#[tokio::test]
async fn a_call_that_waits_for_a_human_and_has_its_result_already_shows_it() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    let rows = Arc::clone(&world.rows);
    let meanwhile = async move {
        let mut theirs = ToolRow {
            id: "theirs".to_owned(),
            call: call("c1"),
            ..ToolRow::default()
        };
        denied_elsewhere(&mut theirs);
        rows.put(theirs);
    };
    *world.rows.meanwhile.lock().unwrap() = Some(Box::pin(meanwhile));
    let asked = ToolRequest {
        permission: Permission::NeedsApproval,
        ..request("c1", &world.saying("x"))
    };
    let outcome = operation.run_tools(vec![vec![asked]]).await.unwrap();
    assert_eq!(outcome.calls[0].end, CallEnd::DeniedAfter);
    assert_eq!(outcome.state, RunState::Running);
}

#[tokio::test]
async fn nothing_that_a_deferring_tool_says_is_shown_before_its_review() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![world.after("deny-R")]).await;
    let tool = world.tool(|_| {
        Ok(ToolRunResult {
            deferred: Some(true),
            state: Some(object(json!({"note": SECRET, "status": "completed"}))),
            ..result(SECRET)
        })
    });
    let outcome = run(&operation, "c1", &tool).await;
    assert_eq!(outcome.end, CallEnd::Deferred);
    assert!(!format!("{outcome:?}").contains(SECRET));
    let row = world.rows.get(&outcome.tool_message_id);
    assert_eq!(state(&row), json!({"status": "pending"}));
    world.assert_nowhere(SECRET);
}
