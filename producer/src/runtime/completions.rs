//! Deferred results: reviewed first, then claimed and stored by one script, then shown.
//!
//! The store's placeholder is the only arbiter. Whoever comes second, for whatever reason, gets
//! the first result, a denial too, even if no policy is there any more.

use std::sync::Arc;

use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Completion, CompletionKey, Opening, Store, Withdrawn};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::error::{CompleteError, ReviewError};
use super::ports::{OperationStore, PortError};
use super::publication::{Kept, Publication, StateChange};
use super::review::{Reviewer, Subject};
use crate::hooks::{Executor, HookDispatcher, ToolCall, ToolRunResult, Verdict};

/// The key of a group's state that a denial keeps when it has this value.
const ON_COMPLETE: &str = "onComplete";
const FINISH: &str = "finish";

/// What whoever completes a placeholder needs to know. Stored with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Context {
    /// The call, as controls are told about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<ToolCall>,
    /// Whose controls are asked, in this order. One at least: without any, nobody would review the
    /// result.
    pub(super) operations: Vec<String>,
    /// The row's `onComplete`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) on_complete: Option<String>,
}

impl Context {
    fn owner(&self) -> Option<String> {
        self.call.as_ref()?.user_id.clone()
    }
}

/// Whose result it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A tool's.
    Tool,
    /// That of a run of our own, whose usage stays when it is denied.
    Run,
}

/// A placeholder that has its final result.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    /// Whether this call's result is the final one. A repeat of the winner reads `false`.
    pub applied: bool,
    /// The final result: this one, an earlier one, or a denial.
    pub publication: Publication,
}

/// Completes placeholders from a process that has no rows, as the HTTP API does. Cheap to clone.
#[derive(Clone)]
pub struct Completions {
    store: Store,
    reviewer: Reviewer,
}

impl Completions {
    /// Completions in `store`, reviewed by the hooks of the operations in `operations`.
    pub fn new(hooks: HookDispatcher, store: Store, operations: Arc<dyn OperationStore>) -> Self {
        Self {
            store,
            reviewer: Reviewer::new(hooks, operations),
        }
    }

    /// Reviews `result` and makes it the final one, unless there is one. The runtime's row is
    /// filled by whoever looks at it next.
    ///
    /// Safe to repeat after any error, from any process and at the same time: all get one result.
    ///
    /// # Errors
    /// Nothing is open under this name, its hooks cannot be read, or the store failed.
    pub async fn complete(
        &self,
        operation_id: &str,
        tool_message_id: &str,
        result: ToolRunResult,
        cancel: &CancellationToken,
    ) -> Result<Completed, CompleteError> {
        let source = Source::Tool;
        let settled = self.settle(operation_id, tool_message_id, result, source, cancel);
        settled.await.map(|(completed, _)| completed)
    }

    /// The same; with it the owner of the call, as far as it is known.
    pub(super) async fn settle(
        &self,
        operation_id: &str,
        tool_message_id: &str,
        result: ToolRunResult,
        source: Source,
        cancel: &CancellationToken,
    ) -> Result<(Completed, Option<String>), CompleteError> {
        let key = self.key(operation_id, tool_message_id);
        let open = self.store.placeholder(&key).await?;
        let open = open.ok_or(CompleteError::Unknown)?;
        let context: Context = read(&open.context)?;
        let owner = context.owner();
        if let Some(first) = &open.result {
            return Ok((lost(first)?, owner));
        }
        let verdict = self.review(&context, &result, cancel).await?;
        let publication = match verdict {
            Verdict::Allow => allowed(result),
            Verdict::Blocked { reason } => denied(&reason, &result, source, &context),
            Verdict::Cancelled => return Err(CompleteError::Cancelled),
        };
        let record = serde_json::to_vec(&publication).map_err(CompleteError::Unreadable)?;
        let completed = match self.store.complete(&key, record.into()).await? {
            Completion::Won => Completed {
                applied: true,
                publication,
            },
            Completion::Lost(first) => lost(&first)?,
            Completion::Unknown => return Err(CompleteError::Unknown),
        };
        Ok((completed, owner))
    }

