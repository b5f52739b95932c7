//! `hookstash demo`: the whole life of webhooks, in one process and a few seconds.

mod events;
mod receiver;
mod story;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::Args;
use hookstash_shared::config::{Overrides, Settings};
use hookstash_shared::environment::{Environment, ProcessEnvironment};
use hookstash_shared::random::{Random, SystemRandom};
use hookstash_shared::retry::judge::Outcome;
use hookstash_shared::signing::{Receiver as Verifier, SigningKeys};
use hookstash_worker::AttemptReport;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::out::say;
use super::paint::Paint;
use super::transport::Server;
use crate::app::{App, Egress};
use crate::lifecycle::{self, Patience, Plan, Role, Running, Shutdown};
use events::{Behaviour, Event, events};
use receiver::Receiver;
use story::Story;

/// Longest time for all attempts of one part: they need two seconds.
const PART_MAX: Duration = Duration::from_secs(30);
/// Milliseconds before a retry, instead of the usual minutes.
const RETRY_DELAY: &str = "250 * (1 + retried)";
/// Random bytes of the Standard Webhooks secret.
const SECRET_BYTES: usize = 32;

/// See it work: a receiver, six webhooks, retries, a dead letter, a redrive
///
/// Starts everything in this process (nothing to install, nothing left behind), publishes through
/// the real HTTP API, shows each attempt as it happens, and verifies both signatures of every
/// request at the receiver. Exits with 0 when every promise was kept.
#[derive(Args)]
pub(super) struct Demo {}

