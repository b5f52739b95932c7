//! What a receiver gets: the selected fields of the event, what the hook adds to them, and nothing
//! that must stay here.

use serde_json::{Map, Value};

use super::hook_type::HookType;
use super::webhook::WebhookConfig;

/// Fields that no receiver gets, whoever wrote them. The e-mail address is added afterwards, from
/// the lookup alone.
const LOCAL_FIELDS: [&str; 3] = ["finalState", "mock", EMAIL_FIELD];
const EMAIL_FIELD: &str = "userEmail";
const OWNER_FIELD: &str = "userId";

/// The payload of a hook, without the e-mail address. The hook's `body` wins over everything;
/// a field that is overwritten keeps its place.
pub(crate) fn build(
    event: &Map<String, Value>,
    hook_id: &str,
    hook_type: HookType,
    webhook: &WebhookConfig,
) -> Map<String, Value> {
    let mut payload = match &webhook.event_fields {
        None => event.clone(),
        Some(names) => names
            .iter()
            .filter_map(|name| Some((name.clone(), event.get(name)?.clone())))
            .collect(),
    };
    payload.insert("hookId".to_owned(), hook_id.into());
    payload.insert("hookType".to_owned(), hook_type.as_str().into());
    for (name, value) in &webhook.body {
        payload.insert(name.clone(), value.clone());
    }
    // By the hook's true type: what the body says about it changes nothing.
    if hook_type == HookType::AfterToolCall && !webhook.is_control() {
        redact(&mut payload);
    }
    for name in LOCAL_FIELDS {
        payload.shift_remove(name);
    }
    payload
}

/// Whose e-mail address the payload should have; `None` when it should have none.
pub(crate) fn email_owner<'a>(
    payload: &'a Map<String, Value>,
    event: &'a Map<String, Value>,
    webhook: &WebhookConfig,
) -> Option<&'a str> {
    let is_wanted = webhook
        .event_fields
        .as_ref()
        .is_none_or(|names| names.iter().any(|name| name == EMAIL_FIELD));
    let owner = match payload.get(OWNER_FIELD) {
        Some(owner) => owner.as_str(),
        None => event.get(OWNER_FIELD).and_then(Value::as_str),
    };
    owner.filter(|owner| is_wanted && !owner.is_empty())
}

/// Adds the address, as the last field.
pub(crate) fn add_email(payload: &mut Map<String, Value>, email: &str) {
    payload.insert(EMAIL_FIELD.to_owned(), email.into());
}

/// Takes a skill's own data out of the work registration of the result.
fn redact(payload: &mut Map<String, Value>) {
    let registration = payload
        .get_mut("result")
        .and_then(|result| result.get_mut("workRegistration"))
        .and_then(Value::as_object_mut);
    let Some(registration) = registration else {
        return;
    };
    if registration.get("type").and_then(Value::as_str) == Some("skill") {
        registration.insert("data".to_owned(), Value::Null);
        registration.shift_remove("args");
    }
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
