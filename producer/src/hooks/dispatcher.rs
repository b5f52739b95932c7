//! The dispatcher: what a runtime holds in its hand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::clock::Clock;
use hookstash_shared::environment::Environment;
use hookstash_shared::http::HttpClient;
use tokio_util::task::TaskTracker;

use super::builder::HookDispatcherBuilder;
use super::emails::Emails;
use super::environment_hooks::{self, EnvironmentError};
use super::error::{DispatchError, RegisterError};
use super::event::Event;
use super::hook::{AgentHook, Hook};
use super::hook_type::HookType;
use super::mode::Mode;
use super::outbound::Outbound;
use super::persisted::PersistedHooks;
use super::queue::HookPublisher;
use super::registry::Registry;

/// Whether the operator's hooks take part. They do, except in all but the last round of a result
/// that belongs to several operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EnvironmentHooks {
    /// After the callers' hooks.
    #[default]
    Included,
    /// Not in this round.
    Excluded,
}

/// Runs the hooks of agent operations. Cheap to clone; all clones are one dispatcher.
///
/// Hooks are registered for an operation and run when its events are dispatched, in the order of
/// registration, one after the other. Where an operation goes on in another process, its webhooks
/// come with its state, as [`PersistedHooks`].
///
/// # Observe a step
///
/// ```
/// # use std::sync::{Arc, Mutex};
/// # use hookstash_producer::hooks::{AfterStep, AgentHook, HookDispatcher, Mode};
/// # use hookstash_shared::{clock::SystemClock, environment::ProcessEnvironment};
/// # use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let environment = Arc::new(ProcessEnvironment);
/// let http = HttpClient::new(EgressPolicy::default(), environment.clone(), CONNECT_TIMEOUT)?;
/// let clock = Arc::new(SystemClock::new());
/// let hooks = HookDispatcher::builder(Mode::Local, http, environment, clock).build()?;
///
/// let tokens = Arc::new(Mutex::new(0));
/// let total = Arc::clone(&tokens);
/// let meter = AgentHook::handler("meter", move |step: Arc<AfterStep>| {
///     *total.lock().unwrap() = step.total_tokens;
///     async { Ok(()) }
/// });
/// hooks.register("operation-1", vec![meter])?;
///
/// let step = AfterStep {
///     operation_id: "operation-1".to_owned(),
///     total_tokens: 1_234,
///     ..AfterStep::default()
/// };
/// hooks.dispatch(step, None).await?;
/// assert_eq!(*tokens.lock().unwrap(), 1_234);
/// hooks.unregister("operation-1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct HookDispatcher(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) mode: Mode,
    pub(crate) registry: Registry,
    pub(crate) outbound: Outbound,
    pub(crate) publisher: Option<HookPublisher>,
    pub(crate) emails: Emails,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) detached: TaskTracker,
}

impl HookDispatcher {
    /// Begins a dispatcher. `environment` is asked at every use: for the operator's hooks, for the
    /// values of header templates and for the application's own URL.
    pub fn builder(
        mode: Mode,
        http: HttpClient,
        environment: Arc<dyn Environment>,
        clock: Arc<dyn Clock>,
    ) -> HookDispatcherBuilder {
        HookDispatcherBuilder::new(mode, http, environment, clock)
    }

    /// Adds `hooks` to the operation, behind those it has. Ids need not be unique. Hooks whose id
    /// begins with [`RESERVED_PREFIX`] are dropped with a warning.
    ///
    /// # Errors
    /// A hook breaks a rule, or the environment's hooks cannot be read; then nothing has changed.
    ///
    /// [`RESERVED_PREFIX`]: super::RESERVED_PREFIX
    pub fn register(&self, operation_id: &str, hooks: Vec<AgentHook>) -> Result<(), RegisterError> {
        let environment = environment_hooks::resolve(&*self.0.outbound.environment)?;
        let has_environment_hooks = !environment.is_empty();
        self.0
            .registry
            .register(operation_id, hooks, has_environment_hooks)
    }

    /// Forgets the operation's hooks. Safe to repeat.
    pub fn unregister(&self, operation_id: &str) {
        self.0.registry.unregister(operation_id);
    }

    /// Whether callers have registered a hook for the operation in this process.
    pub fn has_hooks(&self, operation_id: &str) -> bool {
        let hooks = self.0.registry.get(operation_id);
        hooks.is_some_and(|hooks| !hooks.is_empty())
    }

    /// Whether callers have registered a hook with this id for the operation in this process.
    pub fn has_hook(&self, operation_id: &str, hook_id: &str) -> bool {
        let hooks = self.0.registry.get(operation_id);
        hooks.is_some_and(|hooks| hooks.iter().any(|hook| hook.id == hook_id))
    }

    /// The operation's webhooks, to be stored with its state; `None` when the operation is not
    /// known here. Without handlers, environment hooks and secrets.
    pub fn serialized(&self, operation_id: &str) -> Option<PersistedHooks> {
        let hooks = self.0.registry.get(operation_id)?;
        Some(PersistedHooks::of(&hooks))
    }

