//! The ports of a runtime in memory. Whatever happens to them is written down, and any of them can
//! be told to fail.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use hookstash_producer::hooks::{ToolCall, ToolRunResult};
use hookstash_producer::runtime::*;

/// What happened, in order.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn add(&self, note: impl Into<String>) {
        self.0.lock().unwrap().push(note.into());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Those that begin with `start`, in order.
    pub(crate) fn of(&self, start: &str) -> Vec<String> {
        let mut all = self.all();
        all.retain(|note| note.starts_with(start));
        all
    }
}

/// Names of calls that fail.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<BTreeSet<&'static str>>>);

impl Faults {
    pub(crate) fn set(&self, name: &'static str) {
        self.0.lock().unwrap().insert(name);
    }

    pub(crate) fn clear(&self) {
        self.0.lock().unwrap().clear();
    }

    pub(crate) fn check(&self, name: &str) -> Result<(), PortError> {
        if self.0.lock().unwrap().contains(name) {
            Err(format!("{name} fails").into())
        } else {
            Ok(())
        }
    }
}

/// Tool messages.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) notes: Notes,
    pub(crate) faults: Faults,
    pub(crate) all: Mutex<BTreeMap<String, ToolRow>>,
    /// What others do just before the next row is put or changed.
    pub(crate) meanwhile: Mutex<Option<BoxFuture<'static, ()>>>,
}

impl Rows {
    async fn let_others(&self) {
        let meanwhile = self.meanwhile.lock().unwrap().take();
        if let Some(meanwhile) = meanwhile {
            meanwhile.await;
        }
    }

    pub(crate) fn all(&self) -> Vec<ToolRow> {
        self.all.lock().unwrap().values().cloned().collect()
    }

    pub(crate) fn get(&self, id: &str) -> ToolRow {
        self.all.lock().unwrap()[id].clone()
    }

    pub(crate) fn of_call(&self, tool_call_id: &str) -> ToolRow {
        let mut all = self.all();
        all.retain(|row| row.call.tool_call_id == tool_call_id);
        assert_eq!(all.len(), 1, "one row of {tool_call_id}");
        all.remove(0)
    }

    /// A row that was there before the test.
    pub(crate) fn put(&self, row: ToolRow) {
        self.all.lock().unwrap().insert(row.id.clone(), row);
    }
}

