//! `hookstash bench`: what durable delivery costs on this machine, beside the same work without it.
//!
//! Everything runs in one process and one run, because only ratios within a run mean something on a
//! machine that others share: the raw loop and the durable path take turns, and the median of
//! their rounds is reported. The durable path is what production runs: the publisher, the store's
//! scripts on the Redis given, and a worker with its threads.

mod cpu;
mod drain;
mod figures;
mod latency;
mod publishing;
mod raw;
mod receiver;
mod redis;
mod stage;
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hookstash_shared::config::{Overrides, names};
use hookstash_shared::environment::Environment;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use super::failure::Failure;
use super::out::say;
use figures::{Backlog, Figures, Round};
use stage::Stage;

/// Longest time of one part: a machine that needs more cannot be measured like this.
const PART_MAX: Duration = Duration::from_mins(10);
/// Messages a second whose latency is measured.
const LATENCY_RATE: u32 = 1_000;

/// Measure what durable delivery costs here, beside the same work without it
///
/// On the Redis given, in one run:
///   raw       sign and POST to a built-in receiver, without any queue
///   durable   the same messages published, leased, signed, POSTed and settled; ratio = durable / raw
///   publish   in batches and one by one, beside a bare loop over the same script
///   latency   from the call of publish to the receiver, at 1,000 messages a second, beside raw calls
///   idle      what a worker without work costs
///
/// Keys are made under a prefix of their own and removed at the end, also after Ctrl-C or SIGTERM. Other load
/// on the machine or the Redis changes the rates; compare ratios. Build with --release.
#[expect(clippy::doc_markdown, reason = "shown as it is by --help")]
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  hookstash bench --redis-url redis://localhost:6379
  hookstash bench --redis-url redis://localhost:6379 -o json | jq .ratio
  hookstash bench --redis-url redis://localhost:6379 --backlog 1000000   # needs 2 GB in Redis

Exit codes: 0 measured, 1 failed or messages were lost, 2 wrong command line or setting.")]
pub(super) struct Bench {
    /// Redis to measure on: a single server [env: HOOKSTASH_REDIS_URL, REDIS_URL]
    #[arg(long, value_name = "URL")]
    redis_url: Option<String>,
    /// Messages in each round of the raw loop and of the durable path
    #[arg(long, value_name = "NUMBER", default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    messages: u32,
    /// Bytes of each body
    #[arg(long, value_name = "BYTES", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(32..=1_048_576))]
    body: u32,
    /// Rounds; their median is reported
    #[arg(long, value_name = "NUMBER", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Seconds for which latency is measured, and an idle worker watched
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Measure the durable path once more with so many messages queued behind
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    backlog: u32,
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// How to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Table,
    /// One JSON object, for programs.
    Json,
}

impl Bench {
    pub(super) async fn run(self, environment: Arc<dyn Environment>) -> Result<ExitCode, Failure> {
        let mut overrides = Overrides::default();
        if let Some(url) = &self.redis_url {
            overrides.set(&names::REDIS_URL, url.clone());
        }
        let mut terminate = signal(SignalKind::terminate())
            .map_err(|error| Failure::failed("listen for signals").because(&error))?;
        let stage = Stage::set(environment, &overrides, self.body as usize).await?;
        let bar = self.bar();
        let measured = tokio::select! {
            measured = self.measure(&stage, &bar) => measured,
            _ = tokio::signal::ctrl_c() => Err(Failure::failed("measure: interrupted")),
            _ = terminate.recv() => Err(Failure::failed("measure: terminated")),
        };
        bar.set_message("removing its keys");
        let cleared = stage.clear().await;
        bar.finish_and_clear();
        let figures = measured?;
        cleared?;
        match self.output {
            Output::Json => say(figures.json()),
            Output::Table => say(table::table(&figures)),
        }
        Ok(if figures.is_complete() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    async fn measure(&self, stage: &Stage, bar: &ProgressBar) -> Result<Figures, Failure> {
        let count = self.messages as usize;
        let mut figures = Figures::of(stage, count).await?;
        let step = |text: String| {
            bar.inc(1);
            bar.set_message(text);
        };
        for round in 1..=self.rounds {
            let of = format!("round {round} of {}", self.rounds);
            step(format!("{of}: raw loop"));
            let raw = in_time(raw::measure(stage, count)).await?;
            step(format!("{of}: bare script loop"));
            let bare = in_time(publishing::bare(stage, count)).await?;
            step(format!("{of}: publishing"));
            let publish = in_time(publishing::batched(stage, count)).await?;
            step(format!("{of}: durable path"));
            let durable = in_time(drain::measure(stage, count, count)).await?;
            step(format!("{of}: publishing one by one"));
            let singles = in_time(publishing::singles(stage, count)).await?;
            figures.rounds.push(Round {
                raw,
                bare,
                publish,
                durable,
                singles,
            });
        }
        let time = Duration::from_secs(self.seconds.into());
        step(format!("latency at {LATENCY_RATE} messages a second"));
        figures.latency = Some(latency::measure(stage, LATENCY_RATE, time).await?);
        step("an idle worker".to_owned());
        figures.idle = Some(drain::idle(stage, time).await?);
        if self.backlog > 0 {
            // What is still kept of delivered messages would go while memory is measured.
            stage.clear().await?;
            let behind = self.backlog as usize;
            step(format!("queueing {behind} messages"));
            let publish = in_time(publishing::batched(stage, behind + count)).await?;
            step(format!("durable path with {behind} queued"));
            let durable = in_time(drain::measure(stage, behind + count, count)).await?;
            figures.backlog = Some(Backlog {
                behind,
                publish,
                durable,
            });
        }
        Ok(figures)
    }

    fn bar(&self) -> ProgressBar {
        let steps = 5 * self.rounds + 2 + if self.backlog > 0 { 2 } else { 0 };
        let bar = ProgressBar::new(u64::from(steps));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        bar
    }
}

/// One part of the bench, which ends when it takes longer than [`PART_MAX`].
async fn in_time<T>(part: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(PART_MAX, part)
        .await
        .unwrap_or_else(|_| {
            let minutes = PART_MAX.as_secs() / 60;
            let text = format!("measure: one part takes more than {minutes} minutes here");
            Err(Failure::failed(text).advise("Give fewer --messages, or a smaller --backlog."))
        })
}
