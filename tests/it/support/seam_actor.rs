//! An agent runtime in a process of its own, whose rows are files: this test binary, started again.
//! It can die at any step: before or after each call of a port and of the store.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use hookstash_producer::hooks::{
    AgentHook, HookDispatcher, HookType, Mode, OnError, RunEnd, ToolCall, ToolRunResult, Webhook,
};
use hookstash_producer::runtime::{
    AgentRuntime, Answer, Approval, Archive, Change, Decision, EventStream, InterventionStatus,
    MessageStore, NewOperation, NewToolRow, Operation, Permission, PortResult, Resolution,
    RunReason, RunState, RunStatus, Runs, RuntimeParts, StartAgent, StartedAgent, StoredOperations,
    StreamEvent, Tool, ToolRequest, ToolRow, ToolRun, Write,
};
use hookstash_shared::clock::SystemClock;
use hookstash_shared::config::LogFormat;
use hookstash_shared::environment::{Environment, ProcessEnvironment};
use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
use hookstash_shared::message::Shards;
use hookstash_shared::store::host::{Host, HostError, Step, StepResult};
use hookstash_shared::store::{Retention, Store};
use hookstash_shared::telemetry;
use serde_json::json;

use super::process::Process;
use super::stage::{LEASE, connect};

const REDIS: &str = "SEAM_ACTOR_REDIS";
const FOLDER: &str = "SEAM_ACTOR_FOLDER";
const POLICY: &str = "SEAM_ACTOR_POLICY";
/// The step at which the actor dies, from 1; absent = at none.
pub(crate) const DIES_AT: &str = "SEAM_ACTOR_DIES_AT";
/// What a racing actor is told: its name, how many tasks and how many placeholders.
pub(crate) const RACES: &str = "SEAM_ACTOR_RACES";
/// What no denied result may leave anywhere.
pub(crate) const FORBIDDEN: &str = "FORBIDDEN";
/// What the actor prints at its end, before the number of its steps.
pub(crate) const ENDED: &str = "the actor has ended after steps: ";
/// The operation of the actor that takes every step once.
pub(crate) const OP: &str = "op";

/// The store of all actors on this server.
pub(crate) fn store_on(host: Arc<dyn Host>) -> Store {
    let shards = Shards::new(4).expect("a number of shards");
    Store::new(host, "hs", shards, LEASE, Retention::default())
}

/// Starts the test `name` again as an actor on `redis`, with its rows in `folder`.
pub(crate) fn start(
    name: &str,
    redis: &str,
    folder: &Path,
    policy: &str,
    env: &[(&str, &str)],
) -> Process {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command
        .args(["--exact", name, "--nocapture"])
        .env(REDIS, redis)
        .env(FOLDER, folder)
        .env(POLICY, policy)
        .envs(env.iter().copied());
    Process::spawn(command)
}

/// In the actor: plays its part, and ends the process. In the test itself: nothing.
pub(crate) async fn act_if_started_as_actor() {
    let environment = ProcessEnvironment;
    let told = [REDIS, FOLDER, POLICY].map(|name| environment.get(name));
    let [Some(redis), Some(folder), Some(policy)] = told else {
        return;
    };
    let races = environment.get(RACES);
    let level = if races.is_some() { "debug" } else { "trace" };
    let log = format!("{level},hyper=info,hyper_util=info,mio=info");
    telemetry::start(&log, LogFormat::Text).expect("logging");
    let steps = Steps::told();
    let rows = FileRows::at(PathBuf::from(folder), steps.clone());
    let host = Arc::new(SteppingHost {
        inner: connect(&redis),
        steps: steps.clone(),
    });
    let runtime = runtime(store_on(host), &rows);
    match races {
        Some(told) => race(&runtime, &rows, &told).await,
        None => take_every_step(&runtime, &rows, &policy).await,
    }
    println!("{ENDED}{}", steps.count());
    std::process::exit(0);
}

fn runtime(store: Store, rows: &FileRows) -> AgentRuntime {
    let environment: Arc<dyn Environment> = Arc::new(BTreeMap::<String, String>::new());
    let policy = EgressPolicy::default().in_development();
    let http = HttpClient::new(policy, Arc::clone(&environment), CONNECT_TIMEOUT);
    let clock = Arc::new(SystemClock::new());
    let http = http.expect("a client");
    let hooks = HookDispatcher::builder(Mode::Local, http, environment, clock.clone())
        .build()
        .expect("a dispatcher");
    AgentRuntime::new(RuntimeParts {
        hooks,
        operations: Arc::new(StoredOperations::new(store.clone())),
        store,
        messages: Arc::new(rows.clone()),
        runs: Arc::new(Alone),
        archive: Some(Arc::new(rows.clone())),
        stream: Some(Arc::new(rows.clone())),
        clock,
    })
}

