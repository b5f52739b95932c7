//! 25.15: results that come later, and results that belong to several operations.

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// A tool that leaves a placeholder.
fn later(world: &World) -> std::sync::Arc<dyn Tool> {
    world.tool(|_| {
        Ok(ToolRunResult {
            deferred: Some(true),
            ..ToolRunResult::default()
        })
    })
}

/// Makes a call whose result comes later; its row.
async fn defer(world: &World, operation: &Operation) -> ToolRow {
    let outcome = run(operation, "c1", &later(world)).await;
    assert_eq!(outcome.end, CallEnd::Deferred);
    world.rows.get(&outcome.tool_message_id)
}

/// The controls that were asked, and for which operation.
fn asked(world: &World) -> Vec<(String, String)> {
    let received = world.receiver.received();
    let one = |request: &Received| {
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let operation = body["operationId"].as_str().unwrap().to_owned();
        (request.path.clone(), operation)
    };
    received.iter().map(one).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(path, operation): &(&str, &str)| ((*path).to_owned(), (*operation).to_owned());
    pairs.iter().map(owned).collect()
}

/// A hook `after` that answers like this.
fn named_after(world: &World, answer: &str) -> AgentHook {
    let webhook = Webhook::to(world.url(answer)).control(OnError::Block);
    AgentHook::webhook("after", HookType::AfterToolCall, webhook)
}

/// An approved call of `original` that goes on in `parent`, whose after-control answers `parent`.
async fn approved_and_continued(world: &World, parent: &str) -> (CallOutcome, ToolRow) {
    world
        .start_as("original", vec![named_after(world, "allow")])
        .await;
    let operation = world
        .start_as("parent", vec![named_after(world, parent)])
        .await;
    world.environment.set_controls(&world.url("operator"));
    world
        .environment
        .set("AGENT_HOOK_WEBHOOK_EVENTS", "afterToolCall");
    world.rows.put(ToolRow {
        id: "approved".to_owned(),
        call: call("c1"),
        intervention: Some(Intervention {
            status: InterventionStatus::Approved,
            operation_id: Some("original".to_owned()),
            ..Intervention::default()
        }),
        ..ToolRow::default()
    });
    let outcome = run(&operation, "c1", &world.saying("content")).await;
    (outcome, world.rows.get("approved"))
}

#[tokio::test]
async fn vector_200_every_operation_reviews_the_original_result_and_the_operator_once() {
    let world = World::new(Mode::Queue);
    let (_, row) = approved_and_continued(&world, "allow").await;
    let expected = [
        ("/allow", "original"),
        ("/allow", "parent"),
        ("/operator", "parent"),
    ];
    assert_eq!(asked(&world), pairs(&expected));
    for body in world
        .bodies("allow")
        .iter()
        .chain(&world.bodies("operator"))
    {
        assert_eq!(body["result"]["content"], "content");
    }
    let hook_ids: Vec<_> = world
        .bodies("allow")
        .iter()
        .map(|it| it["hookId"].clone())
        .collect();
    assert_eq!(hook_ids, ["after", "after"], "equal ids are all asked");
    assert_eq!(row.content, "content");
}

#[tokio::test]
async fn vector_201_a_denial_of_the_parent_ends_it_before_the_operator_is_asked() {
    let world = World::new(Mode::Queue);
    let (outcome, row) = approved_and_continued(&world, "deny-R").await;
    let expected = [("/allow", "original"), ("/deny-R", "parent")];
    assert_eq!(asked(&world), pairs(&expected));
    assert_eq!(
        (outcome.end, row.content.as_str()),
        (CallEnd::DeniedAfter, "R")
    );
}

