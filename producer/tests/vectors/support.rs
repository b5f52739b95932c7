//! A dispatcher, a receiver and an environment for one test.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use futures::future::BoxFuture;
use hookstash_producer::hooks::*;
use hookstash_producer::publish::Publisher;
use hookstash_shared::clock::{Clock, ManualClock, SystemClock};
use hookstash_shared::environment::Environment;
use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient, Resolver};
use hookstash_shared::message::{Envelope, Limits, Shards};
use hookstash_shared::random::{SeededRandom, SystemRandom};
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::faulty::FaultyHost;
use hookstash_shared::store::{Exchange, Fair, Retention, Store};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[expect(
    dead_code,
    reason = "the receiver can do more than is asked of it here"
)]
#[path = "../../../tests/it/support/receiver.rs"]
mod receiver_on_a_socket;

pub(crate) use receiver_on_a_socket::{Answer, Received, Receiver};

/// Time in which anything that should happen has happened.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// The operation of most tests.
pub(crate) const OP: &str = "op";

/// The variable that panics whoever asks for it.
pub(crate) const PANICS: &str = "PANICS";

/// An environment that a test can change.
#[derive(Default)]
pub(crate) struct Variables(Mutex<BTreeMap<String, String>>);

impl Variables {
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Arc<Self> {
        let variables = Arc::new(Self::default());
        for (name, value) in pairs {
            variables.set(name, value);
        }
        variables
    }

    pub(crate) fn set(&self, name: &str, value: &str) {
        let mut variables = self.0.lock().unwrap();
        variables.insert(name.to_owned(), value.to_owned());
    }

    pub(crate) fn unset(&self, name: &str) {
        self.0.lock().unwrap().remove(name);
    }
}

impl Environment for Variables {
    fn get(&self, name: &str) -> Option<String> {
        assert_ne!(name, PANICS, "as the test wants it");
        self.0.lock().unwrap().get(name).cloned()
    }

    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

/// Users whose address is `<id>@mail.test`, except those that begin with `no` (none) and `bad`
/// (an error). Those that begin with `slow` wait for [`Users::let_go`].
#[derive(Default)]
pub(crate) struct Users {
    asked: Mutex<Vec<String>>,
    gate: Notify,
}

impl Users {
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn let_go(&self) {
        self.gate.notify_waiters();
    }
}

impl UserLookup for Users {
    fn email<'a>(
        &'a self,
        user_id: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, Box<dyn Error + Send + Sync>>> {
        Box::pin(async move {
            let gate = self.gate.notified();
            self.asked.lock().unwrap().push(user_id.to_owned());
            if user_id.starts_with("slow") {
                gate.await;
            }
            match user_id {
                _ if user_id.starts_with("no") => Ok(None),
                _ if user_id.starts_with("bad") => Err("SECRET of the database".into()),
                _ => Ok(Some(format!("{user_id}@mail.test"))),
            }
        })
    }
}

/// What a test plays with.
pub(crate) struct Scene {
    pub(crate) hooks: HookDispatcher,
    pub(crate) receiver: Receiver,
    pub(crate) environment: Arc<Variables>,
    pub(crate) users: Arc<Users>,
    pub(crate) clock: Arc<ManualClock>,
    /// In front of the store.
    pub(crate) faults: Arc<FaultyHost>,
    pub(crate) store: Store,
}

/// How a scene differs from the usual.
pub(crate) struct Setting {
    pub(crate) mode: Mode,
    pub(crate) publisher: Publishers,
    pub(crate) environment: Arc<Variables>,
    pub(crate) policy: EgressPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Publishers {
    None,
    Store,
    Remote,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            mode: Mode::Local,
            publisher: Publishers::None,
            environment: Variables::of(&[]),
            policy: EgressPolicy::default().in_development(),
        }
    }
}

impl Scene {
    pub(crate) fn local(receiver: Receiver) -> Self {
        Self::new(receiver, Setting::default())
    }