/// Counts steps, and dies at the one it was told.
#[derive(Clone)]
pub(crate) struct Steps {
    taken: Arc<AtomicUsize>,
    dies_at: Option<usize>,
}

impl Steps {
    fn told() -> Self {
        let dies_at = ProcessEnvironment.get(DIES_AT);
        Self {
            taken: Arc::default(),
            dies_at: dies_at.map(|at| at.parse().expect("a number")),
        }
    }

    /// Steps of a process that does not die.
    pub(crate) fn of_the_living() -> Self {
        Self {
            taken: Arc::default(),
            dies_at: None,
        }
    }

    fn count(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }

    fn step(&self, what: &str) {
        let step = self.taken.fetch_add(1, Ordering::SeqCst) + 1;
        if Some(step) == self.dies_at {
            println!("dies at step {step}: {what}");
            let own = std::process::id().to_string();
            drop(Command::new("kill").args(["-s", "KILL", &own]).status());
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
}

/// A store each of whose calls is two steps.
struct SteppingHost {
    inner: Arc<dyn Host>,
    steps: Steps,
}

impl Host for SteppingHost {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        Box::pin(async move {
            self.steps.step("before a call of the store");
            let answers = self.inner.run(steps).await;
            self.steps.step("after a call of the store");
            answers
        })
    }

    fn wait(&self, key: bytes::Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        self.inner.wait(key, timeout)
    }
}

/// Rows, archive and stream as files, each of whose changes is two steps.
#[derive(Clone)]
pub(crate) struct FileRows {
    folder: PathBuf,
    steps: Steps,
}

impl FileRows {
    pub(crate) fn at(folder: PathBuf, steps: Steps) -> Self {
        fs::create_dir_all(folder.join("rows")).expect("a folder");
        Self { folder, steps }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join("rows").join(id)
    }

    pub(crate) fn read(&self, id: &str) -> Option<ToolRow> {
        let json = fs::read(self.path(id)).ok()?;
        Some(serde_json::from_slice(&json).expect("a row"))
    }

    /// Whole or not at all, as a database does.
    pub(crate) fn write(&self, row: &ToolRow) {
        let path = self.path(&row.id);
        let new = path.with_extension(format!("new{}", std::process::id()));
        fs::write(&new, serde_json::to_vec(row).expect("JSON")).expect("written");
        fs::rename(new, path).expect("renamed");
    }

    /// Adds a line to a file.
    pub(crate) fn append(&self, file: &str, line: &str) {
        let path = self.folder.join(file);
        let opened = OpenOptions::new().create(true).append(true).open(path);
        let line = format!("{line}\n");
        let written = opened.expect("opened").write_all(line.as_bytes());
        written.expect("written");
    }

    /// Every row.
    pub(crate) fn all(&self) -> BTreeMap<String, ToolRow> {
        let entries = fs::read_dir(self.folder.join("rows")).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .filter_map(|name| name.into_string().ok())
            .filter(|name| !name.contains('.'))
            .filter_map(|name| self.read(&name).map(|row| (name, row)))
            .collect()
    }

    fn lock(&self, id: &str) -> File {
        let file = File::create(self.path(&format!("{id}.lock"))).expect("a lock");
        file.lock().expect("locked");
        file
    }
}

fn row_id(tool_call_id: &str) -> String {
    format!("row-{tool_call_id}")
}

impl MessageStore for FileRows {
    fn insert(&self, row: NewToolRow) -> PortResult<'_, ToolRow> {
        Box::pin(async move {
            let id = row_id(&row.call.tool_call_id);
            self.steps.step("before a row is inserted");
            let _locked = self.lock(&id);
            if let Some(known) = self.read(&id) {
                return Ok(known);
            }
            let row = ToolRow { id, ..row };
            self.write(&row);
            self.steps.step("after a row is inserted");
            Ok(row)
        })
    }

