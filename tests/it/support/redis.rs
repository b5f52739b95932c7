//! A real `redis-server` for one test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take until it answers.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// How many ports are tried when another process takes the chosen one first.
const PORT_TRIES: usize = 5;
/// Ports below the range the system gives to outgoing connections, so that a restart finds its
/// port free. A cluster node also uses its port + 10,000.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How a server is started. The default: no persistence, no limits, no password.
#[derive(Debug, Clone, Default)]
pub(crate) struct RedisOptions {
    /// Keep an append-only file, with this `appendfsync` (`always`, `everysec`, `no`).
    pub(crate) appendfsync: Option<&'static str>,
    /// An append-only file to start from; copied.
    pub(crate) log: Option<PathBuf>,
    /// `maxmemory`, for example `4mb`; the policy is `noeviction` unless `extra` says otherwise.
    pub(crate) maxmemory: Option<String>,
    /// The default user's password.
    pub(crate) requirepass: Option<String>,
    /// A fixed port; a free one otherwise.
    pub(crate) port: Option<u16>,
    /// Further arguments, for example `["--maxmemory-policy", "allkeys-lru"]`.
    pub(crate) extra: Vec<String>,
    /// The program; [`default_binary`] when absent.
    pub(crate) binary: Option<PathBuf>,
}

/// A running server, killed when dropped. Its directory lives as long as it.
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    dir: TempDir,
    options: RedisOptions,
}

/// The `redis-server` of the environment variable `REDIS_SERVER_BIN`, else of `PATH`.
pub(crate) fn default_binary() -> PathBuf {
    std::env::var_os("REDIS_SERVER_BIN").map_or_else(|| "redis-server".into(), PathBuf::from)
}

/// The servers that version-dependent tests run on: the default one, and Redis 6.2 when
/// `REDIS62_SERVER_BIN` names it (see `tests/support/redis62.sh`).
pub(crate) fn binaries() -> Vec<PathBuf> {
    let old = std::env::var_os("REDIS62_SERVER_BIN").filter(|path| !path.is_empty());
    if old.is_none() {
        eprintln!("REDIS62_SERVER_BIN is not set: this test runs on the default Redis only");
    }
    [default_binary()]
        .into_iter()
        .chain(old.map(PathBuf::from))
        .collect()
}

impl RedisServer {
    /// A server without persistence.
    pub(crate) fn start() -> Self {
        Self::start_with(RedisOptions::default())
    }

    /// A server with an append-only file that survives [`RedisServer::kill9`].
    pub(crate) fn start_durable() -> Self {
        Self::start_with(RedisOptions {
            appendfsync: Some("always"),
            ..RedisOptions::default()
        })
    }

