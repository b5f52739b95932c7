//! The strict reading of a webhook configuration.

use std::fmt;
use std::time::Duration;

use hookstash_shared::headers::is_variable_name;
use serde_json::{Map, Value};

use super::error::WebhookError;
use super::url::HookUrl;
use crate::hooks::environment_hooks::TOKEN as TOKEN_VARIABLE;
use crate::hooks::queue::BYPASS_VARIABLE;

/// The deadline of one call when the configuration does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Longest deadline in seconds: what fits a signed 32-bit number of milliseconds.
const TIMEOUT_SECONDS_MAX: f64 = 2_147_483.647;
const MS_PER_SECOND: f64 = 1000.0;

/// Values of `responseHandling` that an earlier version had.
const REMOVED: [&str; 2] = ["toolResult", "toolCallAndResult"];

/// Variables that are the operator's own: the token of the environment's hooks, and what opens a
/// protected deployment. No caller's hook may send them anywhere.
const OPERATORS_OWN: [&str; 2] = [TOKEN_VARIABLE, BYPASS_VARIABLE];

/// How a notification leaves this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delivery {
    /// `fetch`: one call from this process.
    #[default]
    Fetch,
    /// `qstash`: queued durably; a worker signs it and retries.
    Queue,
}

/// What happens with the receiver's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseHandling {
    /// `ignore`: a notification. Only the status counts.
    #[default]
    Ignore,
    /// `toolCall`: a control. The answer can stop a tool call or withhold its result.
    ToolCall,
}

/// What an error of a control means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnError {
    /// `continue`: as if there were no such hook.
    #[default]
    Continue,
    /// `block`: as if the receiver had denied.
    Block,
}

impl Delivery {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fetch => "fetch",
            Self::Queue => "qstash",
        }
    }
}

impl ResponseHandling {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ignore => "ignore",
            Self::ToolCall => "toolCall",
        }
    }
}

impl OnError {
    /// The word in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Continue => "continue",
            Self::Block => "block",
        }
    }
}

/// A webhook that keeps every rule.
#[derive(Clone)]
pub(crate) struct WebhookConfig {
    pub(crate) url: HookUrl,
    pub(crate) delivery: Delivery,
    /// Whether a failure must reach the caller.
    pub(crate) is_critical: bool,
    pub(crate) timeout: Duration,
    /// Names and templates in the order given.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) allowed_env_vars: Vec<String>,
    pub(crate) body: Map<String, Value>,
    pub(crate) event_fields: Option<Vec<String>>,
    pub(crate) response_handling: ResponseHandling,
    pub(crate) on_error: OnError,
}

impl WebhookConfig {
    /// # Errors
    /// The first rule that is broken.
    pub(crate) fn parse(json: &Value) -> Result<Self, WebhookError> {
        let object = json.as_object().ok_or(WebhookError::NotAnObject)?;
        let mut config = Self::to(url(object)?);
        for (key, value) in object {
            config.read(key, value)?;
        }
        let shapes_payload = object.contains_key("eventFields") || object.contains_key("body");
        match (config.response_handling, config.delivery) {
            (ResponseHandling::ToolCall, Delivery::Queue) => Err(WebhookError::ControlNeedsFetch),
            (ResponseHandling::ToolCall, _) if shapes_payload => Err(WebhookError::ControlSeesAll),
            (ResponseHandling::Ignore, _) if config.on_error == OnError::Block => {
                Err(WebhookError::BlockNeedsControl)
            }
            _ => Ok(config),
        }
    }

    /// Everything by default.
    pub(crate) fn to(url: HookUrl) -> Self {
        Self {
            url,
            delivery: Delivery::default(),
            is_critical: false,
            timeout: TIMEOUT_DEFAULT,
            headers: Vec::new(),
            allowed_env_vars: Vec::new(),
            body: Map::new(),
            event_fields: None,
            response_handling: ResponseHandling::default(),
            on_error: OnError::default(),
        }
    }