    fn find<'a>(&'a self, _: &'a str, tool_call_id: &'a str) -> PortResult<'a, Option<ToolRow>> {
        Box::pin(async move { Ok(self.read(&row_id(tool_call_id))) })
    }

    fn change<'a>(&'a self, ids: &'a [String], mut change: Change<'a>) -> PortResult<'a, ()> {
        Box::pin(async move {
            let mut names: Vec<_> = ids.iter().collect();
            names.sort_unstable();
            let _locked: Vec<_> = names.into_iter().map(|id| self.lock(id)).collect();
            let mut rows: Vec<_> = ids.iter().map(|id| self.read(id)).collect();
            if change(&mut rows) == Write::Commit {
                self.steps.step("before a row is changed");
                rows.iter().flatten().for_each(|row| self.write(row));
                self.steps.step("after a row is changed");
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, id: &'a str) -> PortResult<'a, ()> {
        Box::pin(async move {
            drop(fs::remove_file(self.path(id)));
            Ok(())
        })
    }
}

impl Archive for FileRows {
    fn archive<'a>(
        &'a self,
        _: &'a ToolCall,
        result: &'a ToolRunResult,
    ) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            self.steps.step("before a result is archived");
            self.append("archive", &serde_json::to_string(result)?);
            self.steps.step("after a result is archived");
            Ok(result.clone())
        })
    }
}

impl EventStream for FileRows {
    fn send(&self, event: StreamEvent) -> PortResult<'_, ()> {
        Box::pin(async move {
            self.steps.step("before an event is streamed");
            self.append("stream", &serde_json::to_string(&event)?);
            self.steps.step("after an event is streamed");
            Ok(())
        })
    }
}

/// A runtime without other agents.
struct Alone;

impl Runs for Alone {
    fn start(&self, _: StartAgent) -> PortResult<'_, StartedAgent> {
        Box::pin(async { Err("there is nobody else".into()) })
    }

    fn answer<'a>(&'a self, _: &'a str) -> PortResult<'a, Option<Answer>> {
        Box::pin(async { Ok(None) })
    }

    fn status<'a>(&'a self, _: &'a str) -> PortResult<'a, Option<RunStatus>> {
        Box::pin(async { Ok(None) })
    }

    fn resume<'a>(&'a self, _: &'a str) -> PortResult<'a, bool> {
        Box::pin(async { Ok(true) })
    }
}

/// What the actor's tools answer, by call: the second is denied before, the third and the last
/// after.
const CALLS: [(&str, &str); 4] = [
    ("allowed", "fine"),
    ("forbidden-call", "never"),
    ("forbidden-result", "FORBIDDEN result"),
    ("later", ""),
];

/// The call that waits for a human.
const ASKED: &str = "asked";

struct Plays(Steps);

impl Tool for Plays {
    fn run<'a>(&'a self, run: ToolRun<'a>) -> PortResult<'a, ToolRunResult> {
        Box::pin(async move {
            self.0.step("before a tool runs");
            let id = run.call.tool_call_id.as_str();
            let mut result = result_of(CALLS.iter().find(|call| call.0 == id).expect("known").1);
            if id == "later" {
                run.defer().await?;
                result.deferred = Some(true);
            }
            self.0.step("after a tool has run");
            Ok(result)
        })
    }
}

pub(crate) fn result_of(content: &str) -> ToolRunResult {
    ToolRunResult {
        content: content.to_owned(),
        success: true,
        execution_time: Some(1.0),
        ..ToolRunResult::default()
    }
}

pub(crate) fn call(operation: &str, id: &str) -> ToolCall {
    ToolCall {
        identifier: "fs".to_owned(),
        api_name: "write".to_owned(),
        assistant_message_id: "m1".to_owned(),
        tool_call_id: id.to_owned(),
        operation_id: operation.to_owned(),
        user_id: Some("u1".to_owned()),
        ..ToolCall::default()
    }
}

/// Controls of both moments at `url`.
pub(crate) fn controls(url: &str) -> Vec<AgentHook> {
    let control =
        |id: &str, moment| AgentHook::webhook(id, moment, Webhook::to(url).control(OnError::Block));
    vec![
        control("before", HookType::BeforeToolCall),
        control("after", HookType::AfterToolCall),
    ]
}

