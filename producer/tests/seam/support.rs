//! A runtime, its policy receiver and its environment for one test.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hookstash_producer::hooks::*;
use hookstash_producer::publish::Publisher;
use hookstash_producer::runtime::*;
use hookstash_shared::clock::{Clock, SystemClock};
use hookstash_shared::environment::Environment;
use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
use hookstash_shared::message::{Envelope, Limits, Shards};
use hookstash_shared::random::SystemRandom;
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::{CompletionKey, Exchange, Fair, Retention, Store};
use serde_json::{Map, Value, json};

pub(crate) use crate::ports::*;

#[expect(
    dead_code,
    reason = "the receiver can do more than is asked of it here"
)]
#[path = "../../../tests/it/support/receiver.rs"]
mod receiver_on_a_socket;

pub(crate) use receiver_on_a_socket::{Answer as Reply, Received, Receiver};

/// Time in which anything that should happen has happened.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// The operation of most tests.
pub(crate) const OP: &str = "op";
/// What must not become visible.
pub(crate) const SECRET: &str = "the secret of the vault";

/// An environment that a test can change.
#[derive(Default)]
pub(crate) struct Variables(Mutex<BTreeMap<String, String>>);

impl Variables {
    pub(crate) fn set(&self, name: &str, value: &str) {
        let mut variables = self.0.lock().unwrap();
        variables.insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn unset(&self, name: &str) {
        self.0.lock().unwrap().remove(name);
    }

    /// The operator's controls of both moments at `url`.
    pub(crate) fn set_controls(&self, url: &str) {
        self.set("AGENT_HOOK_WEBHOOK_URL", url);
        self.set("AGENT_HOOK_WEBHOOK_TOKEN", "token");
        self.set("AGENT_HOOK_WEBHOOK_EVENTS", "beforeToolCall,afterToolCall");
        self.set("AGENT_HOOK_WEBHOOK_RESPONSE_HANDLING", "toolCall");
        self.set("AGENT_HOOK_WEBHOOK_ON_ERROR", "block");
    }
}

impl Environment for Variables {
    fn get(&self, name: &str) -> Option<String> {
        self.0.lock().unwrap().get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

/// What a test plays with.
pub(crate) struct World {
    pub(crate) runtime: AgentRuntime,
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) environment: Arc<Variables>,
    pub(crate) notes: Notes,
    pub(crate) faults: Faults,
    pub(crate) rows: Arc<Rows>,
    pub(crate) others: Arc<Others>,
    pub(crate) attic: Arc<Attic>,
    pub(crate) screen: Arc<Screen>,
    pub(crate) records: Arc<Records>,
    pub(crate) store: Store,
}

impl World {
    /// Whose receiver answers by path: `deny` gives a denial without a reason, `deny-X` one with
    /// the reason X, `allow` an allow, `slow` an allow after a while, `nonsense` no valid decision,
    /// `hang` nothing, anything else 204.
    pub(crate) fn new(mode: Mode) -> Self {
        Self::answering(mode, |_| None)
    }

    pub(crate) fn answering(
        mode: Mode,
        answer: impl Fn(&Received) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let notes = Notes::default();
        let noted = notes.clone();
        let receiver = Receiver::with(move |request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let call = body["toolCallId"].as_str().unwrap_or("-");
            noted.add(format!("http {} {call}", request.path));
            answer(request).unwrap_or_else(|| by_path(&request.path))
        });
        Self::over(mode, notes, Arc::new(receiver))
    }

