//! `hookstash dlq show`.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use hookstash_shared::environment::Environment;
use http::Method;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::letters::Letter;
use super::{Common, Output};
use crate::cli::failure::Failure;
use crate::cli::out::say;
use crate::cli::paint::harmless;
use crate::cli::remote::check_id;
use crate::cli::table;

/// Longest text of a body that a table shows, in characters; JSON shows all.
const BODY_CHARS_MAX: usize = 2_000;

/// Show one dead letter: message, last answer and why it died
#[derive(Args)]
pub(super) struct Show {
    #[command(flatten)]
    common: Common,
    /// Its id, as `hookstash dlq list` shows it
    id: String,
}

impl Show {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        let server = self.common.server(environment)?;
        let path = format!("/v2/dlq/{}", check_id(&self.id)?);
        let answer = server.ask(Method::GET, &path).await?.success()?;
        let raw: Box<RawValue> = answer.json()?;
        match self.common.output {
            Output::Json => say(&raw),
            Output::Table => say(text(&Letter::read(&raw)?)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text(letter: &Letter) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{name:<10}{}", harmless(value));
    };
    line("Id", &letter.dlq_id);
    line("To", &format!("{} {}", letter.method, letter.url));
    line("Created", &table::time(letter.created_at));
    line("Died", &table::time(letter.died_at));
    line("Cause", &letter.cause());
    if let Some(error) = &letter.error {
        line("Error", error);
    }
    line("Retries", &letter.max_retries.to_string());
    section(
        &mut text,
        "Message",
        &letter.header,
        letter.body.as_deref(),
        letter.body_base64.as_deref(),
    );
    section(
        &mut text,
        "Last answer",
        &letter.response_header,
        letter.response_body.as_deref(),
        None,
    );
    text.trim_end().to_owned()
}

fn section(
    text: &mut String,
    title: &str,
    headers: &Map<String, Value>,
    body: Option<&str>,
    base64: Option<&str>,
) {
    if headers.is_empty() && body.is_none() && base64.is_none() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    for (name, values) in headers {
        let values = values.as_array().map(Vec::as_slice).unwrap_or_default();
        for value in values {
            let value = harmless(value.as_str().unwrap_or_default());
            let _ = writeln!(text, "  {}: {value}", harmless(name));
        }
    }
    match (body, base64) {
        (Some(body), _) => {
            let more = body.chars().count() > BODY_CHARS_MAX;
            let shown: String = body.chars().take(BODY_CHARS_MAX).collect();
            for line in shown.lines() {
                let _ = writeln!(text, "  {}", harmless(line));
            }
            if more {
                let _ = writeln!(text, "  … ({} bytes; -o json shows all)", body.len());
            }
        }
        (None, Some(base64)) => {
            let bytes = base64.len() / 4 * 3;
            let _ = writeln!(
                text,
                "  (binary, about {bytes} bytes; -o json shows it in base64)"
            );
        }
        (None, None) => {}
    }
}
