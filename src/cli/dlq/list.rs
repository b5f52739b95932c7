//! `hookstash dlq list`.

use std::process::ExitCode;

use clap::Args;
use hookstash_shared::environment::Environment;
use serde_json::value::RawValue;

use super::letters::{Letter, Walk};
use super::which::Which;
use super::{Common, Output};
use crate::cli::failure::Failure;
use crate::cli::out::say;
use crate::cli::table;

/// List dead letters, newest first
///
/// JSON output is one object `{"messages": [...]}` with every field that the server has, body and
/// last response included.
#[derive(Args)]
pub(super) struct List {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    which: Which,
    /// Most letters to list
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,
}

impl List {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        let server = self.common.server(environment)?;
        let mut walk = Walk::new(&server, &self.which)?;
        let mut letters: Vec<Box<RawValue>> = Vec::new();
        let mut has_more = false;
        while let Some(page) = walk.next().await? {
            letters.extend(page.messages);
            has_more = letters.len() > self.limit;
            if has_more {
                break;
            }
        }
        letters.truncate(self.limit);
        match self.common.output {
            Output::Json => say(json(&letters)),
            Output::Table if letters.is_empty() => say(self.which.nothing()),
            Output::Table => say(rows(&letters)?),
        }
        if has_more {
            eprintln!(
                "There are more: --limit {} shows {0}.",
                self.limit.saturating_mul(10)
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn json(letters: &[Box<RawValue>]) -> String {
    let letters: Vec<&str> = letters.iter().map(|letter| letter.get()).collect();
    format!("{{\"messages\":[{}]}}", letters.join(","))
}

fn rows(letters: &[Box<RawValue>]) -> Result<String, Failure> {
    let row = |raw: &RawValue| {
        let letter = Letter::read(raw)?;
        let cause = letter.cause();
        Ok(vec![
            letter.dlq_id,
            table::time(letter.died_at),
            cause,
            letter.method,
            letter.url,
        ])
    };
    let rows: Vec<Vec<String>> = letters
        .iter()
        .map(|raw| row(raw))
        .collect::<Result<_, Failure>>()?;
    Ok(table::table(
        &["ID", "DIED", "CAUSE", "METHOD", "URL"],
        &rows,
    ))
}
