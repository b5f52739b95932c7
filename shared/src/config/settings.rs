//! What this process was told.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretBox, SecretString};

use super::error::ConfigError;
use super::reader::{Overrides, Reader};
use super::table::names;
use super::unknown::refuse_unknown;
use crate::environment::Environment;
use crate::message::{Limits, Shards};
use crate::signing::{SigningKeys, WebhookSecret};
use crate::store::embedded::DataSync;
use crate::store::redis_host::{ConnectError, RedisUrl};

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// All settings, checked. Secrets are not shown by `Debug`.
pub struct Settings {
    /// The store's URL, which may hold a password; `None` = no Redis.
    pub redis_url: Option<SecretString>,
    /// Where the embedded store keeps its log; `None` = nowhere.
    pub data_dir: Option<PathBuf>,
    /// When that log is forced onto the disk.
    pub data_sync: DataSync,
    /// First part of every key.
    pub key_prefix: String,
    /// Shards; `None` = as the store's topology suggests.
    pub shards: Option<Shards>,
    /// Replicas that must acknowledge a publish.
    pub publish_replicas: u64,
    /// Where to listen; `None` = the command's own default.
    pub listen: Option<SocketAddr>,
    /// What callers authenticate with.
    pub token: Option<SecretString>,
    /// What callers who only look authenticate with; `None` = there are none.
    pub read_only_token: Option<SecretString>,
    /// The signing keys given by the environment.
    pub signing_keys: Option<SigningKeys>,
    /// The Standard Webhooks secret.
    pub webhook_secret: Option<WebhookSecret>,
    /// What the stored key ring is encrypted with.
    pub secret_key: Option<SecretBox<[u8; 32]>>,
    /// Private destinations that are allowed, as given; empty = none.
    pub egress_allow: String,
    /// Deliveries at once in this process.
    pub slots: usize,
    /// How long a worker holds a message.
    pub lease: Duration,
    /// Time between two extensions of a lease.
    pub renew: Duration,
    /// Most items of one exchange with the store.
    pub batch: usize,
    /// Time that running deliveries get at shutdown.
    pub drain: Duration,
    /// What a message may be.
    pub limits: Limits,
    /// Bytes of an answer that are kept.
    pub response_keep_bytes: usize,
    /// Deadline of resolution, connection and handshake.
    pub connect_timeout: Duration,
    /// Time in which a deduplication id counts.
    pub dedup_window: Duration,
    /// Time for which a delivered message can be read.
    pub delivered_grace: Duration,
    /// Time for which dead letters are kept.
    pub dlq_retention: Duration,
    /// Time for which events are kept.
    pub events_retention: Duration,
    /// Time for which results of deferred completions are kept.
    pub completion_retention: Duration,
    /// What is logged, as directives of `tracing-subscriber`.
    pub log: String,
    /// The form of the log.
    pub log_format: LogFormat,
}

impl Settings {
    /// Reads and checks all settings. The first that is wrong is the error.
    pub fn from_environment(
        env: &dyn Environment,
        overrides: &Overrides,
    ) -> Result<Self, ConfigError> {
        refuse_unknown(env)?;
        let reader = Reader { env, overrides };
        let settings = Self {
            redis_url: redis_url(&reader)?,
            data_dir: reader
                .given(&names::DATA_DIR)?
                .map(|found| found.value.into()),
            data_sync: data_sync(&reader)?,
            key_prefix: key_prefix(&reader)?,
            shards: shards(&reader)?,
            publish_replicas: reader.count(&names::PUBLISH_REPLICAS)?,
            listen: reader.address(&names::LISTEN)?,
            token: reader.secret(&names::TOKEN)?,
            read_only_token: reader.secret(&names::READ_ONLY_TOKEN)?,
            signing_keys: signing_keys(&reader)?,
            webhook_secret: webhook_secret(&reader)?,
            secret_key: reader
                .key(&names::SECRET_KEY)?
                .map(|key| SecretBox::new(Box::new(key))),
            egress_allow: reader.text(&names::EGRESS_ALLOW)?,
            slots: usize::try_from(reader.count(&names::SLOTS)?).unwrap_or(usize::MAX),
            lease: reader.duration(&names::LEASE)?,
            renew: reader.duration(&names::RENEW)?,
            batch: usize::try_from(reader.count(&names::BATCH)?).unwrap_or(usize::MAX),
            drain: reader.duration(&names::DRAIN)?,
            limits: Limits {
                body_bytes_max: reader.size(&names::BODY_MAX)?,
                timeout_default: reader.duration(&names::TIMEOUT_DEFAULT)?,
                timeout_max: reader.duration(&names::TIMEOUT_MAX)?,
                delay_max: reader.duration(&names::DELAY_MAX)?,
            },
            response_keep_bytes: reader.size(&names::RESPONSE_KEEP)?,
            connect_timeout: reader.duration(&names::CONNECT_TIMEOUT)?,
            dedup_window: reader.duration(&names::DEDUP_WINDOW)?,
            delivered_grace: reader.duration(&names::DELIVERED_GRACE)?,
            dlq_retention: reader.duration(&names::DLQ_RETENTION)?,
            events_retention: reader.duration(&names::EVENTS_RETENTION)?,
            completion_retention: reader.duration(&names::COMPLETION_RETENTION)?,
            log: reader.text(&names::LOG)?,
            log_format: match reader.choice(&names::LOG_FORMAT)?.as_str() {
                "json" => LogFormat::Json,
                _ => LogFormat::Text,
            },
        };
        settings.check()?;
        Ok(settings)
    }

