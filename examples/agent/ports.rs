//! What the runtime implements: rows in memory, and a crew of other agents.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hookstash_producer::hooks::RunEnd;
use hookstash_producer::runtime::{
    AgentRuntime, Answer, Change, MessageStore, NewOperation, NewToolRow, PortResult, RunReason,
    RunStatus, Runs, StartAgent, StartedAgent, ToolRow, Write,
};
use tokio::sync::Notify;

/// Tool messages. A database does the same with `SELECT … FOR UPDATE`.
#[derive(Default)]
pub(crate) struct Rows(Mutex<BTreeMap<String, ToolRow>>);

impl Rows {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ToolRow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_of(row: &ToolRow, assistant_message_id: &str, tool_call_id: &str) -> bool {
    row.call.assistant_message_id == assistant_message_id && row.call.tool_call_id == tool_call_id
}

impl MessageStore for Rows {
    fn insert(&self, row: NewToolRow) -> PortResult<'_, ToolRow> {
        Box::pin(async move {
            let mut rows = self.lock();
            let (message, call) = (&row.call.assistant_message_id, &row.call.tool_call_id);
            if let Some(known) = rows.values().find(|known| is_of(known, message, call)) {
                return Ok(known.clone());
            }
            let id = format!("row-{}", rows.len() + 1);
            let row = ToolRow { id, ..row };
            rows.insert(row.id.clone(), row.clone());
            Ok(row)
        })
    }

    fn find<'a>(
        &'a self,
        assistant_message_id: &'a str,
        tool_call_id: &'a str,
    ) -> PortResult<'a, Option<ToolRow>> {
        Box::pin(async move {
            let rows = self.lock();
            let mut all = rows.values();
            let found = all.find(|row| is_of(row, assistant_message_id, tool_call_id));
            Ok(found.cloned())
        })
    }

    fn change<'a>(&'a self, ids: &'a [String], mut change: Change<'a>) -> PortResult<'a, ()> {
        Box::pin(async move {
            let mut rows = self.lock();
            let mut read: Vec<_> = ids.iter().map(|id| rows.get(id).cloned()).collect();
            if change(&mut read) == Write::Commit {
                rows.extend(read.into_iter().flatten().map(|row| (row.id.clone(), row)));
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, id: &'a str) -> PortResult<'a, ()> {
        Box::pin(async move {
            self.lock().remove(id);
            Ok(())
        })
    }
}

/// The other agents, and who waits for them.
#[derive(Default)]
pub(crate) struct Crew {
    pub(crate) runtime: OnceLock<AgentRuntime>,
    waiting: Mutex<BTreeMap<String, Arc<Notify>>>,
}

impl Crew {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Notify>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The operation waits from now on.
    pub(crate) fn park(&self, operation_id: &str) {
        self.lock().insert(operation_id.to_owned(), Arc::default());
    }

    /// Returns when the operation was resumed.
    pub(crate) async fn until_resumed(&self, operation_id: &str) {
        let waiting = self.lock().get(operation_id).cloned();
        if let Some(waiting) = waiting {
            waiting.notified().await;
        }
    }
}

impl Runs for Crew {
    fn start(&self, agent: StartAgent) -> PortResult<'_, StartedAgent> {
        Box::pin(async move {
            let runtime = self.runtime.get().ok_or("the house is not ready")?;
            if agent.agent_id == "ghost" {
                return Err("there is no agent called ghost".into());
            }
            let operation = runtime
                .start(NewOperation {
                    id: format!("{}-{}", agent.agent_id, agent.key),
                    user_id: agent.user_id.unwrap_or_default(),
                    agent_id: agent.agent_id,
                    parent_operation_id: Some(agent.parent_operation_id),
                    hooks: vec![agent.bridge],
                    ..NewOperation::default()
                })
                .await?;
            let operation_id = operation.id().to_owned();
            // Its whole run: it thinks, and it is done.
            tokio::spawn(async move {
                println!("agent  {} works", operation.id());
                operation.end(RunReason::Done, RunEnd::default()).await
            });
            Ok(StartedAgent {
                operation_id,
                thread_id: None,
            })
        })
    }

    fn answer<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, Option<Answer>> {
        Box::pin(async move {
            Ok(operation_id.starts_with("researcher").then(|| Answer {
                text: "Milk costs 1.20.".to_owned(),
                ..Answer::default()
            }))
        })
    }

    fn status<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, Option<RunStatus>> {
        Box::pin(async move {
            let is_waiting = self.lock().contains_key(operation_id);
            Ok(Some(if is_waiting {
                RunStatus::WaitingForAsyncTool
            } else {
                RunStatus::Running
            }))
        })
    }

    fn resume<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, bool> {
        Box::pin(async move {
            let waiting = self.lock().remove(operation_id);
            if let Some(waiting) = &waiting {
                waiting.notify_one();
            }
            Ok(waiting.is_some())
        })
    }
}
