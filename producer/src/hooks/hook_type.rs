//! The sixteen moments of an agent run at which hooks fire.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Most characters of an unknown name that are shown.
const SHOWN_CHARS: usize = 64;

/// A moment at which hooks fire. Names are case-sensitive and camel case in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HookType {
    /// A step is about to run.
    BeforeStep,
    /// A step has run.
    AfterStep,
    /// A run has ended or waits for a human, for whatever reason.
    OnComplete,
    /// A run has failed; fired after `onComplete`.
    OnError,
    /// A tool is about to be called.
    BeforeToolCall,
    /// A tool call has brought a result, a failed or mocked one too.
    AfterToolCall,
    /// A tool call has failed without a result.
    OnToolCallError,
    /// A run is about to wait for a human.
    BeforeHumanIntervention,
    /// A human has decided and the run goes on.
    AfterHumanIntervention,
    /// A human has decided and the run stops.
    OnStopByHumanIntervention,
    /// The conversation is about to be compressed.
    BeforeCompact,
    /// The conversation has been compressed.
    AfterCompact,
    /// Compressing the conversation has failed.
    OnCompactError,
    /// A sub-agent is about to be started.
    BeforeCallAgent,
    /// A sub-agent has been started.
    AfterCallAgent,
    /// A sub-agent could not be started.
    OnCallAgentError,
}

/// A name that is no hook type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown hook type {name:?}: expected one of {}", HookType::list())]
pub struct UnknownHookType {
    /// The beginning of the name as given.
    pub name: String,
}

impl HookType {
    /// All types, in the order in which environment hooks run.
    pub const ALL: [Self; 16] = [
        Self::BeforeStep,
        Self::AfterStep,
        Self::OnComplete,
        Self::OnError,
        Self::BeforeToolCall,
        Self::AfterToolCall,
        Self::OnToolCallError,
        Self::BeforeHumanIntervention,
        Self::AfterHumanIntervention,
        Self::OnStopByHumanIntervention,
        Self::BeforeCompact,
        Self::AfterCompact,
        Self::OnCompactError,
        Self::BeforeCallAgent,
        Self::AfterCallAgent,
        Self::OnCallAgentError,
    ];

    /// The name used in JSON, settings and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeStep => "beforeStep",
            Self::AfterStep => "afterStep",
            Self::OnComplete => "onComplete",
            Self::OnError => "onError",
            Self::BeforeToolCall => "beforeToolCall",
            Self::AfterToolCall => "afterToolCall",
            Self::OnToolCallError => "onToolCallError",
            Self::BeforeHumanIntervention => "beforeHumanIntervention",
            Self::AfterHumanIntervention => "afterHumanIntervention",
            Self::OnStopByHumanIntervention => "onStopByHumanIntervention",
            Self::BeforeCompact => "beforeCompact",
            Self::AfterCompact => "afterCompact",
            Self::OnCompactError => "onCompactError",
            Self::BeforeCallAgent => "beforeCallAgent",
            Self::AfterCallAgent => "afterCallAgent",
            Self::OnCallAgentError => "onCallAgentError",
        }
    }

    /// Whether its events are about one tool call, so that a matcher can choose among them.
    pub fn is_tool_event(self) -> bool {
        matches!(
            self,
            Self::BeforeToolCall | Self::AfterToolCall | Self::OnToolCallError
        )
    }

    /// Whether a receiver can be asked for a verdict.
    pub fn is_controllable(self) -> bool {
        matches!(self, Self::BeforeToolCall | Self::AfterToolCall)
    }

    fn list() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }
}

impl FromStr for HookType {
    type Err = UnknownHookType;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownHookType {
            name: name.chars().take(SHOWN_CHARS).collect(),
        };
        Self::ALL
            .into_iter()
            .find(|hook_type| hook_type.as_str() == name)
            .ok_or_else(unknown)
    }
}

impl fmt::Display for HookType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sixteen_names_are_read_and_no_other() {
        for hook_type in HookType::ALL {
            assert_eq!(hook_type.as_str().parse(), Ok(hook_type));
            let json = format!("{:?}", hook_type.as_str());
            assert_eq!(serde_json::to_string(&hook_type).unwrap(), json);
        }
        for other in [
            "",
            "BeforeStep",
            "beforestep",
            "beforeUserPrompt",
            "onComplete ",
        ] {
            let error = other.parse::<HookType>().unwrap_err().to_string();
            assert!(error.contains(&format!("{other:?}")), "{error}");
            for hook_type in HookType::ALL {
                assert!(error.contains(hook_type.as_str()), "{error}");
            }
        }
    }
}
