//! The command line: one file for each command.

mod api;
mod bench;
mod credentials;
mod demo;
mod dev;
mod dlq;
mod doctor;
mod events;
mod failure;
mod input;
mod keys;
mod messages;
mod out;
mod paint;
mod publish;
mod remote;
mod serve;
mod setting_flags;
mod table;
mod transport;
mod verify;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use hookstash_shared::config::Settings;
use hookstash_shared::environment::{Environment, ProcessEnvironment};
use hookstash_shared::telemetry;

use crate::lifecycle::{self, Ended, Plan, Shutdown};
use failure::Failure;

/// Durable, signed delivery of webhooks, with a front door that speaks the QStash v2 protocol.
#[expect(clippy::doc_markdown, reason = "shown as it is by --help")]
#[derive(Parser)]
#[command(
    name = "hookstash",
    version,
    max_term_width = 100,
    arg_required_else_help = true
)]
#[command(after_help = "\
New here?        hookstash demo
On your machine: hookstash dev
In production:   hookstash serve
What is wrong?   hookstash doctor

Exit codes: 0 done, 1 failed, 2 wrong command line or setting, 3 not found, 4 stopped while
deliveries ran (their messages were handed back and are delivered again).")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Demo(demo::Demo),
    Dev(Box<dev::Dev>),
    Serve(Box<serve::Serve>),
    Api(Box<api::Api>),
    Worker(Box<worker::Worker>),
    Publish(publish::Publish),
    Messages(messages::Messages),
    Events(events::Events),
    Dlq(dlq::Dlq),
    Keys(keys::Keys),
    Verify(verify::Verify),
    Doctor(Box<doctor::Doctor>),
    Bench(bench::Bench),
}

/// Runs the command of this process's command line.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let environment: Arc<dyn Environment> = Arc::new(ProcessEnvironment);
    let result = runtime(&cli.command).and_then(|runtime| {
        let code = runtime.block_on(async {
            match cli.command {
                Command::Demo(demo) => demo.run().await,
                Command::Dev(dev) => dev.run(environment).await,
                Command::Serve(serve) => serve.run(environment).await,
                Command::Api(api) => api.run(environment).await,
                Command::Worker(worker) => worker.run(environment).await,
                Command::Publish(publish) => publish.run(&*environment).await,
                Command::Messages(messages) => messages.run(&*environment).await,
                Command::Events(events) => events.run(&*environment).await,
                Command::Dlq(dlq) => dlq.run(&*environment).await,
                Command::Keys(keys) => keys.run(&*environment).await,
                Command::Verify(verify) => verify.run(&*environment).await,
                Command::Doctor(doctor) => doctor.run(&*environment).await,
                Command::Bench(bench) => bench.run(environment).await,
            }
        });
        // What still runs has been given its time.
        runtime.shutdown_background();
        code
    });
    result.unwrap_or_else(|failure| {
        failure.tell();
        failure.code()
    })
}

/// One thread for the bench, whose publisher would otherwise be measured handing over to itself.
fn runtime(command: &Command) -> Result<tokio::runtime::Runtime, Failure> {
    let mut builder = match command {
        Command::Bench(_) => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let built = builder.enable_all().build();
    built.map_err(|error| Failure::failed("start the threads of this process").because(&error))
}

/// Starts the log as the settings say.
fn start_log(settings: &Settings) -> Result<(), Failure> {
    telemetry::start(&settings.log, settings.log_format)
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Starts the roles, tells where they listen, and runs them until a signal ends them.
async fn run(
    app: &crate::app::App,
    plan: Plan,
    announce: impl FnOnce(Option<std::net::SocketAddr>),
) -> Result<ExitCode, Failure> {
    let shutdown = Shutdown::on_signals()
        .map_err(|error| Failure::failed("listen to signals").because(&error))?;
    let Some(running) = lifecycle::start(app, plan, &shutdown).await? else {
        return Ok(ExitCode::SUCCESS);
    };
    announce(running.address());
    let ended = running.until_ended().await;
    app.close().await;
    Ok(match ended {
        Ended::Finished => ExitCode::SUCCESS,
        Ended::Cut => failure::CUT.into(),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