    fn over(mode: Mode, notes: Notes, receiver: Arc<Receiver>) -> Self {
        let store = store_at(Arc::new(SystemClock::new()));
        let faults = Faults::default();
        let rows = Rows {
            notes: notes.clone(),
            faults: faults.clone(),
            ..Rows::default()
        };
        let others = Others {
            notes: notes.clone(),
            ..Others::default()
        };
        let attic = Attic {
            notes: notes.clone(),
            ..Attic::default()
        };
        let screen = Screen {
            notes: notes.clone(),
            ..Screen::default()
        };
        let records = Records {
            inner: StoredOperations::new(store.clone()),
            faults: faults.clone(),
        };
        let environment = Arc::new(Variables::default());
        let world = Inside {
            rows: Arc::new(rows),
            others: Arc::new(others),
            attic: Arc::new(attic),
            screen: Arc::new(screen),
            records: Arc::new(records),
            store,
            environment,
        };
        Self {
            runtime: world.runtime(mode),
            receiver,
            environment: world.environment,
            notes,
            faults,
            rows: world.rows,
            others: world.others,
            attic: world.attic,
            screen: world.screen,
            records: world.records,
            store: world.store,
        }
    }

    /// One in each mode.
    pub(crate) fn both() -> [Self; 2] {
        [Self::new(Mode::Local), Self::new(Mode::Queue)]
    }

    /// Another process with the same databases, which knows nothing of this one's memory.
    pub(crate) fn restarted(&self, mode: Mode) -> AgentRuntime {
        self.inside().runtime(mode)
    }

    /// The same with other records, in local mode.
    pub(crate) fn with_records(&self, records: Arc<dyn OperationStore>) -> AgentRuntime {
        self.inside().runtime_with(Mode::Local, records)
    }

    /// Another process that completes results and has no rows, as the HTTP API.
    pub(crate) fn elsewhere(&self) -> Completions {
        Completions::new(
            self.runtime.hooks().clone(),
            self.store.clone(),
            Arc::clone(&self.records) as _,
        )
    }

