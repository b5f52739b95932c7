//! `/v2/queues`: FIFO queues, and how many of their messages run at one time.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Request, State};
use hookstash_shared::message::{Lane, shard_of_lane};
use hookstash_shared::store::{LaneChange, Queue, Store};
use http::Uri;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, echo};
use super::{Shared, dlq};

/// Largest body of a change.
const BODY_BYTES_MAX: usize = 16 * 1024;
/// Most calls in flight that a queue may be given.
const PARALLELISM_MAX: u32 = 1_000_000;
/// Most queues that one list shows, the newest ones.
const LIST_MAX: usize = 1_000;
/// Most pages of settings that one list looks at, each of about 256 queues and flow-control keys.
const PAGES_MAX: usize = 1_000;
/// Messages of a deleted queue that are cancelled at once; the workers cancel the others.
const CANCELLED_AT_ONCE_MAX: u32 = 1_000;

/// What a queue is to be. What is left out stays as it is, but a queue waits only when it says so.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wanted {
    queue_name: String,
    parallelism: Option<u32>,
    paused: Option<bool>,
}

/// Makes a queue or changes it. Calls in flight are never interrupted.
pub(super) async fn upsert(
    State(api): State<Shared>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let (parts, body) = request.into_parts();
    let held = api
        .bodies
        .read(&parts.headers, body, BODY_BYTES_MAX)
        .await?;
    let wanted: Wanted = serde_json::from_slice(&held.bytes).map_err(|_| {
        let expected =
            "expected queueName as text, parallelism as a whole number, paused as a boolean";
        ApiError::invalid("queue", expected)
    })?;
    let queue = named(&wanted.queue_name)?;
    let is_sane = |parallelism: &u32| (1..=PARALLELISM_MAX).contains(parallelism);
    if !wanted.parallelism.iter().all(is_sane) {
        let expected = format!("expected 1 to {PARALLELISM_MAX}");
        return Err(ApiError::invalid("parallelism", expected));
    }
    let change = LaneChange {
        cap: wanted.parallelism,
        paused: Some(wanted.paused.unwrap_or_default()),
        ..LaneChange::default()
    };
    set(&api.state.store, &queue, change).await
}

/// All queues, the newest first.
pub(super) async fn list(State(api): State<Shared>) -> Result<Json<Value>, ApiError> {
    let _place = dlq::place_in(&api.lists).await?;
    let store = &api.state.store;
    let (mut found, mut pages) = (BTreeMap::new(), 0);
    for shard in store.shards().iter() {
        let mut cursor = 0;
        loop {
            let page = store
                .queues(shard, cursor)
                .await
                .map_err(ApiError::of_read)?;
            found.extend(page.queues.into_iter().map(|queue| (key(&queue), queue)));
            while found.len() > LIST_MAX {
                found.pop_last();
            }
            (cursor, pages) = (page.cursor, pages + 1);
            if cursor == 0 || pages >= PAGES_MAX {
                break;
            }
        }
    }
    Ok(Json(found.values().map(show).collect()))
}

/// Newest first; a queue that comes twice in a walk has one place.
fn key(queue: &Queue) -> (std::cmp::Reverse<u64>, String) {
    (std::cmp::Reverse(queue.created_ms), queue.name.clone())
}

/// One queue.
pub(super) async fn get(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let name = name_in(&uri);
    let queue = find(&api.state.store, name).await?;
    Ok(Json(show(&queue)))
}

/// Deletes a queue and cancels what waits in it. What is under way, or delayed, is delivered.
pub(super) async fn delete(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let queue = named(name_in(&uri))?;
    let store = &api.state.store;
    let shard = shard_of_lane(&queue, store.shards());
    let deleted = store.delete_queue(shard, &queue).await;
    deleted.map_err(|error| ApiError::of_change(&error))?;
    // Whatever fails here, the workers do later.
    drop(store.sweep_trash(shard, CANCELLED_AT_ONCE_MAX).await);
    Ok(done())
}

/// Lets a queue wait.
pub(super) async fn pause(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    set_paused(&api.state.store, &uri, true).await
}

/// Lets it go on.
pub(super) async fn resume(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    set_paused(&api.state.store, &uri, false).await
}

/// Only of a queue that exists: a wrong name would pass for one that waits.
async fn set_paused(store: &Store, uri: &Uri, is_paused: bool) -> Result<Json<Value>, ApiError> {
    let name = name_in(uri);
    find(store, name).await?;
    let change = LaneChange {
        paused: Some(is_paused),
        ..LaneChange::default()
    };
    set(store, &named(name)?, change).await
}

async fn set(store: &Store, queue: &Lane, change: LaneChange) -> Result<Json<Value>, ApiError> {
    let shard = shard_of_lane(queue, store.shards());
    let changed = store.set_lane(shard, queue, change).await;
    changed.map_err(|error| ApiError::of_change(&error))?;
    Ok(done())
}

async fn find(store: &Store, name: &str) -> Result<Queue, ApiError> {
    let queue = store
        .queue(&named(name)?)
        .await
        .map_err(ApiError::of_read)?;
    queue.ok_or_else(|| ApiError::NotFound(format!("queue {}", echo(name))))
}

fn named(name: &str) -> Result<Lane, ApiError> {
    Lane::queue(name).map_err(|error| ApiError::Invalid(error.to_string()))
}

/// The name in `/v2/queues/{name}` and whatever follows it.
fn name_in(uri: &Uri) -> &str {
    uri.path().split('/').nth(3).unwrap_or_default()
}

fn done() -> Json<Value> {
    Json(json!({}))
}

fn show(queue: &Queue) -> Value {
    json!({
        "name": queue.name,
        "parallelism": queue.parallelism,
        "createdAt": queue.created_ms,
        "updatedAt": queue.updated_ms,
        "lag": queue.lag,
        "paused": queue.is_paused,
    })
}
