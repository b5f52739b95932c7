//! The composition root: from the settings to the parts of a process.
//!
//! Everything real (clock, randomness, environment, host, HTTP client) is made here and handed on.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use hookstash_producer::hooks::{BuildError, HookDispatcher, Mode};
use hookstash_producer::publish::Publisher;
use hookstash_producer::runtime::{Completions, StoredOperations};
use hookstash_shared::clock::{Clock, SystemClock};
use hookstash_shared::config::{ConfigError, Settings, names};
use hookstash_shared::descriptors::soft_limit;
use hookstash_shared::environment::Environment;
use hookstash_shared::http::{EgressPolicy, HttpClient, HttpClientError, install_crypto_provider};
use hookstash_shared::random::{Random, SystemRandom};
use hookstash_shared::signing::SealError;
use hookstash_shared::store::Store;
use hookstash_shared::store::embedded::{EmbeddedHost, StartError};
use hookstash_worker::{Observer, WorkerParts, WorkerSettings};
use secrecy::SecretString;

use crate::api::{ApiState, Callers, Readiness};
use crate::key_ring::KeyRing;

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
    /// The secret key cannot be used.
    #[error(transparent)]
    Seal(#[from] SealError),
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
    /// Asks controls about deferred results.
    hooks: HookDispatcher,
    keys: KeyRing,
    place: Place,
}

/// Where the store is.
#[derive(Clone)]
enum Place {
    /// In this process.
    Embedded(Arc<EmbeddedHost>),
    /// In this process, and in a directory; there once it has been opened.
    Directory(PathBuf, Arc<OnceLock<Arc<EmbeddedHost>>>),
    /// On the Redis of this URL, which may hold a password.
    Redis(SecretString),
}

impl App {
    /// Puts together what needs no connection and no file. Without a Redis URL the store is embedded.
    pub fn new(
        settings: Settings,
        environment: Arc<dyn Environment>,
        egress: Egress,
    ) -> Result<Self, AppError> {
        install_crypto_provider();
        refuse_replicas_of_nothing(&settings)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let place = match (&settings.redis_url, &settings.data_dir) {
            (Some(url), _) => Place::Redis(url.clone()),
            (None, Some(path)) => Place::Directory(path.clone(), Arc::default()),
            (None, None) => Place::Embedded(Arc::new(EmbeddedHost::new(Arc::clone(&clock))?)),
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
            keys: key_ring(&settings)?,
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

    /// Whether deliveries are signed.
    pub fn is_signing(&self) -> bool {
        self.keys.keys().is_some()
    }

    /// The signing keys of this process.
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Connects, or reads the data directory, agrees on the number of shards and takes the stored
    /// signing keys; one attempt. A connection takes a few seconds at most, a directory what its
    /// data need.
    pub async fn open(&self) -> Result<Stores, OpenError> {
        let stores = match &self.place {
            Place::Embedded(host) => stores::embedded(host, &self.settings).await,
            Place::Directory(path, opened) => {
                let host = match opened.get() {
                    Some(host) => Arc::clone(host),
                    None => stores::open_directory(path, &self.settings, &self.clock).await?,
                };
                let host = opened.get_or_init(|| host);
                stores::embedded_again(host, &self.settings).await
            }
            Place::Redis(url) => stores::redis(url, &self.settings).await,
        }?;
        self.keys.load(&stores.api).await?;
        Ok(stores)
    }

    /// Lets what the data directory got last. Called when everything else has ended; a failure is
    /// logged, and has lost nothing that the store's sync promises.
    pub async fn close(&self) {
        let Place::Directory(_, opened) = &self.place else {
            return;
        };
        if let Some(host) = opened.get()
            && let Err(error) = host.synced().await
        {
            tracing::error!(%error, "the data directory could not be synced at the end");
        }
    }

    /// What the front door works with.
    pub fn api_state(&self, stores: Stores, token: SecretString, readiness: Readiness) -> ApiState {
        let (clock, random) = (Arc::clone(&self.clock), Arc::clone(&self.random));
        let operations = Arc::new(StoredOperations::new(stores.api.clone()));
        let completions = Completions::new(self.hooks.clone(), stores.api.clone(), operations);
        ApiState {
            completions,
            publisher: Publisher::new(stores.publish, Arc::clone(&clock), Arc::clone(&random)),
            store: stores.api,
            clock,
            random,
            limits: self.settings.limits,
            token,
            read_only_token: self.settings.read_only_token.clone(),
            keys: self.keys.clone(),
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
        let settings = self.worker_settings();
        let idle = settings.idle_connections(soft_limit());
        WorkerParts {
            store,
            clock: Arc::clone(&self.clock),
            random: Arc::clone(&self.random),
            environment: Arc::clone(&self.environment),
            build_http: Arc::new(move || {
                let http =
                    HttpClient::new(egress.clone(), Arc::clone(&environment), connect_timeout)?;
                Ok(Arc::new(http.keeping_at_most(idle)) as _)
            }),
            signer: self.keys.signer(),
            observer,
            settings,
        }
    }

    fn worker_settings(&self) -> WorkerSettings {
        WorkerSettings {
            slots: self.settings.slots,
            renew: self.settings.renew,
            batch: self.settings.batch,
            drain: self.settings.drain,
            timeout_max: self.settings.limits.timeout_max,
            response_keep_bytes: self.settings.response_keep_bytes,
            ..WorkerSettings::default()
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

/// A promise that nothing keeps would be worse than a refusal.
fn refuse_replicas_of_nothing(settings: &Settings) -> Result<(), ConfigError> {
    if settings.publish_replicas == 0 || settings.redis_url.is_some() {
        return Ok(());
    }
    Err(ConfigError::Value {
        name: names::PUBLISH_REPLICAS.name().to_owned(),
        reason: "asks for replicas, and the store is in this process, which has none: leave it at \
                 0, or give --redis-url"
            .to_owned(),
    })
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

/// A secret without anything that it could sign beside would be a setting without effect.
fn key_ring(settings: &Settings) -> Result<KeyRing, AppError> {
    let has_keys = settings.signing_keys.is_some() || settings.secret_key.is_some();
    if settings.webhook_secret.is_some() && !has_keys {
        let text = "HOOKSTASH_WEBHOOK_SECRET is set but the signing keys are not: set \
                    QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY too, or \
                    HOOKSTASH_SECRET_KEY";
        return Err(ConfigError::Conflict(text.to_owned()).into());
    }
    Ok(KeyRing::new(settings)?)
}
