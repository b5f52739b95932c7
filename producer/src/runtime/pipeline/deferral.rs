//! What a tool is handed, and the placeholder it may ask for.

use hookstash_shared::store::Opening;
use serde_json::{Map, Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::hooks::ToolCall;
use crate::runtime::completions::Context;
use crate::runtime::operation::Operation;
use crate::runtime::ports::PortError;
use crate::runtime::projection::takes_none;
use crate::runtime::row::{NewToolRow, ToolRow};

/// One run of a tool.
#[derive(Clone, Copy)]
pub struct ToolRun<'a> {
    /// The call.
    pub call: &'a ToolCall,
    /// Which try it is, from 1.
    pub attempt: u32,
    pub(in crate::runtime) operation: &'a Operation,
    pub(in crate::runtime) deferral: &'a Deferral,
}

/// Where a result that comes later belongs: the two parts of `POST /v1/completions/…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deferred {
    /// The operation.
    pub operation_id: String,
    /// The tool message.
    pub tool_message_id: String,
}

/// The placeholder of one call, opened at most once.
pub(in crate::runtime) struct Deferral {
    /// The operations whose controls will be asked about the result.
    pub(in crate::runtime) operations: Vec<String>,
    /// The row that the call has already.
    pub(in crate::runtime) row: Option<ToolRow>,
    pub(in crate::runtime) opened: OnceCell<ToolRow>,
    /// The row whose placeholder is being opened: it may be open although nobody has been told.
    pub(in crate::runtime) opening: OnceCell<ToolRow>,
}

impl Deferral {
    pub(in crate::runtime) fn new(operations: Vec<String>, row: Option<ToolRow>) -> Self {
        Self {
            operations,
            row,
            opened: OnceCell::new(),
            opening: OnceCell::new(),
        }
    }

    /// The row that may have a placeholder since the tool has asked for one.
    pub(super) fn asked(&self) -> Option<&ToolRow> {
        self.opened.get().or(self.opening.get())
    }
}

impl ToolRun<'_> {
    /// The operation that makes the call.
    pub fn operation(&self) -> &Operation {
        self.operation
    }

    /// Cancelled when the run is. Hand it to whatever goes on beside this future.
    pub fn cancel(&self) -> &CancellationToken {
        &self.operation.cancel
    }

    /// Opens the placeholder for a result that comes later, before anything can answer it. Return
    /// a result with `deferred` set then. Repeats get the same one.
    ///
    /// # Errors
    /// The row or the placeholder cannot be stored, or the call has got its result meanwhile;
    /// nothing should be started then.
    pub async fn defer(&self) -> Result<Deferred, PortError> {
        let row = self.open(Map::new()).await?;
        Ok(Deferred {
            operation_id: self.operation.id().to_owned(),
            tool_message_id: row.id,
        })
    }

    /// The same with more in the row's state.
    pub(in crate::runtime) async fn open(
        &self,
        more: Map<String, Value>,
    ) -> Result<ToolRow, PortError> {
        let opening = || async {
            let runtime = &self.operation.runtime;
            let mut state = more;
            let on_complete = state.get("onComplete").and_then(Value::as_str);
            let on_complete = on_complete.map(str::to_owned);
            state.insert("status".to_owned(), json!("pending"));
            let known = if let Some(row) = &self.deferral.row {
                row.clone()
            } else {
                let row = NewToolRow {
                    call: self.call.clone(),
                    state: Some(state.clone()),
                    ..NewToolRow::default()
                };
                runtime.parts().messages.insert(row).await?
            };
            let row = if known.state.as_ref() == Some(&state) && known.takes_result() {
                known
            } else {
                runtime.reuse(&known, &state).await?
            };
            drop(self.deferral.opening.set(row.clone()));
            let context = Context {
                call: Some(ToolCall {
                    tool_message_id: Some(row.id.clone()),
                    ..self.call.clone()
                }),
                operations: self.deferral.operations.clone(),
                on_complete,
            };
            let completions = &runtime.0.completions;
            let opening = completions.open(self.operation.id(), &row.id, &context);
            if opening.await? == Opening::Stopped {
                self.operation.stop(&row).await?;
                return Err(takes_none(&row.id));
            }
            // Another process may have published a result, or stopped the call, before it opened.
            let now = runtime.rows(std::slice::from_ref(&row.id)).await?;
            if !now.first().is_some_and(ToolRow::takes_result) {
                runtime.withdraw(self.operation.id(), &row).await?;
                return Err(takes_none(&row.id));
            }
            Ok::<_, PortError>(row)
        };
        self.deferral.opened.get_or_try_init(opening).await.cloned()
    }
}