    fn read(&mut self, key: &str, value: &Value) -> Result<(), WebhookError> {
        match key {
            "url" => {}
            "delivery" => {
                let words = [("fetch", Delivery::Fetch), ("qstash", Delivery::Queue)];
                self.delivery = word(key, value, words, "\"fetch\" or \"qstash\"")?;
            }
            "fallback" => {
                let words = [("fetch", false), ("none", true)];
                self.is_critical = word(key, value, words, "\"fetch\" or \"none\"")?;
            }
            "timeout" => self.timeout = timeout(value)?,
            "headers" => self.headers = headers(value)?,
            "allowedEnvVars" => self.allowed_env_vars = allowed_env_vars(value)?,
            "body" => self.body.clone_from(object_of(key, value)?),
            "eventFields" => self.event_fields = Some(strings(key, value)?),
            "responseHandling" => self.response_handling = response_handling(value)?,
            "onError" => {
                let words = [("continue", OnError::Continue), ("block", OnError::Block)];
                self.on_error = word(key, value, words, "\"continue\" or \"block\"")?;
            }
            _ => return Err(WebhookError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }

    pub(crate) fn is_control(&self) -> bool {
        self.response_handling == ResponseHandling::ToolCall
    }
}

/// Shows no value of a header and nothing of the body: both may be secrets.
impl fmt::Debug for WebhookConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("WebhookConfig")
            .field("url", &self.url)
            .field("delivery", &self.delivery)
            .field("headers", &names)
            .field("response_handling", &self.response_handling)
            .field("on_error", &self.on_error)
            .finish_non_exhaustive()
    }
}

fn invalid(key: impl Into<String>, expected: &'static str) -> WebhookError {
    WebhookError::Value {
        key: key.into(),
        expected,
    }
}

fn url(object: &Map<String, Value>) -> Result<HookUrl, WebhookError> {
    match object.get("url") {
        Some(Value::String(text)) => HookUrl::parse(text),
        _ => Err(invalid("url", "a string")),
    }
}

fn word<T: Copy, const N: usize>(
    key: &str,
    value: &Value,
    words: [(&str, T); N],
    expected: &'static str,
) -> Result<T, WebhookError> {
    let known = |text: &str| words.iter().find(|(word, _)| *word == text);
    let found = value.as_str().and_then(known);
    found
        .map(|(_, meaning)| *meaning)
        .ok_or_else(|| invalid(key, expected))
}

fn response_handling(value: &Value) -> Result<ResponseHandling, WebhookError> {
    if let Some(removed) = REMOVED.into_iter().find(|removed| value == removed) {
        return Err(WebhookError::Removed(removed));
    }
    let words = [
        ("ignore", ResponseHandling::Ignore),
        ("toolCall", ResponseHandling::ToolCall),
    ];
    word(
        "responseHandling",
        value,
        words,
        "\"ignore\" or \"toolCall\"",
    )
}

fn timeout(value: &Value) -> Result<Duration, WebhookError> {
    value
        .as_f64()
        .filter(|seconds| *seconds > 0.0 && *seconds <= TIMEOUT_SECONDS_MAX)
        .map(effective_timeout)
        .ok_or_else(|| invalid("timeout", "seconds above 0 and at most 2147483.647"))
}

/// Whole milliseconds, rounded up.
fn effective_timeout(seconds: f64) -> Duration {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked: above 0 and within 31 bits"
    )]
    let ms = (seconds * MS_PER_SECOND).ceil().max(1.0) as u64;
    Duration::from_millis(ms)
}

fn headers(value: &Value) -> Result<Vec<(String, String)>, WebhookError> {
    let read = |(name, value): (&String, &Value)| match value {
        Value::String(text) => Ok((name.clone(), text.clone())),
        _ => Err(invalid(format!("headers.{name}"), "a string")),
    };
    object_of("headers", value)?.iter().map(read).collect()
}

fn allowed_env_vars(value: &Value) -> Result<Vec<String>, WebhookError> {
    let names = strings("allowedEnvVars", value)?;
    for (index, name) in names.iter().enumerate() {
        let expected = if !is_variable_name(name) {
            "a name of letters, digits and _ that does not begin with a digit"
        } else if OPERATORS_OWN.contains(&name.as_str()) {
            "a variable that is not the operator's own"
        } else {
            continue;
        };
        return Err(invalid(format!("allowedEnvVars.{index}"), expected));
    }
    Ok(names)
}

fn object_of<'a>(key: &str, value: &'a Value) -> Result<&'a Map<String, Value>, WebhookError> {
    value.as_object().ok_or_else(|| invalid(key, "an object"))
}

fn strings(key: &str, value: &Value) -> Result<Vec<String>, WebhookError> {
    let list = value
        .as_array()
        .ok_or_else(|| invalid(key, "an array of strings"))?;
    let read = |(index, value): (usize, &Value)| match value {
        Value::String(text) => Ok(text.clone()),
        _ => Err(invalid(format!("{key}.{index}"), "a string")),
    };
    list.iter().enumerate().map(read).collect()
}
