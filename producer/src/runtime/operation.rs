//! The life of an operation: its hooks are durable before it exists, any process can go on with
//! it, and its end is told before anything is cleaned up.

use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::AgentRuntime;
use super::cancel::CancelError;
use super::error::RecoverError;
use super::ports::PortError;
use super::record::OperationRecord;
use super::run_end::RunReason;
use crate::hooks::{
    AgentHook, DispatchError, HookType, OnComplete, OnError, PersistedHooks, RegisterError, RunEnd,
};

/// An operation that is about to begin.
#[derive(Debug, Default)]
pub struct NewOperation {
    /// Its id, chosen by the runtime. Not empty.
    pub id: String,
    /// The owner.
    pub user_id: String,
    /// The agent; empty when unknown.
    pub agent_id: String,
    /// The operation that starts it.
    pub parent_operation_id: Option<String>,
    /// The callers' hooks.
    pub hooks: Vec<AgentHook>,
    /// What [`StartAgent`](super::StartAgent) says.
    pub group_member_bridge: Option<Value>,
}

/// Why an operation did not begin. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It has no id, so that nothing could be found out about it later.
    #[error("an operation needs an id")]
    NoId,
    /// A hook is refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// Its hooks could not be made durable, so that another process would run it without them.
    #[error("{text}")]
    Persist {
        /// What could not be stored.
        text: String,
        /// Why.
        #[source]
        source: PortError,
    },
}

/// Why an operation cannot be gone on with.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ResumeError(#[from] RecoverError);

/// One operation in this process. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Operation {
    pub(super) runtime: AgentRuntime,
    pub(super) identity: Arc<Identity>,
    pub(super) cancel: CancellationToken,
}

/// Who it is.
pub(super) struct Identity {
    pub(super) id: String,
    pub(super) user_id: Option<String>,
    pub(super) agent_id: String,
    /// The callers' webhooks.
    pub(super) hooks: Option<PersistedHooks>,
}

impl AgentRuntime {
    /// Begins an operation: checks its hooks, stores them durably, and only then returns it.
    /// Repeating a start whose outcome is unknown is safe before its first step.
    pub async fn start(&self, new: NewOperation) -> Result<Operation, StartError> {
        let id = new.id;
        if id.is_empty() {
            return Err(StartError::NoId);
        }
        self.hooks().register(&id, new.hooks)?;
        let registered = Registered {
            runtime: self,
            id: &id,
            is_kept: false,
        };
        let hooks = self.hooks().serialized(&id).unwrap_or_default();
        let mut record = OperationRecord {
            hooks: None,
            user_id: Some(new.user_id.clone()),
            agent_id: Some(new.agent_id.clone()),
            parent_operation_id: new.parent_operation_id,
            group_member_bridge: new.group_member_bridge,
            ..OperationRecord::default()
        };
        let saved = match serde_json::to_value(&hooks) {
            Ok(json) => {
                record.hooks = Some(json);
                self.parts().operations.save(&id, &record).await
            }
            Err(error) => Err(error.into()),
        };
        if let Err(source) = saved {
            let text = not_persisted(&id, &hooks, &record);
            return Err(StartError::Persist { text, source });
        }
        registered.keep();
        Ok(self.operation(id, &record, Some(hooks)))
    }

    /// Goes on with an operation that began here or in another process.
    ///
    /// In local mode do not [`register`](crate::hooks::HookDispatcher::register) hooks for an
    /// operation that is resumed in another process: those of a process take the place of the
    /// stored ones, and the stored controls would not be asked there.
    ///
    /// # Errors
    /// Its record cannot be read, or there is none.
    pub async fn resume(&self, id: &str) -> Result<Operation, ResumeError> {
        let record = self.record(id).await?;
        let hooks = record.restore(id)?;
        Ok(self.operation(id.to_owned(), &record, hooks))
    }

    fn operation(
        &self,
        id: String,
        record: &OperationRecord,
        hooks: Option<PersistedHooks>,
    ) -> Operation {
        Operation {
            runtime: self.clone(),
            identity: Arc::new(Identity {
                id,
                user_id: record.user_id.clone(),
                agent_id: record.agent_id.clone().unwrap_or_default(),
                hooks,
            }),
            cancel: CancellationToken::new(),
        }
    }

    /// The record of an operation that must have one.
    pub(super) async fn record(&self, id: &str) -> Result<OperationRecord, RecoverError> {
        if id.is_empty() {
            let operation_id = id.to_owned();
            return Err(RecoverError::Unknown { operation_id });
        }
        let loaded = self.parts().operations.load(id).await;
        let record = loaded.map_err(|source| RecoverError::Unread {
            operation_id: id.to_owned(),
            source,
        })?;
        record.ok_or_else(|| RecoverError::Unknown {
            operation_id: id.to_owned(),
        })
    }
}

