//! Everything around the agent, in one process: store, HTTP API, worker, receiver, runtime.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hookstash::app::{App, Egress};
use hookstash::lifecycle::{self, Patience, Plan, Role, Running, Shutdown};
use hookstash_producer::hooks::{HookDispatcher, HookPublisher, Mode};
use hookstash_producer::publish::Publisher;
use hookstash_producer::runtime::{AgentRuntime, RuntimeParts, StoredOperations, Tool};
use hookstash_shared::config::{Overrides, Settings};
use hookstash_shared::environment::Environment;
use hookstash_shared::http::{CONNECT_TIMEOUT, EgressPolicy, HttpClient};
use hookstash_shared::random::SystemRandom;
use hookstash_shared::signing::SigningKeys;
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use crate::ports::{Crew, Rows};
use crate::receiver::{POLICY_KEY, Receiver};
use crate::tools::{NamedTool, Workshop};

/// What callers of the HTTP API authenticate with.
const TOKEN: &str = "t0ken-of-this-house-0123456789";
/// Longest time for hooks that run beside the agent.
const PATIENCE: Duration = Duration::from_secs(30);
/// Ends of runs that are told: three runs, one of which fails, and two pauses.
const ENDS: usize = 6;

/// The house of the agent.
pub(crate) struct House {
    pub(crate) runtime: AgentRuntime,
    pub(crate) crew: Arc<Crew>,
    workshop: Arc<Workshop>,
    receiver: Arc<Receiver>,
    running: Running,
    shutdown: Shutdown,
    mode: Mode,
    /// Removed with the house.
    _folder: TempDir,
}

impl House {
    pub(crate) async fn build(mode: Mode) -> Result<Self> {
        let keys = SigningKeys::generate(&SystemRandom);
        let receiver = Receiver::start(&keys).await?;
        let environment: Arc<dyn Environment> = Arc::new(environment(&keys, &receiver.base));
        let settings = Settings::from_environment(&*environment, &Overrides::default())?;
        let limits = settings.limits;

        // Store, HTTP API and worker, as `hookstash dev` starts them.
        let app = App::new(settings, Arc::clone(&environment), Egress::Development)?;
        let plan = Plan {
            role: Role::Both,
            listen: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)),
            patience: Patience::None,
            observer: None,
        };
        let shutdown = Shutdown::default();
        let running = lifecycle::start(&app, plan, &shutdown).await?;
        let running = running.context("the server does not start")?;
        let address = running.address().context("the server has no address")?;
        let store = app.open().await?.api;

        // The hooks, and the seam between them and the runtime.
        let clock = Arc::clone(app.clock());
        let policy = EgressPolicy::default().in_development();
        let http = HttpClient::new(policy, Arc::clone(&environment), CONNECT_TIMEOUT)?;
        let random = Arc::new(SystemRandom);
        let publisher = Publisher::new(store.clone(), Arc::clone(&clock), random);
        let hooks = HookDispatcher::builder(mode, http, environment, Arc::clone(&clock))
            .publisher(HookPublisher::Store { publisher, limits })
            .build()?;
        let crew = Arc::new(Crew::default());
        let runtime = AgentRuntime::new(RuntimeParts {
            hooks,
            operations: Arc::new(StoredOperations::new(store.clone())),
            store,
            messages: Arc::new(Rows::default()),
            runs: Arc::clone(&crew) as _,
            archive: None,
            stream: None,
            clock,
        });
        drop(crew.runtime.set(runtime.clone()));
        drop(receiver.runtime.set(runtime.clone()));

        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("passwords.txt"), "the password is milk")?;
        let workshop = Workshop {
            folder: folder.path().to_owned(),
            api: (format!("http://{address}"), TOKEN.to_owned()),
            client: reqwest::Client::builder().no_proxy().build()?,
        };
        Ok(Self {
            runtime,
            crew,
            workshop: Arc::new(workshop),
            receiver,
            running,
            shutdown,
            mode,
            _folder: folder,
        })
    }

    /// The tool of this name.
    pub(crate) fn tool(&self, name: &'static str) -> Arc<dyn Tool> {
        Arc::new(NamedTool {
            name,
            workshop: Arc::clone(&self.workshop),
        })
    }

    /// Waits for the hooks that run beside the agent, so that they are printed in their order.
    pub(crate) async fn settle(&self) {
        self.runtime.hooks().drain(PATIENCE).await;
    }

    /// Waits for what is on its way, and ends everything.
    pub(crate) async fn close(self) -> Result<()> {
        self.settle().await;
        if self.mode == Mode::Queue {
            self.receiver.until_ends(ENDS).await;
        }
        self.shutdown.drain();
        self.running.until_ended().await;
        Ok(())
    }
}

/// The environment of the application. Of this process nothing is looked at.
fn environment(keys: &SigningKeys, app_url: &str) -> BTreeMap<String, String> {
    [
        ("APP_URL", app_url),
        ("POLICY_KEY", POLICY_KEY),
        ("QSTASH_TOKEN", TOKEN),
        ("QSTASH_CURRENT_SIGNING_KEY", keys.current().expose_secret()),
        ("QSTASH_NEXT_SIGNING_KEY", keys.next().expose_secret()),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}