    async fn review(
        &self,
        context: &Context,
        result: &ToolRunResult,
        cancel: &CancellationToken,
    ) -> Result<Verdict, ReviewError> {
        let operations = context.operations.iter().map(String::as_str);
        let rounds = self.reviewer.rounds(operations).await?;
        let subject = Subject::Result {
            result,
            mocked: false,
        };
        if !self.reviewer.is_controlled(&rounds, subject)? {
            return Ok(Verdict::Allow);
        }
        let call = context.call.as_ref().ok_or(ReviewError::NoContext)?;
        let call = ToolCall {
            executor: Executor::Server,
            ..call.clone()
        };
        self.reviewer.review(&rounds, &call, subject, cancel).await
    }

    pub(super) async fn open(
        &self,
        operation_id: &str,
        tool_message_id: &str,
        context: &Context,
    ) -> Result<Opening, PortError> {
        let key = self.key(operation_id, tool_message_id);
        let context = serde_json::to_vec(context)?;
        Ok(self.store.open_completion(&key, context.into()).await?)
    }

    pub(super) async fn withdraw(
        &self,
        operation_id: &str,
        tool_message_id: &str,
    ) -> Result<Withdrawn, HostError> {
        let key = self.key(operation_id, tool_message_id);
        self.store.withdraw_completion(&key).await
    }

    /// The same; the operation knows of it until it is withdrawn.
    pub(super) async fn close(
        &self,
        operation_id: &str,
        tool_message_id: &str,
    ) -> Result<Withdrawn, HostError> {
        let key = self.key(operation_id, tool_message_id);
        self.store.close_completion(&key).await
    }

    /// No process opens a placeholder of the operation any more.
    pub(super) async fn stop(&self, operation_id: &str) -> Result<(), HostError> {
        self.store.stop_completions(operation_id).await
    }

    /// Whether the operation was stopped, in any process.
    pub(super) async fn is_stopped(&self, operation_id: &str) -> Result<bool, HostError> {
        self.store.are_completions_stopped(operation_id).await
    }

    /// Tool messages of the operation whose placeholders are open, some of them at a time; empty
    /// when none is.
    pub(super) async fn open_ones(&self, operation_id: &str) -> Result<Vec<String>, HostError> {
        self.store.open_completions(operation_id).await
    }

    /// The final result and the owner of its call; `None` while there is none.
    pub(super) async fn result(
        &self,
        operation_id: &str,
        tool_message_id: &str,
    ) -> Result<Option<(Publication, Option<String>)>, CompleteError> {
        let key = self.key(operation_id, tool_message_id);
        let Some(open) = self.store.placeholder(&key).await? else {
            return Ok(None);
        };
        let Some(result) = &open.result else {
            return Ok(None);
        };
        let context: Context = read(&open.context)?;
        Ok(Some((read(result)?, context.owner())))
    }

    pub(super) fn reviewer(&self) -> &Reviewer {
        &self.reviewer
    }

    fn key(&self, operation_id: &str, tool_message_id: &str) -> CompletionKey {
        CompletionKey::new(operation_id, tool_message_id, self.store.shards())
    }
}

fn allowed(mut result: ToolRunResult) -> Publication {
    let status = if result.success { "completed" } else { "error" };
    let state = result.state.get_or_insert_default();
    state.entry("status").or_insert_with(|| json!(status));
    result.deferred = None;
    Publication::allowed(result, StateChange::Merge)
}

fn denied(reason: &str, result: &ToolRunResult, source: Source, context: &Context) -> Publication {
    let kept = match source {
        Source::Tool => Kept::Nothing,
        Source::Run => Kept::Usage,
    };
    let mut publication = Publication::denied_after(reason, result, kept);
    if context.on_complete.as_deref() == Some(FINISH)
        && let Some(state) = &mut publication.result.state
    {
        state.insert(ON_COMPLETE.to_owned(), json!(FINISH));
    }
    publication
}

fn lost(first: &[u8]) -> Result<Completed, CompleteError> {
    Ok(Completed {
        applied: false,
        publication: read(first)?,
    })
}

fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, CompleteError> {
    serde_json::from_slice(json).map_err(CompleteError::Unreadable)
}