#[tokio::test]
async fn vector_202_a_stored_control_is_asked_with_the_original_call_after_the_state_is_gone() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("allow")]).await;
    let row = defer(&world, &operation).await;
    let cold = world.restarted(Mode::Local);
    let completed = cold.complete(OP, &row.id, result("late")).await.unwrap();
    assert!(completed.applied);
    let body = &world.bodies("allow")[0];
    assert_eq!(body["args"], json!({"path": "x"}));
    assert_eq!(
        (&body["toolCallId"], &body["toolMessageId"]),
        (&json!("c1"), &json!(row.id))
    );
    assert_eq!(
        (&body["executor"], &body["mocked"]),
        (&json!("server"), &json!(false))
    );
    assert_eq!(
        (&body["stepIndex"], &body["callIndex"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(world.rows.get(&row.id).content, "late");
}

#[tokio::test]
async fn vector_203_a_record_that_cannot_be_read_stops_everything() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("allow")]).await;
    let row = defer(&world, &operation).await;
    world.faults.set("load");
    let failed = world.runtime.complete(OP, &row.id, result(SECRET)).await;
    assert!(matches!(
        failed,
        Err(CompleteError::Review(ReviewError::Recover(
            RecoverError::Unread { .. }
        )))
    ));
    assert_eq!(
        (world.receiver.count(), world.rows.get(&row.id).is_final),
        (0, false)
    );
    world.faults.clear();
    assert!(
        world
            .runtime
            .complete(OP, &row.id, result("x"))
            .await
            .unwrap()
            .applied
    );
}

#[tokio::test]
async fn vector_204_a_record_that_knows_no_hooks_has_none() {
    let world = World::new(Mode::Queue);
    let record = OperationRecord {
        user_id: Some("u1".to_owned()),
        ..OperationRecord::default()
    };
    world.records.save(OP, &record).await.unwrap();
    world.rows.put(ToolRow {
        id: "row".to_owned(),
        call: call("c1"),
        ..ToolRow::default()
    });
    world.open(OP, "row", &json!({"operations": [OP]})).await;
    assert!(
        world
            .runtime
            .complete(OP, "row", result("x"))
            .await
            .unwrap()
            .applied
    );
    assert_eq!(world.rows.get("row").content, "x");
}

#[tokio::test]
async fn an_operation_without_a_record_lets_nothing_pass() {
    let world = World::new(Mode::Queue);
    world
        .open("unknown", "row", &json!({"operations": ["unknown"]}))
        .await;
    let failed = world
        .runtime
        .complete("unknown", "row", result(SECRET))
        .await;
    assert!(matches!(
        failed,
        Err(CompleteError::Review(ReviewError::Recover(
            RecoverError::Unknown { .. }
        )))
    ));
}

#[tokio::test]
async fn vector_205_a_control_without_a_call_to_ask_about_fails_closed() {
    let world = World::new(Mode::Queue);
    world.start(vec![world.after("allow")]).await;
    world.open(OP, "row", &json!({"operations": [OP]})).await;
    let failed = world.runtime.complete(OP, "row", result(SECRET)).await;
    let text = "Cannot evaluate afterToolCall: tool call context is unavailable";
    assert_eq!(failed.unwrap_err().to_string(), text);
    assert_eq!(world.receiver.count(), 0);
}

#[tokio::test]
async fn vector_206_without_a_control_nothing_needs_to_be_known() {
    let world = World::new(Mode::Queue);
    world.start(vec![world.before("deny")]).await;
    world.rows.put(ToolRow {
        id: "row".to_owned(),
        ..ToolRow::default()
    });
    world.open(OP, "row", &json!({"operations": [OP]})).await;
    assert!(
        world
            .runtime
            .complete(OP, "row", result("x"))
            .await
            .unwrap()
            .applied
    );
}

#[tokio::test]
async fn vector_209_a_second_result_changes_nothing_even_after_its_policy_is_gone() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("deny-R")]).await;
    let row = defer(&world, &operation).await;
    let first = world
        .runtime
        .complete(OP, &row.id, result(SECRET))
        .await
        .unwrap();
    assert!(first.applied);
    // The policy is removed, and the process is another one.
    let record = OperationRecord {
        hooks: Some(json!([])),
        user_id: Some("u1".to_owned()),
        ..OperationRecord::default()
    };
    world.records.save(OP, &record).await.unwrap();
    let cold = world.restarted(Mode::Queue);
    let second = cold.complete(OP, &row.id, result("another")).await.unwrap();
    assert!(!second.applied);
    assert_eq!(second.publication, first.publication);
    let row = world.rows.get(&row.id);
    assert_eq!(
        (row.content.as_str(), &row.error),
        ("R", &Some(json!("hook_denied")))
    );
    assert_eq!(world.receiver.count(), 1, "nobody was asked again");
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn an_allowed_empty_result_counts() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    let row = defer(&world, &operation).await;
    assert!(
        world
            .runtime
            .complete(OP, &row.id, result(""))
            .await
            .unwrap()
            .applied
    );
    let second = world
        .runtime
        .complete(OP, &row.id, result("late"))
        .await
        .unwrap();
    assert!(!second.applied);
    let row = world.rows.get(&row.id);
    assert_eq!((row.content.as_str(), row.is_final), ("", true));
    assert_eq!(state(&row), json!({"status": "completed"}));
}