    pub(crate) fn queue(receiver: Receiver) -> Self {
        let setting = Setting {
            mode: Mode::Queue,
            publisher: Publishers::Store,
            ..Setting::default()
        };
        Self::new(receiver, setting)
    }

    /// One in each mode, each with a receiver of its own that answers 200.
    pub(crate) fn both() -> [Self; 2] {
        [
            Self::local(Receiver::start()),
            Self::queue(Receiver::start()),
        ]
    }

    pub(crate) fn new(receiver: Receiver, setting: Setting) -> Self {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let (store, faults) = store();
        let users = Arc::new(Users::default());
        let dispatcher = dispatcher(&setting, &store, &clock, &users);
        Self {
            hooks: dispatcher.expect("a dispatcher"),
            receiver,
            environment: setting.environment,
            users,
            clock,
            faults,
            store,
        }
    }

    /// The same world after a restart of the process.
    pub(crate) fn restarted(&self, mode: Mode) -> HookDispatcher {
        let setting = Setting {
            mode,
            publisher: Publishers::Store,
            environment: Arc::clone(&self.environment),
            ..Setting::default()
        };
        dispatcher(&setting, &self.store, &self.clock, &self.users).expect("a dispatcher")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.receiver.url(path)
    }

    pub(crate) fn register(&self, hooks: Vec<AgentHook>) {
        self.hooks.register(OP, hooks).expect("registered");
    }

    /// A webhook of this scene's receiver, as a hook.
    pub(crate) fn hook(&self, id: &str, hook_type: HookType) -> AgentHook {
        AgentHook::webhook(id, hook_type, Webhook::to(self.url(&format!("/{id}"))))
    }

    pub(crate) fn control(&self, id: &str, on_error: OnError) -> AgentHook {
        let webhook = Webhook::to(self.url(&format!("/{id}"))).control(on_error);
        AgentHook::webhook(id, HookType::BeforeToolCall, webhook)
    }

    pub(crate) async fn dispatch(&self, event: impl Into<Event>) -> Result<(), DispatchError> {
        self.hooks.dispatch(event, None).await
    }

    pub(crate) async fn complete(&self) -> Result<(), DispatchError> {
        self.dispatch(completed()).await
    }

    /// Registers `webhook` as a critical one and dispatches to it; how it failed.
    pub(crate) async fn failure(&self, webhook: Webhook) -> DeliveryError {
        match self.deliver(webhook).await {
            Err(error) => error,
            Ok(()) => panic!("it was delivered"),
        }
    }

    pub(crate) async fn deliver(&self, webhook: Webhook) -> Result<(), DeliveryError> {
        self.hooks.unregister(OP);
        let hook = AgentHook::webhook("hook", HookType::OnComplete, webhook.critical());
        self.register(vec![hook]);
        match self.complete().await {
            Ok(()) => Ok(()),
            Err(DispatchError::Critical(error)) => Err(error.cause().clone()),
            Err(other) => panic!("{other}"),
        }
    }

    pub(crate) async fn evaluate(&self) -> Verdict {
        self.evaluate_call(call("fs/readFile")).await
    }

    pub(crate) async fn evaluate_call(&self, event: impl Into<ControlEvent>) -> Verdict {
        let cancel = CancellationToken::new();
        self.hooks
            .evaluate(event, None, EnvironmentHooks::Included, &cancel)
            .await
            .expect("an environment that can be read")
    }

    /// The paths of the requests so far.
    pub(crate) fn paths(&self) -> Vec<String> {
        paths(&self.receiver)
    }

    /// The bodies of the requests so far.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        let received = self.receiver.received();
        let json = |request: &Received| serde_json::from_slice(&request.body).expect("JSON");
        received.iter().map(json).collect()
    }

    /// The only body so far.
    pub(crate) fn body(&self) -> Value {
        let mut bodies = self.bodies();
        assert_eq!(bodies.len(), 1, "one request");
        bodies.remove(0)
    }

    /// Everything that was queued in our own store, oldest first.
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
}

