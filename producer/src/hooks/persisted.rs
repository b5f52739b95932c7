//! Hooks as they are stored with an operation, so that another process can go on with it.

use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::error::RegisterError;
use super::hook::{AgentHook, Hook};
use super::registry::{HOOKS_MAX, check_all};

/// The webhooks of an operation, restored from where its state is stored, and checked: whatever a
/// dispatch is handed has passed every rule. Cheap to clone. Serialises to exactly the JSON it was
/// read from, header templates included and no secret among them.
///
/// Restore once and keep it as long as the operation's state: its matchers are compiled here.
#[derive(Clone, Default)]
pub struct PersistedHooks(Arc<[Arc<Hook>]>);

impl PersistedHooks {
    /// Reads the stored list. Entries with an id of environment hooks, which earlier versions
    /// stored, are left out.
    ///
    /// # Errors
    /// The list or an entry breaks a rule; also one whose hook would never be used, because a
    /// policy that cannot be read must not be skipped.
    pub fn from_json(json: Value) -> Result<Self, RegisterError> {
        let Value::Array(entries) = json else {
            return Err(RegisterError::NotAList);
        };
        if entries.len() > HOOKS_MAX {
            return Err(RegisterError::TooMany { max: HOOKS_MAX });
        }
        let mut hooks = Vec::with_capacity(entries.len());
        for (index, entry) in entries.into_iter().enumerate() {
            let hook = AgentHook::from_json(entry).map_err(|reason| RegisterError::Hook {
                index,
                id: String::new(),
                reason,
            })?;
            hooks.push((index, hook));
        }
        hooks.retain(|(_, hook)| !hook.is_reserved());
        Ok(Self(check_all(hooks)?.into()))
    }

    /// Those of `hooks` that have a webhook, without their handlers.
    pub(crate) fn of(hooks: &[Arc<Hook>]) -> Self {
        let webhooks = hooks.iter().filter(|hook| hook.json.is_some());
        Self(webhooks.map(Hook::without_handler).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn hooks(&self) -> &[Arc<Hook>] {
        &self.0
    }
}

impl Serialize for PersistedHooks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().filter_map(|hook| hook.json.as_ref()))
    }
}

impl fmt::Debug for PersistedHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.0.iter().map(|hook| &hook.id);
        f.debug_list().entries(ids).finish()
    }
}
