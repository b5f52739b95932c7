//! `/v2/schedules`: what sends messages again and again. Creating one is in `schedule_put`.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures::future::{join_all, try_join_all};
use hookstash_shared::message::{Envelope, MessageId, State as MessageState, is_plain_name};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Resumed, SCHEDULES_MAX, Store, StoredSchedule};
use http::Uri;
use serde_json::{Value, json};

use super::error::ApiError;
use super::message_view::Object;
use super::schedule_view::{self, Shown};
use super::{Api, Shared, body, dlq, schedule_put};

/// Go clients write `Schedules`.
pub(super) const RESOURCES: [&str; 2] = ["/v2/schedules", "/v2/Schedules"];
/// Bytes of the messages that a list shows whole; beyond them it leaves bodies out.
const LIST_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Schedules of a list that are read at one time.
const SHOWN_TOGETHER: usize = 64;
/// How often a resume that met another put is tried again.
const RESUMES_MAX: u32 = 3;

/// What is done to a schedule by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Pause,
    Resume,
}

/// What stands behind the resource in a path.
fn behind(path: &str) -> &str {
    let rest = RESOURCES.iter().find_map(|root| path.strip_prefix(root));
    rest.and_then(|rest| rest.strip_prefix('/'))
        .unwrap_or_default()
}

/// Creates a schedule, or pauses or resumes one: both are posted.
pub(super) async fn post_any(
    State(api): State<Shared>,
    request: Request,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let rest = behind(path);
    if action_in(rest).is_some() {
        return act(State(api), request).await.map(Json::into_response);
    }
    let route = path.strip_suffix(rest).unwrap_or_default().to_owned();
    schedule_put::put(&api, &route, request).await
}

/// Pauses or resumes the schedule that the path names.
pub(super) async fn act(
    State(api): State<Shared>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let path = request.uri().path().to_owned();
    body::discard(request).await;
    let (id, action) = action_in(behind(&path)).ok_or_else(|| ApiError::no_such_path(&path))?;
    match action {
        Action::Pause => pause(&api, id).await,
        Action::Resume => resume(&api, id).await,
    }?;
    Ok(Json(json!({})))
}

/// What the path behind the resource asks for, unless it is a destination.
fn action_in(behind: &str) -> Option<(&str, Action)> {
    let (id, action) = behind.split_once('/')?;
    let action = match action {
        "pause" => Action::Pause,
        "resume" => Action::Resume,
        _ => return None,
    };
    is_plain_name(id).then_some((id, action))
}

async fn pause(api: &Api, id: &str) -> Result<(), ApiError> {
    let mut is_paused = false;
    for stored in find_all(api, id).await? {
        is_paused |= api.state.store.pause_schedule(stored.shard, id).await?;
    }
    is_paused
        .then_some(())
        .ok_or_else(|| ApiError::no_such_schedule(id))
}

async fn resume(api: &Api, id: &str) -> Result<(), ApiError> {
    let store = &api.state.store;
    for _ in 0..RESUMES_MAX {
        let found = find_all(api, id).await?;
        // The newest alone: what is left of a move stays as it is.
        let stored = found
            .first()
            .ok_or_else(|| ApiError::no_such_schedule(id))?;
        let schedule = &stored.schedule;
        let now_ms = store
            .host_time(stored.shard)
            .await
            .map_err(ApiError::of_read)?;
        let due_ms = schedule.cron.next_after(now_ms);
        let due_ms =
            due_ms.ok_or_else(|| ApiError::Conflict("it is never due again".to_owned()))?;
        let key = &schedule.body_key;
        match store.resume_schedule(stored.shard, id, key, due_ms).await? {
            Resumed::Resumed => return Ok(()),
            Resumed::Changed | Resumed::None => {}
        }
    }
    Err(ApiError::Unavailable("the schedule is being changed"))
}

/// Removes a schedule; the messages that it made stay.
pub(super) async fn remove(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let id = behind(uri.path());
    let store = &api.state.store;
    // In every shard: one that cannot be read is found in none.
    let shards = store.shards().iter();
    let removed = join_all(shards.map(|shard| store.remove_schedule(shard, id, None))).await;
    let removed = removed.into_iter().collect::<Result<Vec<bool>, _>>()?;
    if removed.contains(&true) {
        Ok(Json(json!({ "deleted": 1 })))
    } else {
        Err(ApiError::no_such_schedule(id))
    }
}