/// Hooks of an operation that does not exist yet: they go with it when its start fails or is
/// dropped.
struct Registered<'a> {
    runtime: &'a AgentRuntime,
    id: &'a str,
    is_kept: bool,
}

impl Registered<'_> {
    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.runtime.hooks().unregister(self.id);
        }
    }
}

fn not_persisted(id: &str, hooks: &PersistedHooks, record: &OperationRecord) -> String {
    let mut all = hooks.hooks().iter();
    if all.any(|hook| hook.is_control() && hook.moment == HookType::AfterToolCall) {
        "Failed to durably persist afterToolCall control policy before dispatch".to_owned()
    } else if record.group_member_bridge.is_some() {
        format!("Failed to durably persist group member {id} before dispatch")
    } else {
        format!("Failed to durably persist operation {id} before dispatch")
    }
}

impl Operation {
    /// Its id.
    pub fn id(&self) -> &str {
        &self.identity.id
    }

    /// Its owner.
    pub fn user_id(&self) -> Option<&str> {
        self.identity.user_id.as_deref()
    }

    /// The seam it belongs to.
    pub fn runtime(&self) -> &AgentRuntime {
        &self.runtime
    }

    /// Whether it was stopped in this process.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(super) fn hooks(&self) -> Option<&PersistedHooks> {
        self.identity.hooks.as_ref()
    }

    /// Its end, or that it waits for a human: `onComplete`, and after a failure `onError` with the
    /// same content. What the run says about itself is filled in where it is missing.
    ///
    /// A run that waits for results of tools has not ended: do not call this. One that was
    /// stopped takes no result any more, as after [`Operation::cancel`]; one that ended otherwise
    /// still takes those that come late, by the hooks in its record.
    ///
    /// # Errors
    /// A critical webhook could not be handed over, or the record could not be let go. Nothing is
    /// dispatched after the first failure; hand the error on, so that the queue tries this again.
    pub async fn end(&self, reason: RunReason, mut run: RunEnd) -> Result<(), EndError> {
        let parts = self.runtime.parts();
        let is_parked = reason == RunReason::WaitingForHuman;
        run.operation_id = self.id().to_owned();
        reason.as_str().clone_into(&mut run.reason);
        fill(&mut run.status, reason.as_str());
        fill(&mut run.user_id, self.user_id().unwrap_or_default());
        fill(&mut run.agent_id, &self.identity.agent_id);
        if reason.is_success() && run.attachments.is_empty() && is_blank(&run) {
            let answer = parts
                .runs
                .answer(self.id())
                .await
                .map_err(EndError::Answer)?;
            run.last_assistant_content = answer
                .map(|answer| answer.text)
                .filter(|text| !text.is_empty());
        }
        if reason == RunReason::Interrupted {
            self.take_back().await.map_err(CancelError::from)?;
        }
        if !is_parked {
            let retired = parts.operations.retire(self.id()).await;
            retired.map_err(EndError::Retire)?;
        }
        let told = self.tell(reason, run).await;
        if !is_parked {
            self.runtime.hooks().unregister(self.id());
        }
        Ok(told?)
    }

    async fn tell(&self, reason: RunReason, run: RunEnd) -> Result<(), DispatchError> {
        let hooks = self.runtime.hooks();
        hooks
            .dispatch(OnComplete(run.clone()), self.hooks())
            .await?;
        if reason == RunReason::Error {
            hooks.dispatch(OnError(run), self.hooks()).await?;
        }
        Ok(())
    }
}

/// Why the end of an operation was not told, or not to all.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// What its agent said last cannot be read: nothing was told.
    #[error("the last answer cannot be read")]
    Answer(#[source] PortError),
    /// What it waits for could not be taken back: nothing was told.
    #[error(transparent)]
    TakeBack(#[from] CancelError),
    /// Its record could not be let go: nothing was told.
    #[error("the record cannot be let go")]
    Retire(#[source] PortError),
    /// A critical webhook was not handed over, or the environment's hooks cannot be read.
    #[error(transparent)]
    Dispatch(#[from] DispatchError),
}

fn is_blank(run: &RunEnd) -> bool {
    let content = run.last_assistant_content.as_deref();
    content.is_none_or(|content| content.trim().is_empty())
}

fn fill(field: &mut String, value: &str) {
    if field.is_empty() {
        value.clone_into(field);
    }
}

impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Operation").field(&self.identity.id).finish()
    }
}
