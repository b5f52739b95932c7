//! `/healthz` and `/readyz`: whether this process runs, and whether it can do its work. Neither
//! needs a token, and neither says more than which part is not ready.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use hookstash_producer::publish::Publisher;
use hookstash_shared::store::Store;
use hookstash_shared::store::host::HostError;
use http::StatusCode;
use serde_json::{Value, json};

use super::{Api, Shared};

/// How long the store may take to answer.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long an answer of the store stands for the next ones: anyone may ask, without a token.
const STORE_ANSWER_KEPT: Duration = Duration::from_secs(1);

/// The store's last answer and when it came; `None` before the first.
#[derive(Default)]
pub(super) struct StoreAnswer(Mutex<Option<(Duration, Result<(), &'static str>)>>);

impl StoreAnswer {
    /// The last answer if it is younger than a second at `now`, a monotonic time.
    fn fresh(&self, now: Duration) -> Option<Result<(), &'static str>> {
        let kept = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.filter(|(at, _)| now.saturating_sub(*at) < STORE_ANSWER_KEPT)
            .map(|(_, answer)| answer)
    }

    fn keep(&self, now: Duration, answer: Result<(), &'static str>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, answer));
    }
}

/// What parts of the process say about themselves. Cheap to clone; all clones are one.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<Mutex<BTreeMap<&'static str, &'static str>>>);

impl Readiness {
    /// Nothing stands in the way.
    pub fn new() -> Self {
        Self::default()
    }

    /// `part` cannot do its work because of `reason`; replaces its earlier reason.
    pub fn block(&self, part: &'static str, reason: &'static str) {
        self.lock().insert(part, reason);
    }

    /// `part` can do its work.
    pub fn clear(&self, part: &'static str) {
        self.lock().remove(part);
    }

    /// Every part that cannot do its work, with its reason, by name.
    pub fn blocked(&self) -> BTreeMap<&'static str, &'static str> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, &'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// This process answers.
pub(super) async fn healthz() -> Json<Value> {
    Json(json!({ "status": "up" }))
}

/// The store answers, takes writes and is the one this process was set up for, and every part of
/// the process is well.
pub(super) async fn readyz(State(api): State<Shared>) -> (StatusCode, Json<Value>) {
    let mut blocked = api.state.readiness.blocked();
    if let Err(reason) = store_answer(&api).await {
        blocked.insert("store", reason);
    }
    if blocked.is_empty() {
        return (StatusCode::OK, Json(json!({ "status": "ready" })));
    }
    let parts = blocked
        .iter()
        .map(|(part, reason)| json!({ "part": part, "reason": reason }));
    let body = json!({ "status": "not ready", "notReady": parts.collect::<Vec<_>>() });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body))
}

/// What the store says, asked at most about once a second.
async fn store_answer(api: &Api) -> Result<(), &'static str> {
    let clock = &api.state.clock;
    if let Some(answer) = api.store_answer.fresh(clock.monotonic()) {
        return answer;
    }
    let state = &api.state;
    let asked = tokio::time::timeout(STORE_TIMEOUT, ask(&state.publisher, &state.store)).await;
    let answer = asked.unwrap_or(Err("it does not answer in time"));
    api.store_answer.keep(clock.monotonic(), answer);
    answer
}

async fn ask(publisher: &Publisher, store: &Store) -> Result<(), &'static str> {
    publisher.ping().await.map_err(|error| reason(&error))?;
    let count = store.shards().count();
    match store
        .agree_on_shards(count)
        .await
        .map_err(|error| reason(&error))?
    {
        agreed if agreed == count => Ok(()),
        _ => Err("it was made with another number of shards"),
    }
}

fn reason(error: &HostError) -> &'static str {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the store is not ready"
    );
    match error {
        HostError::Lost(_) => "it does not answer",
        HostError::RetryLater(_) => "it cannot be reached or written",
        HostError::Full(_) => "it is full",
        HostError::Unconfirmed(_) => "too few of its replicas answer (HOOKSTASH_PUBLISH_REPLICAS)",
        HostError::Fault(_) => "it refuses commands",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_store_stands_for_one_second() {
        let at = Duration::from_secs;
        let answer = StoreAnswer::default();
        assert_eq!(answer.fresh(at(7)), None);
        answer.keep(at(7), Err("it is full"));
        let soon = at(7) + Duration::from_millis(999);
        assert_eq!(answer.fresh(soon), Some(Err("it is full")));
        assert_eq!(answer.fresh(at(8)), None);
    }
}
