//! The composition root: from the settings to the parts of a process.
//!
//! Everything real (clock, randomness, environment, host, HTTP client) is made here and handed on.

use std::fmt;
use std::sync::Arc;

use hookstash_producer::hooks::{BuildError, HookDispatcher, Mode};
use hookstash_producer::publish::Publisher;
use hookstash_producer::runtime::{Completions, StoredOperations};
use hookstash_shared::clock::{Clock, SystemClock};
use hookstash_shared::config::{ConfigError, Settings, names};
use hookstash_shared::environment::Environment;
use hookstash_shared::http::{EgressPolicy, HttpClient, HttpClientError, install_crypto_provider};
use hookstash_shared::random::{Random, SystemRandom};
use hookstash_shared::signing::Signer;
use hookstash_shared::store::Store;
use hookstash_shared::store::embedded::{EmbeddedHost, StartError};
use hookstash_worker::{Observer, WorkerParts, WorkerSettings};
use secrecy::SecretString;
use tokio::sync::watch;

use crate::api::{ApiState, Callers, Readiness};

mod stores;

pub use stores::{OpenError, Stores};

/// Which destinations are open without being listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Egress {
    /// None but public ones.
    Production,
    /// Loopback and private ones too, as on a developer's machine.
    Development,
}

/// Why a process cannot be put together. Names the setting, never its value.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A setting is missing, wrong, or asks for what does not exist yet.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The embedded store does not start.
    #[error(transparent)]
    Embedded(#[from] StartError),
    /// The HTTP client cannot be made.
    #[error(transparent)]
    Http(#[from] HttpClientError),
    /// The environment's hooks are set up wrongly.
    #[error(transparent)]
    Hooks(#[from] BuildError),
}

/// What the parts of one process are made from. Cheap to clone.
#[derive(Clone)]
pub struct App {
    settings: Arc<Settings>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    environment: Arc<dyn Environment>,
    egress: EgressPolicy,
    callers: Callers,
    signer: watch::Sender<Option<Signer>>,
    /// Asks controls about deferred results.
    hooks: HookDispatcher,
    place: Place,
}

/// Where the store is.
#[derive(Clone)]
enum Place {
    /// In this process.
    Embedded(Arc<EmbeddedHost>),
    /// On the Redis of this URL, which may hold a password.
    Redis(SecretString),
}

impl App {
    /// Puts together what needs no connection. Without a Redis URL the store is embedded.
    pub fn new(
        settings: Settings,
        environment: Arc<dyn Environment>,
        egress: Egress,
    ) -> Result<Self, AppError> {
        install_crypto_provider();
        refuse_what_is_not_built(&settings)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let place = match &settings.redis_url {
            Some(url) => Place::Redis(url.clone()),
            None => Place::Embedded(Arc::new(EmbeddedHost::new(Arc::clone(&clock))?)),
        };
        let policy = egress_policy(&settings, egress)?;
        let http = HttpClient::new(
            policy.clone(),
            Arc::clone(&environment),
            settings.connect_timeout,
        )?;
        // Operations are not registered here: their hooks come with their records.
        let (asked, timed) = (Arc::clone(&environment), Arc::clone(&clock));
        let hooks = HookDispatcher::builder(Mode::Local, http, asked, timed).build()?;
        Ok(Self {
            egress: policy,
            hooks,
            callers: match egress {
                Egress::Production => Callers::Anyone,
                Egress::Development => Callers::LocalPrograms,
            },
            signer: watch::Sender::new(signer(&settings)?),
            settings: Arc::new(settings),
            clock,
            random: Arc::new(SystemRandom),
            environment,
            place,
        })
    }

    /// What this process was told.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The clock of this process.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Whether the store ends with this process.
    pub fn is_embedded(&self) -> bool {
        matches!(self.place, Place::Embedded(_))
    }

    /// Whether deliveries are signed.
    pub fn is_signing(&self) -> bool {
        self.signer.borrow().is_some()
    }

    /// Connects and agrees on the number of shards; one attempt, a few seconds at most.
    pub async fn open(&self) -> Result<Stores, OpenError> {
        match &self.place {
            Place::Embedded(host) => stores::embedded(host, &self.settings).await,
            Place::Redis(url) => stores::redis(url, &self.settings).await,
        }
    }

    /// What the front door works with.
    pub fn api_state(&self, store: Store, token: SecretString, readiness: Readiness) -> ApiState {
        let (clock, random) = (Arc::clone(&self.clock), Arc::clone(&self.random));
        let operations = Arc::new(StoredOperations::new(store.clone()));
        ApiState {
            completions: Completions::new(self.hooks.clone(), store.clone(), operations),
            publisher: Publisher::new(store.clone(), Arc::clone(&clock), Arc::clone(&random)),
            store,
            clock,
            random,
            limits: self.settings.limits,
            token,
            keys: self.settings.signing_keys.clone(),
            egress: self.egress.clone(),
            environment: Arc::clone(&self.environment),
            readiness,
            callers: self.callers,
        }
    }

    /// What a worker is made of.
    pub fn worker_parts(&self, store: Store, observer: Option<Observer>) -> WorkerParts {
        let (egress, environment) = (self.egress.clone(), Arc::clone(&self.environment));
        let connect_timeout = self.settings.connect_timeout;
        WorkerParts {
            store,
            clock: Arc::clone(&self.clock),
            random: Arc::clone(&self.random),
            environment: Arc::clone(&self.environment),
            build_http: Arc::new(move || {
                HttpClient::new(egress.clone(), Arc::clone(&environment), connect_timeout)
            }),
            signer: self.signer.subscribe(),
            observer,
            settings: WorkerSettings {
                slots: self.settings.slots,
                renew: self.settings.renew,
                batch: self.settings.batch,
                drain: self.settings.drain,
                timeout_max: self.settings.limits.timeout_max,
                response_keep_bytes: self.settings.response_keep_bytes,
                ..WorkerSettings::default()
            },
        }
    }
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A setting without effect would be worse than a refusal.
fn refuse_what_is_not_built(settings: &Settings) -> Result<(), ConfigError> {
    let unavailable = [
        (
            settings.publish_replicas != 0,
            &names::PUBLISH_REPLICAS,
            "leave it at 0",
        ),
        (
            settings.data_dir.is_some(),
            &names::DATA_DIR,
            "leave it (--data-dir) unset; for messages that survive a restart, give --redis-url",
        ),
        (
            settings.secret_key.is_some(),
            &names::SECRET_KEY,
            "leave it unset",
        ),
    ];
    match unavailable.iter().find(|(is_asked, ..)| *is_asked) {
        None => Ok(()),
        Some((_, setting, advice)) => Err(ConfigError::Value {
            name: setting.name().to_owned(),
            reason: format!("is not available yet: {advice}"),
        }),
    }
}

fn egress_policy(settings: &Settings, egress: Egress) -> Result<EgressPolicy, ConfigError> {
    let policy = EgressPolicy::parse(&settings.egress_allow).map_err(|_| ConfigError::Value {
        name: names::EGRESS_ALLOW.name().to_owned(),
        reason: "has an entry that is none of: a network (CIDR), an address, host, host:port, \
                 *.suffix, loopback, private"
            .to_owned(),
    })?;
    Ok(match egress {
        Egress::Production => policy,
        Egress::Development => policy.in_development(),
    })
}

fn signer(settings: &Settings) -> Result<Option<Signer>, ConfigError> {
    match (&settings.signing_keys, &settings.webhook_secret) {
        (Some(keys), secret) => Ok(Some(Signer::new(keys, secret.as_ref()))),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(ConfigError::Conflict(
            "HOOKSTASH_WEBHOOK_SECRET is set but the signing keys are not: set \
             QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY too"
                .to_owned(),
        )),
    }
}