    fn inside(&self) -> Inside {
        Inside {
            rows: Arc::clone(&self.rows),
            others: Arc::clone(&self.others),
            attic: Arc::clone(&self.attic),
            screen: Arc::clone(&self.screen),
            records: Arc::clone(&self.records),
            store: self.store.clone(),
            environment: Arc::clone(&self.environment),
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.receiver.url(&format!("/{path}"))
    }

    /// Starts [`OP`].
    pub(crate) async fn start(&self, hooks: Vec<AgentHook>) -> Operation {
        self.start_as(OP, hooks).await
    }

    pub(crate) async fn start_as(&self, id: &str, hooks: Vec<AgentHook>) -> Operation {
        self.runtime
            .start(new_operation(id, hooks))
            .await
            .expect("started")
    }

    /// A control with this answer, see [`World::new`].
    pub(crate) fn control(&self, moment: HookType, answer: &str) -> AgentHook {
        let webhook = Webhook::to(self.url(answer)).control(OnError::Block);
        AgentHook::webhook(answer, moment, webhook)
    }

    pub(crate) fn before(&self, answer: &str) -> AgentHook {
        self.control(HookType::BeforeToolCall, answer)
    }

    pub(crate) fn after(&self, answer: &str) -> AgentHook {
        self.control(HookType::AfterToolCall, answer)
    }

    /// A tool that writes down when it runs, costs 5 and answers with what `run` says.
    pub(crate) fn tool(
        &self,
        run: impl Fn(u32) -> Result<ToolRunResult, PortError> + Send + Sync + 'static,
    ) -> Arc<dyn Tool> {
        Arc::new(Scripted {
            notes: self.notes.clone(),
            run: Box::new(run),
        })
    }

    /// A tool that succeeds with `content`.
    pub(crate) fn saying(&self, content: &'static str) -> Arc<dyn Tool> {
        self.tool(move |_| Ok(result(content)))
    }

    /// How often a tool was run.
    pub(crate) fn runs(&self) -> usize {
        self.notes.of("run ").len()
    }

    /// The bodies of the requests to `path`.
    pub(crate) fn bodies(&self, path: &str) -> Vec<Value> {
        let path = format!("/{path}");
        let received = self.receiver.received();
        let sent = received.iter().filter(|request| request.path == path);
        sent.map(|request| serde_json::from_slice(&request.body).expect("JSON"))
            .collect()
    }

    /// Waits for everything that was detached.
    pub(crate) async fn drain(&self) {
        assert!(self.runtime.hooks().drain(SOON).await, "it ends");
    }

    /// Panics when `needle` is anywhere but in what was sent to controls.
    pub(crate) fn assert_nowhere(&self, needle: &str) {
        let rows = serde_json::to_string(&self.rows.all()).unwrap();
        assert!(!rows.contains(needle), "in a row: {rows}");
        let shown = serde_json::to_string(&*self.screen.shown.lock().unwrap()).unwrap();
        assert!(!shown.contains(needle), "in the stream: {shown}");
        let kept = serde_json::to_string(&*self.attic.kept.lock().unwrap()).unwrap();
        assert!(!kept.contains(needle), "in the archive: {kept}");
    }

    /// Everything that was queued, oldest first.
    pub(crate) async fn queued(&self) -> Vec<Envelope> {
        let exchange = Exchange {
            settlements: &[],
            want: 100,
            nonce: 1,
            fair: Fair {
                flow: 100,
                host: 100,
            },
            upkeep: 64,
            may_recover: false,
            byte_budget: 1 << 30,
        };
        let mut queued = Vec::new();
        for shard in self.store.shards().iter() {
            let leased = self.store.exchange(shard, &exchange).await.expect("leases");
            for lease in leased.leases {
                let stored = self.store.message(&lease.id).await.expect("an answer");
                let stored = stored.expect("a message");
                queued.push(Envelope::decode(&stored.envelope).expect("an envelope"));
            }
        }
        queued
    }

    /// Opens a placeholder by hand, with this context.
    pub(crate) async fn open(&self, operation_id: &str, row: &str, context: &Value) {
        let key = CompletionKey::new(operation_id, row, self.store.shards());
        let context = context.to_string();
        self.store
            .open_completion(&key, context.into())
            .await
            .expect("open");
    }
}

/// What outlives a process.
struct Inside {
    rows: Arc<Rows>,
    others: Arc<Others>,
    attic: Arc<Attic>,
    screen: Arc<Screen>,
    records: Arc<Records>,
    store: Store,
    environment: Arc<Variables>,
}

impl Inside {
    fn runtime(&self, mode: Mode) -> AgentRuntime {
        self.runtime_with(mode, Arc::clone(&self.records) as _)
    }

    fn runtime_with(&self, mode: Mode, operations: Arc<dyn OperationStore>) -> AgentRuntime {
        let environment: Arc<dyn Environment> = Arc::clone(&self.environment) as _;
        let policy = EgressPolicy::default().in_development();
        let http = HttpClient::new(policy, Arc::clone(&environment), CONNECT_TIMEOUT);
        let clock = Arc::new(SystemClock::new());
        let publisher = Publisher::new(self.store.clone(), clock.clone(), Arc::new(SystemRandom));
        let hooks =
            HookDispatcher::builder(mode, http.expect("a client"), environment, clock.clone())
                .publisher(HookPublisher::Store {
                    publisher,
                    limits: Limits::default(),
                })
                .build()
                .expect("a dispatcher");
        AgentRuntime::new(RuntimeParts {
            hooks,
            store: self.store.clone(),
            operations,
            messages: Arc::clone(&self.rows) as _,
            runs: Arc::clone(&self.others) as _,
            archive: Some(Arc::clone(&self.attic) as _),
            stream: Some(Arc::clone(&self.screen) as _),
            clock,
        })
    }
}

/// A store of its own whose time is this clock's.
pub(crate) fn store_at(clock: Arc<dyn Clock>) -> Store {
    let host = EmbeddedHost::new(clock).expect("an embedded store");
    Store::new(
        Arc::new(host),
        "hs",
        Shards::new(4).unwrap(),
        Duration::from_mins(1),
        Retention::default(),
    )
}

/// What the receiver answers at this path.
pub(crate) fn by_path(path: &str) -> Reply {
    let decision = |decision: Value| Reply::ok().body(decision.to_string());
    match path.trim_start_matches('/') {
        "allow" => decision(json!({"decision": "allow"})),
        "slow" => decision(json!({"decision": "allow"})).after(Duration::from_millis(400)),
        "deny" => decision(json!({"decision": "deny"})),
        "deny-" => decision(json!({"decision": "deny", "reason": ""})),
        "nonsense" => decision(json!({"decision": "maybe"})),
        "hang" => Reply::hang(),
        other => match other.strip_prefix("deny-") {
            Some(reason) => decision(json!({"decision": "deny", "reason": reason})),
            None => Reply::status(204),
        },
    }
}

struct Scripted {
    notes: Notes,
    run: Box<dyn Fn(u32) -> Result<ToolRunResult, PortError> + Send + Sync>,
}

impl Tool for Scripted {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        self.notes.add(format!("run {}", run.call.tool_call_id));
        let ran = (self.run)(run.attempt);
        Box::pin(async move { ran })
    }