pub(crate) fn paths(receiver: &Receiver) -> Vec<String> {
    receiver
        .received()
        .into_iter()
        .map(|request| request.path)
        .collect()
}

fn store() -> (Store, Arc<FaultyHost>) {
    let host = EmbeddedHost::new(Arc::new(SystemClock::new())).expect("an embedded store");
    let faults = Arc::new(FaultyHost::new(
        Arc::new(host),
        Arc::new(SeededRandom::new(1)),
    ));
    let shards = Shards::new(1).expect("a number of shards");
    let lease = Duration::from_mins(1);
    let store = Store::new(
        Arc::clone(&faults) as _,
        "hs",
        shards,
        lease,
        Retention::default(),
    );
    (store, faults)
}

pub(crate) fn http(environment: Arc<dyn Environment>, policy: EgressPolicy) -> HttpClient {
    let nobody = Resolver::with_name_servers(&[([127, 0, 0, 1], 9).into()]).expect("a resolver");
    HttpClient::with_resolver(policy, environment, CONNECT_TIMEOUT, &nobody).expect("a client")
}

fn dispatcher(
    setting: &Setting,
    store: &Store,
    clock: &Arc<ManualClock>,
    users: &Arc<Users>,
) -> Result<HookDispatcher, BuildError> {
    let environment: Arc<dyn Environment> = Arc::clone(&setting.environment) as _;
    let http = http(Arc::clone(&environment), setting.policy.clone());
    let clock: Arc<dyn Clock> = Arc::clone(clock) as _;
    let builder = HookDispatcher::builder(setting.mode, http, environment, clock)
        .users(Arc::clone(users) as _);
    // The pauses of repeats are real, so the publisher's clock is too.
    let real = Arc::new(SystemClock::new());
    match setting.publisher {
        Publishers::None => builder,
        Publishers::Store => builder.publisher(HookPublisher::Store {
            publisher: Publisher::new(store.clone(), real, Arc::new(SystemRandom)),
            limits: Limits::default(),
        }),
        Publishers::Remote => builder.publisher(HookPublisher::Remote),
    }
    .build()
}

/// `identifier/apiName` of the operation `op` and the user `u1`.
pub(crate) fn call(tool: &str) -> ToolCall {
    let (identifier, api_name) = tool.split_once('/').expect("a tool");
    ToolCall {
        agent_id: Some("a1".to_owned()),
        api_name: api_name.to_owned(),
        args: object(&json!({"path": "x"})),
        assistant_message_id: "m1".to_owned(),
        call_index: 1,
        identifier: identifier.to_owned(),
        operation_id: OP.to_owned(),
        tool_call_id: "call_9".to_owned(),
        user_id: Some("u1".to_owned()),
        ..ToolCall::default()
    }
}

pub(crate) fn result(content: &str) -> ToolRunResult {
    ToolRunResult {
        content: content.to_owned(),
        success: true,
        ..ToolRunResult::default()
    }
}

pub(crate) fn after(tool: &str) -> AfterToolCall {
    AfterToolCall {
        call: call(tool),
        mocked: false,
        result: result("done"),
    }
}

pub(crate) fn completed() -> OnComplete {
    OnComplete(run_end())
}

pub(crate) fn run_end() -> RunEnd {
    RunEnd {
        agent_id: "a1".to_owned(),
        operation_id: OP.to_owned(),
        user_id: "u1".to_owned(),
        reason: "done".to_owned(),
        status: "done".to_owned(),
        topic_id: Some("t1".to_owned()),
        final_state: Some(LocalState::new(7_u32)),
        ..RunEnd::default()
    }
}

