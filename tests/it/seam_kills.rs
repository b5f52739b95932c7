//! A runtime that is killed at any step and started again ends in the same state, and at no moment
//! is a result visible that its control has not allowed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use futures::{StreamExt as _, stream};
use hookstash_producer::runtime::ToolRow;
use serde_json::{Value, json};

use crate::support::process::{Process, send_signal};
use crate::support::program::SOON;
use crate::support::receiver::{Answer, Received, Receiver};
use crate::support::redis::RedisServer;
use crate::support::seam_actor::{self, DIES_AT, ENDED, FORBIDDEN, FileRows, Steps};

const NAME: &str = "seam_kills::a_runtime_killed_at_any_step_ends_in_the_same_state";

/// Lives that are lived at one time.
const AT_ONCE: usize = 4;

/// Denies the call that is not to be made, and results with the forbidden word.
fn judge(request: &Received) -> Answer {
    let body: Value = serde_json::from_slice(&request.body).expect("JSON");
    let content = body["result"]["content"].as_str().unwrap_or_default();
    let is_denied = content.contains(FORBIDDEN) || body["toolCallId"] == "forbidden-call";
    let decision = if is_denied { "deny" } else { "allow" };
    let answer = json!({"decision": decision, "reason": "no"});
    Answer::ok().body(answer.to_string())
}

/// One life after the other on the same databases, until one ends by itself.
struct Lives {
    redis: RedisServer,
    folder: tempfile::TempDir,
}

impl Lives {
    fn new() -> Self {
        Self {
            redis: RedisServer::start(),
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    fn start(&self, policy: &str, env: &[(&str, &str)]) -> Process {
        let (url, folder) = (self.redis.url(), self.folder.path());
        seam_actor::start(NAME, &url, folder, policy, env)
    }

    /// A life that nobody ends; how many steps it took.
    async fn live(&self, policy: &str) -> usize {
        let mut process = self.start(policy, &[]);
        let line = process.wait_for_line(ENDED, SOON).await;
        assert!(process.wait_exit(SOON).await.success());
        assert_says_nothing(&process);
        let steps = line.split(ENDED).nth(1).expect("a number");
        steps.parse().expect("a number")
    }

    fn rows(&self) -> BTreeMap<String, ToolRow> {
        FileRows::at(self.folder.path().to_owned(), Steps::of_the_living()).all()
    }
}

fn assert_says_nothing(process: &Process) {
    let lines = process.lines();
    let said = lines.iter().find(|line| line.contains(FORBIDDEN));
    assert!(said.is_none(), "{said:?}");
}

/// Nothing is visible that the reference does not show in the end.
fn assert_reviewed(
    folder: &Path,
    rows: &BTreeMap<String, ToolRow>,
    ended: &BTreeMap<String, ToolRow>,
) {
    for (id, row) in rows {
        assert!(
            row.content.is_empty() || row.content == ended[id].content,
            "{row:?}"
        );
    }
    for file in ["archive", "stream"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        assert!(!text.contains(FORBIDDEN), "{file}: {text}");
    }
}

#[tokio::test]
async fn a_runtime_killed_at_any_step_ends_in_the_same_state() {
    seam_actor::act_if_started_as_actor().await;
    let policy = Receiver::with(judge);
    let url = policy.url("/");
    let reference = Lives::new();
    let steps = reference.live(&url).await;
    let ended = reference.rows();
    assert_eq!(ended["row-allowed"].content, "fine");
    for denied in [
        "row-forbidden-call",
        "row-forbidden-result",
        "row-later",
        "row-asked",
    ] {
        assert_eq!(ended[denied].content, "no");
        assert_eq!(ended[denied].error, Some(json!("hook_denied")));
    }
    assert!(steps > 30, "{steps} steps");
    let all = (1..=steps).map(|dies_at| dies_once(dies_at, &url, &ended));
    stream::iter(all)
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<()>>()
        .await;
    println!("killed once at each of {steps} steps");
}

/// Lets a runtime die at this step, and another end what it began.
async fn dies_once(dies_at: usize, url: &str, ended: &BTreeMap<String, ToolRow>) {
    let lives = Lives::new();
    let at = dies_at.to_string();
    let mut process = lives.start(url, &[(DIES_AT, &at)]);
    let killed = process.wait_exit(SOON).await;
    assert!(!killed.success(), "it dies at {dies_at}");
    assert_says_nothing(&process);
    assert_reviewed(lives.folder.path(), &lives.rows(), ended);
    lives.live(url).await;
    assert_eq!(&lives.rows(), ended, "killed at {dies_at}");
    assert_reviewed(lives.folder.path(), &lives.rows(), ended);
}

#[tokio::test]
async fn a_runtime_killed_while_a_control_is_asked_ends_in_the_same_state() {
    let quiet = Receiver::with(judge);
    let reference = Lives::new();
    reference.live(&quiet.url("/")).await;
    let ended = reference.rows();
    let asked = quiet.count();
    for dies_at in 1..=asked {
        let (victim, count) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicUsize::new(0)));
        let told = Arc::clone(&victim);
        let policy = Receiver::with(move |request| {
            if count.fetch_add(1, Ordering::SeqCst) + 1 == dies_at {
                send_signal(told.load(Ordering::SeqCst), "KILL");
            }
            judge(request)
        });
        let lives = Lives::new();
        let mut process = lives.start(&policy.url("/"), &[]);
        victim.store(process.id(), Ordering::SeqCst);
        assert!(
            !process.wait_exit(SOON).await.success(),
            "it dies at {dies_at}"
        );
        assert_reviewed(lives.folder.path(), &lives.rows(), &ended);
        lives.live(&policy.url("/")).await;
        assert_eq!(lives.rows(), ended, "killed at request {dies_at}");
    }
}
