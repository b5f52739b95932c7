//! A small agent runtime that fires all sixteen hooks: `cargo run --example agent`.
//!
//! The model is a script; everything else is real: tools that touch files and run a process, a
//! tool whose answer comes over HTTP, a human's approval, a sub-agent, a policy receiver that
//! denies a dangerous call, and in queue mode (`-- --mode queue`) a worker that delivers signed
//! webhooks. `docs/tutorial.md` walks through it.

#[path = "agent/agent.rs"]
mod agent;
#[path = "agent/hooks.rs"]
mod hooks;
#[path = "agent/house.rs"]
mod house;
#[path = "agent/ports.rs"]
mod ports;
#[path = "agent/receiver.rs"]
mod receiver;
#[path = "agent/tools.rs"]
mod tools;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};
use hookstash_producer::hooks::{Mode, RunEnd};
use hookstash_producer::runtime::{
    Approval, Decision, Resolution, RunReason, ToolsOutcome, error_text,
};
use serde_json::json;

use agent::{Agent, Paused, Turn, call};
use house::House;

/// Hooks of a small agent, printed as they fire
#[derive(Parser)]
struct Args {
    /// Where hooks run
    #[arg(long, value_enum, default_value = "local")]
    mode: Where,
}

#[derive(Clone, Copy, ValueEnum)]
enum Where {
    /// Handlers in this process
    Local,
    /// Webhooks, as if every step ran in another process
    Queue,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mode = match Args::parse().mode {
        Where::Local => Mode::Local,
        Where::Queue => Mode::Queue,
    };
    let house = House::build(mode).await?;
    writer(&house).await?;
    stopped(&house).await?;
    failing(&house).await?;
    house.close().await
}

/// The long story: it writes, is denied, compresses, waits for a report, a colleague and a human.
async fn writer(house: &House) -> Result<()> {
    let script = vec![
        Turn::Say("I will write notes and look at the disk."),
        // One lane: a call after the other. Lanes run beside each other.
        Turn::Call(vec![vec![
            call(
                "files/write",
                json!({"name": "notes.txt", "text": "buy milk"}),
            ),
            call("shell/run", json!({"command": "wc -c < notes.txt"})),
            call("shell/run", json!({"command": "rm -rf /"})),
        ]]),
        Turn::Call(vec![vec![
            call("files/read", json!({"name": "passwords.txt"})),
            call("weather/today", json!({})),
        ]]),
        Turn::Compact,
        Turn::CompactBadly,
        Turn::Call(vec![vec![call("report/build", json!({"topic": "milk"}))]]),
        Turn::Call(vec![vec![
            call("agents/call", json!({"agent": "researcher"})),
            call("agents/call", json!({"agent": "ghost"})),
        ]]),
        Turn::Call(vec![vec![call(
            "mail/send",
            json!({"to": "you@example.com"}),
        )]]),
        Turn::Say("All done."),
    ];
    let mut agent = Agent::start(house, "writer", script).await?;
    let Paused::ForHuman(outcome) = agent.run().await? else {
        bail!("it should wait for a human");
    };
    println!("human  approves mail/send");
    let claim = house
        .runtime
        .claim_approval(decide(&outcome, &Decision::Approve))
        .await?;
    // As another process would: by its id.
    agent.operation = house.runtime.resume("writer").await?;
    agent.operation.continue_after(&claim).await?;
    house.settle().await;
    agent.repeat_last();
    agent.run().await?;
    agent.end(RunReason::Done, RunEnd::default()).await
}

/// A human rejects, and the run stops.
async fn stopped(house: &House) -> Result<()> {
    let script = vec![Turn::Call(vec![vec![call(
        "mail/send",
        json!({"to": "everybody@example.com"}),
    )]])];
    let mut agent = Agent::start(house, "stopped", script).await?;
    let Paused::ForHuman(outcome) = agent.run().await? else {
        bail!("it should wait for a human");
    };
    println!("human  rejects mail/send");
    let decision = Decision::RejectAndStop {
        reason: Some("not to everybody".to_owned()),
    };
    let claim = house
        .runtime
        .claim_approval(decide(&outcome, &decision))
        .await?;
    agent.operation.continue_after(&claim).await?;
    house.settle().await;
    agent.end(RunReason::Interrupted, RunEnd::default()).await
}

/// The model's provider refuses.
async fn failing(house: &House) -> Result<()> {
    let mut agent = Agent::start(house, "failing", vec![]).await?;
    agent.run().await?;
    let error = json!({"type": "QuotaExceeded", "message": "no credit left"});
    let run = RunEnd {
        error_message: error_text(&error),
        error_detail: Some(error),
        ..RunEnd::default()
    };
    agent.end(RunReason::Error, run).await
}

fn decide(outcome: &ToolsOutcome, decision: &Decision) -> Approval {
    let resolution = |id: &String| Resolution {
        tool_message_id: id.clone(),
        decision: decision.clone(),
        answer: None,
    };
    let waiting = outcome.calls.iter().map(|call| &call.tool_message_id);
    Approval {
        request_id: format!("decision about {}", waiting.clone().count()),
        resolutions: waiting.map(resolution).collect(),
    }
}
