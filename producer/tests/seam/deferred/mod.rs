//! 25.15: results that come later, and results that belong to several operations.

mod failures;
mod firsts;
mod reviews;
mod unseen;

use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;

use crate::support::*;

/// A tool that leaves a placeholder.
pub(super) fn later(world: &World) -> std::sync::Arc<dyn Tool> {
    world.tool(|_| {
        Ok(ToolRunResult {
            deferred: Some(true),
            ..ToolRunResult::default()
        })
    })
}

/// Makes a call whose result comes later; its row.
pub(super) async fn defer(world: &World, operation: &Operation) -> ToolRow {
    let outcome = run(operation, "c1", &later(world)).await;
    assert_eq!(outcome.end, CallEnd::Deferred);
    world.rows.get(&outcome.tool_message_id)
}
