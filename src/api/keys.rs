//! `/v2/keys`: what receivers verify with.

use axum::Json;
use axum::extract::State;
use hookstash_shared::signing::keys::{SETTING_CURRENT, SETTING_NEXT};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::Shared;
use super::error::ApiError;

/// Both keys.
pub(super) async fn get(State(api): State<Shared>) -> Result<Json<Value>, ApiError> {
    let keys = api.state.keys.as_ref().ok_or(ApiError::NoKeys)?;
    Ok(Json(json!({
        "current": keys.current().expose_secret(),
        "next": keys.next().expose_secret(),
    })))
}

/// Keys that come from the environment are not ours to change.
pub(super) async fn rotate() -> ApiError {
    ApiError::Conflict(format!(
        "the signing keys are set by {SETTING_CURRENT} and {SETTING_NEXT}: change these to rotate"
    ))
}