    /// A server with `options`; panics with the server's log when it does not come up.
    pub(crate) fn start_with(options: RedisOptions) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        if let Some(log) = &options.log {
            let copy = dir.path().join("appendonly.aof");
            std::fs::copy(log, copy).expect("a copy of the log");
        }
        let mut last = String::new();
        for _ in 0..PORT_TRIES {
            let port = options.port.unwrap_or_else(free_port);
            let mut child = spawn(&options, port, dir.path());
            match wait_ready(&mut child, &options, port) {
                Ok(()) => {
                    return Self {
                        child,
                        port,
                        dir,
                        options,
                    };
                }
                Err(reason) => {
                    drop(child.kill());
                    drop(child.wait());
                    last = format!("{reason}\n{}", log_of(dir.path()));
                }
            }
        }
        panic!("redis-server did not start: {last}");
    }

    /// The port on 127.0.0.1.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub(crate) fn addr(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A URL that logs in.
    pub(crate) fn url(&self) -> String {
        url(&self.options, self.port)
    }

    /// The data directory.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Everything the server has logged.
    pub(crate) fn log(&self) -> String {
        log_of(self.dir.path())
    }

    /// Runs one command on a connection of its own; panics on an error.
    pub(crate) fn cli<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        self.try_cli(words)
            .unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs one command on a connection of its own.
    pub(crate) fn try_cli<T: redis::FromRedisValue>(
        &self,
        words: &[&str],
    ) -> redis::RedisResult<T> {
        query(&self.url(), words)
    }

    /// A blocking connection for more than one command.
    pub(crate) fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url())
            .and_then(|client| client.get_connection())
            .expect("a connection to the test's own server")
    }

    /// Kills the server at once, as a crash does, and waits until it is gone.
    pub(crate) fn kill9(&mut self) {
        drop(self.child.kill());
        self.child.wait().expect("the child can be waited for");
    }

    /// Starts the server again on the same port and data; kills it first when it still runs.
    pub(crate) fn restart(&mut self) {
        self.kill9();
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            self.child = spawn(&self.options, self.port, self.dir.path());
            match wait_ready(&mut self.child, &self.options, self.port) {
                Ok(()) => return,
                Err(reason) if Instant::now() > deadline => {
                    panic!("redis-server did not restart: {reason}\n{}", self.log())
                }
                Err(_) => self.kill9(),
            }
        }
    }

    /// Sends a signal by name, for example `STOP` and `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        super::process::send_signal(self.child.id(), name);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A port on 127.0.0.1 that nothing listens on now.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = u16::try_from(std::process::id() % 300).unwrap_or(0) * 40;
    for _ in PORTS {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.start + start.wrapping_add(step) % (PORTS.end - PORTS.start);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port");
}

fn spawn(options: &RedisOptions, port: u16, dir: &Path) -> Child {
    let binary = options.binary.clone().unwrap_or_else(default_binary);
    let mut command = Command::new(&binary);
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--logfile", "redis.log", "--dir"])
        .arg(dir);
    if let Some(appendfsync) = options.appendfsync {
        command.args(["--appendonly", "yes", "--appendfsync", appendfsync]);
    }
    if let Some(maxmemory) = &options.maxmemory {
        command.args(["--maxmemory", maxmemory]);
    }
    if let Some(password) = &options.requirepass {
        command.args(["--requirepass", password]);
    }
    command.args(&options.extra);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            panic!(
                "{} cannot be started ({error}): install redis-server or set REDIS_SERVER_BIN",
                binary.display()
            )
        })
}

fn wait_ready(child: &mut Child, options: &RedisOptions, port: u16) -> Result<(), String> {
    let deadline = Instant::now() + READY_TIMEOUT;
    let url = url(options, port);
    loop {
        if let Some(status) = child.try_wait().expect("the child can be asked") {
            return Err(format!("it ended with {status}"));
        }
        // Another server on this port would answer too, so the process is asked for by its id; and
        // INFO is answered while the data are still being loaded, when other commands are not.
        let info: redis::RedisResult<String> = query(&url, &["INFO"]);
        let pending = match info {
            Ok(info) if !info.contains(&format!("process_id:{}\r", child.id())) => {
                return Err("another server has the port".to_owned());
            }
            Ok(info) if info.contains("\nloading:0\r") => return Ok(()),
            Ok(_) => "it is still loading".to_owned(),
            Err(error) => error.to_string(),
        };
        if Instant::now() > deadline {
            return Err(pending);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn query<T: redis::FromRedisValue>(url: &str, words: &[&str]) -> redis::RedisResult<T> {
    let mut connection =
        redis::Client::open(url)?.get_connection_with_timeout(Duration::from_secs(5))?;
    connection.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command.query(&mut connection)
}

fn url(options: &RedisOptions, port: u16) -> String {
    match &options.requirepass {
        None => format!("redis://127.0.0.1:{port}"),
        Some(password) => format!("redis://:{}@127.0.0.1:{port}", percent_encoded(password)),
    }
}

/// `text` as it must stand in the login part of a URL.
pub(crate) fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn log_of(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("redis.log")).unwrap_or_default()
}
