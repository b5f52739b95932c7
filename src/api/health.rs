//! `/healthz` and `/readyz`: whether this process runs, and whether it can do its work. Neither
//! needs a token, and neither says more than which part is not ready.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use hookstash_shared::store::Store;
use hookstash_shared::store::host::HostError;
use http::StatusCode;
use serde_json::{Value, json};

use super::Shared;

/// How long the store may take to answer.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

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
    let store = tokio::time::timeout(STORE_TIMEOUT, ask(&api.state.store)).await;
    if let Err(reason) = store.unwrap_or(Err("it does not answer in time")) {
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

async fn ask(store: &Store) -> Result<(), &'static str> {
    store.ping().await.map_err(|error| reason(&error))?;
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
        HostError::Fault(_) => "it refuses commands",
    }
}
