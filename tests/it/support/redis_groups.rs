//! Several real servers together: a cluster, a sentinel.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::redis::{RedisOptions, RedisServer, default_binary, free_port};

/// How long a group may take until its members agree.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// A replica of 127.0.0.1:`master_port`, which may be a proxy.
pub(crate) fn replica_of(master_port: u16) -> RedisServer {
    let master = ["--replicaof", "127.0.0.1", &master_port.to_string()].map(String::from);
    RedisServer::start_with(RedisOptions {
        extra: [&master[..], &quick_replication()].concat(),
        ..RedisOptions::default()
    })
}

/// Arguments with which a server begins to copy at once.
pub(crate) fn quick_replication() -> [String; 2] {
    ["--repl-diskless-sync-delay", "0"].map(String::from)
}

/// Waits until `master` has a replica that has everything that was written so far.
pub(crate) async fn wait_for_copy(master: &RedisServer) {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        let info: String = master.cli(&["INFO", "replication"]);
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.split_once(name));
            line.and_then(|(_, rest)| rest.split([',', '\r']).next())
        };
        if info.contains("state=online") && field("offset=") == field("master_repl_offset:") {
            return;
        }
        assert!(Instant::now() < deadline, "no copy: {info}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until `server` is a master.
pub(crate) async fn wait_for_master(server: &RedisServer) {
    let deadline = Instant::now() + READY_TIMEOUT;
    while !server
        .try_cli::<String>(&["INFO", "replication"])
        .is_ok_and(|info| info.contains("role:master"))
    {
        assert!(Instant::now() < deadline, "it was not promoted");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A cluster, the slots shared out evenly.
pub(crate) struct RedisCluster {
    /// The masters, in the order of their slots.
    pub(crate) nodes: Vec<RedisServer>,
    /// One for each master, in the same order, or none at all.
    pub(crate) replicas: Vec<RedisServer>,
}

impl RedisCluster {
    /// A cluster of `count` masters that agree on the slots.
    pub(crate) fn start(count: u16) -> Self {
        Self::start_on(count, None)
    }

    /// The same with a `redis-server` of this kind.
    pub(crate) fn start_on(count: u16, binary: Option<&Path>) -> Self {
        let nodes: Vec<RedisServer> = (0..count).map(|_| cluster_node(binary)).collect();
        let first = nodes.first().expect("at least one node");
        for (index, node) in (0..).zip(&nodes) {
            let slots: Vec<String> = (0..16_384_u16)
                .filter(|slot| u32::from(*slot) * u32::from(count) / 16_384 == index)
                .map(|slot| slot.to_string())
                .collect();
            let mut words = vec!["CLUSTER", "ADDSLOTS"];
            words.extend(slots.iter().map(String::as_str));
            let () = node.cli(&words);
            let () = node.cli(&["CLUSTER", "MEET", "127.0.0.1", &first.port().to_string()]);
        }
        wait_until("the cluster forms", || {
            nodes.iter().all(|node| agrees(node, count))
        });
        let replicas = Vec::new();
        Self { nodes, replicas }
    }

    /// A cluster of `count` masters with a replica each, which is promoted about 2 s after its
    /// master dies.
    pub(crate) fn start_with_replicas(count: u16) -> Self {
        let mut cluster = Self::start(count);
        for master in &cluster.nodes {
            let replica = cluster_node(None);
            let port = master.port().to_string();
            let () = replica.cli(&["CLUSTER", "MEET", "127.0.0.1", &port]);
            let id: String = master.cli(&["CLUSTER", "MYID"]);
            wait_until("the replica knows its master", || {
                let replicate = replica.try_cli::<String>(&["CLUSTER", "REPLICATE", &id]);
                replicate.is_ok()
            });
            cluster.replicas.push(replica);
        }
        for replica in &cluster.replicas {
            wait_until("the replica has a copy", || {
                let info: String = replica.cli(&["INFO", "replication"]);
                info.contains("master_link_status:up") && agrees(replica, count)
            });
        }
        let everyone = || cluster.nodes.iter().chain(&cluster.replicas);
        let known = format!("cluster_known_nodes:{}", 2 * count);
        wait_until("all nodes know each other", || {
            everyone().all(|node| node.cli::<String>(&["CLUSTER", "INFO"]).contains(&known))
        });
        cluster
    }

    /// A URL that names all masters.
    pub(crate) fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(RedisServer::addr).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }

    /// The slot of `key`, and which of the masters has it at the start.
    pub(crate) fn slot(&self, key: &str) -> (u16, usize) {
        let slot: u16 = self.nodes[0].cli(&["CLUSTER", "KEYSLOT", key]);
        let count = u32::try_from(self.nodes.len()).expect("a few");
        (slot, (u32::from(slot) * count / 16_384) as usize)
    }

    /// Begins to move `slot`: from now on the node `from` refuses what it has not.
    pub(crate) fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        let (source, target) = (self.id(from), self.id(to));
        let importing = ["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source];
        let () = self.nodes[to].cli(&importing);
        let migrating = ["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target];
        let () = self.nodes[from].cli(&migrating);
    }

    /// Moves all keys of `slot`; how many.
    pub(crate) fn move_keys(&self, slot: u16, from: usize, to: usize) -> usize {
        let slot = slot.to_string();
        let port = self.nodes[to].port().to_string();
        let mut moved = 0;
        loop {
            let words = ["CLUSTER", "GETKEYSINSLOT", &slot, "100"];
            let keys: Vec<String> = self.nodes[from].cli(&words);
            if keys.is_empty() {
                return moved;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            let () = self.nodes[from].cli(&words);
            moved += keys.len();
        }
    }

    /// Ends the move: `slot` belongs to the node `to`.
    pub(crate) fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, target) = (slot.to_string(), self.id(to));
        for node in [to, from] {
            let words = ["CLUSTER", "SETSLOT", &slot, "NODE", &target];
            let () = self.nodes[node].cli(&words);
        }
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].cli(&["CLUSTER", "MYID"])
    }
}

fn cluster_node(binary: Option<&Path>) -> RedisServer {
    let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1500"];
    RedisServer::start_with(RedisOptions {
        extra: [&cluster.map(String::from)[..], &quick_replication()].concat(),
        binary: binary.map(Path::to_owned),
        ..RedisOptions::default()
    })
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + READY_TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether `node` sees a whole cluster of `count` masters.
pub(crate) fn agrees(node: &RedisServer, count: u16) -> bool {
    let info = node
        .try_cli::<String>(&["CLUSTER", "INFO"])
        .unwrap_or_default();
    info.contains("cluster_state:ok") && info.contains(&format!("cluster_size:{count}"))
}

/// One sentinel that watches one master; killed when dropped. It calls a master dead after 500 ms.
pub(crate) struct RedisSentinel {
    child: Child,
    port: u16,
    master: String,
    passwords: Option<Passwords>,
    _dir: TempDir,
}

/// What a sentinel asks its callers for, and what it logs in to the master with.
#[derive(Clone, Copy)]
pub(crate) struct Passwords {
    pub(crate) sentinel: &'static str,
    pub(crate) master: &'static str,
}

impl RedisSentinel {
    /// Watches the master at 127.0.0.1:`master_port` under the name `master`.
    pub(crate) fn start(master: &str, master_port: u16) -> Self {
        Self::start_with(master, master_port, None)
    }

    /// The same with passwords on both.
    pub(crate) fn start_with(master: &str, master_port: u16, passwords: Option<Passwords>) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let port = free_port();
        let config = dir.path().join("sentinel.conf");
        let logins = passwords.map_or_else(String::new, |passwords| {
            let (own, other) = (passwords.sentinel, passwords.master);
            format!("requirepass {own}\nsentinel auth-pass {master} {other}\n")
        });
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n\
             sentinel monitor {master} 127.0.0.1 {master_port} 1\n\
             sentinel down-after-milliseconds {master} 500\n\
             sentinel failover-timeout {master} 3000\n{logins}",
            dir.path().display()
        );
        std::fs::write(&config, text).expect("a configuration");
        let child = Command::new(default_binary())
            .arg(&config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server");
        let sentinel = Self {
            child,
            port,
            master: master.to_owned(),
            passwords,
            _dir: dir,
        };
        sentinel.wait_until(|state| state.contains("status=ok"));
        sentinel
    }

    /// A URL that names this sentinel.
    pub(crate) fn url(&self) -> String {
        let (port, master) = (self.port, &self.master);
        match self.passwords {
            None => format!("redis-sentinel://127.0.0.1:{port}/{master}"),
            Some(passwords) => format!(
                "redis-sentinel://:{}@127.0.0.1:{port}/{master}?sentinel_password={}",
                passwords.master, passwords.sentinel
            ),
        }
    }

    fn login(&self) -> String {
        let password = self.passwords.map_or("", |passwords| passwords.sentinel);
        format!("redis://:{password}@127.0.0.1:{}", self.port)
    }

    /// The port of the master as the sentinel knows it now.
    pub(crate) fn master_port(&self) -> Option<u16> {
        let client = redis::Client::open(self.login()).ok()?;
        let (_, port): (String, u16) = redis::cmd("SENTINEL")
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&self.master)
            .query(&mut client.get_connection().ok()?)
            .ok()?;
        Some(port)
    }

    /// Waits until the sentinel knows so many replicas that it can promote.
    pub(crate) fn wait_for_replicas(&self, count: usize) {
        let wanted = format!("slaves={count}");
        self.wait_until(|state| state.contains(&wanted));
        // Sentinel promotes only replicas that it has heard of lately and whose link is up.
        std::thread::sleep(Duration::from_secs(1));
    }

    fn wait_until(&self, is_reached: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let state = self.state().unwrap_or_default();
            if is_reached(&state) {
                return;
            }
            assert!(Instant::now() < deadline, "the sentinel says {state:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn state(&self) -> redis::RedisResult<String> {
        let client = redis::Client::open(self.login())?;
        redis::cmd("INFO")
            .arg("sentinel")
            .query(&mut client.get_connection()?)
    }
}

impl Drop for RedisSentinel {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
