//! `hookstash dlq`: the dead-letter queue of a running server.

mod delete;
mod letters;
mod list;
mod redrive;
mod show;
mod which;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use hookstash_shared::environment::Environment;

use super::failure::Failure;
use super::remote::{Common, Output};

/// Read, redrive and delete dead letters
///
/// A message that used up its retries, or whose destination refused it for good, is kept as a dead
/// letter until it is redriven, deleted or past its retention.
///
/// Talks to a running server over HTTP: --url, else QSTASH_URL, else http://127.0.0.1:8080. The
/// token comes from QSTASH_TOKEN; on this machine it may be missing, then it is that of
/// `hookstash dev`.
#[expect(clippy::doc_markdown, reason = "shown as it is by --help")]
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    after_long_help = "\
Examples:
  hookstash dlq list
  hookstash dlq show msg_0006c2q4p8jn9m2v5e7t1xkz3w4r
  hookstash dlq redrive msg_0006c2q4p8jn9m2v5e7t1xkz3w4r
  hookstash dlq list --status 503 --since 1h
  hookstash dlq redrive --all
  hookstash dlq redrive --all --label nightly
  hookstash dlq list -o json | jq -r '.messages[].dlqId'

Exit codes: 0 done, 1 failed, 2 wrong command line, 3 no such dead letter."
)]
pub(super) struct Dlq {
    #[command(subcommand)]
    command: Command,
}

pub(super) use which::from_ms;

/// What is said when there is nothing to do.
const EMPTY: &str = "The dead-letter queue is empty.";

#[derive(Subcommand)]
enum Command {
    List(list::List),
    Show(show::Show),
    Redrive(redrive::Redrive),
    Delete(delete::Delete),
}

impl Dlq {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        match self.command {
            Command::List(list) => list.run(environment).await,
            Command::Show(show) => show.run(environment).await,
            Command::Redrive(redrive) => redrive.run(environment).await,
            Command::Delete(delete) => delete.run(environment).await,
        }
    }
}
