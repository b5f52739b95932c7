//! A hook: what callers register, and what it is after all its rules have been checked.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use hookstash_shared::http::Trust;
use serde_json::{Map, Value};

use super::environment_hooks::RESERVED_PREFIX;
use super::event::{Event, HookEvent};
use super::hook_type::{HookType, UnknownHookType};
use super::matcher::{Matcher, PATTERN_CHARS_MAX, PatternError};
use super::webhook::{Webhook, WebhookConfig, WebhookError};

/// Most characters of an id that an error shows.
const SHOWN_CHARS: usize = 64;
/// The keys of its JSON.
const KEYS: [&str; 4] = ["id", "type", "matcher", "webhook"];

/// Whatever a handler fails with. It is logged and goes no further.
pub type HandlerError = Box<dyn Error + Send + Sync>;

pub(crate) type Handler =
    Arc<dyn Fn(Event) -> BoxFuture<'static, Result<(), HandlerError>> + Send + Sync>;

/// A hook as a caller writes it. Its rules are checked when it is registered.
///
/// ```
/// # use std::sync::Arc;
/// # use hookstash_producer::hooks::{AfterToolCall, AgentHook, HookType, OnComplete, Webhook};
/// let in_process = AgentHook::handler("audit", |event: Arc<AfterToolCall>| async move {
///     println!("{} took {:?} ms", event.call.api_name, event.result.execution_time);
///     Ok(())
/// })
/// .matching("^files/");
/// let elsewhere = AgentHook::webhook("done", HookType::OnComplete, Webhook::to("/hooks/done"));
/// ```
#[derive(Clone)]
pub struct AgentHook {
    /// Its persisted form, key by key as it was given.
    json: Map<String, Value>,
    handler: Option<Handler>,
}

/// Why a hook is refused. The texts are normative where the behaviour's specification has them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookError {
    /// It is no JSON object.
    #[error("Hook must be an object")]
    NotAnObject,
    /// A key that does not exist.
    #[error("Unrecognized key in hook: {0:?}")]
    UnknownKey(String),
    /// The id is not a string.
    #[error("Hook id must be a string")]
    Id,
    /// The type is none of the sixteen.
    #[error(transparent)]
    Type(#[from] UnknownHookType),
    /// The matcher is no string, or not a regular expression that can be used.
    #[error("Invalid hook matcher regular expression: {0}")]
    Matcher(#[from] PatternError),
    /// Other events have nothing to match.
    #[error("Matchers are only supported for tool events")]
    MatcherWithoutTool,
    /// JSON cannot hold a handler.
    #[error("Hook handler must be a function")]
    Handler,
    /// The webhook is refused.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// Only tool calls can be stopped.
    #[error("toolCall response handling requires beforeToolCall or afterToolCall")]
    ControlWithoutToolCall,
    /// A control is asked over HTTP only.
    #[error("Control hooks cannot have a handler")]
    ControlWithHandler,
    /// It does nothing.
    #[error("A hook requires a handler or webhook")]
    Nothing,
}

impl AgentHook {
    /// A hook that does nothing yet.
    pub fn new(id: impl Into<String>, hook_type: HookType) -> Self {
        let hook = Self {
            json: Map::new(),
            handler: None,
        };
        hook.with("id", id.into()).with("type", hook_type.as_str())
    }

    /// A hook that calls `handler` in this process. The type of its argument says which events it
    /// gets. Handlers run in local mode only; what one fails with is logged and ignored.
    pub fn handler<E, F, Fut>(id: impl Into<String>, handler: F) -> Self
    where
        E: HookEvent,
        F: Fn(Arc<E>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), HandlerError>> + Send + 'static,
    {
        let handler: Handler = Arc::new(move |event| match E::of(&event) {
            Some(event) => Box::pin(handler(event)),
            None => Box::pin(std::future::ready(Ok(()))),
        });
        Self {
            handler: Some(handler),
            ..Self::new(id, E::TYPE)
        }
    }

    /// A hook that calls a URL.
    pub fn webhook(id: impl Into<String>, hook_type: HookType, webhook: Webhook) -> Self {
        Self::new(id, hook_type).with_webhook(webhook)
    }

    /// Gives it a webhook too. In local mode its handler runs where it was registered, and the
    /// webhook is called where it is only known from [`PersistedHooks`]; in queue mode always the
    /// webhook is called.
    ///
    /// [`PersistedHooks`]: super::PersistedHooks
    #[must_use]
    pub fn with_webhook(self, webhook: Webhook) -> Self {
        self.with("webhook", webhook)
    }

    /// Restricts it to tool calls whose `identifier/apiName` the regular expression finds a match
    /// in: JavaScript's dialect, case-sensitive, anywhere in the text unless anchored. An empty
    /// text and `*` match everything. For tool events only.
    #[must_use]
    pub fn matching(self, matcher: impl Into<String>) -> Self {
        self.with("matcher", matcher.into())
    }

    /// A hook written as JSON: `id`, `type`, `webhook` and, for tool events, `matcher`.
    ///
    /// # Errors
    /// It is no object. Everything else is checked when it is registered.
    pub fn from_json(json: Value) -> Result<Self, HookError> {
        match json {
            Value::Object(json) => Ok(Self {
                json,
                handler: None,
            }),
            _ => Err(HookError::NotAnObject),
        }
    }

    /// The id for messages; empty when there is none.
    pub(crate) fn shown_id(&self) -> String {
        let id = self.id().unwrap_or_default();
        id.chars().take(SHOWN_CHARS).collect()
    }

    /// Whether its id is one of environment hooks, which no caller may use.
    pub(crate) fn is_reserved(&self) -> bool {
        self.id().is_some_and(|id| id.starts_with(RESERVED_PREFIX))
    }

    /// What it takes of the limits of its operation.
    pub(crate) fn size(&self) -> HookSize {
        let pattern = self.json.get("matcher").and_then(Value::as_str);
        let is_stored = self.json.contains_key("webhook");
        let json_bytes = if is_stored { bytes(&self.json) } else { 0 };
        // One that is longer than any may be is refused by its hook's name.
        let chars = |pattern: &str| pattern.chars().take(PATTERN_CHARS_MAX + 1).count();
        HookSize {
            pattern_chars: pattern.map_or(0, chars),
            json_bytes,
        }
    }

    fn id(&self) -> Option<&str> {
        self.json.get("id").and_then(Value::as_str)
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.json.insert(key.to_owned(), value.into());
        self
    }
}

impl fmt::Debug for AgentHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentHook")
            .field("id", &self.json.get("id"))
            .field("type", &self.json.get("type"))
            .finish_non_exhaustive()
    }
}