/// Everything that plays.
struct Stage {
    server: Server,
    receiver: Receiver,
    attempts: mpsc::UnboundedReceiver<AttemptReport>,
    running: Running,
    shutdown: Shutdown,
    end: CancellationToken,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Accepted {
    message_id: String,
}

#[derive(Deserialize)]
struct DeadLetters {
    messages: Vec<DeadLetter>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeadLetter {
    dlq_id: String,
    response_status: u16,
}

impl Demo {
    pub(super) async fn run(self) -> Result<ExitCode, Failure> {
        let events = events(&SystemRandom);
        let app = App::new(settings()?, Arc::new(BTreeMap::new()), Egress::Development)?;
        let clock = Arc::clone(app.clock());
        let mut stage = Stage::set(&app, &events).await?;
        let mut story = Story::new(Paint::for_stdout(&ProcessEnvironment), clock);
        story.title("Hookstash demo: one process, a store in memory, nothing left behind");
        if let Some(address) = stage.running.address() {
            Story::line(
                "API",
                &format!("http://{address}  (speaks the QStash v2 protocol)"),
            );
        }
        Story::line(
            "Receiver",
            &format!("{}  (verifies everything it gets)", stage.receiver.base()),
        );

        let ids = stage.publish(&mut story, &events).await?;
        story.title("Deliveries, as they happen");
        let expected = events.iter().map(Event::attempts).sum();
        let attempts = stage.follow(&story, expected).await;
        let found = stage.redrive(&mut story, &events).await?;
        let again = stage.follow(&story, usize::from(found)).await;
        stage.judge(&mut story, &events, &ids, &attempts, &again);

        stage.shutdown.drain();
        stage.running.until_ended().await;
        stage.end.cancel();
        let is_kept = story.conclude();
        what_next(&story);
        Ok(if is_kept {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}

impl Stage {
    async fn set(app: &App, events: &[Event]) -> Result<Self, Failure> {
        let settings = app.settings();
        let (keys, secret) = (
            settings.signing_keys.as_ref(),
            settings.webhook_secret.as_ref(),
        );
        let verifier = Verifier::new(keys, secret, Duration::ZERO);
        let end = CancellationToken::new();
        let clock = Arc::clone(app.clock());
        let receiver = Receiver::start(events, verifier, clock, end.clone()).await?;
        let (tell, attempts) = mpsc::unbounded_channel();
        let plan = Plan {
            role: Role::Both,
            listen: Some(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0)),
            patience: Patience::None,
            observer: Some(Arc::new(move |report| drop(tell.send(report)))),
        };
        let shutdown = Shutdown::default();
        let running = lifecycle::start(app, plan, &shutdown).await?;
        let nothing_runs = || Failure::failed("start the demo's server");
        let running = running.ok_or_else(nothing_runs)?;
        let address = running.address().ok_or_else(nothing_runs)?;
        let token = settings.require_token()?.clone();
        let server = Server::at(format!("http://{address}"), token)?;
        Ok(Self {
            server,
            receiver,
            attempts,
            running,
            shutdown,
            end,
        })
    }

    /// Publishes every event; their ids in order.
    async fn publish(&self, story: &mut Story, events: &[Event]) -> Result<Vec<String>, Failure> {
        story.title("Publishing");
        let mut ids = Vec::new();
        for event in events {
            let path = format!("/v2/publish/{}", self.receiver.url(event.name));
            let headers = headers(event);
            let answer = self
                .server
                .call(Method::POST, &path, headers, event.body.clone())
                .await?;
            let accepted: Accepted = answer.success()?.json()?;
            story.accepted(event, &accepted.message_id);
            ids.push(accepted.message_id);
        }
        Ok(ids)
    }

    /// Tells of `count` attempts as they end; fewer when they do not come in time.
    async fn follow(&mut self, story: &Story, count: usize) -> Vec<AttemptReport> {
        let deadline = Instant::now() + PART_MAX;
        let mut reports = Vec::new();
        while reports.len() < count {
            let Ok(Some(report)) = timeout_at(deadline, self.attempts.recv()).await else {
                break;
            };
            let seen = self.receiver.seen(report.id.as_ref(), report.retried);
            story.attempt(&report, seen);
            reports.push(report);
        }
        reports
    }

    /// Redrives the dead letter after repairing its receiver; whether there was exactly one.
    async fn redrive(&self, story: &mut Story, events: &[Event]) -> Result<bool, Failure> {
        story.title("The dead letter: repair its receiver, send it again");
        let letters = self.dead_letters().await?;
        let broken = events
            .iter()
            .find(|event| event.behaviour == Behaviour::Broken);
        let (Some(broken), [letter]) = (broken, letters.as_slice()) else {
            return Ok(false);
        };
        let text = format!("{} in the dead-letter queue", letter.dlq_id);
        Story::line(
            broken.name,
            &format!("{text}, last answer {}", letter.response_status),
        );
        self.receiver.repair();
        let path = format!("/v2/dlq/retry/{}", letter.dlq_id);
        let answer = self.server.ask(Method::POST, &path).await?.success()?;
        let accepted: Accepted = answer.json()?;
        story.redriven(broken.name, &accepted.message_id);
        Ok(letter.response_status == 500)
    }

    /// The dead letters, once there is one: an attempt is told of a moment before it is settled.
    async fn dead_letters(&self) -> Result<Vec<DeadLetter>, Failure> {
        let deadline = Instant::now() + PART_MAX;
        loop {
            let answer = self.server.ask(Method::GET, "/v2/dlq").await?.success()?;
            let letters: DeadLetters = answer.json()?;
            if !letters.messages.is_empty() || Instant::now() > deadline {
                return Ok(letters.messages);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Compares what happened with what should have.
    fn judge(
        &self,
        story: &mut Story,
        events: &[Event],
        ids: &[String],
        attempts: &[AttemptReport],
        again: &[AttemptReport],
    ) {
        let is_as_told = |event: &Event, id: &String| {
            let own: Vec<_> = attempts
                .iter()
                .filter(|report| report.id.as_ref() == id)
                .collect();
            let last = own.last().map(|report| report.outcome);
            let ended_well = match event.behaviour {
                Behaviour::Broken => matches!(last, Some(Outcome::Dead { .. })),
                _ => last == Some(Outcome::Delivered),
            };
            own.len() == event.attempts() && ended_well
        };
        let told = events
            .iter()
            .zip(ids)
            .filter(|(event, id)| is_as_told(event, id))
            .count();
        let total = events.len();
        story.promise(
            format!("{told} of {total} events had exactly the attempts they should have had"),
            told == total,
        );
        let was_delivered = again.len() == 1
            && again
                .iter()
                .all(|report| report.outcome == Outcome::Delivered);
        story.promise(
            "the dead letter was kept, redriven and delivered",
            was_delivered,
        );
        let expected = attempts.len() + again.len();
        let seen = self.receiver.all();
        let verified = seen.iter().filter(|seen| seen.is_verified).count();
        story.promise(
            format!(
                "{verified} of {expected} requests carried two good signatures (QStash and \
                 Standard Webhooks) that refuse a changed byte"
            ),
            verified == expected && seen.len() == expected,
        );
        let same = seen.iter().filter(|seen| seen.is_same_body).count();
        let text = format!("{same} of {expected} bodies arrived byte for byte");
        story.promise(text, same == expected);
    }
}

/// Settings of this run alone: nothing of the environment can spoil it.
fn settings() -> Result<Settings, Failure> {
    let random = SystemRandom;
    let keys = SigningKeys::generate(&random);
    let secret: Vec<u8> = random_bytes(&random, SECRET_BYTES);
    let token = BASE64.encode(random_bytes(&random, SECRET_BYTES));
    let environment: BTreeMap<String, String> = [
        ("QSTASH_TOKEN", token),
        (
            "QSTASH_CURRENT_SIGNING_KEY",
            keys.current().expose_secret().to_owned(),
        ),
        (
            "QSTASH_NEXT_SIGNING_KEY",
            keys.next().expose_secret().to_owned(),
        ),
        (
            "HOOKSTASH_WEBHOOK_SECRET",
            format!("whsec_{}", BASE64.encode(secret)),
        ),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let environment: &dyn Environment = &environment;
    Ok(Settings::from_environment(
        environment,
        &Overrides::default(),
    )?)
}

fn random_bytes(random: &dyn Random, count: usize) -> Vec<u8> {
    let words = std::iter::repeat_with(|| random.next_u64().to_le_bytes());
    words.flatten().take(count).collect()
}

fn headers(event: &Event) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name, value| headers.insert(HeaderName::from_static(name), value);
    put("content-type", HeaderValue::from_static(event.content_type));
    put("upstash-retries", HeaderValue::from(event.retries));
    put("upstash-retry-delay", HeaderValue::from_static(RETRY_DELAY));
    put(
        "upstash-forward-x-event",
        HeaderValue::from_static(event.name),
    );
    headers
}

fn what_next(story: &Story) {
    story.title("Where to look next");
    say("  hookstash dev            the same for your application: paste the lines it prints");
    say("  hookstash dlq --help     read, redrive and delete dead letters");
    say("  hookstash serve --help   production, on Redis");
}
