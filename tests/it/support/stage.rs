//! A store on either host, and workers on it, for one test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hookstash_producer::publish::Publisher;
use hookstash_shared::clock::SystemClock;
use hookstash_shared::descriptors::soft_limit;
use hookstash_shared::environment::Environment;
use hookstash_shared::http::{EgressPolicy, HttpClient, Resolver};
use hookstash_shared::message::{
    Destination, LastResponse, Limits, MessageId, NewMessage, NewMessageBuilder, RetryDelay,
    Shards, State,
};
use hookstash_shared::random::SystemRandom;
use hookstash_shared::signing::{Signer, SigningKeys, WebhookSecret};
use hookstash_shared::store::embedded::EmbeddedHost;
use hookstash_shared::store::faulty::FaultyHost;
use hookstash_shared::store::host::Host;
use hookstash_shared::store::redis_host::{RedisHost, RedisOptions, RedisUrl};
use hookstash_shared::store::{DeadLetter, Retention, Store};
use hookstash_worker::{AttemptReport, RunningWorker, WorkerParts, WorkerSettings};
use tokio::sync::watch;
use tokio::time::Instant;

use super::redis::RedisServer;

/// Lease time of most tests: short, so that recovery is quick.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// Time in which anything that should happen soon has happened.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Delay of a retry that is hardly one.
pub(crate) const QUICK: &str = "20";

/// A store and what its workers are made of.
pub(crate) struct Stage {
    pub(crate) store: Store,
    pub(crate) publisher: Publisher,
    /// What the store is on, for looking behind it.
    pub(crate) host: Arc<dyn Host>,
    /// The server, when the store is on one of the test's own.
    pub(crate) redis: Option<RedisServer>,
    /// Where workers connect to; `None` on the embedded host.
    url: Option<String>,
    /// In front of the embedded host.
    pub(crate) faults: Option<Arc<FaultyHost>>,
    /// Variables that header templates see.
    pub(crate) environment: Arc<dyn Environment>,
    /// The resolver's only name server.
    pub(crate) name_server: SocketAddr,
    pub(crate) settings: WorkerSettings,
    pub(crate) signer: Option<Signer>,
    reports: Arc<Mutex<Vec<AttemptReport>>>,
    lease: Duration,
}

impl Stage {
    /// One stage on each host.
    pub(crate) fn both() -> Vec<Self> {
        vec![Self::embedded(LEASE), Self::redis(LEASE)]
    }

    /// On the embedded host.
    pub(crate) fn embedded(lease: Duration) -> Self {
        let host = EmbeddedHost::new(Arc::new(SystemClock::new())).expect("an embedded host");
        let faulty = Arc::new(FaultyHost::new(Arc::new(host), Arc::new(SystemRandom)));
        let mut stage = Self::on(Arc::clone(&faulty) as _, lease, 1);
        stage.faults = Some(faulty);
        stage
    }

    /// On a server of its own that survives a kill.
    pub(crate) fn redis(lease: Duration) -> Self {
        Self::on_server(RedisServer::start_durable(), lease, 1)
    }

    /// On `server`, with this many shards.
    pub(crate) fn on_server(server: RedisServer, lease: Duration, shards: u16) -> Self {
        let mut stage = Self::on_url(&server.url(), lease, shards);
        stage.redis = Some(server);
        stage
    }

    /// On the servers of `url`.
    pub(crate) fn on_url(url: &str, lease: Duration, shards: u16) -> Self {
        let mut stage = Self::on(connect(url), lease, shards);
        stage.url = Some(url.to_owned());
        stage
    }

    /// On `host`, which its workers use too.
    pub(crate) fn on(host: Arc<dyn Host>, lease: Duration, shards: u16) -> Self {
        let shards = Shards::new(shards).unwrap();
        let store = Store::new(Arc::clone(&host), "hs", shards, lease, Retention::default());
        let clock = Arc::new(SystemClock::new());
        let publisher = Publisher::new(store.clone(), clock, Arc::new(SystemRandom));
        let secret = WebhookSecret::parse("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX").unwrap();
        Self {
            store,
            publisher,
            host,
            redis: None,
            url: None,
            faults: None,
            environment: Arc::new(BTreeMap::<String, String>::new()),
            name_server: ([127, 0, 0, 1], 9).into(),
            settings: WorkerSettings {
                renew: lease / 4,
                threads: 2,
                slots: 64,
                ..WorkerSettings::default()
            },
            signer: Some(Signer::new(&SigningKeys::development(), Some(&secret))),
            reports: Arc::default(),
            lease,
        }
    }

