//! The Redis host: scripts and commands run on a Redis server, a sentinel's master or a cluster.
//!
//! - `url`: where Redis is; `connect`: one connection; `link`: a connection that heals itself
//! - `pipeline`: items to commands, answers to results; `wait`: blocking waits
//! - `replicated`: pipelines that replicas must have before they are answered
//! - `sentinel`, `cluster`: finding the server; `errors`: what refusals mean; `facts`: for operators
//!
//! A connection on which an answer did not come, or which turned out to lead to the wrong server
//! (READONLY, MASTERDOWN, UNBLOCKED and the like), is dropped, and the next call makes a new one,
//! looking the server up again. Attempts are paced here; a call makes at most one of them.

mod cluster;
mod connect;
mod errors;
mod facts;
mod link;
mod pipeline;
mod replicated;
mod sentinel;
mod url;
mod wait;

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, try_join_all};

use self::cluster::Cluster;
use self::link::{Link, Place};
use self::pipeline::Outcome;
use self::replicated::Replicated;
use self::url::Kind;
use self::wait::Waiters;
use super::host::{Host, HostError, Reply, Step, StepResult};

pub use self::connect::RedisOptions;
pub use self::errors::ConnectError;
pub use self::facts::ServerFacts;
pub use self::url::RedisUrl;

/// A Redis server, a sentinel's master or a cluster. Safe to share; calls overlap on one connection
/// per server, waits have connections of their own. Connections live on the runtime that made
/// them; when it ends, the next call makes new ones.
///
/// When a connection breaks, all unanswered pipelines are lost whole: an item whose answer had come
/// already is reported as lost too.
pub struct RedisHost {
    topology: Topology,
}

enum Topology {
    One(Box<Node>),
    Cluster(Box<Cluster>),
}

/// One server: the shared connection, and those of calls that block.
struct Node {
    link: Link,
    /// When replicas are asked for: the connection of all pipelines but those of this host itself.
    replicated: Option<Replicated>,
    waiters: Waiters,
}

impl RedisHost {
    /// Connects, and warns in the log when the server's settings let messages vanish. A single
    /// server that turns out to be a node of a cluster is used as one.
    ///
    /// Fails within twice the connect timeout, naming the server and never the password.
    pub async fn connect(url: &RedisUrl, options: RedisOptions) -> Result<Self, ConnectError> {
        let mut host = Self::lazy(url, options.clone())?;
        match &host.topology {
            Topology::One(node) => drop(node.link.get().await?),
            Topology::Cluster(cluster) => cluster.look().await?,
        }
        let facts = host.facts().await.unwrap_or_default();
        facts.iter().for_each(ServerFacts::warn);
        let is_cluster = facts
            .iter()
            .any(|facts| facts.is_cluster_node == Some(true));
        if url.kind == Kind::Standalone && is_cluster {
            let cluster = Cluster::new(url.servers.clone(), options);
            cluster.look().await?;
            host.topology = Topology::Cluster(Box::new(cluster));
        }
        Ok(host)
    }

    /// A host that connects at its first use, for a process that may start before its Redis. It
    /// does not find out by itself that a single server is a node of a cluster.
    pub fn lazy(url: &RedisUrl, options: RedisOptions) -> Result<Self, ConnectError> {
        let servers = url.servers.clone();
        let first = servers.first().cloned();
        let first = first.ok_or_else(|| ConnectError::Url("no server is named".to_owned()))?;
        let topology = match &url.kind {
            Kind::Standalone => Topology::One(Box::new(Node::new(Place::Fixed(first), &options))),
            Kind::Sentinel { master } => {
                let master = master.clone();
                let sentinels = servers;
                let login = url.sentinel_login.clone();
                let place = Place::Sentinel {
                    sentinels,
                    login,
                    master,
                };
                Topology::One(Box::new(Node::new(place, &options)))
            }
            Kind::Cluster => Topology::Cluster(Box::new(Cluster::new(servers, options))),
        };
        Ok(Self { topology })
    }

