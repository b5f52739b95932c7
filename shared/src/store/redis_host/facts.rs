//! What the operator should know about the Redis in use.

use std::collections::HashMap;

/// The eviction policy under which Redis removes nothing by itself.
const NO_EVICTION: &str = "noeviction";

/// What one Redis server says about itself. `None` where the server, or the rights of our user,
/// keep it from us.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerFacts {
    /// `host:port`, or the path of its socket.
    pub server: String,
    /// Its version, for example `7.0.15`. Valkey states the Redis version it is compatible with.
    pub version: Option<String>,
    /// `master` or `slave`, in Redis's own words.
    pub role: Option<String>,
    /// `maxmemory-policy`; anything but `noeviction` lets Redis delete messages.
    pub maxmemory_policy: Option<String>,
    /// Whether the append-only file is on.
    pub is_aof_on: Option<bool>,
    /// `appendfsync`: `always`, `everysec` or `no`.
    pub appendfsync: Option<String>,
    /// Whether the last write of the append-only file and the last snapshot succeeded.
    pub is_persisting_well: Option<bool>,
    /// Whether it is a node of a cluster.
    pub is_cluster_node: Option<bool>,
}

impl ServerFacts {
    /// Whether Redis may delete messages to make room.
    pub fn may_evict(&self) -> bool {
        self.maxmemory_policy
            .as_deref()
            .is_some_and(|policy| policy != NO_EVICTION)
    }

    /// From the texts of `INFO` and the pairs of `CONFIG GET`, either empty when refused.
    pub(super) fn read(server: String, info: &str, mut config: HashMap<String, String>) -> Self {
        let info: HashMap<&str, &str> = info
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'))
            .collect();
        let text = |name: &str| info.get(name).map(|&value| value.to_owned());
        let is = |name: &str, wanted: &str| info.get(name).map(|&value| value == wanted);
        let statuses = ["aof_last_write_status", "rdb_last_bgsave_status"];
        let statuses: Vec<bool> = statuses.iter().filter_map(|name| is(name, "ok")).collect();
        Self {
            server,
            version: text("redis_version"),
            role: text("role"),
            maxmemory_policy: config
                .remove("maxmemory-policy")
                .or_else(|| text("maxmemory_policy")),
            is_aof_on: is("aof_enabled", "1"),
            appendfsync: config.remove("appendfsync"),
            is_persisting_well: (!statuses.is_empty()).then(|| statuses.iter().all(|&ok| ok)),
            is_cluster_node: is("cluster_enabled", "1"),
        }
    }

    /// Warns in the log about settings under which messages can vanish.
    pub(super) fn warn(&self) {
        match self.maxmemory_policy.as_deref() {
            Some(policy) if self.may_evict() => tracing::warn!(
                server = %self.server,
                policy,
                "redis may delete messages when memory is short: set maxmemory-policy to noeviction"
            ),
            Some(_) => {}
            None => tracing::info!(
                server = %self.server,
                "redis does not tell its maxmemory-policy: make sure that it is noeviction"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f17_any_policy_but_noeviction_may_evict() {
        let facts = |info: &str| ServerFacts::read("h:1".to_owned(), info, HashMap::new());
        assert!(facts("maxmemory_policy:allkeys-lru\r\n").may_evict());
        assert!(facts("maxmemory_policy:volatile-ttl\r\n").may_evict());
        assert!(!facts("maxmemory_policy:noeviction\r\n").may_evict());
        assert!(!facts("").may_evict());
        assert_eq!(facts("").maxmemory_policy, None);
    }

    #[test]
    fn facts_are_read_from_info_and_config() {
        let info = "# Server\r\nredis_version:7.0.15\r\nrole:master\r\naof_enabled:1\r\n\
                    aof_last_write_status:err\r\nrdb_last_bgsave_status:ok\r\ncluster_enabled:0\r\n";
        let config = HashMap::from([("appendfsync".to_owned(), "always".to_owned())]);
        let facts = ServerFacts::read("h:1".to_owned(), info, config);
        assert_eq!(facts.version.as_deref(), Some("7.0.15"));
        assert_eq!(facts.role.as_deref(), Some("master"));
        assert_eq!(facts.is_aof_on, Some(true));
        assert_eq!(facts.appendfsync.as_deref(), Some("always"));
        assert_eq!(facts.is_persisting_well, Some(false));
        assert_eq!(facts.is_cluster_node, Some(false));
    }
}