/// What a hook takes of the limits of its operation.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HookSize {
    /// Characters of its matcher.
    pub(crate) pattern_chars: usize,
    /// Bytes of its persisted form.
    pub(crate) json_bytes: usize,
}

/// A hook that keeps every rule. Shared, never changed.
#[derive(Clone)]
pub(crate) struct Hook {
    pub(crate) id: String,
    pub(crate) moment: HookType,
    pub(crate) matcher: Matcher,
    pub(crate) handler: Option<Handler>,
    pub(crate) webhook: Option<WebhookConfig>,
    pub(crate) trust: Trust,
    /// Its persisted form; `None` for environment hooks and without a webhook.
    pub(crate) json: Option<Value>,
    pub(crate) size: HookSize,
}

impl Hook {
    /// `matchers` are those of the same list that are compiled already, by their patterns.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub(crate) fn checked(
        hook: AgentHook,
        matchers: &mut HashMap<String, Matcher>,
    ) -> Result<Self, HookError> {
        let size = hook.size();
        let AgentHook { json, handler } = hook;
        let unknown = json.keys().find(|key| !KEYS.contains(&key.as_str()));
        if let Some(key) = unknown {
            return Err(match key.as_str() {
                "handler" => HookError::Handler,
                _ => HookError::UnknownKey(key.clone()),
            });
        }
        let id = json.get("id").and_then(Value::as_str);
        let id = id.ok_or(HookError::Id)?.to_owned();
        let hook_type = match json.get("type") {
            Some(Value::String(name)) => name.parse()?,
            other => other.map(Value::to_string).unwrap_or_default().parse()?,
        };
        let matcher = matcher(hook_type, json.get("matcher"), matchers)?;
        let webhook = json.get("webhook").map(WebhookConfig::parse).transpose()?;
        let is_control = webhook.as_ref().is_some_and(WebhookConfig::is_control);
        match (is_control, &handler) {
            (true, _) if !hook_type.is_controllable() => Err(HookError::ControlWithoutToolCall),
            (true, Some(_)) => Err(HookError::ControlWithHandler),
            (false, None) if webhook.is_none() => Err(HookError::Nothing),
            _ => Ok(Self {
                id,
                moment: hook_type,
                matcher,
                handler,
                json: webhook.is_some().then_some(Value::Object(json)),
                webhook,
                trust: Trust::Policy,
                size,
            }),
        }
    }

    /// The hook as another process would restore it: without its handler.
    pub(crate) fn without_handler(self: &Arc<Self>) -> Arc<Self> {
        if self.handler.is_none() {
            return Arc::clone(self);
        }
        Arc::new(Self {
            handler: None,
            ..Self::clone(self)
        })
    }

    pub(crate) fn is_control(&self) -> bool {
        self.webhook.as_ref().is_some_and(WebhookConfig::is_control)
    }
}

fn matcher(
    hook_type: HookType,
    json: Option<&Value>,
    known: &mut HashMap<String, Matcher>,
) -> Result<Matcher, HookError> {
    match json {
        None => Ok(Matcher::Everything),
        Some(_) if !hook_type.is_tool_event() => Err(HookError::MatcherWithoutTool),
        Some(Value::String(pattern)) => {
            if let Some(matcher) = known.get(pattern) {
                return Ok(matcher.clone());
            }
            let matcher = Matcher::parse(pattern)?;
            known.insert(pattern.clone(), matcher.clone());
            Ok(matcher)
        }
        Some(_) => Err(PatternError::NotAString.into()),
    }
}

/// The length of `json` when it is written.
fn bytes(json: &Map<String, Value>) -> usize {
    serde_json::to_vec(json).map_or(usize::MAX, |json| json.len())
}
