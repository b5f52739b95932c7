//! Putting a dispatcher together.

use std::sync::Arc;

use hookstash_shared::clock::Clock;
use hookstash_shared::environment::Environment;
use hookstash_shared::http::HttpClient;
use tokio_util::task::TaskTracker;

use super::dispatcher::{HookDispatcher, Inner};
use super::emails::{Emails, UserLookup};
use super::environment_hooks::{self, EnvironmentError};
use super::mode::Mode;
use super::outbound::Outbound;
use super::queue::{HookPublisher, REMOTE_TOKEN_VARIABLE};
use super::registry::Registry;

/// Why a dispatcher cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// In queue mode hooks must be able to outlive this process.
    #[error("queue mode needs a publisher: give the builder one")]
    NoPublisher,
    /// The remote queue cannot be used.
    #[error("QSTASH_TOKEN is required when AGENT_RUNTIME_MODE=queue")]
    NoToken,
    /// The operator's hooks are set up wrongly.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
}

/// A dispatcher in the making. Made by [`HookDispatcher::builder`].
#[must_use]
pub struct HookDispatcherBuilder {
    mode: Mode,
    http: HttpClient,
    environment: Arc<dyn Environment>,
    clock: Arc<dyn Clock>,
    publisher: Option<HookPublisher>,
    users: Option<Arc<dyn UserLookup>>,
}

impl HookDispatcherBuilder {
    pub(crate) fn new(
        mode: Mode,
        http: HttpClient,
        environment: Arc<dyn Environment>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            mode,
            http,
            environment,
            clock,
            publisher: None,
            users: None,
        }
    }

    /// Makes webhooks with `delivery: qstash` durable. Required in queue mode; without one in local
    /// mode they are sent once from this process, or fail when they are critical.
    pub fn publisher(mut self, publisher: HookPublisher) -> Self {
        self.publisher = Some(publisher);
        self
    }

    /// Adds the owner's e-mail address to payloads.
    pub fn users(mut self, users: Arc<dyn UserLookup>) -> Self {
        self.users = Some(users);
        self
    }

    /// # Errors
    /// Queue mode lacks its publisher, or the environment's hooks are set up wrongly.
    pub fn build(self) -> Result<HookDispatcher, BuildError> {
        environment_hooks::check_environment(&*self.environment)?;
        if self.mode == Mode::Queue {
            let token = self.environment.get(REMOTE_TOKEN_VARIABLE);
            match &self.publisher {
                None => return Err(BuildError::NoPublisher),
                Some(HookPublisher::Remote) if token.is_none_or(|token| token.is_empty()) => {
                    return Err(BuildError::NoToken);
                }
                Some(_) => {}
            }
        }
        Ok(HookDispatcher(Arc::new(Inner {
            mode: self.mode,
            registry: Registry::default(),
            outbound: Outbound {
                http: self.http,
                environment: self.environment,
            },
            publisher: self.publisher,
            emails: Emails::new(self.users, Arc::clone(&self.clock)),
            clock: self.clock,
            detached: TaskTracker::new(),
        })))
    }
}
