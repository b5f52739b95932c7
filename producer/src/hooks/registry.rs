//! Which hooks each operation of this process has. A list is replaced as a whole, never changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::RegisterError;
use super::hook::{AgentHook, Hook};

/// Most hooks of one operation: each may cost a call at every step.
pub(crate) const HOOKS_MAX: usize = 1_000;

type List = Arc<[Arc<Hook>]>;

/// The hooks of all operations.
#[derive(Default)]
pub(crate) struct Registry(Mutex<HashMap<String, List>>);

impl Registry {
    /// Adds `hooks` behind those that the operation has. `creates_entry` says whether an operation
    /// without any hook becomes known.
    ///
    /// # Errors
    /// A hook breaks a rule; then nothing has changed.
    pub(crate) fn register(
        &self,
        operation_id: &str,
        hooks: Vec<AgentHook>,
        creates_entry: bool,
    ) -> Result<(), RegisterError> {
        let indexed = hooks.into_iter().enumerate();
        let mut added = Vec::new();
        for (index, hook) in indexed {
            if hook.is_reserved() {
                tracing::warn!(
                    operation_id,
                    hook_id = hook.shown_id(),
                    "[HookDispatcher] Hook dropped: its id is reserved for environment hooks"
                );
            } else {
                added.push((index, hook));
            }
        }
        let added = check_all(added)?;
        let mut operations = self.lock();
        let known = operations.get(operation_id);
        if added.is_empty() && known.is_none() && !creates_entry {
            return Ok(());
        }
        let all: Vec<_> = known
            .into_iter()
            .flat_map(|list| list.iter().cloned())
            .chain(added)
            .collect();
        if all.len() > HOOKS_MAX {
            return Err(RegisterError::TooMany { max: HOOKS_MAX });
        }
        operations.insert(operation_id.to_owned(), all.into());
        Ok(())
    }

    /// Forgets the operation.
    pub(crate) fn unregister(&self, operation_id: &str) {
        self.lock().remove(operation_id);
    }

    /// The hooks of the operation; `None` when it is not known.
    pub(crate) fn get(&self, operation_id: &str) -> Option<List> {
        self.lock().get(operation_id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, List>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks every hook, each with its place in the caller's list.
///
/// # Errors
/// The first hook that breaks a rule.
pub(crate) fn check_all(hooks: Vec<(usize, AgentHook)>) -> Result<Vec<Arc<Hook>>, RegisterError> {
    let check = |(index, hook): (usize, AgentHook)| {
        let id = hook.shown_id();
        let checked = Hook::checked(hook).map(Arc::new);
        checked.map_err(|reason| RegisterError::Hook { index, id, reason })
    };
    hooks.into_iter().map(check).collect()
}
