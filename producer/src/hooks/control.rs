//! Controls: asking receivers whether a tool may be called, or its result used.
//!
//! Everything but "the receivers allow it" stops: a deny always, an error when the hook says
//! `onError: block`, and a cancellation before either. Whatever cannot be evaluated at all is an
//! `Err`, which a caller cannot mistake for a verdict.

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::answer_body;
use super::decision::{self, Decision, NoDecision};
use super::dispatcher::{EnvironmentHooks, HookDispatcher, Inner};
use super::environment_hooks::EnvironmentError;
use super::error::{DeliveryError, HookErrorCode};
use super::event::{AfterToolCall, BeforeToolCall, Event, ToolCall};
use super::hook::Hook;
use super::notify::{caught, fields_of};
use super::outbound::Purpose;
use super::persisted::PersistedHooks;
use super::webhook::{OnError, WebhookConfig};

/// The reason of a block that an error caused.
pub const HOOK_CONTROL_ERROR: &str = "hook_control_error";
/// The error that a blocked tool call carries.
pub const HOOK_DENIED: &str = "hook_denied";

/// What the controls of an operation say together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a verdict that nobody reads guards nothing"]
pub enum Verdict {
    /// No control objects.
    Allow,
    /// A control denies, or one that blocks on errors could not be asked.
    Blocked {
        /// The receiver's own words, [`HOOK_CONTROL_ERROR`], or a default. Never empty.
        reason: String,
    },
    /// The operation was cancelled meanwhile. Grants nothing.
    Cancelled,
}

/// An event that controls decide about.
#[derive(Debug, Clone)]
pub struct ControlEvent(Event);

impl From<BeforeToolCall> for ControlEvent {
    fn from(event: BeforeToolCall) -> Self {
        Self(event.into())
    }
}

impl From<ToolCall> for ControlEvent {
    fn from(call: ToolCall) -> Self {
        BeforeToolCall::of_call(call).into()
    }
}

impl From<AfterToolCall> for ControlEvent {
    fn from(event: AfterToolCall) -> Self {
        Self(event.into())
    }
}

impl HookDispatcher {
    /// Asks the operation's controls about a tool call that is about to be made, or about its
    /// complete result before anything is done with it. They are asked one after the other; an
    /// allow does not end it, the first deny does. `cancel` ends it at any point, and wins over
    /// every answer.
    ///
    /// `persisted` counts as in [`Self::dispatch`]. There is no deadline over all: each control has
    /// its own, 30 s unless it says otherwise.
    ///
    /// # Errors
    /// The environment's hooks cannot be read: treat the call as failed, never as allowed.
    ///
    /// # Guard a tool
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use hookstash_producer::hooks::{AgentHook, EnvironmentHooks, HookDispatcher, HookType, Mode, OnError, ToolCall, Verdict, Webhook};
    /// # use hookstash_shared::{clock::SystemClock, environment::ProcessEnvironment};
    /// # use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
    /// # use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let environment = Arc::new(ProcessEnvironment);
    /// # let http = HttpClient::new(EgressPolicy::default().in_development(), environment.clone(), CONNECT_TIMEOUT)?;
    /// # let hooks = HookDispatcher::builder(Mode::Local, http, environment, Arc::new(SystemClock::new())).build()?;
    /// # let policy_endpoint = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    /// # let policy_url = format!("http://{}/check", policy_endpoint.local_addr()?);
    /// # tokio::spawn(async move {
    /// #     let (mut stream, _) = policy_endpoint.accept().await.unwrap();
    /// #     let _ = stream.read(&mut [0; 4096]).await;
    /// #     let answer = r#"{"decision":"deny","reason":"not on a Friday"}"#;
    /// #     let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
    /// #     stream.write_all((head + answer).as_bytes()).await.unwrap();
    /// # });
    /// let policy = Webhook::to(policy_url).control(OnError::Block);
    /// let guard = AgentHook::webhook("policy", HookType::BeforeToolCall, policy).matching("^files/");
    /// hooks.register("operation-1", vec![guard])?;
    ///
    /// let call = ToolCall {
    ///     operation_id: "operation-1".to_owned(),
    ///     identifier: "files".to_owned(),
    ///     api_name: "write".to_owned(),
    ///     ..ToolCall::default()
    /// };
    /// let cancel = tokio_util::sync::CancellationToken::new();
    /// match hooks.evaluate(call, None, EnvironmentHooks::Included, &cancel).await? {
    ///     Verdict::Allow => println!("call the tool"),
    ///     Verdict::Blocked { reason } => assert_eq!(reason, "not on a Friday"),
    ///     Verdict::Cancelled => println!("stop, and keep nothing"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn evaluate(
        &self,
        event: impl Into<ControlEvent>,
        persisted: Option<&PersistedHooks>,
        environment: EnvironmentHooks,
        cancel: &CancellationToken,
    ) -> Result<Verdict, EnvironmentError> {
        let ControlEvent(event) = event.into();
        let hooks = self
            .0
            .resolve(event.operation_id(), persisted, environment)?;
        let mut fields = None;
        for hook in &hooks {
            if cancel.is_cancelled() {
                return Ok(Verdict::Cancelled);
            }
            let Some(webhook) = hook.webhook.as_ref().filter(|_| hook.is_control()) else {
                continue;
            };
            if hook.moment != event.hook_type() {
                continue;
            }
            let asked = tokio::select! {
                biased;
                () = cancel.cancelled() => return Ok(Verdict::Cancelled),
                asked = caught(self.0.ask(&event, &mut fields, hook, webhook)) => asked,
            };
            // The answer may have come together with the cancellation.
            if cancel.is_cancelled() {
                return Ok(Verdict::Cancelled);
            }
            if let Some(reason) = judge(&event, hook, webhook, asked) {
                return Ok(Verdict::Blocked { reason });
            }
        }
        Ok(if cancel.is_cancelled() {
            Verdict::Cancelled
        } else {
            Verdict::Allow
        })
    }
}

