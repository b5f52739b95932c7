//! A webhook as a hook carries it: strict JSON that is kept exactly as it was given.
//!
//! [`Webhook`] is what callers write, by method calls or as JSON. [`WebhookConfig`] is the same
//! after every rule has been checked.

mod config;
mod error;
mod url;

use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};

pub(crate) use config::WebhookConfig;
pub use config::{Delivery, OnError, ResponseHandling};
pub use error::WebhookError;
pub(crate) use url::{BaseOf, HookUrl};

/// A webhook in the making. Checked as a whole when its hook is registered.
///
/// ```
/// # use std::time::Duration;
/// # use hookstash_producer::hooks::{OnError, Webhook};
/// let policy = Webhook::to("https://policy.example/check")
///     .header("Authorization", "Bearer ${POLICY_KEY}")
///     .allow_env_var("POLICY_KEY")
///     .timeout(Duration::from_secs(5))
///     .control(OnError::Block);
/// assert_eq!(
///     serde_json::Value::from(policy).to_string(),
///     r#"{"url":"https://policy.example/check","headers":{"Authorization":"Bearer ${POLICY_KEY}"},"allowedEnvVars":["POLICY_KEY"],"timeout":5,"responseHandling":"toolCall","onError":"block"}"#,
/// );
/// ```
#[derive(Clone, PartialEq)]
pub struct Webhook(Value);

/// Shows neither values of headers nor the body nor the query: they may be secrets.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get("url").and_then(Value::as_str);
        let headers = self.0.get("headers").and_then(Value::as_object);
        let names: Vec<_> = headers.into_iter().flat_map(Map::keys).collect();
        f.debug_struct("Webhook")
            .field("url", &shown.map(url::without_query))
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

impl Webhook {
    /// A webhook to `url`: absolute `http` or `https`, or a path of this application (`/hook`),
    /// which is joined to `APP_URL` or `INTERNAL_APP_URL` when it is sent.
    pub fn to(url: impl Into<String>) -> Self {
        Self(Value::Object(Map::new())).with("url", url.into())
    }

    /// A webhook written as JSON. Nothing is checked before its hook is registered.
    pub fn from_json(json: Value) -> Self {
        Self(json)
    }

    /// Delivers it durably: it is queued, signed and retried, instead of sent once from here.
    #[must_use]
    pub fn durable(self) -> Self {
        self.with("delivery", Delivery::Queue.as_str())
    }

    /// Makes a failure to hand it over a [`CriticalHookDeliveryError`], and never sends it
    /// unsigned in place of queueing it.
    ///
    /// [`CriticalHookDeliveryError`]: super::CriticalHookDeliveryError
    #[must_use]
    pub fn critical(self) -> Self {
        self.with("fallback", "none")
    }

    /// The deadline of one call, 30 s unless set. At least a millisecond is given.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        let seconds = timeout.as_secs_f64();
        if timeout.subsec_nanos() == 0 {
            return self.with("timeout", timeout.as_secs());
        }
        self.with("timeout", seconds)
    }

    /// Adds a header. Each `${NAME}` in `template` stands for a variable of the environment of
    /// whoever sends the request, when [`Self::allow_env_var`] names it.
    #[must_use]
    pub fn header(self, name: impl Into<String>, template: impl Into<String>) -> Self {
        let (name, template) = (name.into(), Value::String(template.into()));
        self.edit("headers", Value::Object(Map::new()), |headers| {
            if let Value::Object(headers) = headers {
                headers.insert(name, template);
            }
        })
    }

    /// Lets header templates use the variable `name`.
    #[must_use]
    pub fn allow_env_var(self, name: impl Into<String>) -> Self {
        let name = Value::String(name.into());
        self.edit("allowedEnvVars", Value::Array(Vec::new()), |names| {
            if let Value::Array(names) = names {
                names.push(name);
            }
        })
    }

    /// Adds these fields to the event's, or puts them in place of those of the same name.
    #[must_use]
    pub fn body(self, body: Map<String, Value>) -> Self {
        self.with("body", body)
    }

    /// Sends only these fields of the event.
    #[must_use]
    pub fn event_fields<I: Into<String>>(self, fields: impl IntoIterator<Item = I>) -> Self {
        let fields = fields.into_iter().map(|field| Value::String(field.into()));
        self.with("eventFields", fields.collect::<Vec<_>>())
    }

    /// Asks the receiver for a verdict before the tool is called, or before its result is used.
    /// `on_error` says what an error means: only [`OnError::Block`] keeps the tool from running
    /// when the receiver cannot be asked.
    #[must_use]
    pub fn control(self, on_error: OnError) -> Self {
        self.with("responseHandling", ResponseHandling::ToolCall.as_str())
            .with("onError", on_error.as_str())
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        if let Value::Object(object) = &mut self.0 {
            object.insert(key.to_owned(), value.into());
        }
        self
    }

    fn edit(mut self, key: &str, empty: Value, edit: impl FnOnce(&mut Value)) -> Self {
        if let Value::Object(object) = &mut self.0 {
            edit(object.entry(key).or_insert(empty));
        }
        self
    }
}

impl From<Webhook> for Value {
    fn from(webhook: Webhook) -> Self {
        webhook.0
    }
}

#[cfg(test)]
mod tests;
