//! `POST /v2/schedules/{destination}`: creating a schedule, or replacing the one of its name.

use axum::Json;
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use futures::future::join_all;
use hookstash_shared::cron::Cron;
use hookstash_shared::message::{
    Envelope, NewMessage, NewMessageBuilder, Shard, When, dedup_name, is_plain_name,
    place_schedule, random_name,
};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{
    PutSchedule, SCHEDULES_MAX, Schedule, SchedulePut, Store, StoredSchedule,
};
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde_json::json;

use super::accept::{Asked, Recipient};
use super::error::ApiError;
use super::group_headers::with_defaults;
use super::publish_headers::{CRON, SCHEDULE_ID};
use super::{Api, ApiState, accept, body, destination, publish_headers};

/// Tries of a put that the store did not answer.
const TRIES_MAX: u32 = 3;
/// Begins the deduplication scope of schedules; those of messages begin otherwise.
const DEDUP_SCOPE: &str = "s:";

/// A schedule without its body.
struct Draft {
    id: String,
    cron: Cron,
    message: NewMessageBuilder,
    /// The URL group that its messages go to.
    group: Option<String>,
}

/// Creates or replaces a schedule. Everything but the body is checked before the body is read.
pub(super) async fn put(api: &Api, route: &str, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let draft = match draft(&api.state, route, &parts).await {
        Ok(draft) => draft,
        Err(refusal) => {
            body::discard_body(&parts.headers, body).await;
            return Err(refusal);
        }
    };
    let limits = &api.state.limits;
    let held = api
        .bodies
        .read(&parts.headers, body, limits.body_bytes_max)
        .await?;
    let message = draft.message.body(held.bytes.clone());
    let message = message.build(api.state.clock.now_ms(), limits)?;
    let mut schedule = Schedule::new(draft.cron, 0, random_name("scb_", &*api.state.random));
    schedule.group = draft.group;
    let put = store(&api.state, draft.id.clone(), schedule, message).await?;
    Ok(match put {
        SchedulePut::Accepted => Json(json!({ "scheduleId": draft.id })).into_response(),
        SchedulePut::Duplicate(first) => {
            let body = json!({ "scheduleId": first, "deduplicated": true });
            (StatusCode::ACCEPTED, Json(body)).into_response()
        }
        SchedulePut::TooMany => {
            let text = format!("quota maxSchedules exceeded: the limit is {SCHEDULES_MAX}");
            return Err(ApiError::Quota(text));
        }
    })
}

async fn draft(state: &ApiState, route: &str, parts: &Parts) -> Result<Draft, ApiError> {
    let target = parts.uri.path_and_query();
    let target = target.map_or("", |target| target.as_str());
    let target = destination::cut_behind(route, target)?;
    let (own, options): (Vec<_>, Vec<_>) = target
        .options
        .into_iter()
        .partition(|(name, _)| is_own(name));
    let mut headers = parts.headers.clone();
    let cron = take(&mut headers, &own, CRON)?;
    let cron = cron.ok_or_else(|| {
        let why =
            "a schedule needs one, such as \"*/5 * * * *\" or \"CRON_TZ=Europe/Berlin 0 4 * * *\"";
        ApiError::invalid("Upstash-Cron", why)
    })?;
    let cron = Cron::parse(&cron).map_err(|error| ApiError::invalid("Upstash-Cron", error))?;
    let id = match take(&mut headers, &own, SCHEDULE_ID)? {
        Some(id) if is_plain_name(&id) => id,
        Some(_) => {
            let why = "expected 1 to 256 characters of [A-Za-z0-9._-]";
            return Err(ApiError::invalid("Upstash-Schedule-Id", why));
        }
        None => random_name("scd_", &*state.random),
    };
    let check = |url: &str| destination::check(url, &state.egress, &*state.environment);
    let (message, group) = match accept::find(state, &target.text).await? {
        Recipient::Url(destination) => {
            let message = publish_headers::configure(destination, &headers, &options, &check)?;
            (message, None)
        }
        Recipient::Group(name, group) => {
            let asked = Asked {
                headers: &headers,
                options: &options,
                queue: None,
                caller_ip: None,
            };
            let headers = with_defaults(&asked, &group.headers)?;
            // Its endpoints are asked for at each firing; until then any of them stands for all.
            let first = group.endpoints.into_iter().next();
            let first = first.ok_or(ApiError::Internal("a URL group without endpoints"))?;
            let message = publish_headers::configure(first.url, &headers, &options, &check)?;
            (message, Some(name))
        }
    };
    let message = match accept::caller_ip(parts) {
        Some(address) => message.caller_ip(address),
        None => message,
    };
    Ok(Draft {
        message: message.schedule(id.clone()),
        id,
        cron,
        group,
    })
}

fn is_own(name: &str) -> bool {
    [CRON, SCHEDULE_ID]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(name))
}

