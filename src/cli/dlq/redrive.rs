//! `hookstash dlq redrive`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Args;
use futures::stream::{self, StreamExt as _};
use hookstash_shared::environment::Environment;
use http::Method;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::letters::{Letter, Walk, check_id};
use super::{Common, Output};
use crate::cli::failure::Failure;
use crate::cli::out::say;
use crate::cli::transport::Server;

/// Calls at one time.
const CALLS_MAX: usize = 8;
/// Most letters of one `--all`: what is left is redriven by the next one.
const ALL_MAX: usize = 1_000_000;

/// Send dead letters again, as new messages with fresh retries
///
/// Each letter becomes a new message with an id of its own and leaves the dead-letter queue.
#[derive(Args)]
pub(super) struct Redrive {
    #[command(flatten)]
    common: Common,
    /// Their ids, as `hookstash dlq list` shows them
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Every letter that is in the queue now
    #[arg(long)]
    all: bool,
}

/// What became of one letter.
pub(super) struct Done {
    pub(super) id: String,
    pub(super) result: Result<Value, Failure>,
}

impl Redrive {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        let server = self.common.server(environment)?;
        let ids = if self.all {
            all(&server).await?
        } else {
            self.ids
        };
        for id in &ids {
            check_id(id)?;
        }
        let bar = progress(ids.len());
        let calls = ids.into_iter().map(|id| redrive(&server, id));
        let done: Vec<Done> = stream::iter(calls)
            .buffered(CALLS_MAX)
            .inspect(|_| bar.inc(1))
            .collect()
            .await;
        bar.finish_and_clear();
        conclude(self.common.output, "Redriven", done)
    }
}

async fn all(server: &Server) -> Result<Vec<String>, Failure> {
    let mut walk = Walk::new(server);
    let mut ids = Vec::new();
    while let Some(page) = walk.next().await? {
        for raw in &page.messages {
            ids.push(Letter::read(raw)?.dlq_id);
        }
        if ids.len() >= ALL_MAX {
            break;
        }
    }
    Ok(ids)
}

async fn redrive(server: &Server, id: String) -> Done {
    let path = format!("/v2/dlq/retry/{id}");
    let answer = server.ask(Method::POST, &path).await;
    let result = answer.and_then(|answer| answer.success()?.json());
    Done { id, result }
}

/// A bar on a terminal, else nothing.
fn progress(count: usize) -> ProgressBar {
    let is_shown = count > 1 && std::io::stderr().is_terminal();
    let target = if is_shown {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(u64::try_from(count).ok(), target);
    match ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Prints what became of each, and says how to exit.
pub(super) fn conclude(output: Output, verb: &str, done: Vec<Done>) -> Result<ExitCode, Failure> {
    let total = done.len();
    let (mut shown, mut failures) = (Vec::new(), Vec::new());
    for Done { id, result } in done {
        match result {
            Ok(value) => {
                let new = value
                    .get("messageId")
                    .and_then(Value::as_str)
                    .map(str::to_owned);
                if output == Output::Table {
                    let became = new
                        .as_deref()
                        .map_or_else(String::new, |new| format!(" as {new}"));
                    say(format_args!("{verb} {id}{became}"));
                }
                let mut entry = json!({ "dlqId": id });
                if let (Some(entry), Value::Object(value)) = (entry.as_object_mut(), value) {
                    entry.extend(value);
                }
                shown.push(entry);
            }
            Err(failure) => {
                // One alone is told at the end.
                if output == Output::Table && total > 1 {
                    eprintln!("{id}: {}", failure.text());
                }
                shown.push(json!({ "dlqId": id, "error": failure.text() }));
                failures.push(failure);
            }
        }
    }
    if output == Output::Json {
        say(json!({ "messages": shown }));
    } else if total == 0 {
        say("The dead-letter queue is empty.");
    }
    let failed = failures.len();
    let all_missing = failures.iter().all(Failure::is_not_found);
    match failures.pop() {
        None => Ok(ExitCode::SUCCESS),
        Some(only) if total == 1 => Err(only),
        Some(_) if all_missing => Err(Failure::not_found(format!(
            "{failed} of {total} do not exist"
        ))),
        Some(_) => Err(Failure::failed(format!("{failed} of {total} failed"))),
    }
}
