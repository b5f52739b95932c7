//! A call that another process makes too, or has made.

use std::sync::{Arc, Mutex};

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;

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
                row_of("theirs", "c1")
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
            let mut theirs = row_of("theirs", "c1");
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

#[tokio::test]
async fn a_placeholder_that_is_opened_while_a_row_is_written_is_closed_or_wins() {
    for is_completed in [false, true] {
        let world = World::new(Mode::Local);
        let operation = world.start(vec![world.before("deny-R")]).await;
        let mut waiting = row_of("row", "c1");
        waiting.state = Some(object(json!({"status": "pending"})));
        world.rows.put(waiting);
        let (store, elsewhere) = (world.store.clone(), world.elsewhere());
        let meanwhile = async move {
            open(&store, "row").await;
            if is_completed {
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

/// When another process gives a call its result.
#[derive(Debug, Clone, Copy)]
enum When {
    InTool,
    BeforeRow,
    WhileOpened,
}

#[tokio::test]
async fn a_placeholder_is_not_opened_for_a_call_that_has_its_result() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    for (id, when) in [
        ("c1", When::InTool),
        ("c2", When::BeforeRow),
        ("c3", When::WhileOpened),
    ] {
        let rows = Arc::clone(&world.rows);
        let put = move || {
            let mut all = rows.all();
            all.retain(|row| row.call.tool_call_id == id);
            let mut theirs = all.pop().unwrap_or_else(|| row_of(id, id));
            denied_elsewhere(&mut theirs);
            rows.put(theirs);
        };
        let mut tool = DefersAfter {
            first: Mutex::new(None),
        };
        match when {
            When::InTool => tool.first = Mutex::new(Some(Box::new(put))),
            When::BeforeRow => {
                *world.rows.meanwhile.lock().unwrap() = Some(Box::pin(async move { put() }));
            }
            When::WhileOpened => after_next(&world.rows, async move { put() }),
        }
        let tool: Arc<dyn Tool> = Arc::new(tool);
        let outcome = run(&operation, id, &tool).await;
        assert_eq!(outcome.end, CallEnd::DeniedAfter, "{when:?}");
        assert_eq!(outcome.result.unwrap().content, "denied elsewhere");
        let row = world.rows.of_call(id);
        let mut expected = row.clone();
        denied_elsewhere(&mut expected);
        assert_eq!(row, expected, "{when:?}: as it was given");
        assert_closed(&world, &row.id).await;
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
async fn a_call_that_waits_for_a_human_and_has_its_result_already_shows_it() {
    let world = World::new(Mode::Local);
    let operation = world.start(vec![]).await;
    let rows = Arc::clone(&world.rows);
    let meanwhile = async move {
        let mut theirs = row_of("theirs", "c1");
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