    /// The token, for commands that do not start without it.
    pub fn require_token(&self) -> Result<&SecretString, ConfigError> {
        let name = names::TOKEN.name();
        self.token.as_ref().ok_or(ConfigError::Missing { name })
    }

    /// What no setting can say alone.
    fn check(&self) -> Result<(), ConfigError> {
        let conflict = |text: &str| Err(ConfigError::Conflict(text.to_owned()));
        if self.data_dir.is_some() && self.redis_url.is_some() {
            return conflict(
                "a Redis (--redis-url, HOOKSTASH_REDIS_URL or REDIS_URL) and a data directory \
                 (--data-dir or HOOKSTASH_DATA_DIR) are both given: messages are in one or the \
                 other; unset one",
            );
        }
        if self.renew.saturating_mul(2) > self.lease {
            return conflict("HOOKSTASH_RENEW must be at most half of HOOKSTASH_LEASE");
        }
        if self.limits.timeout_default > self.limits.timeout_max {
            return conflict(
                "HOOKSTASH_TIMEOUT_DEFAULT must not be longer than HOOKSTASH_TIMEOUT_MAX",
            );
        }
        Ok(())
    }
}

fn redis_url(reader: &Reader) -> Result<Option<SecretString>, ConfigError> {
    let Some(found) = reader.given(&names::REDIS_URL)? else {
        return Ok(None);
    };
    match RedisUrl::parse(&found.value) {
        Ok(_) => {}
        Err(ConnectError::Url(reason)) => {
            return Err(found.wrong(&format!("is not the URL of a Redis: {reason}")));
        }
        Err(error) => return Err(found.wrong(&error)),
    }
    Ok(Some(found.value.into()))
}

/// `always` is refused without a data directory: whoever asks for it relies on it.
fn data_sync(reader: &Reader) -> Result<DataSync, ConfigError> {
    if reader.choice(&names::DATA_SYNC)? != "always" {
        return Ok(DataSync::EverySecond);
    }
    match (
        reader.given(&names::DATA_SYNC)?,
        reader.given(&names::DATA_DIR)?,
    ) {
        (Some(found), None) => {
            Err(found.wrong("has no effect without a data directory: give --data-dir"))
        }
        _ => Ok(DataSync::Always),
    }
}

fn key_prefix(reader: &Reader) -> Result<String, ConfigError> {
    const BYTES_MAX: usize = 64;
    let prefix = reader.text(&names::KEY_PREFIX)?;
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
    if prefix.len() <= BYTES_MAX && prefix.bytes().all(is_plain) {
        Ok(prefix)
    } else {
        Err(ConfigError::Value {
            name: names::KEY_PREFIX.name().to_owned(),
            reason: "must be 1 to 64 characters of [A-Za-z0-9._:-]".to_owned(),
        })
    }
}

fn shards(reader: &Reader) -> Result<Option<Shards>, ConfigError> {
    if reader.given(&names::SHARDS)?.is_none() {
        return Ok(None);
    }
    let count = reader.count(&names::SHARDS)?;
    Ok(u16::try_from(count)
        .ok()
        .and_then(|count| Shards::new(count).ok()))
}

fn signing_keys(reader: &Reader) -> Result<Option<SigningKeys>, ConfigError> {
    let current = reader.secret(&names::CURRENT_SIGNING_KEY)?;
    let next = reader.secret(&names::NEXT_SIGNING_KEY)?;
    let current = current.as_ref().map(SecretString::expose_secret);
    let next = next.as_ref().map(SecretString::expose_secret);
    Ok(SigningKeys::from_settings(current, next)?)
}

fn webhook_secret(reader: &Reader) -> Result<Option<WebhookSecret>, ConfigError> {
    let secret = reader.secret(&names::WEBHOOK_SECRET)?;
    let parse = |secret: SecretString| WebhookSecret::parse(secret.expose_secret());
    Ok(secret.map(parse).transpose()?)
}

/// Shows which secrets are set, and what else matters at the start.
impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("redis_url", &self.redis_url)
            .field("data_dir", &self.data_dir)
            .field("data_sync", &self.data_sync)
            .field("key_prefix", &self.key_prefix)
            .field("shards", &self.shards)
            .field("listen", &self.listen)
            .field("token", &self.token)
            .field("signing_keys", &self.signing_keys)
            .field("webhook_secret", &self.webhook_secret)
            .field("secret_key", &self.secret_key)
            .field("slots", &self.slots)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