    /// Which host this is, for messages.
    pub(crate) fn name(&self) -> &'static str {
        if self.url.is_some() {
            "redis"
        } else {
            "embedded"
        }
    }

    /// What a worker on this stage is made of. On a server it has connections of its own.
    pub(crate) fn parts(&self) -> WorkerParts {
        let store = match &self.url {
            Some(url) => {
                let host = connect(url);
                Store::new(
                    host,
                    "hs",
                    self.store.shards(),
                    self.lease,
                    Retention::default(),
                )
            }
            None => self.store.clone(),
        };
        let (environment, name_server) = (Arc::clone(&self.environment), self.name_server);
        let reports = Arc::clone(&self.reports);
        let idle = self.settings.idle_connections(soft_limit());
        WorkerParts {
            store,
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            environment: Arc::clone(&self.environment),
            build_http: Arc::new(move || {
                let policy = EgressPolicy::default().in_development();
                let resolver = Resolver::with_name_servers(&[name_server])?;
                let environment = Arc::clone(&environment);
                let timeout = Duration::from_secs(5);
                let http = HttpClient::with_resolver(policy, environment, timeout, &resolver)?;
                Ok(Arc::new(http.keeping_at_most(idle)) as _)
            }),
            signer: watch::channel(self.signer.clone()).1,
            observer: Some(Arc::new(move |report| reports.lock().unwrap().push(report))),
            settings: self.settings.clone(),
        }
    }

    /// Starts a worker.
    pub(crate) fn work(&self) -> RunningWorker {
        hookstash_worker::start(self.parts()).expect("a worker")
    }

    /// Waits until `worker` is in touch with the store.
    pub(crate) async fn wait_for_first_exchange(&self, worker: &RunningWorker) {
        let deadline = Instant::now() + SOON;
        while !worker.is_healthy() {
            assert!(Instant::now() < deadline, "{}: not in touch", self.name());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Publishes.
    pub(crate) async fn publish(&self, message: NewMessageBuilder) -> MessageId {
        let message = message
            .build(now_ms(), &Limits::default())
            .expect("a valid message");
        self.publisher
            .publish(message, SOON)
            .await
            .expect("accepted")
            .id
    }

    /// Publishes many at once; returns their ids in order.
    pub(crate) async fn publish_all(&self, messages: Vec<NewMessageBuilder>) -> Vec<MessageId> {
        let items = messages.into_iter().map(|message| {
            let message = message
                .build(now_ms(), &Limits::default())
                .expect("a valid message");
            (self.publisher.id_for(&message), message)
        });
        let published = self.publisher.publish_many(items.collect(), SOON).await;
        published
            .into_iter()
            .map(|one| one.expect("accepted").id)
            .collect()
    }

    /// Waits until `id` is in `state`.
    pub(crate) async fn wait_for_state(&self, id: &MessageId, state: State) {
        let deadline = Instant::now() + SOON;
        loop {
            let now = self.state(id).await;
            if now == Some(state) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{}: {id} is {now:?}, not {state:?}",
                self.name()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The state of `id` now.
    pub(crate) async fn state(&self, id: &MessageId) -> Option<State> {
        let message = self.store.message(id).await.expect("the store answers");
        message.map(|message| message.record.state)
    }

    /// Waits until `id` is dead; its last response.
    pub(crate) async fn wait_for_death(&self, id: &MessageId) -> LastResponse {
        self.wait_for_state(id, State::Dead).await;
        let letter: DeadLetter = self
            .store
            .dead_letter(id)
            .await
            .unwrap()
            .expect("a dead letter");
        LastResponse::decode(&letter.response).expect("a last response")
    }

    /// The attempts so far of all workers of this stage.
    pub(crate) fn reports(&self) -> Vec<AttemptReport> {
        self.reports.lock().unwrap().clone()
    }
}

/// A message to `url` whose retries come quickly.
pub(crate) fn message(url: &str) -> NewMessageBuilder {
    let destination = Destination::parse(url).expect("a destination");
    NewMessage::to(destination)
        .retry_delay(RetryDelay::parse(QUICK).expect("an expression"))
        .timeout(SOON)
}

/// A host that connects when it is used first.
pub(crate) fn connect(url: &str) -> Arc<RedisHost> {
    let options = RedisOptions {
        connect_timeout: Duration::from_secs(2),
        response_timeout: Duration::from_secs(2),
        ..RedisOptions::default()
    };
    let url = RedisUrl::parse(url).expect("a URL");
    Arc::new(RedisHost::lazy(&url, options).expect("a server is named"))
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(since.expect("after 1970").as_millis()).unwrap_or(u64::MAX)
}