/// An event of this type, of the operation `op` and the user `u1`.
pub(crate) fn event(hook_type: HookType) -> Event {
    let operation_id = OP.to_owned();
    let user_id = Some("u1".to_owned());
    match hook_type {
        HookType::BeforeStep => BeforeStep {
            operation_id,
            user_id: "u1".to_owned(),
            final_state: Some(LocalState::new(7_u32)),
            ..BeforeStep::default()
        }
        .into(),
        HookType::AfterStep => AfterStep {
            operation_id,
            user_id: "u1".to_owned(),
            final_state: Some(LocalState::new(7_u32)),
            ..AfterStep::default()
        }
        .into(),
        HookType::OnComplete => completed().into(),
        HookType::OnError => OnError(run_end()).into(),
        HookType::BeforeToolCall => BeforeToolCall::of_call(call("fs/readFile")).into(),
        HookType::AfterToolCall => after("fs/readFile").into(),
        HookType::OnToolCallError => OnToolCallError {
            call: call("fs/readFile"),
            error: "no".to_owned(),
        }
        .into(),
        HookType::BeforeHumanIntervention => BeforeHumanIntervention {
            operation_id,
            user_id,
            ..BeforeHumanIntervention::default()
        }
        .into(),
        HookType::AfterHumanIntervention => AfterHumanIntervention {
            operation_id,
            user_id,
            ..AfterHumanIntervention::default()
        }
        .into(),
        HookType::OnStopByHumanIntervention => OnStopByHumanIntervention {
            operation_id,
            user_id,
            ..OnStopByHumanIntervention::default()
        }
        .into(),
        HookType::BeforeCompact => BeforeCompact {
            operation_id,
            user_id,
            ..BeforeCompact::default()
        }
        .into(),
        HookType::AfterCompact => AfterCompact {
            operation_id,
            user_id,
            ..AfterCompact::default()
        }
        .into(),
        HookType::OnCompactError => OnCompactError {
            operation_id,
            user_id,
            ..OnCompactError::default()
        }
        .into(),
        HookType::BeforeCallAgent => BeforeCallAgent {
            operation_id,
            user_id,
            ..BeforeCallAgent::default()
        }
        .into(),
        HookType::AfterCallAgent => AfterCallAgent {
            operation_id,
            user_id,
            ..AfterCallAgent::default()
        }
        .into(),
        HookType::OnCallAgentError => OnCallAgentError {
            operation_id,
            user_id,
            ..OnCallAgentError::default()
        }
        .into(),
    }
}

pub(crate) fn object(value: &Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

pub(crate) fn json_hook(json: Value) -> AgentHook {
    AgentHook::from_json(json).expect("an object")
}

/// A handler that writes its id down.
pub(crate) fn noting<E: HookEvent>(id: &str, notes: &Notes) -> AgentHook {
    let (own, notes) = (id.to_owned(), notes.clone());
    AgentHook::handler(id, move |_: Arc<E>| {
        notes.add(&own);
        async { Ok(()) }
    })
}

/// What handlers wrote down, in order.
#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Vec<String>>>);

impl Notes {
    pub(crate) fn add(&self, note: &str) {
        self.0.lock().unwrap().push(note.to_owned());
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Everything logged on this thread at any level, until dropped.
pub(crate) struct Logs {
    text: Arc<Mutex<Vec<u8>>>,
    _guard: tracing::subscriber::DefaultGuard,
}

struct Writer(Arc<Mutex<Vec<u8>>>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Logs {
    pub(crate) fn capture() -> Self {
        // What is logged first on another thread, where nobody listens, would else be taken for what
        // nobody ever listens to.
        static EVERYWHERE: Once = Once::new();
        EVERYWHERE.call_once(|| {
            let everything = tracing_subscriber::registry();
            tracing::subscriber::set_global_default(everything).expect("nobody else sets it");
        });
        let text = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&text);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(move || Writer(Arc::clone(&shared)))
            .finish();
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.text.lock().unwrap().clone()).expect("text")
    }

    /// The first line with `needle`.
    pub(crate) fn line(&self, needle: &str) -> String {
        let text = self.text();
        let line = text.lines().find(|line| line.contains(needle));
        line.unwrap_or_else(|| panic!("{needle} is not logged:\n{text}"))
            .to_owned()
    }
}
