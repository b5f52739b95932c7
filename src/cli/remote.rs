//! What commands that talk to a running server share: where it is, how to print, and what became of
//! each thing that was named.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use hookstash_shared::environment::Environment;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::out::say;
use super::transport::Server;

/// Where the server is, and how to print.
#[derive(Args)]
pub(super) struct Common {
    /// The server
    #[arg(
        long,
        value_name = "URL",
        help = "The server [env: QSTASH_URL] [default: http://127.0.0.1:8080]"
    )]
    url: Option<String>,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(super) output: Output,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Table,
    /// One JSON document, for programs.
    Json,
}

impl Common {
    pub(super) fn server(&self, environment: &dyn Environment) -> Result<Server, Failure> {
        Server::find(self.url.as_deref(), environment)
    }
}

/// What the ids of a command name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// Dead letters.
    DeadLetter,
    /// Messages.
    Message,
}

/// What became of one of them.
pub(super) struct Done {
    pub(super) id: String,
    pub(super) result: Result<Value, Failure>,
}

/// Prints what became of each, and says how to exit.
pub(super) fn conclude(
    output: Output,
    named: Named,
    verb: &str,
    empty: &str,
    done: Vec<Done>,
) -> Result<ExitCode, Failure> {
    let total = done.len();
    let key = match named {
        Named::DeadLetter => "dlqId",
        Named::Message => "messageId",
    };
    let (mut shown, mut failures) = (Vec::new(), Vec::new());
    for Done { id, result } in done {
        let mut entry = Map::from_iter([(key.to_owned(), json!(id))]);
        match result {
            Ok(value) => {
                if output == Output::Table {
                    let new = value.get("messageId").and_then(Value::as_str);
                    let became = new.map_or_else(String::new, |new| format!(" as {new}"));
                    say(format_args!("{verb} {id}{became}"));
                }
                if let Value::Object(value) = value {
                    entry.extend(value);
                }
            }
            Err(failure) => {
                // One alone is told at the end.
                if output == Output::Table && total > 1 {
                    eprintln!("{id}: {}", failure.text());
                }
                entry.insert("error".to_owned(), json!(failure.text()));
                failures.push(failure);
            }
        }
        shown.push(entry);
    }
    if output == Output::Json {
        say(json!({ "messages": shown }));
    } else if total == 0 {
        say(empty);
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

/// An id that can stand in a path; anything else cannot be one of ours.
pub(super) fn check_id(id: &str) -> Result<&str, Failure> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !id.is_empty() && id.bytes().all(is_plain) {
        return Ok(id);
    }
    Err(Failure::usage("an id has a character that no id has")
        .advise("Ids look like msg_0006c2q4p8jn9m2v5e7t1xkz3w4r; `hookstash dlq list` shows them."))
}