#[tokio::test]
async fn a_row_that_could_not_be_written_is_filled_by_the_next_who_looks() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    let row = defer(&world, &operation).await;
    world.faults.set("commit");
    let failed = world.runtime.complete(OP, &row.id, result("first")).await;
    assert!(matches!(failed, Err(CompleteError::Row(_))));
    assert_eq!(world.rows.get(&row.id).content, "", "not yet");
    world.faults.clear();
    let repeated = world
        .runtime
        .complete(OP, &row.id, result("second"))
        .await
        .unwrap();
    assert!(!repeated.applied);
    assert_eq!(world.rows.get(&row.id).content, "first");
}

#[tokio::test]
async fn a_process_without_rows_decides_and_the_barrier_shows_it() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("allow")]).await;
    let row = defer(&world, &operation).await;
    let elsewhere = Completions::new(
        world.restarted(Mode::Queue).hooks().clone(),
        world.store.clone(),
        world.records.clone(),
    );
    let never = CancellationToken::new();
    let completed = elsewhere
        .complete(OP, &row.id, result("answer"), &never)
        .await;
    assert!(completed.unwrap().applied);
    assert_eq!(world.rows.get(&row.id).content, "");
    world.others.park(OP);
    assert!(world.runtime.check_barrier(OP).await.unwrap());
    assert_eq!(world.rows.get(&row.id).content, "answer");
}

#[tokio::test]
async fn a_cancelled_completion_publishes_nothing_and_can_be_repeated() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("slow")]).await;
    let row = defer(&world, &operation).await;
    let completions = Completions::new(
        world.runtime.hooks().clone(),
        world.store.clone(),
        world.records.clone(),
    );
    let cancel = CancellationToken::new();
    let stop = async {
        world.receiver.wait_for(1, SOON).await;
        cancel.cancel();
    };
    let completing = completions.complete(OP, &row.id, result("x"), &cancel);
    let (failed, ()) = futures::future::join(completing, stop).await;
    assert!(matches!(failed, Err(CompleteError::Cancelled)));
    assert!(world.runtime.collect(OP, &row.id).await.unwrap().is_none());
    assert!(
        world
            .runtime
            .complete(OP, &row.id, result("y"))
            .await
            .unwrap()
            .applied
    );
}

#[tokio::test]
async fn nothing_is_applied_where_no_placeholder_is_open() {
    let world = World::new(Mode::Queue);
    world.start(vec![]).await;
    let failed = world.runtime.complete(OP, "row", result("x")).await;
    assert!(matches!(failed, Err(CompleteError::Unknown)));
}

#[tokio::test]
async fn of_many_that_complete_at_once_all_get_one_result() {
    let world = World::new(Mode::Queue);
    let denied = world.after("deny-R").matching("^fs/");
    let operation = world.start(vec![denied]).await;
    let row = defer(&world, &operation).await;
    let tries = (0..16).map(|number| {
        let runtime = world.restarted(Mode::Queue);
        let row = row.id.clone();
        async move {
            runtime
                .complete(OP, &row, result(&number.to_string()))
                .await
        }
    });
    let all = futures::future::join_all(tries).await;
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    assert_eq!(all.iter().filter(|one| one.applied).count(), 1);
    assert!(all.iter().all(|one| one.publication == all[0].publication));
}

/// Asks for a placeholder and answers at once.
struct Hasty;

impl Tool for Hasty {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            run.defer().await?;
            Ok(result("at once"))
        })
    }
}

