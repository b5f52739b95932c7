//! `/v2/keys`: what receivers verify with.

use axum::Json;
use axum::extract::State;
use hookstash_shared::signing::SigningKeys;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::Shared;
use super::error::ApiError;

/// Both keys.
pub(super) async fn get(State(api): State<Shared>) -> Result<Json<Value>, ApiError> {
    let keys = api.state.keys.keys().ok_or(ApiError::NoKeys)?;
    Ok(show(&keys))
}

/// Both keys after a rotation: the next key signs from now on.
pub(super) async fn rotate(State(api): State<Shared>) -> Result<Json<Value>, ApiError> {
    let rotated = api.state.keys.rotate(&api.state.store).await;
    Ok(show(&rotated?))
}

fn show(keys: &SigningKeys) -> Json<Value> {
    Json(json!({
        "current": keys.current().expose_secret(),
        "next": keys.next().expose_secret(),
    }))
}
