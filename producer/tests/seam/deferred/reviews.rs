//! Whose controls are asked about a deferred result, and what they are told.

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};

use super::*;

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

#[tokio::test]
async fn a_deferred_result_is_told_to_no_observer() {
    let world = World::new(Mode::Local);
    for (id, answer) in [("allowed", "allow"), ("denied", "deny-R")] {
        let hooks = vec![
            world.after(answer),
            noting::<AfterToolCall>("told", &world.notes),
        ];
        let operation = world.start_as(id, hooks).await;
        let outcome = run(&operation, id, &later(&world)).await;
        let row = outcome.tool_message_id;
        for number in 0..2 {
            let completed = world.runtime.complete(id, &row, result("late")).await;
            assert_eq!(completed.unwrap().applied, number == 0);
        }
    }
    world.drain().await;
    assert_eq!(noted(&world.notes, "told"), Vec::<Value>::new());
}