    /// Whether a notification of this type would reach anyone, matchers aside, so that exactly one
    /// party announces what happened. Controls do not count.
    ///
    /// # Errors
    /// The environment's hooks cannot be read.
    pub fn can_deliver(
        &self,
        operation_id: &str,
        hook_type: HookType,
    ) -> Result<bool, EnvironmentError> {
        let hooks = self
            .0
            .resolve(operation_id, None, EnvironmentHooks::Included)?;
        Ok(hooks
            .iter()
            .any(|hook| hook.moment == hook_type && !hook.is_control() && self.0.runs(hook)))
    }

    /// Runs the operation's hooks for `event`, one after the other, and returns when the last has
    /// ended. Their failures are logged; only a critical webhook's reaches the caller, after all
    /// siblings have run. Controls are not asked: see [`Self::evaluate`].
    ///
    /// `persisted` are the hooks that came with the operation's state. In local mode they count
    /// only where the operation is not registered; in queue mode they win over what is registered.
    ///
    /// A `beforeToolCall` event is observed, as by [`Self::observe_before_tool_call`].
    ///
    /// # Errors
    /// A critical webhook was not delivered, or the environment's hooks cannot be read.
    ///
    /// # A critical callback
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use hookstash_producer::hooks::{AgentHook, HookDispatcher, HookType, Mode, OnComplete, RunEnd, Webhook};
    /// # use hookstash_shared::{clock::SystemClock, environment::ProcessEnvironment};
    /// # use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let environment = Arc::new(ProcessEnvironment);
    /// # let http = HttpClient::new(EgressPolicy::default().in_development(), environment.clone(), CONNECT_TIMEOUT)?;
    /// # let hooks = HookDispatcher::builder(Mode::Local, http, environment, Arc::new(SystemClock::new())).build()?;
    /// // Nothing listens on port 9, and somebody must know.
    /// let bridge = Webhook::to("http://127.0.0.1:9/resume-parent")
    ///     .critical()
    ///     .event_fields(["operationId", "reason"]);
    /// hooks.register("child", vec![AgentHook::webhook("bridge", HookType::OnComplete, bridge)])?;
    ///
    /// let end = RunEnd {
    ///     operation_id: "child".to_owned(),
    ///     reason: "done".to_owned(),
    ///     ..RunEnd::default()
    /// };
    /// let error = hooks.dispatch(OnComplete(end), None).await.unwrap_err();
    /// assert_eq!(error.to_string(), "Critical webhook delivery failed: bridge");
    /// // Hand the error on: whoever runs the step tries it again.
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dispatch(
        &self,
        event: impl Into<Event>,
        persisted: Option<&PersistedHooks>,
    ) -> Result<(), DispatchError> {
        let event = event.into();
        if let Event::BeforeToolCall(event) = event {
            return Ok(self.observe(event, persisted)?);
        }
        let hooks = self
            .0
            .resolve(event.operation_id(), persisted, EnvironmentHooks::Included)?;
        Ok(self.0.notify(&event, &hooks).await?)
    }

    /// Waits until all detached observations have ended, for up to `deadline`; whether they have.
    pub async fn drain(&self, deadline: Duration) -> bool {
        self.0.detached.close();
        let ended = tokio::time::timeout(deadline, self.0.detached.wait()).await;
        self.0.detached.reopen();
        ended.is_ok()
    }
}

impl Inner {
    /// The hooks that count for the operation, in order.
    ///
    /// # Errors
    /// The environment's hooks cannot be read.
    pub(crate) fn resolve(
        &self,
        operation_id: &str,
        persisted: Option<&PersistedHooks>,
        environment: EnvironmentHooks,
    ) -> Result<Vec<Arc<Hook>>, EnvironmentError> {
        let known = self.registry.get(operation_id);
        let mut hooks = match (self.mode, persisted, known) {
            (Mode::Queue, Some(persisted), _) | (Mode::Local, Some(persisted), None) => {
                persisted.hooks().to_vec()
            }
            (Mode::Local, _, Some(known)) => known.to_vec(),
            (Mode::Queue, None, Some(known)) => known
                .iter()
                .filter(|hook| hook.webhook.is_some())
                .cloned()
                .collect(),
            (_, None, None) => Vec::new(),
        };
        let environment_hooks = environment_hooks::resolve(&*self.outbound.environment)?;
        if environment == EnvironmentHooks::Included {
            hooks.extend(environment_hooks.into_iter().map(Arc::new));
        }
        Ok(hooks)
    }

    /// Whether `hook` does anything in this mode.
    pub(crate) fn runs(&self, hook: &Hook) -> bool {
        self.mode == Mode::Local || hook.webhook.is_some()
    }
}

impl fmt::Debug for HookDispatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookDispatcher")
            .field("mode", &self.0.mode)
            .finish_non_exhaustive()
    }
}