    fn may_retry(&self, _: &ToolRunResult) -> bool {
        true
    }

    fn cost(&self) -> f64 {
        5.0
    }
}

pub(crate) fn new_operation(id: &str, hooks: Vec<AgentHook>) -> NewOperation {
    NewOperation {
        id: id.to_owned(),
        user_id: "u1".to_owned(),
        agent_id: "a1".to_owned(),
        hooks,
        ..NewOperation::default()
    }
}

/// A call of `fs/write` with this id.
pub(crate) fn call(tool_call_id: &str) -> ToolCall {
    ToolCall {
        api_name: "write".to_owned(),
        args: object(json!({"path": "x"})),
        assistant_message_id: "m1".to_owned(),
        call_index: 1,
        identifier: "fs".to_owned(),
        operation_id: OP.to_owned(),
        step_index: 2,
        tool_call_id: tool_call_id.to_owned(),
        user_id: Some("u1".to_owned()),
        ..ToolCall::default()
    }
}

pub(crate) fn request(tool_call_id: &str, tool: &Arc<dyn Tool>) -> ToolRequest {
    ToolRequest {
        call: call(tool_call_id),
        tool: Arc::clone(tool),
        permission: Permission::Granted,
    }
}

/// Makes one call.
pub(crate) async fn run(operation: &Operation, id: &str, tool: &Arc<dyn Tool>) -> CallOutcome {
    let mut outcome = operation
        .run_tools(vec![vec![request(id, tool)]])
        .await
        .expect("an outcome");
    outcome.calls.remove(0)
}

pub(crate) fn result(content: &str) -> ToolRunResult {
    ToolRunResult {
        content: content.to_owned(),
        success: true,
        ..ToolRunResult::default()
    }
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        other => panic!("{other} is no object"),
    }
}

pub(crate) fn state(row: &ToolRow) -> Value {
    json!(row.state)
}

/// The intervention as it is stored.
pub(crate) fn intervention(row: &ToolRow) -> Value {
    json!(row.intervention)
}

/// A handler that writes the event down.
pub(crate) fn noting<E: HookEvent>(id: &str, notes: &Notes) -> AgentHook {
    let (own, notes) = (id.to_owned(), notes.clone());
    AgentHook::handler(id, move |event: Arc<E>| {
        notes.add(format!(
            "hook {own} {}",
            serde_json::to_string(&*event).unwrap()
        ));
        async { Ok(()) }
    })
}

/// The events that [`noting`] wrote down under `id`.
pub(crate) fn noted(notes: &Notes, id: &str) -> Vec<Value> {
    let start = format!("hook {id} ");
    let noted = notes.of(&start).into_iter();
    noted
        .map(|note| serde_json::from_str(&note[start.len()..]).unwrap())
        .collect()
}
