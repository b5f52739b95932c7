//! What handlers in this process get beside the event, and no receiver ever does.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::tool::ToolRunResult;

/// The runtime's own state at the time of an event, of whatever type the runtime keeps it in.
/// Cheap to clone; there is no way to serialise it.
#[derive(Clone)]
pub struct LocalState(Arc<dyn Any + Send + Sync>);

impl LocalState {
    /// Hands `state` to handlers.
    pub fn new<T: Any + Send + Sync>(state: T) -> Self {
        Self(Arc::new(state))
    }

    /// The state; `None` when it is of another type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for LocalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalState")
    }
}

/// Where a handler of `beforeToolCall` can put a result in place of calling the tool. The first
/// result wins.
#[derive(Clone, Default)]
pub struct Mock(Option<Arc<Mutex<Option<ToolRunResult>>>>);

impl Mock {
    /// One that takes a result.
    pub(crate) fn open() -> Self {
        Self(Some(Arc::default()))
    }

    /// Puts `result` in place of the tool call. `false` when there is a result already, or when
    /// this event does not take one.
    pub(crate) fn put(&self, result: ToolRunResult) -> bool {
        let Some(slot) = &self.0 else {
            return false;
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = slot.is_none();
        if is_first {
            *slot = Some(result);
        }
        is_first
    }

    /// The result, when there is one.
    pub(crate) fn result(&self) -> Option<ToolRunResult> {
        let slot = self.0.as_ref()?;
        slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mock")
    }
}
