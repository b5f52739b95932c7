//! A run that waits is looked at again.

use std::sync::Arc;
use std::time::Duration;

use hookstash_producer::hooks::*;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_is_looked_at_again_five_times() {
    let world = World::new(Mode::Queue);
    let outcome = call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
    assert!(!world.runtime.watch(OP).await.unwrap());
    let start = tokio::time::Instant::now();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if world.notes.of("status").len() > seen.len() {
            seen.push(start.elapsed().as_secs());
        }
        assert!(start.elapsed() < Duration::from_mins(10));
    }
    let looks: Vec<_> = [15, 45, 105, 225, 465].into();
    for (seen, expected) in seen.iter().zip(looks) {
        assert!(seen.abs_diff(expected) <= 1, "{seen} is not {expected}");
    }
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.notes.of("status").len(), 5);
    assert!(!world.rows.get(&outcome.tool_message_id).is_final);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_nobody_told_about_is_found_and_a_run_that_is_over_is_left() {
    let world = World::new(Mode::Queue);
    let outcome = call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
    world.runtime.watch(OP).await.unwrap();
    let elsewhere = world.elsewhere();
    let never = tokio_util::sync::CancellationToken::new();
    let id = &outcome.tool_message_id;
    elsewhere
        .complete(OP, id, result("late"), &never)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(16)).await;
    assert_eq!(world.rows.get(id).content, "late");
    assert_eq!(world.notes.of("resume"), ["resume op"]);
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(
        world.notes.of("status").len(),
        1,
        "nothing is watched any more"
    );

    let world = World::new(Mode::Queue);
    call_from(&world, vec![], Arc::new(CallsAgent(agent("a")))).await;
    world.others.over.lock().unwrap().insert(OP.to_owned());
    world.runtime.watch(OP).await.unwrap();
    tokio::time::sleep(Duration::from_mins(20)).await;
    assert_eq!(world.notes.of("status").len(), 1, "it is over");
}
