//! Verdicts about a call that may belong to several operations.
//!
//! The controls of each operation are asked about the same call and the same original result, one
//! operation after the other. The operator's controls are asked once, in the last round.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::error::{RecoverError, ReviewError};
use super::ports::OperationStore;
use crate::hooks::{
    AfterToolCall, BeforeToolCall, ControlEvent, EnvironmentHooks, HookDispatcher, HookType,
    PersistedHooks, ToolCall, ToolRunResult, Verdict,
};

/// What is reviewed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Subject<'a> {
    /// A call that is about to be made.
    Call,
    /// What a call brought.
    Result {
        result: &'a ToolRunResult,
        mocked: bool,
    },
}

impl Subject<'_> {
    fn moment(self) -> HookType {
        match self {
            Self::Call => HookType::BeforeToolCall,
            Self::Result { .. } => HookType::AfterToolCall,
        }
    }

    fn event(self, call: ToolCall) -> ControlEvent {
        match self {
            Self::Call => BeforeToolCall::of_call(call).into(),
            Self::Result { result, mocked } => AfterToolCall {
                call,
                mocked,
                result: result.clone(),
            }
            .into(),
        }
    }
}

/// One operation whose controls are asked.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    pub(crate) operation_id: String,
    pub(crate) hooks: Option<PersistedHooks>,
}

/// Asks controls.
#[derive(Clone)]
pub(crate) struct Reviewer {
    hooks: HookDispatcher,
    operations: Arc<dyn OperationStore>,
}

impl Reviewer {
    pub(crate) fn new(hooks: HookDispatcher, operations: Arc<dyn OperationStore>) -> Self {
        Self { hooks, operations }
    }

    /// The rounds of these operations, in order, without repeats and empty names.
    ///
    /// # Errors
    /// The hooks of one are not known.
    pub(crate) async fn rounds<'a>(
        &self,
        operations: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<Round>, RecoverError> {
        let mut rounds: Vec<Round> = Vec::new();
        for operation_id in operations {
            let is_known = rounds.iter().any(|it| it.operation_id == operation_id);
            if !operation_id.is_empty() && !is_known {
                rounds.push(self.round(operation_id).await?);
            }
        }
        Ok(rounds)
    }

    async fn round(&self, operation_id: &str) -> Result<Round, RecoverError> {
        let name = || operation_id.to_owned();
        let loaded = self.operations.load(operation_id).await;
        let record = loaded.map_err(|source| RecoverError::Unread {
            operation_id: name(),
            source,
        })?;
        let record = record.ok_or_else(|| RecoverError::Unknown {
            operation_id: name(),
        })?;
        Ok(Round {
            operation_id: name(),
            hooks: record.restore(operation_id)?,
        })
    }

    /// Whether any control of this moment might be asked, matchers aside.
    ///
    /// # Errors
    /// There is no round, or the environment's hooks cannot be read.
    pub(crate) fn is_controlled(
        &self,
        rounds: &[Round],
        subject: Subject<'_>,
    ) -> Result<bool, ReviewError> {
        check(rounds)?;
        for (round, environment) in with_environment(rounds) {
            let persisted = round.hooks.as_ref();
            let resolved = self
                .hooks
                .0
                .resolve(&round.operation_id, persisted, environment)?;
            let mut hooks = resolved.iter();
            if hooks.any(|hook| hook.is_control() && hook.moment == subject.moment()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Asks round after round; the first that does not allow ends it.
    ///
    /// # Errors
    /// There is no round, or the environment's hooks cannot be read.
    pub(crate) async fn review(
        &self,
        rounds: &[Round],
        call: &ToolCall,
        subject: Subject<'_>,
        cancel: &CancellationToken,
    ) -> Result<Verdict, ReviewError> {
        check(rounds)?;
        for (round, environment) in with_environment(rounds) {
            let call = ToolCall {
                operation_id: round.operation_id.clone(),
                ..call.clone()
            };
            let event = subject.event(call);
            let persisted = round.hooks.as_ref();
            let verdict = self
                .hooks
                .evaluate(event, persisted, environment, cancel)
                .await?;
            if verdict != Verdict::Allow {
                return Ok(verdict);
            }
        }
        Ok(if cancel.is_cancelled() {
            Verdict::Cancelled
        } else {
            Verdict::Allow
        })
    }
}

/// What no operation stands for would be reviewed by nobody, not even by the operator.
fn check(rounds: &[Round]) -> Result<(), ReviewError> {
    if rounds.is_empty() {
        return Err(ReviewError::NoContext);
    }
    Ok(())
}

/// The rounds, the last of them with the operator's hooks.
fn with_environment(rounds: &[Round]) -> impl Iterator<Item = (&Round, EnvironmentHooks)> {
    rounds.iter().enumerate().map(|(index, round)| {
        let is_last = index + 1 == rounds.len();
        let environment = if is_last {
            EnvironmentHooks::Included
        } else {
            EnvironmentHooks::Excluded
        };
        (round, environment)
    })
}
