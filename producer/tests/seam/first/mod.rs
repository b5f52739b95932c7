//! The first final result wins, also when a call is made again, by two processes at once, or
//! cancelled: no placeholder outlives it, and what lost is nowhere.

mod again;
mod beside;
mod cancelled;
mod parked;
mod stopped;

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use hookstash_producer::hooks::*;
use hookstash_producer::runtime::*;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// Keeps a control from answering until it is opened.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let is_open = self.0.0.lock().unwrap();
        let waited = self
            .0
            .1
            .wait_timeout_while(is_open, SOON, |is_open| !*is_open);
        assert!(!waited.unwrap().1.timed_out(), "the gate is opened");
    }
}

/// A world whose receiver waits at `/gate-X` for the gate, and answers then as at `/X`.
pub(super) fn gated() -> (World, Gate) {
    let gate = Gate::default();
    let at = gate.clone();
    let world = World::answering(Mode::Local, move |request| {
        let answer = request.path.strip_prefix("/gate-")?;
        at.wait();
        Some(by_path(answer))
    });
    (world, gate)
}

/// Waits until something that begins like this was noted so often.
pub(super) async fn until(world: &World, start: &str, count: usize) {
    let noted = async {
        while world.notes.of(start).len() < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let noted = tokio::time::timeout(SOON, noted).await;
    noted.unwrap_or_else(|_| panic!("{start}: {:?}", world.notes.all()));
}

/// Stops what runs of an operation and takes nothing back, as a canceller that dies in between.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<Mutex<CancellationToken>>);

impl Stop {
    pub(super) fn now(&self) {
        self.0.lock().unwrap().cancel();
    }
}

/// Asks for a placeholder, says where it is, and never ends.
struct Asks {
    tell: mpsc::UnboundedSender<Deferred>,
    stop: Stop,
}

/// Such a tool, what it says, and what stops its run.
pub(super) fn asks() -> (Arc<dyn Tool>, mpsc::UnboundedReceiver<Deferred>, Stop) {
    let (tell, told) = mpsc::unbounded_channel();
    let stop = Stop::default();
    let tool = Asks {
        tell,
        stop: stop.clone(),
    };
    (Arc::new(tool), told, stop)
}

impl Tool for Asks {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            run.cancel().clone_into(&mut self.stop.0.lock().unwrap());
            self.tell.send(run.defer().await?)?;
            std::future::pending().await
        })
    }
}

/// A first attempt that opens its placeholder and dies with it open; its row, and what stops the
/// operation.
pub(super) async fn dies_waiting(operation: &Operation, id: &str) -> (String, Stop) {
    let (tool, mut told, stop) = asks();
    tokio::select! {
        outcome = run(operation, id, &tool) => panic!("{outcome:?}"),
        place = told.recv() => (place.unwrap().tool_message_id, stop),
    }
}

/// What others do just before the row after the next one is put or changed.
pub(super) fn after_next(rows: &Arc<Rows>, then: impl Future<Output = ()> + Send + 'static) {
    before(rows, 2, then);
}

/// What others do just before rows are put or changed for the `number`-th time from now.
pub(super) fn before(
    rows: &Arc<Rows>,
    number: usize,
    then: impl Future<Output = ()> + Send + 'static,
) {
    let mut then: BoxFuture<'static, ()> = Box::pin(then);
    for _ in 1..number {
        let again = Arc::clone(rows);
        then = Box::pin(async move {
            *again.meanwhile.lock().unwrap() = Some(then);
        });
    }
    *rows.meanwhile.lock().unwrap() = Some(then);
}

pub(super) async fn assert_closed(world: &World, row: &str) {
    let before = world.rows.get(row);
    let late = world.runtime.complete(OP, row, result("late")).await;
    assert!(matches!(late, Err(CompleteError::Unknown)), "{late:?}");
    assert_eq!(world.rows.get(row), before);
}

/// An operation whose calls of the tool `denied` are denied before, those of `withheld` after.
pub(super) async fn judging(world: &World) -> Operation {
    let hooks = vec![
        world.before("deny-R").matching("^denied/"),
        world.after("deny-W").matching("^withheld/"),
    ];
    world.start(hooks).await
}

/// A call of the tool `identifier`.
pub(super) fn calling(identifier: &str, id: &str, tool: &Arc<dyn Tool>) -> ToolRequest {
    let mut request = request(id, tool);
    identifier.clone_into(&mut request.call.identifier);
    request
}

/// A row of `call` with this id that another process has put.
pub(super) fn row_of(id: &str, tool_call_id: &str) -> ToolRow {
    ToolRow {
        id: id.to_owned(),
        call: call(tool_call_id),
        ..ToolRow::default()
    }
}

/// A row of `c1` that another process has given a denial.
pub(super) fn denied_elsewhere(row: &mut ToolRow) {
    "denied elsewhere".clone_into(&mut row.content);
    row.error = Some(json!("hook_denied"));
    let state = json!({"phase": "afterToolCall", "reason": "denied elsewhere", "type": "blocked"});
    row.state = Some(object(state));
    row.intervention = Some(Intervention {
        status: InterventionStatus::Rejected,
        rejected_reason: Some("denied elsewhere".to_owned()),
        ..Intervention::default()
    });
    row.is_final = true;
}

/// Opens the placeholder of `row` by hand.
pub(super) async fn open(store: &hookstash_shared::store::Store, row: &str) {
    let key = hookstash_shared::store::CompletionKey::new(OP, row, store.shards());
    let context = json!({"call": call("c1"), "operations": [OP]}).to_string();
    store.open_completion(&key, context.into()).await.unwrap();
}

/// Completes `row` from a process without rows.
pub(super) async fn complete_elsewhere(world: &World, row: &str) -> Publication {
    let elsewhere = world.elsewhere();
    let never = CancellationToken::new();
    let first = elsewhere.complete(OP, row, result("first"), &never).await;
    let first = first.unwrap();
    assert!(first.applied);
    first.publication
}