#[tokio::test]
async fn a_tool_that_asked_for_a_placeholder_and_answers_at_once_leaves_none() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![world.after("allow")]).await;
    let tool: std::sync::Arc<dyn Tool> = std::sync::Arc::new(Hasty);
    let outcome = run(&operation, "c1", &tool).await;
    assert_eq!(outcome.end, CallEnd::Published);
    assert_eq!(world.rows.of_call("c1").content, "at once");
    let late = world
        .runtime
        .complete(OP, &outcome.tool_message_id, result("late"))
        .await;
    assert!(matches!(late, Err(CompleteError::Unknown)));
}

#[tokio::test]
async fn vector_210_the_row_of_another_user_is_not_touched() {
    let world = World::new(Mode::Queue);
    let operation = world.start(vec![]).await;
    let row = defer(&world, &operation).await;
    let mut foreign = row.clone();
    foreign.call.user_id = Some("somebody else".to_owned());
    world.rows.put(foreign.clone());
    let failed = world.runtime.complete(OP, &row.id, result("x")).await;
    assert!(matches!(failed, Err(CompleteError::NoRow(_))));
    assert_eq!(world.rows.get(&row.id), foreign);
}

/// All keys of all objects in `value`.
fn keys(value: &Value, into: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                into.insert(key.clone());
                keys(value, into);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, into)),
        _ => {}
    }
}

#[tokio::test]
async fn a_publication_carries_no_review_marker_anywhere() {
    let world = World::new(Mode::Queue);
    let denied = world.after("deny-R").matching("^denied/");
    let operation = world
        .start(vec![world.before("allow"), denied, world.after("allow")])
        .await;
    let row = defer(&world, &operation).await;
    let mut never = request("c2", &world.saying(SECRET));
    "denied".clone_into(&mut never.call.identifier);
    let lane = vec![never, request("c3", &world.saying("content"))];
    operation.run_tools(vec![lane]).await.unwrap();
    let asked = ToolRequest {
        permission: Permission::NeedsApproval,
        ..request("c4", &world.saying("x"))
    };
    operation.run_tools(vec![vec![asked]]).await.unwrap();
    let mut seen = std::collections::BTreeSet::new();
    let mut look = |world: &World| {
        keys(&json!(world.rows.all()), &mut seen);
        keys(&json!(*world.screen.shown.lock().unwrap()), &mut seen);
    };
    look(&world);
    world
        .runtime
        .complete(OP, &row.id, result("late"))
        .await
        .unwrap();
    look(&world);
    let record = world.records.load(OP).await.unwrap().unwrap();
    keys(&json!(record), &mut seen);
    let key = hookstash_shared::store::CompletionKey::new(OP, &row.id, world.store.shards());
    let stored = world.store.placeholder(&key).await.unwrap().unwrap();
    for json in [Some(stored.context), stored.result].into_iter().flatten() {
        keys(&serde_json::from_slice(&json).unwrap(), &mut seen);
    }
    let marker = |key: &&String| {
        let key = key.to_lowercase();
        ["review", "verdict", "control", "allowed", "gate"]
            .iter()
            .any(|word| key.contains(word))
    };
    let markers: Vec<_> = seen.iter().filter(marker).collect();
    // A hook's own setting, in the operation's record.
    assert_eq!(markers, Vec::<&String>::new(), "{seen:?}");
    world.assert_nowhere(SECRET);
}

#[tokio::test]
async fn a_placeholder_that_names_no_operation_takes_no_result() {
    let world = World::new(Mode::Queue);
    world.environment.set_controls(&world.url("deny-R"));
    world.start(vec![]).await;
    let call = json!(call("c1"));
    for (row, context) in [
        ("a", json!({})),
        ("b", json!({"call": call})),
        ("c", json!({"call": call, "operations": []})),
        ("d", json!({"call": call, "operations": [""]})),
    ] {
        world.rows.put(ToolRow {
            id: row.to_owned(),
            call: crate::support::call(row),
            ..ToolRow::default()
        });
        world.open(OP, row, &context).await;
        let failed = world.runtime.complete(OP, row, result(SECRET)).await;
        let is_refused = matches!(
            failed,
            Err(CompleteError::Unreadable(_) | CompleteError::Review(ReviewError::NoContext))
        );
        assert!(is_refused, "{context}: {failed:?}");
        assert!(world.runtime.collect(OP, row).await.unwrap().is_none());
    }
    world.assert_nowhere(SECRET);
}
