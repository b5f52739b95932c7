//! `/v2/topics`: URL groups, destinations that are published to together.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Request, State};
use hookstash_shared::message::is_plain_name;
use hookstash_shared::store::{StoredUrlGroup, UrlEndpoint, UrlGroup, UrlGroupChange};
use http::Uri;
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::{ApiError, echo};
use super::{Api, Shared, body, destination, dlq, group_headers};

/// Largest body of a change.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Most endpoints of one group.
const ENDPOINTS_MAX: usize = 100;
/// Longest name of an endpoint in bytes.
const ENDPOINT_NAME_BYTES_MAX: usize = 256;
/// Most bytes of all URLs, names and headers of one group.
const GROUP_BYTES_MAX: usize = 256 * 1024;
/// Most groups that one list shows, the newest ones.
const LIST_MAX: usize = 1_000;
/// Most bytes of them.
const LIST_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How often a change is begun anew because another one came first.
const TRIES_MAX: usize = 100;

/// Endpoints to add or to remove.
#[derive(Deserialize)]
struct Endpoints {
    endpoints: Vec<Endpoint>,
}

/// One of them. Clients leave out what is not given, or send null.
#[derive(Deserialize)]
struct Endpoint {
    url: Option<String>,
    name: Option<String>,
}

/// Headers of every publish to the group.
#[derive(Deserialize)]
struct Headers {
    headers: BTreeMap<String, OneOrMore>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Adds endpoints, or changes those of the same name or URL; makes the group.
pub(super) async fn upsert(
    State(api): State<Shared>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let (name, given) = read::<Endpoints>(&api, request, ENDPOINTS).await?;
    let state = &api.state;
    let endpoints = given.endpoints.into_iter().map(|given| {
        let url = given
            .url
            .ok_or_else(|| ApiError::invalid("endpoints", ENDPOINTS))?;
        let url = destination::check(&url, &state.egress, &*state.environment)?;
        let name = given.name.filter(|name| !name.is_empty());
        let is_short = |name: &String| name.len() <= ENDPOINT_NAME_BYTES_MAX;
        if !name.iter().all(is_short) {
            let expected = format!("expected at most {ENDPOINT_NAME_BYTES_MAX} bytes");
            return Err(ApiError::invalid("name of an endpoint", expected));
        }
        Ok(UrlEndpoint { url, name })
    });
    let endpoints: Vec<UrlEndpoint> = endpoints.collect::<Result<_, _>>()?;
    if endpoints.is_empty() {
        return Err(ApiError::invalid("endpoints", "expected at least one"));
    }
    let now_ms = state.clock.now_ms();
    change(&api, &name, now_ms, |stored| {
        let mut group = stored.map_or_else(|| UrlGroup::new(now_ms), |stored| stored.group.clone());
        for endpoint in &endpoints {
            group.upsert(endpoint.clone());
        }
        check_size(&group)?;
        Ok(Some(group))
    })
    .await
}

/// Removes endpoints, and the group with its last one. Those that are not there are skipped.
pub(super) async fn remove(
    State(api): State<Shared>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let (name, given) = read::<Endpoints>(&api, request, ENDPOINTS).await?;
    if given
        .endpoints
        .iter()
        .any(|one| one.url.is_none() && one.name.is_none())
    {
        return Err(ApiError::invalid(
            "endpoints",
            "expected name or url in each",
        ));
    }
    let now_ms = api.state.clock.now_ms();
    change(&api, &name, now_ms, |stored| {
        let group = stored.map(|stored| {
            let mut group = stored.group.clone();
            for one in &given.endpoints {
                group.remove(one.name.as_deref(), one.url.as_deref());
            }
            group
        });
        Ok(group)
    })
    .await
}

/// Replaces the headers of every publish to the group.
pub(super) async fn set_headers(
    State(api): State<Shared>,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let (name, given) = read::<Headers>(&api, request, HEADERS).await?;
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, values) in given.headers {
        let values = match values {
            OneOrMore::One(value) => vec![value],
            OneOrMore::More(values) => values,
        };
        headers
            .entry(name.to_ascii_lowercase())
            .or_default()
            .extend(values);
    }
    let now_ms = api.state.clock.now_ms();
    group_headers::check(&api.state, now_ms, &headers)?;
    change(&api, &name, now_ms, |stored| {
        let stored = stored.ok_or_else(|| no_such_group(&name))?;
        let mut group = stored.group.clone();
        group.headers.clone_from(&headers);
        check_size(&group)?;
        Ok(Some(group))
    })
    .await
}

/// All groups, the newest first.
pub(super) async fn list(State(api): State<Shared>) -> Result<Json<Value>, ApiError> {
    let _place = dlq::place_in(&api.lists).await?;
    let store = &api.state.store;
    let (mut found, mut bytes) = (BTreeMap::new(), 0);
    for shard in store.shards().iter() {
        let mut cursor = 0;
        loop {
            let page = store
                .url_groups(shard, cursor)
                .await
                .map_err(ApiError::of_read)?;
            for (name, group) in page.groups {
                bytes += size(&group);
                let key = (Reverse(group.created_ms), name);
                bytes -= found.insert(key, group).as_ref().map_or(0, size);
                while found.len() > LIST_MAX || bytes > LIST_BYTES_MAX {
                    bytes -= found.pop_last().map_or(0, |(_, group)| size(&group));
                }
            }
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
        }
    }
    let shown = found.iter().map(|((_, name), group)| show(name, group));
    Ok(Json(shown.collect()))
}

