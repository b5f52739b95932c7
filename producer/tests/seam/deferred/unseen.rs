//! Nobody who reads history needs to know of reviews.

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::{Value, json};

use super::*;

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
