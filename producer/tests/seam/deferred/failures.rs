//! Completions that fail, are repeated, or have nowhere to go.

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use tokio_util::sync::CancellationToken;

use super::*;

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
    let elsewhere = world.elsewhere();
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
    let completions = world.elsewhere();
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