impl MessageStore for Rows {
    fn insert(&self, row: NewToolRow) -> PortResult<'_, ToolRow> {
        Box::pin(async move {
            self.faults.check("insert")?;
            self.let_others().await;
            let mut rows = self.all.lock().unwrap();
            let same = rows.values().find(|known| {
                known.call.assistant_message_id == row.call.assistant_message_id
                    && known.call.tool_call_id == row.call.tool_call_id
            });
            if let Some(known) = same {
                return Ok(known.clone());
            }
            let id = format!("row-{}", rows.len() + 1);
            let row = ToolRow { id, ..row };
            self.notes.add(format!("row {}", row.call.tool_call_id));
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
            self.faults.check("find")?;
            let rows = self.all.lock().unwrap();
            let mut all = rows.values();
            let found = all.find(|row| {
                row.call.assistant_message_id == assistant_message_id
                    && row.call.tool_call_id == tool_call_id
            });
            Ok(found.cloned())
        })
    }

    fn change<'a>(&'a self, ids: &'a [String], mut change: Change<'a>) -> PortResult<'a, ()> {
        Box::pin(async move {
            self.faults.check("change")?;
            self.let_others().await;
            let mut rows = self.all.lock().unwrap();
            let read = || {
                ids.iter()
                    .map(|id| rows.get(id).cloned())
                    .collect::<Vec<_>>()
            };
            // Tried twice, as a database under contention does.
            change(&mut read());
            let mut changed = read();
            if change(&mut changed) == Write::Commit {
                self.faults.check("commit")?;
                for row in changed.into_iter().flatten() {
                    let had = rows.insert(row.id.clone(), row.clone());
                    if had.as_ref() != Some(&row) {
                        self.notes.add(format!("change {}", row.call.tool_call_id));
                    }
                }
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, id: &'a str) -> PortResult<'a, ()> {
        Box::pin(async move {
            self.notes.add(format!("remove {id}"));
            self.all.lock().unwrap().remove(id);
            Ok(())
        })
    }
}

/// The runtime's own runs.
#[derive(Default)]
pub(crate) struct Others {
    pub(crate) notes: Notes,
    pub(crate) started: Mutex<Vec<StartAgent>>,
    /// Agents that cannot be started.
    pub(crate) broken: Mutex<BTreeSet<String>>,
    pub(crate) answers: Mutex<BTreeMap<String, Answer>>,
    pub(crate) waiting: Mutex<BTreeSet<String>>,
    pub(crate) over: Mutex<BTreeSet<String>>,
}

impl Others {
    pub(crate) fn park(&self, operation_id: &str) {
        self.waiting.lock().unwrap().insert(operation_id.to_owned());
    }

    pub(crate) fn answer_with(&self, operation_id: &str, answer: Answer) {
        let mut answers = self.answers.lock().unwrap();
        answers.insert(operation_id.to_owned(), answer);
    }
}

impl Runs for Others {
    fn start(&self, agent: StartAgent) -> PortResult<'_, StartedAgent> {
        Box::pin(async move {
            self.notes.add(format!("start {}", agent.agent_id));
            if self.broken.lock().unwrap().contains(&agent.agent_id) {
                return Err(format!("{} is broken", agent.agent_id).into());
            }
            let operation_id = format!("sub-{}", agent.agent_id);
            let thread_id = agent.thread_id.clone();
            self.started.lock().unwrap().push(agent);
            Ok(StartedAgent {
                operation_id,
                thread_id,
            })
        })
    }

    fn answer<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, Option<Answer>> {
        Box::pin(async move { Ok(self.answers.lock().unwrap().get(operation_id).cloned()) })
    }

    fn status<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, Option<RunStatus>> {
        Box::pin(async move {
            let is_over = self.over.lock().unwrap().contains(operation_id);
            self.notes.add(format!("status {operation_id}"));
            Ok(Some(if is_over {
                RunStatus::Done
            } else {
                RunStatus::WaitingForAsyncTool
            }))
        })
    }

    fn resume<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, bool> {
        Box::pin(async move {
            let resumed = self.waiting.lock().unwrap().remove(operation_id);
            if resumed {
                self.notes.add(format!("resume {operation_id}"));
            }
            Ok(resumed)
        })
    }
}

/// Keeps whole results, and shows the first five characters of long ones.
#[derive(Default)]
pub(crate) struct Attic {
    pub(crate) notes: Notes,
    pub(crate) kept: Mutex<Vec<ToolRunResult>>,
    /// Whether it never ends.
    pub(crate) hangs: AtomicBool,
}

impl Archive for Attic {
    fn archive<'a>(
        &'a self,
        call: &'a ToolCall,
        result: &'a ToolRunResult,
    ) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            self.notes.add(format!("archive {}", call.tool_call_id));
            if self.hangs.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            self.kept.lock().unwrap().push(result.clone());
            let mut shown = result.clone();
            if shown.content.starts_with("long ") {
                shown.content.truncate(5);
            }
            Ok(shown)
        })
    }
}

/// What was streamed.
#[derive(Default)]
pub(crate) struct Screen {
    pub(crate) notes: Notes,
    pub(crate) shown: Mutex<Vec<ToolEnd>>,
}

impl Screen {
    pub(crate) fn end_of(&self, tool_call_id: &str) -> ToolEnd {
        let shown = self.shown.lock().unwrap();
        let mut ends = shown.iter().filter(|end| end.tool_call_id == tool_call_id);
        let end = ends.next().expect("an end").clone();
        assert!(ends.next().is_none(), "one end of {tool_call_id}");
        end
    }
}

impl EventStream for Screen {
    fn send(&self, event: StreamEvent) -> PortResult<'_, ()> {
        Box::pin(async move {
            let StreamEvent::ToolEnd(end) = event;
            self.notes.add(format!("tool_end {}", end.tool_call_id));
            self.shown.lock().unwrap().push(*end);
            Ok(())
        })
    }
}

/// Operations in our store, which can be told to fail.
pub(crate) struct Records {
    pub(crate) inner: StoredOperations,
    pub(crate) faults: Faults,
}

impl OperationStore for Records {
    fn save<'a>(
        &'a self,
        operation_id: &'a str,
        record: &'a OperationRecord,
    ) -> PortResult<'a, ()> {
        Box::pin(async move {
            self.faults.check("save")?;
            self.inner.save(operation_id, record).await
        })
    }

    fn load<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, Option<OperationRecord>> {
        Box::pin(async move {
            self.faults.check("load")?;
            self.inner.load(operation_id).await
        })
    }

    fn retire<'a>(&'a self, operation_id: &'a str) -> PortResult<'a, ()> {
        Box::pin(async move {
            self.faults.check("retire")?;
            self.inner.retire(operation_id).await
        })
    }
}