/// One group.
pub(super) async fn get(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let name = named(&uri)?;
    let stored = api
        .state
        .store
        .url_group(name)
        .await
        .map_err(ApiError::of_read)?;
    let stored = stored.ok_or_else(|| no_such_group(name))?;
    Ok(Json(show(name, &stored.group)))
}

/// Deletes a group. Messages that were published to it go their way.
pub(super) async fn delete(State(api): State<Shared>, uri: Uri) -> Result<Json<Value>, ApiError> {
    let deleted = api.state.store.delete_url_group(named(&uri)?).await;
    deleted.map_err(|error| ApiError::of_change(&error))?;
    Ok(Json(json!({})))
}

const ENDPOINTS: &str = "expected an array of objects with url and name as texts";
const HEADERS: &str = "expected an object with a text or an array of texts by name";

/// The group's name and what the body says; both are checked before the answer.
async fn read<T: serde::de::DeserializeOwned>(
    api: &Api,
    request: Request,
    expected: &str,
) -> Result<(String, T), ApiError> {
    let (parts, body) = request.into_parts();
    let name = match named(&parts.uri) {
        Ok(name) => name.to_owned(),
        Err(refusal) => {
            body::discard_body(&parts.headers, body).await;
            return Err(refusal);
        }
    };
    let held = api
        .bodies
        .read(&parts.headers, body, BODY_BYTES_MAX)
        .await?;
    let given = serde_json::from_slice(&held.bytes);
    let given = given.map_err(|_| ApiError::invalid("body", expected))?;
    Ok((name, given))
}

/// Changes the group by a rule that is asked anew whenever another change came first. `None` leaves
/// everything as it is.
async fn change(
    api: &Api,
    name: &str,
    now_ms: u64,
    rule: impl Fn(Option<&StoredUrlGroup>) -> Result<Option<UrlGroup>, ApiError>,
) -> Result<Json<Value>, ApiError> {
    let store = &api.state.store;
    for _ in 0..TRIES_MAX {
        let stored = store.url_group(name).await.map_err(ApiError::of_read)?;
        let Some(mut new) = rule(stored.as_ref())? else {
            return Ok(Json(json!({})));
        };
        new.updated_ms = new.updated_ms.max(now_ms);
        let changed = store.replace_url_group(name, stored.as_ref(), &new).await;
        match changed.map_err(|error| ApiError::of_change(&error))? {
            UrlGroupChange::Replaced => return Ok(Json(json!({}))),
            UrlGroupChange::Changed => {}
            UrlGroupChange::Full => {
                return Err(ApiError::Quota(
                    "quota maxUrlGroups exceeded: delete one".to_owned(),
                ));
            }
        }
    }
    Err(ApiError::Unavailable(
        "other changes of the group came first",
    ))
}

fn check_size(group: &UrlGroup) -> Result<(), ApiError> {
    if group.endpoints.len() > ENDPOINTS_MAX {
        let expected = format!("a group has at most {ENDPOINTS_MAX}");
        return Err(ApiError::invalid("endpoints", expected));
    }
    if size(group) > GROUP_BYTES_MAX {
        let expected =
            format!("its URLs, names and headers have more than {GROUP_BYTES_MAX} bytes");
        return Err(ApiError::invalid("URL group", expected));
    }
    Ok(())
}

/// Bytes of its texts.
fn size(group: &UrlGroup) -> usize {
    let endpoints = group.endpoints.iter();
    let endpoints =
        endpoints.map(|one| one.url.as_str().len() + one.name.as_ref().map_or(0, String::len));
    let headers = group.headers.iter();
    let headers =
        headers.map(|(name, values)| name.len() + values.iter().map(String::len).sum::<usize>());
    endpoints.sum::<usize>() + headers.sum::<usize>()
}

fn no_such_group(name: &str) -> ApiError {
    ApiError::NotFound(format!("url group {}", echo(name)))
}

/// The name in `/v2/topics/{name}` and whatever follows it.
fn named(uri: &Uri) -> Result<&str, ApiError> {
    let name = uri.path().split('/').nth(3).unwrap_or_default();
    if is_plain_name(name) {
        Ok(name)
    } else {
        let expected = "expected 1 to 256 characters of [A-Za-z0-9._-]";
        Err(ApiError::invalid("url group name", expected))
    }
}

fn show(name: &str, group: &UrlGroup) -> Value {
    let endpoints = group.endpoints.iter().map(|endpoint| match &endpoint.name {
        Some(name) => json!({ "name": name, "url": endpoint.url }),
        None => json!({ "url": endpoint.url }),
    });
    let mut shown = json!({
        "name": name,
        "createdAt": group.created_ms,
        "updatedAt": group.updated_ms,
        "endpoints": endpoints.collect::<Value>(),
    });
    if let (false, Some(object)) = (group.headers.is_empty(), shown.as_object_mut()) {
        let headers = group.headers.iter();
        let headers: serde_json::Map<String, Value> = headers
            .map(|(name, values)| (super::canonical::canonical(name), json!(values)))
            .collect();
        object.insert("headers".to_owned(), Value::Object(headers));
    }
    shown
}
