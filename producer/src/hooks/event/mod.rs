//! What happened, as hooks are told: one type for each of the sixteen moments.
//!
//! Every event belongs to an operation, whose hooks it is dispatched to. Absent fields are absent
//! from the JSON, never null. What only handlers in this process may see ([`LocalState`],
//! [`Mock`]) has no way onto the wire.

mod agent;
mod compact;
mod human;
mod local;
mod number;
mod run;
mod tool;

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};

use super::hook_type::HookType;

pub use agent::{AfterCallAgent, BeforeCallAgent, OnCallAgentError};
pub use compact::{AfterCompact, BeforeCompact, OnCompactError};
pub use human::{
    AfterHumanIntervention, BeforeHumanIntervention, HumanAction, OnStopByHumanIntervention,
    PendingTool,
};
pub use local::{LocalState, Mock};
pub use run::{
    AfterStep, Attachment, AttachmentType, BeforeStep, CalledTool, ErrorAttribution, OnComplete,
    OnError, RunEnd, StepType, ToolOutcome,
};
pub use tool::{AfterToolCall, BeforeToolCall, Executor, OnToolCallError, ToolCall, ToolRunResult};

mod sealed {
    pub trait Sealed {}
}

/// One of the sixteen event types.
pub trait HookEvent: sealed::Sealed + Serialize + Send + Sync + 'static {
    /// When it fires.
    const TYPE: HookType;

    /// The operation it belongs to.
    fn operation_id(&self) -> &str;

    /// The event inside `event`, when it is of this type.
    fn of(event: &Event) -> Option<Arc<Self>>;
}

macro_rules! events {
    ($($name:ident: $($operation_id:tt).+),+ $(,)?) => {
        /// An event of any type. Cheap to clone.
        #[derive(Debug, Clone)]
        pub enum Event {
            $(
                #[doc = concat!("See [`", stringify!($name), "`].")]
                $name(Arc<$name>),
            )+
        }

        impl Event {
            /// Which of the sixteen it is.
            pub fn hook_type(&self) -> HookType {
                match self {
                    $(Self::$name(_) => HookType::$name,)+
                }
            }

            /// The operation it belongs to.
            pub fn operation_id(&self) -> &str {
                match self {
                    $(Self::$name(event) => event.operation_id(),)+
                }
            }

            fn to_value(&self) -> serde_json::Result<Value> {
                match self {
                    $(Self::$name(event) => serde_json::to_value(&**event),)+
                }
            }
        }

        $(
            impl sealed::Sealed for $name {}

            impl HookEvent for $name {
                const TYPE: HookType = HookType::$name;

                fn operation_id(&self) -> &str {
                    &self.$($operation_id).+
                }

                fn of(event: &Event) -> Option<Arc<Self>> {
                    match event {
                        Event::$name(event) => Some(Arc::clone(event)),
                        _ => None,
                    }
                }
            }

            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(Arc::new(event))
                }
            }

            impl From<Arc<$name>> for Event {
                fn from(event: Arc<$name>) -> Self {
                    Self::$name(event)
                }
            }
        )+
    };
}

events! {
    BeforeStep: operation_id,
    AfterStep: operation_id,
    OnComplete: 0.operation_id,
    OnError: 0.operation_id,
    BeforeToolCall: call.operation_id,
    AfterToolCall: call.operation_id,
    OnToolCallError: call.operation_id,
    BeforeHumanIntervention: operation_id,
    AfterHumanIntervention: operation_id,
    OnStopByHumanIntervention: operation_id,
    BeforeCompact: operation_id,
    AfterCompact: operation_id,
    OnCompactError: operation_id,
    BeforeCallAgent: operation_id,
    AfterCallAgent: operation_id,
    OnCallAgentError: operation_id,
}

impl Event {
    /// Its fields in their order, as a receiver gets them before selection.
    ///
    /// # Errors
    /// A value inside it cannot be written as JSON.
    pub(crate) fn to_fields(&self) -> serde_json::Result<Map<String, Value>> {
        match self.to_value()? {
            Value::Object(fields) => Ok(fields),
            _ => Ok(Map::new()),
        }
    }

    /// The tool call it is about: `identifier` and `apiName`. `None` when it is not about one.
    pub(crate) fn tool(&self) -> Option<(&str, &str)> {
        let call = match self {
            Self::BeforeToolCall(event) => &event.call,
            Self::AfterToolCall(event) => &event.call,
            Self::OnToolCallError(event) => &event.call,
            _ => return None,
        };
        Some((&call.identifier, &call.api_name))
    }
}

#[cfg(test)]
mod tests;
