//! What all parts of the bench share: the store, the receiver, the messages, the Redis.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hookstash_producer::publish::Publisher;
use hookstash_shared::clock::Clock;
use hookstash_shared::config::{Overrides, Settings, names};
use hookstash_shared::environment::Environment;
use hookstash_shared::headers::{HeaderSource, Headers};
use hookstash_shared::message::{Destination, MessageId, NewMessage};
use hookstash_shared::random::{Random, SystemRandom};
use hookstash_shared::signing::SigningKeys;
use hookstash_worker::RunningWorker;
use secrecy::ExposeSecret as _;

use super::receiver::{Receiver, body};
use super::redis::Redis;
use crate::app::{App, Egress, Stores};
use crate::cli::failure::Failure;

/// Beginning of every key that the bench makes.
const PREFIX: &str = "hookstash-bench-";
const CONTENT_TYPE: &[u8] = b"application/json";

/// See the module.
pub(super) struct Stage {
    pub(super) app: App,
    pub(super) stores: Stores,
    pub(super) publisher: Publisher,
    pub(super) receiver: Receiver,
    pub(super) redis: Redis,
    pub(super) body_bytes: usize,
    destination: Destination,
    headers: Headers,
    /// The worker that was started last.
    worker: Mutex<Option<Arc<RunningWorker>>>,
}

impl Stage {
    /// Connects, and starts the receiver. The store is production's but for a prefix and signing
    /// keys of this run alone.
    pub(super) async fn set(
        environment: Arc<dyn Environment>,
        overrides: &Overrides,
        body_bytes: usize,
    ) -> Result<Self, Failure> {
        let mut settings = Settings::from_environment(&*environment, overrides)?;
        settings.key_prefix = format!("{PREFIX}{:08x}", SystemRandom.below(1 << 32));
        settings.signing_keys = Some(SigningKeys::generate(&SystemRandom));
        settings.webhook_secret = None;
        settings.secret_key = None;
        settings.data_dir = None;
        let Some(url) = settings.redis_url.clone() else {
            let text = format!("no Redis is named: {} is not set", names::REDIS_URL.name());
            return Err(Failure::usage(text).advise(
                "Give one that you may load, such as --redis-url redis://localhost:6379. To start \
                 one for the occasion:\n\n  redis-server --port 6390 --save '' --appendonly yes \
                 --dir \"$(mktemp -d)\"",
            ));
        };
        let redis = Redis::connect(url.expose_secret(), &settings.key_prefix).await?;
        let app = App::new(settings, environment, Egress::Development)?;
        let opened = app.open().await;
        let stores = opened.map_err(|error| Failure::failed("open the store").because(&error))?;
        let receiver = Receiver::start(Arc::clone(app.clock()))?;
        let failed = |error: &dyn std::error::Error| {
            Failure::failed("make the bench's message").because(error)
        };
        let destination = Destination::parse(receiver.url()).map_err(|error| failed(&error))?;
        let mut headers = Headers::default();
        headers
            .append(b"content-type", HeaderSource::literal(CONTENT_TYPE))
            .map_err(|error| failed(&error))?;
        let clock = Arc::clone(app.clock());
        Ok(Self {
            publisher: Publisher::new(stores.api.clone(), clock, Arc::new(SystemRandom)),
            app,
            stores,
            receiver,
            redis,
            body_bytes,
            destination,
            headers,
            worker: Mutex::default(),
        })
    }

    /// Time.
    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        self.app.clock()
    }

    /// Time since some fixed point.
    pub(super) fn now(&self) -> Duration {
        self.clock().monotonic()
    }

    /// Message `number` as a caller makes it.
    pub(super) fn message(&self, number: usize) -> Result<NewMessage, Failure> {
        NewMessage::to(self.destination.clone())
            .headers(self.headers.clone())
            .body(body(number, self.body_bytes))
            .build(self.clock().now_ms(), &self.app.settings().limits)
            .map_err(|error| Failure::failed("make the bench's message").because(&error))
    }

    /// Messages `numbers` with their ids.
    pub(super) fn messages(
        &self,
        numbers: std::ops::Range<usize>,
    ) -> Result<Vec<(MessageId, NewMessage)>, Failure> {
        let with_id = |number| {
            let message = self.message(number)?;
            Ok((self.publisher.id_for(&message), message))
        };
        numbers.map(with_id).collect()
    }

    /// Starts a worker of this stage.
    pub(super) fn start_worker(&self) -> Result<Arc<RunningWorker>, Failure> {
        let parts = self.app.worker_parts(self.stores.worker.clone(), None);
        let worker = hookstash_worker::start(parts)
            .map_err(|error| Failure::failed("start the worker").because(&error))?;
        let worker = Arc::new(worker);
        *self.worker() = Some(Arc::clone(&worker));
        Ok(worker)
    }

    /// Removes every key that the bench has made, at its end or in the middle of it: what still
    /// writes is ended first.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        let worker = self.worker().take();
        if let Some(worker) = worker {
            worker.stop_now().await;
        }
        // Publishes that nobody waits for any more are answered before this. When it fails, so does
        // the walk, and says why.
        drop(self.stores.api.ping().await);
        self.redis.clear().await
    }

    fn worker(&self) -> std::sync::MutexGuard<'_, Option<Arc<RunningWorker>>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
