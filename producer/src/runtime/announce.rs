//! Events that nobody waits for.

use super::AgentRuntime;
use crate::hooks::{DispatchError, Event, HookDispatcher, PersistedHooks};

impl AgentRuntime {
    /// Dispatches `event` detached from the caller: neither its end nor its cancellation touches
    /// it. [`HookDispatcher::drain`] waits for it.
    pub(crate) fn announce(&self, event: impl Into<Event>, hooks: Option<&PersistedHooks>) {
        detach(self.hooks(), event.into(), hooks.cloned());
    }
}

fn detach(hooks: &HookDispatcher, event: Event, persisted: Option<PersistedHooks>) {
    let dispatcher = hooks.clone();
    hooks.0.detached.spawn(async move {
        let (operation_id, hook_type) = (event.operation_id().to_owned(), event.hook_type());
        let dispatched = dispatcher.dispatch(event, persisted.as_ref()).await;
        // Critical failures were logged where they happened.
        if let Err(DispatchError::Environment(error)) = dispatched {
            tracing::error!(
                operation_id,
                hook_type = hook_type.as_str(),
                %error,
                "[HookDispatcher] the environment's hooks cannot be read: nothing was dispatched"
            );
        }
    });
}
