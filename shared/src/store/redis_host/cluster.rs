//! Which node owns a key, and the links to a cluster's nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use redis::cluster_routing::Slot;
use redis::{ConnectionInfo, FromRedisValue, RedisResult, Value};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Node;
use super::connect::RedisOptions;
use super::errors::ConnectError;
use super::link::Place;
use super::url::{moved_to, server_name};
use crate::store::host::HostError;

/// Least time between two looks at the slots.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Time one node has to tell the slots.
const NODE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for one look at the slots, over all nodes that are asked.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// A cluster. Its map comes from `CLUSTER SLOTS`, asked again after any sign that it is out of
/// date. Nothing is retried or redirected here: "retry later" is the caller's.
pub(super) struct Cluster {
    seeds: Vec<ConnectionInfo>,
    options: RedisOptions,
    map: Mutex<Map>,
}

#[derive(Default)]
struct Map {
    owners: HashMap<Slot, Arc<Node>>,
    nodes: HashMap<String, Arc<Node>>,
    /// Whether nothing has shown that it is out of date.
    is_current: bool,
    looked_at: Option<Instant>,
    /// How far the order of asking is rotated.
    turn: usize,
}

/// One line of `CLUSTER SLOTS`: the slots and the master's host and port.
struct Range {
    slots: std::ops::RangeInclusive<u16>,
    host: String,
    port: u16,
}

impl Cluster {
    pub(super) fn new(seeds: Vec<ConnectionInfo>, options: RedisOptions) -> Self {
        Self {
            seeds,
            options,
            map: Mutex::new(Map::default()),
        }
    }

    /// The master that owns the slot of `key`, by the last map that could be had.
    pub(super) async fn owner(&self, key: &[u8]) -> Result<Arc<Node>, HostError> {
        let mut map = self.map.lock().await;
        let refreshed = self.refresh(&mut map).await;
        match map.owners.get(&Slot::for_key(key)) {
            Some(owner) => Ok(Arc::clone(owner)),
            None => Err(refreshed.err().map_or_else(
                || HostError::RetryLater("no node is known for this slot".to_owned()),
                HostError::from,
            )),
        }
    }

    /// All masters that own slots.
    pub(super) async fn masters(&self) -> Result<Vec<Arc<Node>>, HostError> {
        let mut map = self.map.lock().await;
        self.refresh(&mut map).await?;
        Ok(map.nodes.values().cloned().collect())
    }

    /// Reads the map for the first time, so that a cluster out of reach shows at the start.
    pub(super) async fn look(&self) -> Result<(), ConnectError> {
        self.refresh(&mut *self.map.lock().await).await
    }

    /// Says that the map is out of date; it is asked for again at the next use.
    pub(super) async fn doubt(&self) {
        self.map.lock().await.is_current = false;
    }

    /// Asks one node after the other until one answers, each time another one first, so that a
    /// node with an old view of the cluster is not believed for ever.
    async fn refresh(&self, map: &mut Map) -> Result<(), ConnectError> {
        let is_early = map.looked_at.is_some_and(|at| at.elapsed() < LOOK_PAUSE);
        if map.is_current || is_early {
            return Ok(());
        }
        let mut candidates: Vec<Arc<Node>> = map.nodes.values().cloned().collect();
        map.turn = (map.turn + 1) % candidates.len().max(1);
        candidates.rotate_left(map.turn);
        candidates.extend(self.seeds.iter().map(|seed| self.node(seed.clone())));
        let deadline = Instant::now() + LOOK_TIMEOUT;
        let mut failure = ConnectError::Url("no server is named".to_owned());
        for node in candidates {
            let until = deadline.min(Instant::now() + NODE_TIMEOUT);
            match tokio::time::timeout_at(until, ask(&node)).await {
                Ok(Ok(ranges)) => {
                    self.draw(map, ranges);
                    return Ok(());
                }
                Ok(Err(error)) => failure = error,
                Err(_) => {
                    failure = ConnectError::Silent {
                        server: node.link.name(),
                        after: NODE_TIMEOUT,
                    }
                }
            }
        }
        map.looked_at = Some(Instant::now());
        Err(failure)
    }

    fn draw(&self, map: &mut Map, ranges: Vec<Range>) {
        let mut owners = HashMap::new();
        let mut nodes = HashMap::new();
        for range in ranges {
            let Some(seed) = self.seeds.first() else {
                continue;
            };
            let server = moved_to(seed, &range.host, range.port);
            let name = server_name(&server);
            let node = nodes
                .entry(name.clone())
                .or_insert_with(|| map.nodes.remove(&name).unwrap_or_else(|| self.node(server)));
            for slot in range.slots.filter_map(Slot::new) {
                owners.insert(slot, Arc::clone(node));
            }
        }
        map.owners = owners;
        map.nodes = nodes;
        map.is_current = true;
        map.looked_at = Some(Instant::now());
    }

    fn node(&self, server: ConnectionInfo) -> Arc<Node> {
        Arc::new(Node::new(Place::Fixed(server), &self.options))
    }
}

async fn ask(node: &Node) -> Result<Vec<Range>, ConnectError> {
    let live = node.link.get().await?;
    let mut connection = live.connection.clone();
    let answer = redis::cmd("CLUSTER")
        .arg("SLOTS")
        .query_async(&mut connection)
        .await
        .and_then(|lines| parse(lines, node.link.host()));
    if answer.is_err() {
        node.link.forget(&live).await;
    }
    answer.map_err(|error| ConnectError::from_login(&node.link.name(), None, &error))
}

fn parse(lines: Value, asked_host: &str) -> RedisResult<Vec<Range>> {
    let lines = Vec::<Vec<Value>>::from_redis_value(lines)?;
    let mut ranges = Vec::with_capacity(lines.len());
    for line in lines {
        let mut line = line.into_iter();
        let (Some(first), Some(last), Some(master)) = (line.next(), line.next(), line.next())
        else {
            continue;
        };
        let mut master = Vec::<Value>::from_redis_value(master)?.into_iter();
        let (Some(host), Some(port)) = (master.next(), master.next()) else {
            continue;
        };
        // A node that does not know its own address leaves it out: it is the one that was asked.
        let host = Option::<String>::from_redis_value(host)?.filter(|host| !host.is_empty());
        ranges.push(Range {
            slots: u16::from_redis_value(first)?..=u16::from_redis_value(last)?,
            host: host.unwrap_or_else(|| asked_host.to_owned()),
            port: u16::from_redis_value(port)?,
        });
    }
    Ok(ranges)
}
