//! The program as its users run it: started by a command line, spoken to over HTTP.

use std::time::Duration;

use reqwest::header::AUTHORIZATION;
use serde_json::Value;
use tokio::time::Instant;

use super::process::{Process, hookstash};
use super::redis::RedisServer;

/// Time in which anything that should happen soon has happened, on a busy machine too.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// The token of servers that tests start.
pub(crate) const TOKEN: &str = "a-token-of-this-test-0123456789";

/// A running program and the token for it.
pub(crate) struct Program {
    pub(crate) process: Process,
    pub(crate) base: String,
    pub(crate) token: String,
    client: reqwest::Client,
}

impl Program {
    /// `hookstash dev --port 0` with more arguments, once it is ready.
    pub(crate) async fn dev(args: &[&str], env: &[(&str, &str)]) -> Self {
        let args = [&["dev", "--port", "0"], args].concat();
        let process = Process::start(&args, env);
        let base = exported(&process, "QSTASH_URL").await;
        let token = exported(&process, "QSTASH_TOKEN").await;
        Self::at(process, base, &token)
    }

    /// `hookstash serve` on `redis`, which may call loopback; once it is ready.
    pub(crate) async fn serve(redis: &RedisServer, env: &[(&str, &str)]) -> Self {
        Self::role("serve", redis, env).await
    }

    /// `hookstash serve` or `api` on `redis`, once it is ready.
    pub(crate) async fn role(role: &str, redis: &RedisServer, env: &[(&str, &str)]) -> Self {
        Self::role_on(role, &redis.url(), env).await
    }

    /// `hookstash serve`, `api` or `worker` on the store at `url`, once it is ready.
    pub(crate) async fn role_on(role: &str, url: &str, env: &[(&str, &str)]) -> Self {
        let all = [&server_environment(url)[..], env].concat();
        let process = Process::start(&[role, "--listen", "127.0.0.1:0"], &all);
        let line = process.wait_for_line("ready address=", SOON).await;
        let address = line
            .split("address=")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let base = format!("http://{}", address.expect("an address"));
        let token = env.iter().find(|(name, _)| *name == "QSTASH_TOKEN");
        let program = Self::at(process, base, token.map_or(TOKEN, |(_, token)| token));
        program.wait_until_ready().await;
        program
    }

    /// `hookstash worker` on `redis`, once it has started.
    pub(crate) async fn worker(redis: &RedisServer, env: &[(&str, &str)]) -> Process {
        let url = redis.url();
        let all = [&server_environment(&url)[..], env].concat();
        let process = Process::start(&["worker"], &all);
        process.wait_for_line("ready", SOON).await;
        process
    }

    /// A program that listens at `base`.
    pub(crate) fn at(process: Process, base: String, token: &str) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client");
        Self {
            process,
            base,
            token: token.to_owned(),
            client,
        }
    }

    /// Calls `path`; status and JSON of the answer.
    pub(crate) async fn call(&self, method: &str, path: &str) -> (u16, Value) {
        let method = method.parse().expect("a method");
        let request = self.client.request(method, format!("{}{path}", self.base));
        read(request.header(AUTHORIZATION, format!("Bearer {}", self.token))).await
    }

    /// A publish to `url` that can still be changed.
    pub(crate) fn publishing(&self, url: &str) -> reqwest::RequestBuilder {
        self.client
            .post(format!("{}/v2/publish/{url}", self.base))
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
    }

    /// Publishes to `url` with these `Upstash-…` headers; the message's id.
    pub(crate) async fn publish(
        &self,
        url: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> String {
        let request = headers
            .iter()
            .fold(self.publishing(url), |request, (name, value)| {
                request.header(*name, *value)
            });
        let (status, answer) = read(request.body(body)).await;
        assert!((200..300).contains(&status), "{status} {answer}");
        answer["messageId"].as_str().expect("an id").to_owned()
    }

    /// The status and the JSON of `/readyz`.
    pub(crate) async fn readyz(&self) -> (u16, Value) {
        self.call("GET", "/readyz").await
    }

    /// Waits until `/readyz` says so.
    pub(crate) async fn wait_until_ready(&self) {
        let deadline = Instant::now() + SOON;
        loop {
            let (status, answer) = self.readyz().await;
            if status == 200 {
                return;
            }
            let lines = || self.process.lines().join("\n");
            assert!(Instant::now() < deadline, "{answer}\n{}", lines());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The ids in the dead-letter queue.
    pub(crate) async fn dead(&self) -> Vec<String> {
        let (status, answer) = self.call("GET", "/v2/dlq").await;
        assert_eq!(status, 200, "{answer}");
        let letters = answer["messages"].as_array().expect("messages").iter();
        letters
            .map(|letter| letter["dlqId"].as_str().expect("an id").to_owned())
            .collect()
    }

    /// Waits until so many are in the dead-letter queue; their ids.
    pub(crate) async fn wait_for_dead(&self, count: usize) -> Vec<String> {
        let deadline = Instant::now() + SOON;
        loop {
            let dead = self.dead().await;
            if dead.len() >= count {
                return dead;
            }
            assert!(
                Instant::now() < deadline,
                "{} of {count} are dead",
                dead.len()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// What servers of tests are told: a short lease, and loopback is allowed.
fn server_environment(redis_url: &str) -> Vec<(&str, &str)> {
    vec![
        ("HOOKSTASH_REDIS_URL", redis_url),
        ("QSTASH_TOKEN", TOKEN),
        ("HOOKSTASH_EGRESS_ALLOW", "loopback"),
        ("HOOKSTASH_LEASE", "2s"),
        ("HOOKSTASH_RENEW", "500ms"),
    ]
}

/// What a program that has ended said, and how it ended.
pub(crate) struct Finished {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `hookstash` with `args` to its end.
pub(crate) async fn finish(args: &[&str], env: &[(&str, &str)]) -> Finished {
    let mut command = tokio::process::Command::from(hookstash(args, env));
    command
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(SOON, command.output()).await;
    let output = output.expect("it ends").expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Finished {
        code: output.status.code().expect("it is not killed"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// Status and JSON of an answer.
pub(crate) async fn read(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    let text = answer.text().await.expect("a body");
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

/// The value of a printed line `export NAME="value"`.
pub(crate) async fn exported(process: &Process, name: &str) -> String {
    let start = format!("export {name}=\"");
    let line = process.wait_for_line(&start, SOON).await;
    line.trim_start_matches(&start)
        .trim_end_matches('"')
        .to_owned()
}
