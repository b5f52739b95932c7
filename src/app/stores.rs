//! Opening the store: connecting, and agreeing on the number of shards.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::clock::Clock;
use hookstash_shared::config::Settings;
use hookstash_shared::message::Shards;
use hookstash_shared::store::embedded::{self, EmbeddedHost};
use hookstash_shared::store::host::{Host, HostError};
use hookstash_shared::store::redis_host::{ConnectError, RedisHost, RedisOptions, RedisUrl};
use hookstash_shared::store::{Retention, Store};
use secrecy::{ExposeSecret as _, SecretString};

use crate::key_ring::KeyRingError;

/// Shards for each master of a cluster, and the most a cluster gets.
const SHARDS_PER_MASTER: usize = 4;
const CLUSTER_SHARDS_MAX: usize = 16;

/// The store as the parts of a process use it: on Redis, each has connections of its own.
#[derive(Debug, Clone)]
pub struct Stores {
    /// For the front door. It has the store's own number of shards.
    pub api: Store,
    /// For publishing. It answers once as many replicas have a message as this process was told.
    pub publish: Store,
    /// For a worker. It has the number that this process was told, and leases nothing when that is
    /// not the store's own.
    pub worker: Store,
    /// Whether this process was told another number of shards than the store has.
    pub is_disagreed: bool,
}

/// Why the store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Connected, but it does not serve.
    #[error("ask the store how many shards it has")]
    Ask(#[from] HostError),
    /// There are signing keys in it that cannot be used.
    #[error(transparent)]
    Keys(#[from] KeyRingError),
    /// The data directory cannot be used.
    #[error(transparent)]
    Directory(#[from] embedded::OpenError),
    /// The thread that read the data directory has panicked.
    #[error("read the data directory")]
    Reader(#[from] tokio::task::JoinError),
}

impl OpenError {
    /// Whether trying again later can help.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Connect(error) => matches!(
                error,
                ConnectError::Unreachable { .. }
                    | ConnectError::Silent { .. }
                    | ConnectError::Refused { .. }
            ),
            Self::Ask(error) | Self::Keys(KeyRingError::Store(error)) => {
                !matches!(error, HostError::Fault(_))
            }
            Self::Keys(_) | Self::Directory(_) | Self::Reader(_) => false,
        }
    }
}

pub(super) async fn embedded(
    host: &Arc<EmbeddedHost>,
    settings: &Settings,
) -> Result<Stores, OpenError> {
    let host = || Arc::clone(host) as Arc<dyn Host>;
    let (api, publish, worker) = (host(), host(), host());
    let hosts = Hosts {
        api,
        publish,
        worker,
    };
    agree(hosts, Shards::ONE, settings).await
}

/// The store of the data directory `path`, read on a thread of its own.
pub(super) async fn open_directory(
    path: &Path,
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<EmbeddedHost>, OpenError> {
    let (path, sync, clock) = (path.to_owned(), settings.data_sync, Arc::clone(clock));
    let open = move || EmbeddedHost::open(&path, sync, clock);
    Ok(Arc::new(tokio::task::spawn_blocking(open).await??))
}

/// The store of a process that has ended and whose directory this one alone has: nobody settles
/// what it held.
pub(super) async fn embedded_again(
    host: &Arc<EmbeddedHost>,
    settings: &Settings,
) -> Result<Stores, OpenError> {
    let stores = embedded(host, settings).await?;
    for shard in stores.api.shards().iter() {
        let count = stores.api.recover_all(shard).await?;
        if count > 0 {
            tracing::warn!(
                %shard,
                count,
                "messages that were being delivered when the last process ended are delivered again"
            );
        }
    }
    Ok(stores)
}

pub(super) async fn redis(url: &SecretString, settings: &Settings) -> Result<Stores, OpenError> {
    let text = url.expose_secret();
    let options = RedisOptions::default();
    let host = RedisHost::connect(&RedisUrl::parse(text)?, options.clone()).await?;
    let facts = host.facts().await?;
    let is_cluster = facts
        .iter()
        .any(|server| server.is_cluster_node == Some(true));
    let (usual, found) = if is_cluster {
        let shards = (facts.len() * SHARDS_PER_MASTER).min(CLUSTER_SHARDS_MAX);
        let shards = u16::try_from(shards)
            .ok()
            .and_then(|shards| Shards::new(shards).ok());
        (shards.unwrap_or(Shards::ONE), as_cluster(text))
    } else {
        (Shards::ONE, text.to_owned())
    };
    let found = RedisUrl::parse(&found)?;
    let api: Arc<dyn Host> = Arc::new(host);
    let worker = Arc::new(RedisHost::lazy(&found, options.clone())?);
    let publish = match usize::try_from(settings.publish_replicas).unwrap_or(usize::MAX) {
        0 => Arc::clone(&api),
        replicas => Arc::new(RedisHost::lazy(
            &found,
            RedisOptions {
                replicas,
                ..options
            },
        )?),
    };
    let hosts = Hosts {
        api,
        publish,
        worker,
    };
    agree(hosts, usual, settings).await
}

/// The URL of a cluster by one of its nodes: a host that connects later does not find out itself.
fn as_cluster(url: &str) -> String {
    match url.trim().split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['-', '+']) => {
            format!("{scheme}-cluster://{rest}")
        }
        _ => url.to_owned(),
    }
}

/// What each of [`Stores`] is on.
struct Hosts {
    api: Arc<dyn Host>,
    publish: Arc<dyn Host>,
    worker: Arc<dyn Host>,
}

async fn agree(hosts: Hosts, usual: Shards, settings: &Settings) -> Result<Stores, OpenError> {
    let told = settings.shards.unwrap_or(usual);
    let asked = Store::new(
        hosts.api,
        &settings.key_prefix,
        told,
        settings.lease,
        retention(settings),
    );
    let agreed = asked.agree_on_shards(told.count()).await?;
    let agreed = Shards::new(agreed).unwrap_or(told);
    let is_disagreed = settings.shards.is_some_and(|shards| shards != agreed);
    let api = asked.with_shards(agreed);
    let worker = if is_disagreed { told } else { agreed };
    Ok(Stores {
        publish: api.through(hosts.publish),
        worker: api.through(hosts.worker).with_shards(worker),
        api,
        is_disagreed,
    })
}

fn retention(settings: &Settings) -> Retention {
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    Retention {
        dedup_window_ms: ms(settings.dedup_window),
        delivered_grace_ms: ms(settings.delivered_grace),
        dead_letter_ms: ms(settings.dlq_retention),
        completion_ms: ms(settings.completion_retention),
        events_ms: ms(settings.events_retention),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_a_cluster_is_used_as_one() {
        assert_eq!(as_cluster("rediss://u:p@h:1"), "rediss-cluster://u:p@h:1");
        assert_eq!(as_cluster("redis-cluster://h:1"), "redis-cluster://h:1");
        assert!(RedisUrl::parse(&as_cluster("redis://:p@h:1")).is_ok());
    }
}
