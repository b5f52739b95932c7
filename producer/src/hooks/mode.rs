//! Whether hooks run in this process or wherever their operation goes on.

use hookstash_shared::environment::Environment;

/// The variable that selects queue mode.
const MODE_VARIABLE: &str = "AGENT_RUNTIME_MODE";

/// How the runtime executes operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In this process: handlers run, and hooks of this process win over persisted ones.
    Local,
    /// Step by step through a queue, in any process: only webhooks run, those that came with the
    /// operation's state.
    Queue,
}

impl Mode {
    /// Queue mode when `AGENT_RUNTIME_MODE` is exactly `queue`, local mode otherwise.
    pub fn from_environment(environment: &dyn Environment) -> Self {
        match environment.get(MODE_VARIABLE).as_deref() {
            Some("queue") => Self::Queue,
            _ => Self::Local,
        }
    }
}
