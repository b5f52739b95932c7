//! `hookstash events`: what happened to messages.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use hookstash_shared::environment::Environment;
use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;
use url::form_urlencoded::Serializer;

use super::dlq::from_ms;
use super::failure::Failure;
use super::out::say;
use super::remote::{Common, Output};
use super::table;
use super::transport::Server;

/// Most pages that are read for one list: a rare event may need many.
const PAGES_MAX: usize = 200;
/// Events of one page; the server's own most.
const PAGE: usize = 1_000;

/// List what happened to messages, newest first
///
/// A message is CREATED, then DELIVERED, or its attempts end in ERROR with a RETRY each, until it is
/// FAILED. Cancelling shows as CANCEL_REQUESTED and CANCELED. The log holds no bodies and no
/// headers, and keeps events for a week, but no more than the newest few ten thousand.
///
/// Talks to a running server over HTTP: --url, else QSTASH_URL, else http://127.0.0.1:8080. The
/// token comes from QSTASH_TOKEN; on this machine it may be missing, then it is that of
/// `hookstash dev`.
#[expect(clippy::doc_markdown, reason = "shown as it is by --help")]
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  hookstash events
  hookstash events --message msg_0006c2q4p8jn9m2v5e7t1xkz3w4r     # one message's whole story
  hookstash events --state ERROR,FAILED --host api.example.com --since 1h
  hookstash events --limit 1000 -o json | jq -r '.events[].error // empty' | sort | uniq -c

Exit codes: 0 done, 1 failed, 2 wrong command line.")]
pub(super) struct Events {
    #[command(flatten)]
    common: Common,
    /// Only of this message; may be repeated. The whole story: other filters do not go with it
    #[arg(
        long = "message",
        value_name = "ID",
        conflicts_with_all = ["states", "destinations", "hosts", "labels", "queues", "since"]
    )]
    messages: Vec<String>,
    /// Only with this state; may be repeated
    #[arg(long = "state", value_name = "STATE")]
    states: Vec<String>,
    /// Only to exactly this URL; may be repeated
    #[arg(long = "to", value_name = "DESTINATION")]
    destinations: Vec<String>,
    /// Only to this host (with its port, if the URL has one); may be repeated
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// Only with this label; may be repeated
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
    /// Only of this queue; may be repeated
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<String>,
    /// Only younger than this, such as 10m
    #[arg(long, value_name = "DURATION")]
    since: Option<String>,
    /// Which come first
    #[arg(long, value_enum, default_value_t = First::Latest)]
    first: First,
    /// Most events to list
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    limit: usize,
}

/// Which events come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum First {
    /// The newest.
    Latest,
    /// The oldest.
    Earliest,
}

#[derive(Deserialize)]
struct Page {
    events: Vec<Box<RawValue>>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    time: u64,
    message_id: String,
    state: String,
    url: String,
    response_status: Option<u16>,
    error: Option<String>,
    next_delivery_time: Option<u64>,
}

impl Events {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        let server = self.common.server(environment)?;
        let query = self.query()?;
        let (events, has_more) = self.list(&server, &query).await?;
        match self.common.output {
            Output::Json => {
                let all: Vec<&str> = events.iter().map(|event| event.get()).collect();
                say(format_args!("{{\"events\":[{}]}}", all.join(",")));
            }
            Output::Table if events.is_empty() => say("No such events."),
            Output::Table => say(rows(&events)?),
        }
        if has_more {
            let more = self.limit.saturating_mul(10);
            eprintln!("There are more: --limit {more} shows {more}.");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn query(&self) -> Result<String, Failure> {
        let mut query = Serializer::new(String::new());
        for (key, values) in [
            ("messageIds", &self.messages),
            ("state", &self.states),
            ("url", &self.destinations),
            ("host", &self.hosts),
            ("label", &self.labels),
            ("queueName", &self.queues),
        ] {
            query.extend_pairs(values.iter().map(|value| (key, value)));
        }
        if let Some(since) = &self.since {
            query.append_pair("fromDate", &from_ms(since)?.to_string());
        }
        if self.first == First::Earliest {
            query.append_pair("order", "earliestFirst");
        }
        query.append_pair("count", &self.limit.clamp(1, PAGE).to_string());
        Ok(query.finish())
    }

    async fn list(
        &self,
        server: &Server,
        query: &str,
    ) -> Result<(Vec<Box<RawValue>>, bool), Failure> {
        let mut events = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let at = cursor.map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
            let path = format!("/v2/events?{query}{at}");
            let page: Page = server.ask(Method::GET, &path).await?.success()?.json()?;
            events.extend(page.events);
            cursor = page.cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() || events.len() >= self.limit {
                break;
            }
        }
        let has_more = events.len() > self.limit || cursor.is_some();
        events.truncate(self.limit);
        Ok((events, has_more))
    }
}

fn rows(events: &[Box<RawValue>]) -> Result<String, Failure> {
    let row = |raw: &RawValue| {
        let event: Event = serde_json::from_str(raw.get())
            .map_err(|error| Failure::failed("read an event").because(&error))?;
        let what = match (event.error, event.next_delivery_time, event.response_status) {
            (_, Some(next), _) => format!("again at {}", table::time(next)),
            (Some(error), ..) => error,
            (None, None, Some(status)) => format!("status {status}"),
            (None, None, None) => String::new(),
        };
        let time = table::time(event.time);
        Ok(vec![time, event.state, event.message_id, event.url, what])
    };
    let rows: Result<Vec<Vec<String>>, Failure> = events.iter().map(|raw| row(raw)).collect();
    let heads = ["TIME", "STATE", "MESSAGE", "URL", "WHAT"];
    Ok(table::table(&heads, &rows?))
}
