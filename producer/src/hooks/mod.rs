//! Hooks of agent runtimes: registered per operation, run at sixteen moments of its life.
//!
//! A hook is a handler in this process, a webhook, or both. A webhook notifies (its answer is
//! ignored) or controls (its answer decides about a tool call). [`HookDispatcher`] runs them;
//! [`AgentHook`] and [`Webhook`] describe them; [`Event`] is what they are told.
//!
//! An event goes this way: `dispatcher` resolves the hooks that count, `notify` or `control` takes
//! them one by one, `matcher` chooses, `payload` and `emails` make the body, `outbound` calls the
//! receiver or `queue` makes the message durable, and `answer_body` and `decision` read what a
//! control says.

mod answer_body;
mod before_tool;
mod builder;
mod control;
mod decision;
mod dispatcher;
mod emails;
mod environment_hooks;
mod error;
mod event;
mod hook;
mod hook_type;
mod matcher;
mod mode;
mod notify;
mod outbound;
mod payload;
mod persisted;
mod queue;
mod registry;
mod tool_context;
mod webhook;

pub use answer_body::ANSWER_BYTES_MAX;
pub use builder::{BuildError, HookDispatcherBuilder};
pub use control::{ControlEvent, HOOK_CONTROL_ERROR, HOOK_DENIED, Verdict};
pub use dispatcher::{EnvironmentHooks, HookDispatcher};
pub use emails::UserLookup;
pub use environment_hooks::{EnvironmentError, RESERVED_PREFIX, check_environment};
pub use error::{
    CriticalFailure, CriticalHookDeliveryError, DeliveryError, DispatchError, HookErrorCode,
    RegisterError,
};
/// The event `onError`, whose own name is that of a webhook's setting here.
pub use event::OnError as OnErrorEvent;
pub use event::*;
pub use hook::{AgentHook, HandlerError, HookError};
pub use hook_type::{HookType, UnknownHookType};
pub use matcher::{PATTERN_CHARS_MAX, PatternError, SUBJECT_BYTES_MAX};
pub use mode::Mode;
pub use persisted::PersistedHooks;
pub use queue::HookPublisher;
pub use tool_context::{Belonging, Origin, RequestedCall, ToolCallSources, ToolScope};
pub use webhook::{Delivery, OnError, ResponseHandling, Webhook, WebhookError};