impl Inner {
    /// The decision of one control; `None` when its matcher leaves the call out. `fields` are made
    /// for the first control.
    async fn ask(
        &self,
        event: &Event,
        fields: &mut Option<Map<String, Value>>,
        hook: &Hook,
        webhook: &WebhookConfig,
    ) -> Result<Option<Decision>, DeliveryError> {
        let unmatched = |error: super::matcher::MatchError| {
            DeliveryError::configuration().with_detail(error.to_string())
        };
        if !hook.matcher.matches(event.tool()).map_err(unmatched)? {
            return Ok(None);
        }
        let fields = match fields {
            Some(fields) => fields,
            none => none.insert(fields_of(event)?),
        };
        let body = self.body(hook, webhook, fields).await?;
        let mut answer = self
            .outbound
            .call(hook, webhook, body, Purpose::Control)
            .await?;
        let body = answer_body::read(&mut answer).await?;
        match decision::parse(&body) {
            Ok(decision) => Ok(Some(decision)),
            Err(decision::Invalid) => Err(DeliveryError::new(HookErrorCode::InvalidResponse)),
        }
    }
}

/// Why the call is blocked; `None` lets the next control be asked.
fn judge(
    event: &Event,
    hook: &Hook,
    webhook: &WebhookConfig,
    asked: Result<Option<Decision>, DeliveryError>,
) -> Option<String> {
    match asked {
        Ok(Some(Decision::Deny(reason))) => {
            let reason = reason.filter(|reason| !reason.is_empty());
            Some(reason.unwrap_or_else(|| format!("Blocked by {} hook.", hook.moment)))
        }
        Ok(Some(Decision::None(why))) => {
            log_no_decision(event, hook, why);
            None
        }
        Ok(Some(Decision::Allow) | None) => None,
        Err(error) => {
            let is_blocked = webhook.on_error == OnError::Block;
            tracing::warn!(
                operation_id = event.operation_id(),
                hook_id = hook.id,
                hook_type = hook.moment.as_str(),
                code = error.code.as_str(),
                status = error.status,
                is_blocked,
                "[HookDispatcher] Control failed"
            );
            is_blocked.then(|| HOOK_CONTROL_ERROR.to_owned())
        }
    }
}

fn log_no_decision(event: &Event, hook: &Hook, why: NoDecision) {
    let operation_id = event.operation_id();
    let hook_type = hook.moment.as_str();
    let hook_id = &hook.id;
    match why {
        NoDecision::Empty => tracing::info!(
            operation_id,
            hook_id,
            hook_type,
            "[HookDispatcher] Control answered no decision: the answer is empty"
        ),
        NoDecision::NotJson => tracing::warn!(
            operation_id,
            hook_id,
            hook_type,
            "[HookDispatcher] Control answered no decision: the answer is not JSON"
        ),
        NoDecision::KeyMissing => tracing::warn!(
            operation_id,
            hook_id,
            hook_type,
            "[HookDispatcher] Control answered no decision: the answer has no top-level \"decision\""
        ),
    }
}
