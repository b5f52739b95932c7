//! Whose event it is, by e-mail: looked up once for all who wait, and kept for five minutes.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use hookstash_shared::clock::Clock;
use indexmap::IndexMap;
use tokio::time::timeout;

/// How long an answer is used, from the beginning of its lookup; "none" and failures too.
const KEPT: Duration = Duration::from_mins(5);
/// Longest time that a lookup is waited for: deliveries and controls wait with it.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Most users kept. The oldest goes first, however often it was asked for.
const USERS_MAX: usize = 1_000;

/// Finds the e-mail address of a user. Implemented by the runtime.
pub trait UserLookup: Send + Sync + 'static {
    /// The address of `user_id`; `None` when there is none.
    ///
    /// # Errors
    /// Whatever the source fails with. The delivery goes on without an address, and the error is
    /// not shown, because it may quote what was asked. The same after five seconds without an
    /// answer; the future is dropped then.
    fn email<'a>(
        &'a self,
        user_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, Box<dyn Error + Send + Sync>>>;
}

type Lookup = Shared<BoxFuture<'static, Option<Arc<str>>>>;

/// The addresses known to one dispatcher.
pub(crate) struct Emails {
    users: Option<Arc<dyn UserLookup>>,
    clock: Arc<dyn Clock>,
    kept: Mutex<IndexMap<String, Kept>>,
}

struct Kept {
    until: Duration,
    lookup: Lookup,
}

impl Emails {
    pub(crate) fn new(users: Option<Arc<dyn UserLookup>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            users,
            clock,
            kept: Mutex::default(),
        }
    }

    /// The address of `user_id`. A lookup that has begun goes on when this future is dropped, for
    /// others who wait for it.
    pub(crate) async fn of(&self, user_id: &str) -> Option<Arc<str>> {
        self.lookup(user_id)?.await
    }

    fn lookup(&self, user_id: &str) -> Option<Lookup> {
        let users = self.users.as_ref()?;
        let now = self.clock.monotonic();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.get(user_id).filter(|known| known.until > now) {
            return Some(known.lookup.clone());
        }
        kept.shift_remove(user_id);
        if kept.len() >= USERS_MAX {
            kept.shift_remove_index(0);
        }
        let lookup = begin(Arc::clone(users), user_id.to_owned());
        let until = now + KEPT;
        let known = Kept {
            until,
            lookup: lookup.clone(),
        };
        kept.insert(user_id.to_owned(), known);
        Some(lookup)
    }
}

/// A task of its own, so that it ends whoever waits.
fn begin(users: Arc<dyn UserLookup>, user_id: String) -> Lookup {
    let task = tokio::spawn(async move {
        let found = timeout(LOOKUP_TIMEOUT, users.email(&user_id)).await;
        if !matches!(found, Ok(Ok(_))) {
            tracing::warn!("[HookDispatcher] Failed to resolve webhook user email");
        }
        found.ok()?.ok()?.map(Arc::from)
    });
    task.map(|ended| ended.ok().flatten()).boxed().shared()
}

#[cfg(test)]
#[path = "emails_tests.rs"]
mod tests;
