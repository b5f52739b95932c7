//! `hookstash publish`.

use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use hookstash_shared::environment::Environment;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::failure::Failure;
use super::input;
use super::out::say;
use super::paint::harmless;
use super::remote::{Common, Output};

/// Send a message to a URL, through a running server
///
/// Succeeds once the server has stored the message: from then on it is delivered, signed, with
/// retries, or kept as a dead letter.
///
/// Talks to a running server over HTTP: --url, else QSTASH_URL, else http://127.0.0.1:8080. The
/// token comes from QSTASH_TOKEN; on this machine it may be missing, then it is that of
/// `hookstash dev`.
#[expect(clippy::doc_markdown, reason = "shown as it is by --help")]
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  hookstash publish http://localhost:3000/hook -d '{\"hello\":\"world\"}'
  hookstash publish https://example.com/hook -d @payload.json -H 'X-Agent-Step: 7'
  date | hookstash publish https://example.com/hook -d - --delay 10m --retries 5
  hookstash publish https://example.com/hook -d x --dedup-id order-17   # once in ten minutes

Exit codes: 0 accepted (or accepted before, by its deduplication id), 1 failed, 2 wrong command
line.")]
pub(super) struct Publish {
    #[command(flatten)]
    common: Common,
    /// Where to send it: an http or https URL
    #[arg(value_name = "DESTINATION")]
    destination: String,
    /// The body: a text, @FILE, or - for standard input
    #[arg(
        short = 'd',
        long = "body",
        value_name = "BODY",
        allow_hyphen_values = true
    )]
    body: Option<String>,
    /// A header for the destination, 'Name: value'; may be repeated
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// GET, POST, PUT, PATCH or DELETE [default: POST]
    #[arg(short = 'X', long, value_name = "METHOD")]
    method: Option<String>,
    /// Retries after the first attempt [default: 3]
    #[arg(long, value_name = "NUMBER")]
    retries: Option<String>,
    /// Expression for the milliseconds between attempts, such as '1000 * (1 + retried)'
    #[arg(long, value_name = "EXPRESSION")]
    retry_delay: Option<String>,
    /// Send it this much later, such as 90s or 1d10h
    #[arg(long, value_name = "DURATION", conflicts_with = "not_before")]
    delay: Option<String>,
    /// Send it no earlier than this time, in seconds since 1970
    #[arg(long, value_name = "SECONDS")]
    not_before: Option<String>,
    /// Deadline of one attempt, such as 30s
    #[arg(long, value_name = "DURATION")]
    timeout: Option<String>,
    /// A second message with the same id within ten minutes is not sent
    #[arg(long, value_name = "ID")]
    dedup_id: Option<String>,
    /// A label to find it by; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    message_id: String,
    #[serde(default)]
    deduplicated: bool,
}

impl Publish {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        let server = self.common.server(environment)?;
        let body = match &self.body {
            Some(data) => input::body(data)?,
            None => Bytes::new(),
        };
        let headers = self.headers(&body)?;
        let path = format!("/v2/publish/{}", self.destination.trim());
        let answer = server.call(Method::POST, &path, headers, body).await?;
        let answer = answer.success()?;
        if self.common.output == Output::Json {
            let raw: Box<RawValue> = answer.json()?;
            say(&raw);
            return Ok(ExitCode::SUCCESS);
        }
        let accepted: Accepted = answer.json()?;
        let id = harmless(&accepted.message_id);
        if accepted.deduplicated {
            say(format_args!("Accepted before, as {id}"));
        } else {
            say(format_args!("Accepted as {id}"));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn headers(&self, body: &Bytes) -> Result<HeaderMap, Failure> {
        let mut headers = HeaderMap::new();
        for text in &self.headers {
            let (name, value) = input::header(text)?;
            let name = match name.as_str() {
                "content-type" => name,
                other if other.starts_with("upstash-") => name,
                other => option_name(&format!("upstash-forward-{other}"))?,
            };
            headers.append(name, value);
        }
        let is_json = || serde_json::from_slice::<&RawValue>(body).is_ok();
        if !headers.contains_key(CONTENT_TYPE) && is_json() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let labels = Some(self.labels.join(",")).filter(|labels| !labels.is_empty());
        for (name, value) in [
            ("upstash-method", self.method.as_ref()),
            ("upstash-retries", self.retries.as_ref()),
            ("upstash-retry-delay", self.retry_delay.as_ref()),
            ("upstash-delay", self.delay.as_ref()),
            ("upstash-not-before", self.not_before.as_ref()),
            ("upstash-timeout", self.timeout.as_ref()),
            ("upstash-deduplication-id", self.dedup_id.as_ref()),
            ("upstash-label", labels.as_ref()),
        ] {
            if let Some(value) = value {
                let value = HeaderValue::try_from(value.as_str()).map_err(|_| {
                    Failure::usage(format!(
                        "the value of {name} has a character that cannot be sent"
                    ))
                })?;
                headers.insert(option_name(name)?, value);
            }
        }
        Ok(headers)
    }
}

fn option_name(name: &str) -> Result<HeaderName, Failure> {
    HeaderName::try_from(name).map_err(|_| Failure::usage("a header's name cannot be sent"))
}