/// Takes the one value of an option of the schedule itself; a header wins.
fn take(
    headers: &mut HeaderMap,
    in_query: &[(String, Vec<u8>)],
    name: &str,
) -> Result<Option<String>, ApiError> {
    let mut values: Vec<Vec<u8>> = headers
        .get_all(name)
        .iter()
        .map(|value| value.as_bytes().to_vec())
        .collect();
    headers.remove(name);
    if values.is_empty() {
        let given = in_query
            .iter()
            .filter(|(key, _)| key.eq_ignore_ascii_case(name));
        values = given.map(|(_, value)| value.clone()).collect();
    }
    if values.is_empty() {
        return Ok(None);
    }
    publish_headers::text(name, &values).map(|text| Some(text.to_owned()))
}

/// Puts it where it belongs, then removes it from where it was.
async fn store(
    state: &ApiState,
    id: String,
    mut schedule: Schedule,
    message: NewMessage,
) -> Result<SchedulePut, ApiError> {
    schedule.delay_ms = match message.when() {
        When::Now => 0,
        When::After(delay) => delay.as_millis().try_into().unwrap_or(u64::MAX),
        When::At(_) => {
            let why =
                "a schedule has no fixed time: use Upstash-Delay, which counts from each firing";
            return Err(ApiError::invalid("Upstash-Not-Before", why));
        }
    };
    let mut envelope = message.into_envelope();
    envelope.header.not_before_ms = None;
    // One schedule is made of what comes twice; its own messages are never the same.
    let dedup = envelope.header.dedup.take();
    let lane = envelope.header.lane.as_ref();
    let shard = place_schedule(&id, lane, dedup.as_ref(), state.store.shards());
    let scope = dedup.map(|dedup| format!("{DEDUP_SCOPE}{}", dedup_name(lane, &dedup)));

    let before = state
        .store
        .find_schedule(&id)
        .await
        .map_err(ApiError::of_read)?;
    let most = room_in(&state.store, shard, &before)
        .await
        .map_err(ApiError::of_read)?;
    let now_ms = state
        .store
        .host_time(shard)
        .await
        .map_err(ApiError::of_read)?;
    // Newer than those it replaces, also where another server's clock is ahead.
    let newest_ms = before
        .first()
        .map_or(0, |old| old.schedule.created_ms.saturating_add(1));
    schedule.created_ms = now_ms.max(newest_ms);
    let due_ms = schedule.cron.next_after(now_ms);
    let due_ms = due_ms.ok_or_else(|| ApiError::invalid("Upstash-Cron", "it is never due"))?;
    let put = PutSchedule {
        id,
        schedule,
        envelope: encoded(&envelope)?,
        due_ms,
        most,
        dedup_scope: scope,
    };
    // On its own, so that a caller who goes away does not leave a move half done.
    let replaced = tokio::spawn(replace(state.publisher.store().clone(), shard, put, before)).await;
    let replaced = replaced.map_err(|_| ApiError::Internal("the schedule was not put"))?;
    Ok(replaced?)
}

/// Puts it into `shard`, then removes it from where it was.
async fn replace(
    store: Store,
    shard: Shard,
    put: PutSchedule,
    before: Vec<StoredSchedule>,
) -> Result<SchedulePut, HostError> {
    let answer = patiently(&store, shard, &put).await?;
    if answer == SchedulePut::Accepted {
        remove_elsewhere(&store, shard, &put.id, before).await?;
    }
    Ok(answer)
}

fn encoded(envelope: &Envelope) -> Result<bytes::Bytes, ApiError> {
    envelope
        .encode()
        .map_err(|_| ApiError::Internal("the message cannot be stored"))
}

/// How many schedules `shard` may hold beside those of the other shards, without the copies that
/// are replaced.
async fn room_in(
    store: &Store,
    shard: Shard,
    replaced: &[StoredSchedule],
) -> Result<u64, HostError> {
    let counts = store.count_schedules().await?.into_iter().enumerate();
    let others = counts.filter(|(index, _)| *index != usize::from(shard.index()));
    let others: u64 = others.map(|(_, count)| count).sum();
    let moved = replaced.iter().filter(|old| old.shard != shard).count() as u64;
    Ok(SCHEDULES_MAX.saturating_sub(others.saturating_sub(moved)))
}

/// Puts it again after an unclear answer: the same body key is accepted once.
async fn patiently(
    store: &Store,
    shard: Shard,
    put: &PutSchedule,
) -> Result<SchedulePut, HostError> {
    let mut tries = 1;
    loop {
        match store.put_schedule(shard, put).await {
            Err(error) if error.may_be_applied() && tries < TRIES_MAX => tries += 1,
            answer => return answer,
        }
    }
}

/// A schedule that was in other shards is there no more, unless somebody put it there meanwhile.
async fn remove_elsewhere(
    store: &Store,
    shard: Shard,
    id: &str,
    before: Vec<StoredSchedule>,
) -> Result<(), HostError> {
    let others = before.iter().filter(|old| old.shard != shard);
    let removed = others.map(|old| {
        let key = Some(old.schedule.body_key.as_str());
        store.remove_schedule(old.shard, id, key)
    });
    // Each is tried, whatever becomes of the others; what stays is removed when it is due.
    let removed = join_all(removed).await;
    removed
        .into_iter()
        .try_for_each(|removed| removed.map(drop))
}
