//! Resources of the protocol that this server does not have. They say so: a request that were
//! accepted and dropped would be worse than a refusal.

use axum::Router;
use axum::extract::Request;
use axum::routing::any;

use super::error::ApiError;
use super::{Shared, body};

/// Resources with everything under them.
const RESOURCES: [&str; 5] = ["llm", "notify", "wait", "waiters", "workflows"];

/// The routes of all of them.
pub(super) fn routes() -> Router<Shared> {
    let beneath = Router::new().route("/v2/batch/{*rest}", any(answer));
    RESOURCES.into_iter().fold(beneath, |router, name| {
        router
            .route(&format!("/v2/{name}"), any(answer))
            .route(&format!("/v2/{name}/{{*rest}}"), any(answer))
    })
}

/// Refuses by naming method and resource.
pub(super) async fn answer(request: Request) -> ApiError {
    let path: String = request.uri().path().split_inclusive('/').take(4).collect();
    let path = path.strip_suffix('/').unwrap_or(&path);
    let refusal = ApiError::not_built(&format!("{} {path}", request.method()));
    body::discard(request).await;
    refusal
}
