//! The two halves of `beforeToolCall`: webhooks observe, handlers may mock.

use std::sync::Arc;

use super::dispatcher::{EnvironmentHooks, HookDispatcher};
use super::environment_hooks::EnvironmentError;
use super::event::{BeforeToolCall, Event, Mock, ToolCall, ToolRunResult};
use super::mode::Mode;
use super::notify::{call as call_handler, log_handler};
use super::persisted::PersistedHooks;

impl HookDispatcher {
    /// Sends the webhooks of `beforeToolCall` and returns at once. They run detached from the call:
    /// neither its end nor its cancellation touches them, and their failures are only logged.
    /// Handlers do not run here. [`Self::drain`] waits for them.
    ///
    /// # Errors
    /// The environment's hooks cannot be read: nothing is sent.
    pub fn observe_before_tool_call(
        &self,
        call: ToolCall,
        persisted: Option<&PersistedHooks>,
    ) -> Result<(), EnvironmentError> {
        self.observe(Arc::new(call.into()), persisted)
    }

    pub(crate) fn observe(
        &self,
        event: Arc<BeforeToolCall>,
        persisted: Option<&PersistedHooks>,
    ) -> Result<(), EnvironmentError> {
        let event = Event::BeforeToolCall(event);
        let operation_id = event.operation_id();
        let mut hooks = self
            .0
            .resolve(operation_id, persisted, EnvironmentHooks::Included)?;
        hooks.retain(|hook| {
            let is_observed = !hook.is_control() && self.0.handler(hook).is_none();
            hook.moment == event.hook_type() && is_observed
        });
        if !hooks.is_empty() {
            let inner = Arc::clone(&self.0);
            self.0.detached.spawn(async move {
                // Logged where it happened.
                drop(inner.notify(&event, &hooks).await);
            });
        }
        Ok(())
    }

    /// Asks the handlers of `beforeToolCall`, one after the other, for a result in place of the
    /// call, and returns the first that one of them puts there with [`BeforeToolCall::mock`]. The
    /// handlers after it are not asked. What a handler fails with is logged and ignored; a result
    /// that it put before stands. `None`: make the call. In queue mode always `None`.
    ///
    /// # Errors
    /// The environment's hooks cannot be read: no handler has run.
    ///
    /// # Mock a tool
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use hookstash_producer::hooks::{AgentHook, BeforeToolCall, HookDispatcher, Mode, ToolCall, ToolRunResult};
    /// # use hookstash_shared::{clock::SystemClock, environment::ProcessEnvironment};
    /// # use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let environment = Arc::new(ProcessEnvironment);
    /// # let http = HttpClient::new(EgressPolicy::default(), environment.clone(), CONNECT_TIMEOUT)?;
    /// # let hooks = HookDispatcher::builder(Mode::Local, http, environment, Arc::new(SystemClock::new())).build()?;
    /// let fixture = AgentHook::handler("fixture", |event: Arc<BeforeToolCall>| async move {
    ///     event.mock(ToolRunResult {
    ///         content: "sunny".to_owned(),
    ///         success: true,
    ///         ..ToolRunResult::default()
    ///     });
    ///     Ok(())
    /// })
    /// .matching("^weather/");
    /// hooks.register("operation-1", vec![fixture])?;
    ///
    /// let call = ToolCall {
    ///     operation_id: "operation-1".to_owned(),
    ///     identifier: "weather".to_owned(),
    ///     api_name: "today".to_owned(),
    ///     ..ToolCall::default()
    /// };
    /// let result = hooks.dispatch_before_tool_call(call).await?;
    /// assert_eq!(result.map(|result| result.content), Some("sunny".to_owned()));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn dispatch_before_tool_call(
        &self,
        call: ToolCall,
    ) -> Result<Option<ToolRunResult>, EnvironmentError> {
        let operation_id = call.operation_id.as_str();
        let hooks = self
            .0
            .resolve(operation_id, None, EnvironmentHooks::Included)?;
        if self.0.mode == Mode::Queue {
            return Ok(None);
        }
        let mock = Mock::open();
        let event = BeforeToolCall {
            call,
            mock: mock.clone(),
        };
        let event = Event::from(event);
        for hook in &hooks {
            let Some(handler) = &hook.handler else {
                continue;
            };
            if hook.moment != event.hook_type() {
                continue;
            }
            match hook.matcher.matches(event.tool()) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    log_handler(&event, hook, &error);
                    continue;
                }
            }
            if let Err(error) = call_handler(handler, &event).await {
                log_handler(&event, hook, &*error);
            }
            if let Some(result) = mock.result() {
                return Ok(Some(result));
            }
        }
        Ok(None)
    }
}
