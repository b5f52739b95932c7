//! Which hooks each operation of this process has. A list is replaced as a whole, never changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::RegisterError;
use super::hook::{AgentHook, Hook, HookSize};

/// Most hooks of one operation: each may cost a call at every step.
pub(crate) const HOOKS_MAX: usize = 1_000;

/// Most characters of all matchers of one operation: each is compiled, wherever the operation goes
/// on, and held as long as the operation.
pub(crate) const PATTERNS_CHARS_MAX: usize = 20_000;
/// Most bytes of the persisted hooks of one operation.
pub(crate) const LIST_BYTES_MAX: usize = 1024 * 1024;

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
        check_sizes(all.iter().map(|hook| hook.size))?;
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

/// Checks what the hooks of one operation take together.
fn check_sizes(sizes: impl Iterator<Item = HookSize>) -> Result<(), RegisterError> {
    let (mut count, mut chars, mut bytes) = (0_usize, 0_usize, 0_usize);
    for size in sizes {
        count += 1;
        chars = chars.saturating_add(size.pattern_chars);
        // With the comma or bracket behind it.
        bytes = bytes.saturating_add(size.json_bytes).saturating_add(1);
    }
    if count > HOOKS_MAX {
        return Err(RegisterError::TooMany { max: HOOKS_MAX });
    }
    if chars > PATTERNS_CHARS_MAX {
        let max = PATTERNS_CHARS_MAX;
        return Err(RegisterError::Patterns { max });
    }
    if bytes > LIST_BYTES_MAX {
        return Err(RegisterError::TooLarge {
            max: LIST_BYTES_MAX,
        });
    }
    Ok(())
}

/// Checks every hook, each with its place in the caller's list. A pattern that several of them have
/// is compiled once.
///
/// # Errors
/// They take too much together: nothing is compiled then. Otherwise the first hook that breaks a
/// rule.
pub(crate) fn check_all(hooks: Vec<(usize, AgentHook)>) -> Result<Vec<Arc<Hook>>, RegisterError> {
    check_sizes(hooks.iter().map(|(_, hook)| hook.size()))?;
    let mut matchers = HashMap::new();
    let check = |(index, hook): (usize, AgentHook)| {
        let id = hook.shown_id();
        let checked = Hook::checked(hook, &mut matchers).map(Arc::new);
        checked.map_err(|reason| RegisterError::Hook { index, id, reason })
    };
    hooks.into_iter().map(check).collect()
}