    /// What the server says about itself; on a cluster, every master. Asks anew at each call.
    pub async fn facts(&self) -> Result<Vec<ServerFacts>, HostError> {
        match &self.topology {
            Topology::One(node) => Ok(vec![node.facts().await?]),
            Topology::Cluster(cluster) => {
                let masters = cluster.masters().await?;
                try_join_all(masters.iter().map(|master| master.facts())).await
            }
        }
    }

    /// How many masters share the keys; 1 without a cluster.
    pub async fn masters(&self) -> Result<usize, HostError> {
        match &self.topology {
            Topology::One(_) => Ok(1),
            Topology::Cluster(cluster) => Ok(cluster.masters().await?.len()),
        }
    }

    async fn run_on_cluster(cluster: &Cluster, steps: &[Step]) -> Vec<StepResult> {
        let key = routing_key(steps).unwrap_or_default();
        let node = match cluster.owner(&key).await {
            Ok(node) => node,
            Err(error) => return steps.iter().map(|_| Err(error.clone())).collect(),
        };
        let outcome = node.run(steps).await;
        if outcome.wrong_server {
            cluster.doubt().await;
        }
        outcome.results
    }
}

impl Host for RedisHost {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        Box::pin(async move {
            match &self.topology {
                Topology::One(node) => node.run(&steps).await.results,
                Topology::Cluster(cluster) => Self::run_on_cluster(cluster, &steps).await,
            }
        })
    }

    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        Box::pin(async move {
            match &self.topology {
                Topology::One(node) => node.waiters.wait(&key, timeout).await,
                Topology::Cluster(cluster) => {
                    let node = cluster.owner(&key).await?;
                    let taken = node.waiters.wait(&key, timeout).await;
                    if taken.is_err() {
                        cluster.doubt().await;
                    }
                    taken
                }
            }
        })
    }
}

impl Node {
    fn new(place: Place, options: &RedisOptions) -> Self {
        let timeout = Some(options.response_timeout);
        let link = || Link::new(place.clone(), options.clone(), timeout);
        let replicas = options.replicas;
        let replicated = (replicas > 0).then(|| Replicated::new(link(), replicas));
        Self {
            link: link(),
            replicated,
            waiters: Waiters::new(place, options.clone()),
        }
    }

    async fn run(&self, steps: &[Step]) -> Outcome {
        match &self.replicated {
            Some(replicated) if !steps.is_empty() => replicated.run(steps).await,
            _ => pipeline::run(&self.link, steps).await,
        }
    }

    async fn facts(&self) -> Result<ServerFacts, HostError> {
        let commands: [&[&'static str]; 3] = [
            &["INFO"],
            &["CONFIG", "GET", "maxmemory-policy"],
            &["CONFIG", "GET", "appendfsync"],
        ];
        let steps: Vec<Step> = commands
            .iter()
            .map(|words| Step::Command(words.iter().map(|&word| Bytes::from(word)).collect()))
            .collect();
        let mut info = String::new();
        let mut config = HashMap::new();
        for result in pipeline::run(&self.link, &steps).await.results {
            match result {
                Ok(Reply::Bytes(text)) => info = lossy(&text),
                Ok(Reply::Array(pair)) => {
                    if let [Reply::Bytes(name), Reply::Bytes(value)] = pair.as_slice() {
                        config.insert(lossy(name), lossy(value));
                    }
                }
                // Refused to our user: the fact stays unknown.
                Ok(_) | Err(HostError::Fault(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ServerFacts::read(self.link.name(), &info, config))
    }
}

/// The key that decides which node runs `steps`: a script's first, else a command's first argument.
fn routing_key(steps: &[Step]) -> Option<Bytes> {
    let scripted = steps.iter().find_map(|step| match step {
        Step::Script { keys, .. } => keys.first(),
        Step::Command(_) => None,
    });
    let plain = || {
        steps.iter().find_map(|step| match step {
            Step::Command(words) => words.get(1),
            Step::Script { .. } => None,
        })
    };
    scripted.or_else(plain).cloned()
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
