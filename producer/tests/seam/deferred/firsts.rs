//! The first result stays.

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::json;

use super::*;

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
