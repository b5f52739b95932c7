//! The HTTP front door: the `QStash` v2 protocol, one file for each resource.
//!
//! [`router`] answers requests, [`serve`] puts it behind a listener. Every refusal is one JSON
//! object with an `error`; which refusal has which status and text stands in `error` alone.

mod accept;
mod auth;
mod base_path;
mod batch;
mod body;
mod bulk;
mod callback_headers;
mod callers;
mod cancel_many;
mod completions;
mod destination;
mod dlq;
mod dlq_bulk;
mod dlq_page;
mod error;
mod events;
mod flow_control;
mod flow_control_change;
mod flow_control_header;
mod group_headers;
mod health;
mod keys;
mod message_view;
mod messages;
mod not_built;
mod openapi;
mod patient;
mod places;
mod publish;
mod publish_headers;
mod query;
mod queues;
mod redrive_options;
mod routes;
mod schedule_put;
mod schedule_view;
mod schedules;
mod selection;
mod serve;
mod trace;
mod url_groups;
mod walk_place;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware;
use axum::routing::get;
use bytes::Bytes;
use hookstash_producer::publish::Publisher;
use hookstash_producer::runtime::Completions;
use hookstash_shared::clock::Clock;
use hookstash_shared::environment::Environment;
use hookstash_shared::headers::canonical;
use hookstash_shared::http::EgressPolicy;
use hookstash_shared::message::Limits;
use hookstash_shared::random::Random;
use hookstash_shared::store::Store;
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tower::Layer as _;

use crate::key_ring::KeyRing;
use body::BodyBudget;
use error::ApiError;

pub(crate) use body::discard;
pub use callers::Callers;
pub use health::Readiness;
pub use serve::serve;

/// What the front door works with. Everything in it is shared with the rest of the process.
#[derive(Clone)]
pub struct ApiState {
    /// Puts messages into the store.
    pub publisher: Publisher,
    /// The same store, for reading, cancelling and redriving.
    pub store: Store,
    /// Completes deferred results of agent runtimes.
    pub completions: Completions,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Draws ids.
    pub random: Arc<dyn Random>,
    /// What this installation allows a message to be.
    pub limits: Limits,
    /// The token that every request under `/v1` and `/v2` must carry.
    pub token: SecretString,
    /// The token of callers who only look; `None` = there are none.
    pub read_only_token: Option<SecretString>,
    /// The signing keys as `/v2/keys` shows and rotates them.
    pub keys: KeyRing,
    /// Which destinations are refused at once.
    pub egress: EgressPolicy,
    /// Where the policy reads the application's own origin.
    pub environment: Arc<dyn Environment>,
    /// What other parts of the process say about their readiness.
    pub readiness: Readiness,
    /// Who may call.
    pub callers: Callers,
}

/// The state of one router.
struct Api {
    state: ApiState,
    bodies: BodyBudget,
    /// Places of the pages that are made at one time.
    lists: Semaphore,
    /// Places of single messages that are held whole at one time.
    singles: Semaphore,
    /// Places of the results that are reviewed at one time.
    completions: places::Places,
    store_answer: health::StoreAnswer,
}

/// The state as handlers are given it.
type Shared = Arc<Api>;

/// The `OpenAPI` document of the protocol, as `/openapi.json` serves it without a token.
pub fn document() -> serde_json::Value {
    routes::protocol().finish().1
}

/// Answers the protocol under `/v2`, and `/healthz` and `/readyz` without a token. A handler that
/// wants the caller's address finds it in the extension that [`serve`] sets.
pub fn router(state: ApiState) -> Router {
    let shared: Shared = Arc::new(Api {
        state,
        bodies: BodyBudget::new(),
        lists: Semaphore::new(dlq::LISTS_MAX),
        singles: Semaphore::new(dlq::SINGLES_MAX),
        completions: places::Places::new(completions::COMPLETIONS_MAX),
        store_answer: health::StoreAnswer::default(),
    });
    let (described, document) = routes::protocol().finish();
    let protocol = described
        .merge(not_built::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&shared),
            auth::require_token,
        ));
    let document = Bytes::from(document.to_string());
    let all = Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route(
            "/openapi.json",
            get(move || async move { openapi::answer(document.clone()) }),
        )
        .method_not_allowed_fallback(method_not_allowed)
        .merge(protocol)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&shared),
            callers::check,
        ))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&shared),
            trace::record,
        ))
        .with_state(shared);
    Router::new().fallback_service(middleware::map_request(base_path::repair).layer(all))
}

async fn not_found(request: Request) -> ApiError {
    let refusal = ApiError::no_such_path(request.uri().path());
    body::discard(request).await;
    refusal
}

async fn method_not_allowed(request: Request) -> ApiError {
    let refusal = ApiError::Method(request.method().clone());
    body::discard(request).await;
    refusal
}

/// The last segment of a path: the id of what it names. Ids need no decoding.
fn id_in(uri: &http::Uri) -> &str {
    uri.path().rsplit('/').next().unwrap_or_default()
}