/// A run with one call of each kind, from its start or from where it died.
async fn take_every_step(runtime: &AgentRuntime, rows: &FileRows, policy: &str) {
    let operation = match runtime.resume(OP).await {
        Ok(operation) => operation,
        Err(_) => runtime
            .start(NewOperation {
                id: OP.to_owned(),
                user_id: "u1".to_owned(),
                hooks: controls(policy),
                ..NewOperation::default()
            })
            .await
            .expect("started"),
    };
    let tool: Arc<dyn Tool> = Arc::new(Plays(rows.steps.clone()));
    let request = |(id, _): (&str, &str)| ToolRequest {
        call: call(OP, id),
        tool: Arc::clone(&tool),
        permission: Permission::Granted,
    };
    let lane = CALLS.map(request).into();
    let outcome = operation.run_tools(vec![lane]).await.expect("an outcome");
    ask_a_human(runtime, &operation, rows, &tool).await;
    let later = &outcome.calls[3].tool_message_id;
    let denied = result_of("FORBIDDEN answer");
    let completed = runtime.complete(OP, later, denied).await;
    completed.expect("completed");
    let ended = operation.end(RunReason::Done, RunEnd::default()).await;
    ended.expect("told");
}

/// A call in place of which a human answers: what is denied.
async fn ask_a_human(
    runtime: &AgentRuntime,
    operation: &Operation,
    rows: &FileRows,
    tool: &Arc<dyn Tool>,
) {
    let id = row_id(ASKED);
    let status = rows
        .read(&id)
        .and_then(|row| row.intervention)
        .map(|it| it.status);
    if status.is_none_or(|status| status == InterventionStatus::Pending) {
        let asked = ToolRequest {
            call: call(OP, ASKED),
            tool: Arc::clone(tool),
            permission: Permission::NeedsApproval,
        };
        let outcome = operation.run_tools(vec![vec![asked]]).await;
        assert_eq!(
            outcome.expect("an outcome").state,
            RunState::WaitingForHuman
        );
    }
    let approval = Approval {
        request_id: "request".to_owned(),
        resolutions: vec![Resolution {
            tool_message_id: id,
            decision: Decision::Approve,
            answer: Some(result_of("FORBIDDEN by a human")),
        }],
    };
    let claim = runtime.claim_approval(approval).await.expect("claimed");
    let rows = operation.continue_after(&claim).await.expect("published");
    assert_eq!(rows[0].content, "no");
}

/// Completes every placeholder with several tasks, and writes down what each was told.
async fn race(runtime: &AgentRuntime, rows: &FileRows, told: &str) {
    let told: serde_json::Value = serde_json::from_str(told).expect("JSON");
    let number = |name: &str| usize::try_from(told[name].as_u64().expect("a number")).unwrap();
    let (tasks, placeholders) = (number("tasks"), number("placeholders"));
    let name = told["name"].as_str().expect("a name").to_owned();
    let racing = (0..tasks).map(|task| {
        let (runtime, rows, name) = (runtime.clone(), rows.clone(), name.clone());
        tokio::spawn(async move {
            // Two tasks of each process meet at each placeholder.
            let stride = (tasks / 2).max(1);
            for placeholder in (task % stride..placeholders).step_by(stride) {
                complete(&runtime, &rows, &name, task, placeholder).await;
            }
        })
    });
    for task in racing.collect::<Vec<_>>() {
        task.await.expect("no panic");
    }
}

async fn complete(
    runtime: &AgentRuntime,
    rows: &FileRows,
    name: &str,
    task: usize,
    placeholder: usize,
) {
    let word = if (task + placeholder).is_multiple_of(3) {
        FORBIDDEN
    } else {
        "fine"
    };
    let content = format!("{word} by {name}.{task}");
    let (operation, id) = (
        race_operation(placeholder),
        row_id(&placeholder.to_string()),
    );
    loop {
        let completed = runtime.complete(&operation, &id, result_of(&content)).await;
        match completed {
            Ok(completed) => {
                let seen = json!([placeholder, completed.applied, completed.publication.result]);
                rows.append(&format!("seen-{name}"), &seen.to_string());
                return;
            }
            // The connection was cut: everything may be repeated.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Racing placeholders belong to a few operations.
pub(crate) fn race_operation(placeholder: usize) -> String {
    format!("op-{}", placeholder % 8)
}

/// The row of a racing placeholder.
pub(crate) fn race_row(placeholder: usize) -> ToolRow {
    let id = placeholder.to_string();
    ToolRow {
        id: row_id(&id),
        call: call(&race_operation(placeholder), &id),
        ..ToolRow::default()
    }
}