/// One schedule.
pub(super) async fn get_one(State(api): State<Shared>, uri: Uri) -> Result<Response, ApiError> {
    let id = behind(uri.path());
    let mut found = find_all(&api, id).await?;
    found.truncate(1);
    let mut left = u64::MAX;
    let mut shown = show(&api, &found, &mut left).await?;
    let one = shown.pop().ok_or_else(|| ApiError::no_such_schedule(id))?;
    Ok(Json(one).into_response())
}

/// All of them, the oldest first. No cursor: their number is limited.
pub(super) async fn list(State(api): State<Shared>) -> Result<Response, ApiError> {
    let _place = dlq::place_in(&api.lists).await?;
    let mut found = walk(&api.state.store).await.map_err(ApiError::of_read)?;
    found.sort_by(|a, b| {
        let newest_first = b.schedule.age().cmp(&a.schedule.age());
        a.id.cmp(&b.id).then(newest_first)
    });
    found.dedup_by(|later, first| later.id == first.id);
    found.sort_by_key(|stored| stored.schedule.created_ms);
    let mut left = LIST_BYTES_MAX;
    let mut shown = Vec::with_capacity(found.len());
    for some in found.chunks(SHOWN_TOGETHER) {
        shown.extend(show(&api, some, &mut left).await?);
    }
    // Written as JSON while the place is still held.
    Ok(Json(shown).into_response())
}

/// All schedules of all shards; one may come twice.
async fn walk(store: &Store) -> Result<Vec<StoredSchedule>, HostError> {
    let mut found: Vec<StoredSchedule> = Vec::new();
    for shard in store.shards().iter() {
        let mut cursor = 0;
        loop {
            let page = store.schedules(shard, cursor).await?;
            found.extend(page.schedules);
            cursor = page.cursor;
            if cursor == 0 || found.len() as u64 > 2 * SCHEDULES_MAX {
                break;
            }
        }
    }
    Ok(found)
}

/// Schedules with their messages. A body that is larger than what is `left` is left out.
async fn show(api: &Api, some: &[StoredSchedule], left: &mut u64) -> Result<Vec<Object>, ApiError> {
    let store = &api.state.store;
    let key_of = |stored: &StoredSchedule| (stored.shard, stored.schedule.body_key.clone());
    let heads = some
        .iter()
        .map(key_of)
        .map(async |(shard, key)| store.schedule_header(shard, &key).await);
    let heads = try_join_all(heads).await.map_err(ApiError::of_read)?;
    let bodies = some.iter().zip(&heads).map(|(stored, head)| {
        let bytes = head.as_ref().map_or(u64::MAX, |(_, bytes)| *bytes);
        let fits = bytes <= *left;
        *left -= if fits { bytes } else { 0 };
        (fits, key_of(stored))
    });
    let bodies: Vec<_> = bodies.collect();
    let bodies = bodies.into_iter().map(async |(fits, (shard, key))| {
        if fits {
            store.schedule_envelope(shard, &key).await
        } else {
            Ok(None)
        }
    });
    let bodies = try_join_all(bodies).await.map_err(ApiError::of_read)?;
    let ids: Vec<MessageId> = some
        .iter()
        .flat_map(|stored| stored.fired.clone())
        .collect();
    let states = store
        .message_states(&ids)
        .await
        .map_err(ApiError::of_read)?;
    let mut states = states.into_iter();
    let shown = some
        .iter()
        .zip(heads)
        .zip(bodies)
        .map(|((stored, head), body)| {
            let body = body.and_then(|body| Envelope::decode(&body).ok());
            let states: Vec<Option<MessageState>> =
                states.by_ref().take(stored.fired.len()).collect();
            schedule_view::view(&Shown {
                stored,
                header: head.as_ref().map(|(header, _)| header),
                body: body.as_ref().map_or(&[], |envelope| &envelope.body),
                states: &states,
            })
        });
    Ok(shown.collect())
}

/// Every place where the schedule is, the newest first.
async fn find_all(api: &Api, id: &str) -> Result<Vec<StoredSchedule>, ApiError> {
    let found = api.state.store.find_schedule(id).await;
    found.map_err(ApiError::of_read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_no_action() {
        for (behind, expected) in [
            ("scd_1/pause", Some(("scd_1", Action::Pause))),
            ("a.b-c_D/resume", Some(("a.b-c_D", Action::Resume))),
            ("pause", None),
            ("scd_1", None),
            ("https:/pause", None),
            ("https://h/pause", None),
            ("scd_1/pause/", None),
            ("", None),
        ] {
            assert_eq!(action_in(behind), expected, "{behind}");
        }
    }
}
