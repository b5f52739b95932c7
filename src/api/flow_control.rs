//! `/v2/flowControl`: the keys that bound calls, what waits for them, and what an operator may do
//! to them; `/v2/globalParallelism`: the same for all calls together.
//!
//! A key stands in the path, percent-encoded, and may hold slashes: it is what is left without the
//! action at the end. A key exists from the first message on that named it.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use hookstash_shared::message::{Lane, shard_of_lane};
use hookstash_shared::store::{LaneChange, LaneState};
use http::{HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::error::ApiError;
use super::message_view::{Object, put};
use super::walk_place::Place;
use super::{Api, Shared, body, dlq, flow_control_change, query};

const PREFIX: &str = "/v2/flowControl/";
/// A list ends with the page of the store's that brings it to so many keys, and has a cursor.
const LIST_KEYS_MAX: usize = 1_000;
/// A list ends after this time, however few keys it has found, and has a cursor.
const LIST_TIME_MAX: Duration = Duration::from_secs(5);
/// The protocol's list is an array, so where it goes on stands in the head of the answer.
const CURSOR: HeaderName = HeaderName::from_static("hookstash-cursor");

/// One key.
pub(super) async fn one(State(api): State<Shared>, uri: Uri) -> Result<Json<Object>, ApiError> {
    let key = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    Ok(Json(view(&find(&api, key).await?)))
}

/// Changes one key.
pub(super) async fn act(
    State(api): State<Shared>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let uri = request.uri().clone();
    body::discard(request).await;
    let rest = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let no_action = || ApiError::no_such_path(uri.path());
    let (key, action) = rest.rsplit_once('/').ok_or_else(no_action)?;
    let pairs = query::pairs(uri.query());
    let change = flow_control_change::read(action, pairs)?.ok_or_else(no_action)?;
    let state = find(&api, key).await?;
    let change = change.of(&state)?;
    set(&api, &state.lane, change).await?;
    Ok(Json(json!({})))
}

async fn set(api: &Api, lane: &Lane, change: LaneChange) -> Result<(), ApiError> {
    let store = &api.state.store;
    let shard = shard_of_lane(lane, store.shards());
    Ok(store.set_lane(shard, lane, change).await?)
}

async fn find(api: &Api, key: &str) -> Result<LaneState, ApiError> {
    let not_found = || ApiError::no_such_flow_key(key);
    let decoded: Vec<u8> = percent_decode_str(key).collect();
    let lane = Lane::flow(&decoded).map_err(|_| not_found())?;
    let state = api.state.store.lane_state(&lane).await;
    state.map_err(ApiError::of_read)?.ok_or_else(not_found)
}

/// The keys whose name holds the text of `search`, all without one.
pub(super) async fn list(State(api): State<Shared>, uri: Uri) -> Result<Response, ApiError> {
    let (mut search, mut at) = (String::new(), Place::default());
    for (key, value) in query::pairs(uri.query()) {
        match &*key {
            "search" => search = value.into_owned(),
            "cursor" if value.is_empty() => {}
            "cursor" => at = Place::read(&value)?,
            _ => return Err(ApiError::invalid("filter", format!("{key:?} is not one"))),
        }
    }
    let _place = dlq::place_in(&api.lists).await?;
    let (lanes, next) = walk(&api, &search, at).await?;
    let states = api.state.store.lane_states(&lanes).await;
    let states = states.map_err(ApiError::of_read)?;
    let views: Vec<Object> = states.iter().map(view).collect();
    let mut response = Json(views).into_response();
    if let Some(cursor) = next.and_then(|next| HeaderValue::try_from(next.show()).ok()) {
        response.headers_mut().insert(CURSOR, cursor);
    }
    Ok(response)
}

/// The keys from `at` on, each once, in their order, and where the next page begins.
async fn walk(api: &Api, search: &str, at: Place) -> Result<(Vec<Lane>, Option<Place>), ApiError> {
    let store = &api.state.store;
    let deadline = api.state.clock.monotonic() + LIST_TIME_MAX;
    let mut found = BTreeSet::new();
    let Place { shard, mut cursor } = at;
    let rest = store.shards().iter().skip_while(|one| one.index() < shard);
    for shard in rest {
        loop {
            let is_over = found.len() >= LIST_KEYS_MAX || api.state.clock.monotonic() >= deadline;
            let here = Place::new(shard, cursor);
            if is_over && here != at {
                return Ok((found.into_iter().collect(), Some(here)));
            }
            let page = store.flow_lanes(shard, cursor).await;
            let page = page.map_err(ApiError::of_read)?;
            found.extend(
                page.lanes
                    .into_iter()
                    .filter(|lane| name(lane).contains(search)),
            );
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
    }
    Ok((found.into_iter().collect(), None))
}

fn name(lane: &Lane) -> String {
    String::from_utf8_lossy(&lane.plain_name()).into_owned()
}

/// A key as clients see it. What it does not limit is 0.
fn view(state: &LaneState) -> Object {
    let mut object = Object::new();
    let window = state.window.as_ref();
    put(&mut object, "flowControlKey", Some(name(&state.lane)));
    put(&mut object, "waitListSize", Some(state.waiting));
    put(&mut object, "parallelismMax", Some(state.limits.cap));
    put(&mut object, "parallelismCount", Some(state.in_flight));
    put(&mut object, "rateMax", Some(state.limits.rate));
    put(
        &mut object,
        "rateCount",
        Some(window.map_or(0, |window| window.count)),
    );
    let period_s = window.map_or(0, |_| state.limits.period_ms.div_ceil(1_000));
    put(&mut object, "ratePeriod", Some(period_s));
    let start_s = window.map_or(0, |window| window.start_ms / 1_000);
    put(&mut object, "ratePeriodStart", Some(start_s));
    put(&mut object, "isPaused", Some(state.is_paused));
    put(
        &mut object,
        "isPinnedParallelism",
        Some(state.is_cap_pinned),
    );
    put(&mut object, "isPinnedRate", Some(state.is_rate_pinned));
    object
}

/// How many calls all live workers can have at one time, and how many there are.
pub(super) async fn global_parallelism(State(api): State<Shared>) -> Result<Json<Value>, ApiError> {
    let store = &api.state.store;
    let slots = async {
        // A worker that was silent for a whole lease time is no longer counted.
        let lease_ms = u64::try_from(store.lease().as_millis()).unwrap_or(u64::MAX);
        let since_ms = store.clock_ms().await?.saturating_sub(lease_ms);
        let mut most = 0;
        // A worker's slots are for all shards, and it says so to each of them.
        for shard in store.shards().iter() {
            let (_, slots) = store.live_workers(shard, since_ms).await?;
            most = most.max(slots);
        }
        Ok((most, store.leased().await?))
    };
    let (slots, leased) = slots.await.map_err(ApiError::of_read)?;
    Ok(Json(
        json!({ "parallelismMax": slots, "parallelismCount": leased }),
    ))
}
