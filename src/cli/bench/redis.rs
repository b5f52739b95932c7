//! The Redis itself, seen from outside the store: what it is, what it spends, what it keeps of us.

use std::collections::HashMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult};

use crate::cli::failure::Failure;

/// How long connecting, and any single answer, may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Keys of one step of a walk.
const WALK_STEP: usize = 1_000;

/// A connection of the bench's own.
#[derive(Clone)]
pub(super) struct Redis {
    connection: MultiplexedConnection,
    prefix: String,
}

/// What a Redis says of itself.
pub(super) struct Info(HashMap<String, String>);

impl Redis {
    /// Connects to a single server; the bench's keys begin with `prefix`.
    pub(super) async fn connect(url: &str, prefix: &str) -> Result<Self, Failure> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_MAX))
            .set_response_timeout(Some(ANSWER_MAX));
        // The error may quote the URL, which may hold a password.
        let client = Client::open(url.trim()).map_err(|_| {
            Failure::usage(
                "the bench measures one Redis: its URL begins with redis://, rediss:// \
                            or unix://",
            )
        })?;
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| failed(&error))?;
        let redis = Self {
            connection,
            prefix: prefix.to_owned(),
        };
        if redis.info().await?.text("cluster_enabled") == "1" {
            return Err(Failure::usage(
                "the bench measures a single Redis, and this is a node of a cluster",
            ));
        }
        Ok(redis)
    }

    /// The connection. Clones share it.
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// What the server says of itself now.
    pub(super) async fn info(&self) -> Result<Info, Failure> {
        let mut connection = self.connection();
        let text: String = redis::cmd("INFO")
            .arg("everything")
            .query_async(&mut connection)
            .await
            .map_err(|error| failed(&error))?;
        let pairs = text
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'));
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(Info(pairs.collect()))
    }

    /// `appendfsync`; a dash where our user may not ask.
    pub(super) async fn fsync(&self) -> String {
        let mut connection = self.connection();
        let asked: RedisResult<(String, String)> = redis::cmd("CONFIG")
            .arg("GET")
            .arg("appendfsync")
            .query_async(&mut connection)
            .await;
        asked.map_or_else(|_| "-".to_owned(), |(_, value)| value)
    }

    /// Removes every key of the bench. Walks all keys of the server.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        let mut connection = self.connection();
        let pattern = format!("{}*", self.prefix);
        let mut cursor = "0".to_owned();
        loop {
            let (next, keys): (String, Vec<Vec<u8>>) = redis::cmd("SCAN")
                .arg(&cursor)
                .arg("MATCH")
                .arg(&pattern)
                .arg("COUNT")
                .arg(WALK_STEP)
                .query_async(&mut connection)
                .await
                .map_err(|error| failed(&error))?;
            if !keys.is_empty() {
                let mut unlink = redis::cmd("UNLINK");
                unlink.arg(keys);
                let _: i64 = unlink
                    .query_async(&mut connection)
                    .await
                    .map_err(|error| failed(&error))?;
            }
            if next == "0" {
                return Ok(());
            }
            cursor = next;
        }
    }
}

impl Info {
    /// A value; empty when the server does not say.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// A number; 0 when the server does not say.
    pub(super) fn number(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or(0.0)
    }

    /// CPU time of the server so far.
    pub(super) fn cpu(&self) -> Duration {
        let seconds = self.number("used_cpu_user") + self.number("used_cpu_sys");
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }
}

fn failed(error: &RedisError) -> Failure {
    Failure::failed("ask Redis").because(error)
}
