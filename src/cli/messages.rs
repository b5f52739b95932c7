//! `hookstash messages`: messages that are on their way.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hookstash_shared::environment::Environment;
use http::Method;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::out::say;
use super::paint::harmless;
use super::remote::{Common, Done, Named, Output, check_id, conclude};
use super::table;

/// Longest text of a body that a table shows, in characters; JSON shows all.
const BODY_CHARS_MAX: usize = 2_000;

/// Read and cancel messages
///
/// A message can be read while it waits or is sent, and for a minute after its delivery. Afterwards
/// `hookstash events` tells what became of it; one that failed for good is in `hookstash dlq`.
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
  hookstash messages get msg_0006c2q4p8jn9m2v5e7t1xkz3w4r
  hookstash messages cancel msg_0006c2q4p8jn9m2v5e7t1xkz3w4r
  hookstash messages get msg_0006c2q4p8jn9m2v5e7t1xkz3w4r -o json | jq -r '.messages[0].body'

Exit codes: 0 done, 1 failed, 2 wrong command line, 3 no such message (any more)."
)]
pub(super) struct Messages {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show messages
    Get(Ids),
    /// Cancel messages
    ///
    /// A message that is being sent just now is cancelled unless that call succeeds.
    Cancel(Ids),
}

#[derive(Args)]
struct Ids {
    #[command(flatten)]
    common: Common,
    /// Their ids, as publishing answered them
    #[arg(required = true)]
    ids: Vec<String>,
}

impl Messages {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Get(ids) => get(&ids, environment).await,
            Command::Cancel(ids) => cancel(&ids, environment).await,
        }
    }
}

async fn get(asked: &Ids, environment: &dyn Environment) -> Result<ExitCode, Failure> {
    let server = asked.common.server(environment)?;
    let mut shown: Vec<Box<RawValue>> = Vec::new();
    for id in &asked.ids {
        let path = format!("/v2/messages/{}", check_id(id)?);
        shown.push(server.ask(Method::GET, &path).await?.success()?.json()?);
    }
    match asked.common.output {
        Output::Json => {
            let all: Vec<&str> = shown.iter().map(|raw| raw.get()).collect();
            say(format_args!("{{\"messages\":[{}]}}", all.join(",")));
        }
        Output::Table => {
            let texts: Result<Vec<String>, Failure> = shown.iter().map(|raw| text(raw)).collect();
            say(texts?.join("\n\n"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(asked: &Ids, environment: &dyn Environment) -> Result<ExitCode, Failure> {
    let server = asked.common.server(environment)?;
    let mut done = Vec::new();
    for id in &asked.ids {
        let path = format!("/v2/messages/{}", check_id(id)?);
        let answer = server.ask(Method::DELETE, &path).await;
        let result = answer.and_then(|answer| answer.success().map(|_| json!({ "cancelled": 1 })));
        done.push(Done {
            id: id.clone(),
            result,
        });
    }
    conclude(asked.common.output, Named::Message, "Cancelled", "", done)
}

fn text(raw: &RawValue) -> Result<String, Failure> {
    let message: Map<String, Value> = serde_json::from_str(raw.get())
        .map_err(|error| Failure::failed("read a message").because(&error))?;
    let mut text = String::new();
    let mut line = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = writeln!(text, "{name:<12}{}", harmless(&value));
        }
    };
    let plain = |key: &str| match message.get(key)? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let time = |key: &str| message.get(key)?.as_u64().map(table::time);
    line("Id", plain("messageId"));
    let to = plain("method").zip(plain("url"));
    line("To", to.map(|(method, url)| format!("{method} {url}")));
    line("Created", time("createdAt"));
    line("Not before", time("notBefore"));
    line("Retries", plain("maxRetries"));
    line("Retry delay", plain("retryDelayExpression"));
    line("Timeout ms", plain("timeout"));
    line("Queue", plain("queueName"));
    line("Flow key", plain("flowControlKey"));
    line(
        "Labels",
        message
            .get("labels")
            .and_then(Value::as_array)
            .map(|labels| {
                let labels: Vec<&str> = labels.iter().filter_map(Value::as_str).collect();
                labels.join(", ")
            }),
    );
    if let Some(Value::Object(headers)) = message.get("header") {
        for (name, values) in headers {
            for value in values
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
            {
                line("Header", Some(format!("{name}: {value}")));
            }
        }
    }
    line("Body", plain("body").map(|body| cut(&body)));
    line("Body base64", plain("bodyBase64").map(|body| cut(&body)));
    Ok(text.trim_end().to_owned())
}

fn cut(body: &str) -> String {
    if body.chars().count() <= BODY_CHARS_MAX {
        return body.to_owned();
    }
    let shown: String = body.chars().take(BODY_CHARS_MAX).collect();
    format!("{shown}… ({} bytes; -o json shows all)", body.len())
}
