//! Hooks that the operator sets by environment variables, for every operation of the process.
//!
//! They are read anew whenever hooks are resolved, run after the callers' hooks, and are stored
//! nowhere. A wrong setting is an error, never "no hooks".

use hookstash_shared::environment::Environment;
use hookstash_shared::http::Trust;

use super::hook::{Hook, HookSize};
use super::hook_type::HookType;
use super::matcher::Matcher;
use super::webhook::{HookUrl, OnError, ResponseHandling, WebhookConfig};

/// How ids of environment hooks begin. Callers' hooks with such an id are dropped.
pub const RESERVED_PREFIX: &str = "server-env-webhook:";

const URL: &str = "AGENT_HOOK_WEBHOOK_URL";
/// What the environment's hooks authenticate with.
pub(crate) const TOKEN: &str = "AGENT_HOOK_WEBHOOK_TOKEN";
const EVENTS: &str = "AGENT_HOOK_WEBHOOK_EVENTS";
const RESPONSE_HANDLING: &str = "AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING";
const ON_ERROR: &str = "AGENT_HOOK_WEBHOOK_ON_ERROR";

/// Why the `AGENT_HOOK_WEBHOOK_*` variables are refused. Names variables, never values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvironmentError {
    /// These have a value that is not allowed. An entry of a list is named by its index.
    #[error("Invalid Agent Hook environment: {}", .0.join(", "))]
    Invalid(Vec<String>),
    /// The URL needs another variable.
    #[error("AGENT_HOOK_WEBHOOK_URL requires non-empty {0}")]
    Missing(&'static str),
    /// Only controls can block.
    #[error(
        "AGENT_HOOK_WEBHOOK_ON_ERROR=block requires AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING=toolCall"
    )]
    BlockNeedsControl,
    /// There is nothing to control.
    #[error(
        "AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING=toolCall requires beforeToolCall or afterToolCall in \
         AGENT_HOOK_WEBHOOK_EVENTS"
    )]
    ControlNeedsToolCall,
}

/// The variables as they are now.
struct Settings {
    url: Option<HookUrl>,
    has_token: bool,
    /// In the order given, without repeats; `None` when unset.
    events: Option<Vec<HookType>>,
    handling: ResponseHandling,
    on_error: OnError,
}

/// Checks the `AGENT_HOOK_WEBHOOK_*` variables of `environment`, as a process does when it starts.
///
/// # Errors
/// What every register, dispatch and evaluation would be refused with.
pub fn check_environment(environment: &dyn Environment) -> Result<(), EnvironmentError> {
    resolve(environment).map(|_| ())
}

/// The hooks that the environment asks for now, one for each event.
pub(crate) fn resolve(environment: &dyn Environment) -> Result<Vec<Hook>, EnvironmentError> {
    let settings = Settings::read(environment)?;
    if settings.url.is_some() {
        if !settings.has_token {
            return Err(EnvironmentError::Missing(TOKEN));
        }
        if settings.events.is_none() {
            return Err(EnvironmentError::Missing(EVENTS));
        }
    }
    settings.check()?;
    let Some(url) = &settings.url else {
        return Ok(Vec::new());
    };
    let events = settings.events.iter().flatten();
    Ok(events
        .map(|event| settings.hook(*event, url.clone()))
        .collect())
}

impl Settings {
    fn read(environment: &dyn Environment) -> Result<Self, EnvironmentError> {
        let mut wrong = Vec::new();
        let url = read(environment, URL, &mut wrong, |text| {
            HookUrl::parse(text).map_err(|_| vec![String::new()])
        });
        let token = read(environment, TOKEN, &mut wrong, |text| {
            let is_blank = text.trim().is_empty();
            if is_blank {
                Err(vec![String::new()])
            } else {
                Ok(())
            }
        });
        let events = read(environment, EVENTS, &mut wrong, events);
        let handling = read(environment, RESPONSE_HANDLING, &mut wrong, |text| {
            let words = [ResponseHandling::Ignore, ResponseHandling::ToolCall];
            word(text, words.map(|word| (word.as_str(), word)))
        });
        let on_error = read(environment, ON_ERROR, &mut wrong, |text| {
            let words = [OnError::Continue, OnError::Block];
            word(text, words.map(|word| (word.as_str(), word)))
        });
        if !wrong.is_empty() {
            return Err(EnvironmentError::Invalid(wrong));
        }
        Ok(Self {
            url,
            has_token: token.is_some(),
            events,
            handling: handling.unwrap_or_default(),
            on_error: on_error.unwrap_or_default(),
        })
    }

    /// The rules between variables, which hold without a URL too.
    fn check(&self) -> Result<(), EnvironmentError> {
        let is_control = self.handling == ResponseHandling::ToolCall;
        if self.on_error == OnError::Block && !is_control {
            return Err(EnvironmentError::BlockNeedsControl);
        }
        let mut events = self.events.iter().flatten();
        if is_control && !events.any(|event| event.is_controllable()) {
            return Err(EnvironmentError::ControlNeedsToolCall);
        }
        Ok(())
    }

    fn hook(&self, event: HookType, url: HookUrl) -> Hook {
        let is_control = self.handling == ResponseHandling::ToolCall && event.is_controllable();
        let mut webhook = WebhookConfig::to(url);
        webhook.headers = vec![("Authorization".to_owned(), format!("Bearer ${{{TOKEN}}}"))];
        webhook.allowed_env_vars = vec![TOKEN.to_owned()];
        if is_control {
            webhook.response_handling = ResponseHandling::ToolCall;
            webhook.on_error = self.on_error;
        }
        Hook {
            id: format!("{RESERVED_PREFIX}{event}"),
            moment: event,
            matcher: Matcher::Everything,
            handler: None,
            webhook: Some(webhook),
            trust: Trust::Operator,
            json: None,
            size: HookSize::default(),
        }
    }
}

/// Reads one variable. What is wrong in it goes to `wrong`: the suffixes of its name.
fn read<T>(
    environment: &dyn Environment,
    name: &str,
    wrong: &mut Vec<String>,
    parse: impl FnOnce(&str) -> Result<T, Vec<String>>,
) -> Option<T> {
    let parsed = match environment.get(name) {
        Some(text) => parse(&text),
        // Set to something that is no text.
        None if environment.is_set(name) => Err(vec![String::new()]),
        None => return None,
    };
    let suffixes = match parsed {
        Ok(value) => return Some(value),
        Err(suffixes) => suffixes,
    };
    wrong.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
    None
}

fn events(text: &str) -> Result<Vec<HookType>, Vec<String>> {
    let mut names: Vec<&str> = Vec::new();
    for name in text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Err(vec![String::new()]);
    }
    let mut events = Vec::new();
    let mut wrong = Vec::new();
    for (index, name) in names.iter().enumerate() {
        match name.parse() {
            Ok(event) => events.push(event),
            Err(_) => wrong.push(format!(".{index}")),
        }
    }
    if wrong.is_empty() {
        Ok(events)
    } else {
        Err(wrong)
    }
}

/// The one of `words` that `text` is.
fn word<T, const N: usize>(text: &str, words: [(&str, T); N]) -> Result<T, Vec<String>> {
    words
        .into_iter()
        .find(|(word, _)| *word == text)
        .map(|(_, meaning)| meaning)
        .ok_or_else(|| vec![String::new()])
}

#[cfg(test)]
#[path = "environment_hooks_tests.rs"]
mod tests;
