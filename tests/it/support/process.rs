//! The built program, or any other, as a child process whose output can be awaited.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// How often a child is asked whether it has ended.
const POLL: Duration = Duration::from_millis(10);

/// A running child, killed when dropped.
pub(crate) struct Process {
    child: Child,
    output: Arc<Output>,
}

#[derive(Default)]
struct Output {
    lines: Mutex<Vec<String>>,
    added: Notify,
}

/// The `hookstash` program with `args`, not started yet. Its environment is this process's without
/// any setting of ours, plus `env`.
pub(crate) fn hookstash(args: &[&str], env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hookstash"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = text.starts_with("HOOKSTASH_") || text.starts_with("QSTASH_");
        if is_ours || ["REDIS_URL", "APP_URL", "INTERNAL_APP_URL"].contains(&&*text) {
            command.env_remove(&name);
        }
    }
    command.args(args).envs(env.iter().copied());
    command
}

impl Process {
    /// Starts [`hookstash`].
    pub(crate) fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::spawn(hookstash(args, env))
    }

    /// Starts `command` with its output captured.
    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let output = Arc::new(Output::default());
        read_lines(child.stdout.take().expect("piped"), Arc::clone(&output));
        read_lines(child.stderr.take().expect("piped"), Arc::clone(&output));
        Self { child, output }
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_none())
    }

    /// All lines so far, of standard output and standard error in the order they were read.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.output.lines.lock().unwrap().clone()
    }

    /// The first line that contains `needle`, past or to come; panics with all lines after `timeout`.
    pub(crate) async fn wait_for_line(&self, needle: &str, timeout: Duration) -> String {
        let deadline = Instant::now() + timeout;
        loop {
            let added = self.output.added.notified();
            if let Some(line) = self.lines().into_iter().find(|line| line.contains(needle)) {
                return line;
            }
            if tokio::time::timeout_at(deadline, added).await.is_err() {
                let lines = self.lines().join("\n");
                panic!("no line with {needle:?} within {timeout:?}; the output was:\n{lines}");
            }
        }
    }

    /// Sends a signal by name, for example `TERM`, `INT`, `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        send_signal(self.id(), name);
    }

    /// Kills the child at once, as a crash does, and waits until it is gone.
    pub(crate) fn kill9(&mut self) {
        drop(self.child.kill());
        self.child.wait().expect("the child can be waited for");
    }

    /// Waits for the child to end by itself; panics with all lines after `timeout`.
    pub(crate) async fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be asked") {
                return status;
            }
            if Instant::now() > deadline {
                let lines = self.lines().join("\n");
                panic!("still running after {timeout:?}; the output was:\n{lines}");
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends the signal `name` to the process `id`.
pub(crate) fn send_signal(id: u32, name: &str) {
    let status = Command::new("kill")
        .args(["-s", name, &id.to_string()])
        .status()
        .expect("the kill program");
    assert!(status.success(), "kill -s {name} {id}");
}

fn read_lines(source: impl Read + Send + 'static, output: Arc<Output>) {
    std::thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut line = Vec::new();
        while source
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            line.clear();
            output.lines.lock().unwrap().push(text);
            output.added.notify_waiters();
        }
    });
}
