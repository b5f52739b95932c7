//! `hookstash dlq redrive`.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Args;
use futures::stream::{self, StreamExt as _};
use hookstash_shared::environment::Environment;
use http::Method;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Common;
use super::letters::{Letter, Walk};
use super::which::Which;
use crate::cli::failure::Failure;
use crate::cli::remote::{Done, Named, check_id, conclude};
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
    /// Every letter that is in the queue now, or every one that the filters mean
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    which: Which,
}

impl Redrive {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        let server = self.common.server(environment)?;
        if !self.all && self.which.is_given() {
            return Err(Failure::usage("filters go with --all, not with ids"));
        }
        let ids = if self.all {
            all(&server, &self.which).await?
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
        conclude(
            self.common.output,
            Named::DeadLetter,
            "Redriven",
            self.which.nothing(),
            done,
        )
    }
}

async fn all(server: &Server, which: &Which) -> Result<Vec<String>, Failure> {
    let mut walk = Walk::new(server, which)?;
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
