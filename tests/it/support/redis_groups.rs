//! Several real servers together: a cluster, a sentinel.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::redis::{RedisOptions, RedisServer, default_binary, free_port};

/// How long a group may take until its members agree.
const READY_TIMEOUT: Duration = Duration::from_secs(20);

/// A cluster of masters without replicas, the slots shared out evenly.
pub(crate) struct RedisCluster {
    /// The nodes, in the order of their slots.
    pub(crate) nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// A cluster of `count` masters that agree on the slots.
    pub(crate) fn start(count: u16) -> Self {
        let nodes: Vec<RedisServer> = (0..count)
            .map(|_| {
                RedisServer::start_with(RedisOptions {
                    extra: ["--cluster-enabled", "yes"].map(String::from).to_vec(),
                    ..RedisOptions::default()
                })
            })
            .collect();
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
        let deadline = Instant::now() + READY_TIMEOUT;
        while !nodes.iter().all(|node| agrees(node, count)) {
            assert!(Instant::now() < deadline, "the cluster did not form");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { nodes }
    }

    /// A URL that names all nodes.
    pub(crate) fn url(&self) -> String {
        let nodes: Vec<String> = self.nodes.iter().map(RedisServer::addr).collect();
        format!("redis-cluster://{}", nodes.join(","))
    }
}

fn agrees(node: &RedisServer, count: u16) -> bool {
    let info: String = node.cli(&["CLUSTER", "INFO"]);
    info.contains("cluster_state:ok") && info.contains(&format!("cluster_size:{count}"))
}

/// One sentinel that watches one master; killed when dropped. It calls a master dead after 500 ms.
pub(crate) struct RedisSentinel {
    child: Child,
    port: u16,
    master: String,
    _dir: TempDir,
}

impl RedisSentinel {
    /// Watches the master at 127.0.0.1:`master_port` under the name `master`.
    pub(crate) fn start(master: &str, master_port: u16) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let port = free_port();
        let config = dir.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n\
             sentinel monitor {master} 127.0.0.1 {master_port} 1\n\
             sentinel down-after-milliseconds {master} 500\n\
             sentinel failover-timeout {master} 3000\n",
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
            _dir: dir,
        };
        sentinel.wait_until(|state| state.contains("status=ok"));
        sentinel
    }

    /// A URL that names this sentinel.
    pub(crate) fn url(&self) -> String {
        format!("redis-sentinel://127.0.0.1:{}/{}", self.port, self.master)
    }

    /// Waits until the sentinel knows a replica that it can promote.
    pub(crate) fn wait_for_replica(&self) {
        self.wait_until(|state| state.contains("slaves=1"));
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
        let client = redis::Client::open(("127.0.0.1", self.port))?;
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
