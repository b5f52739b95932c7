//! `hookstash doctor`: whether this installation can keep its promises, and what to do if not.

mod process;
mod store;

use std::process::ExitCode;

use clap::Args;
use hookstash_shared::environment::Environment;
use serde_json::{Map, json};

use super::failure::{FAILED, Failure};
use super::out::say;
use super::paint::{Paint, harmless};
use super::remote::Output;
use super::setting_flags::{SettingFlags, after_help};

/// Check settings, store and machine, and say what to do
///
/// Reads the same settings as `serve`, connects to the store itself and changes nothing in it. Every
/// line is ok, warn or fail: a warning is a risk to know of, a failure stops messages or loses them.
///
/// Run it where the servers run, with their environment.
#[derive(Args)]
#[command(after_long_help = after_help("\
Examples:
  hookstash doctor --redis-url redis://localhost:6379
  hookstash doctor -o json | jq -r '.checks[] | select(.level != \"ok\")'

Exit codes: 0 nothing failed, 1 something did, 2 a setting is wrong."))]
pub(super) struct Doctor {
    /// How to print the result
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    settings: SettingFlags,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Ok,
    Warn,
    Fail,
}

/// One line.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    level: Level,
    text: String,
    /// What to do; `None` when there is nothing to do.
    advice: Option<&'static str>,
}

/// The lines so far.
#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: &'static str, text: impl Into<String>) {
        self.add(check, Level::Ok, text, None);
    }

    fn warn(&mut self, check: &'static str, text: impl Into<String>, advice: &'static str) {
        self.add(check, Level::Warn, text, Some(advice));
    }

    fn fail(&mut self, check: &'static str, text: impl Into<String>, advice: &'static str) {
        self.add(check, Level::Fail, text, Some(advice));
    }

    fn add(
        &mut self,
        check: &'static str,
        level: Level,
        text: impl Into<String>,
        advice: Option<&'static str>,
    ) {
        self.0.push(Finding {
            check,
            level,
            text: text.into(),
            advice,
        });
    }

    fn count(&self, level: Level) -> usize {
        self.0.iter().filter(|one| one.level == level).count()
    }
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl Doctor {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        let settings = self.settings.read(environment)?;
        hookstash_shared::http::install_crypto_provider();
        let mut findings = Findings::default();
        store::check(&settings, &mut findings).await;
        process::check(&settings, &mut findings);
        match self.output {
            Output::Json => print_json(&findings),
            Output::Table => print_lines(&findings, Paint::for_stdout(environment)),
        }
        Ok(match findings.count(Level::Fail) {
            0 => ExitCode::SUCCESS,
            _ => FAILED.into(),
        })
    }
}

fn print_json(findings: &Findings) {
    let checks = findings.0.iter().map(|one| {
        let mut object = Map::new();
        object.insert("check".to_owned(), json!(one.check));
        object.insert("level".to_owned(), json!(one.level.word()));
        object.insert("text".to_owned(), json!(one.text));
        if let Some(advice) = one.advice {
            object.insert("advice".to_owned(), json!(advice));
        }
        object
    });
    let checks: Vec<_> = checks.collect();
    let is_ok = findings.count(Level::Fail) == 0;
    say(json!({ "ok": is_ok, "checks": checks }));
}

fn print_lines(findings: &Findings, paint: Paint) {
    for one in &findings.0 {
        let word = format!("{:<4}", one.level.word());
        let word = match one.level {
            Level::Ok => paint.good(&word),
            Level::Warn => paint.waiting(&word),
            Level::Fail => paint.bad(&word),
        };
        say(format_args!(
            "{word}  {:<12}  {}",
            one.check,
            harmless(&one.text)
        ));
        if let Some(advice) = one.advice {
            say(format_args!(
                "{:20}{}",
                "",
                paint.faint(&format!("-> {advice}"))
            ));
        }
    }
    let (warned, failed) = (findings.count(Level::Warn), findings.count(Level::Fail));
    say(format_args!(
        "\n{} checks: {failed} failed, {warned} warned",
        findings.0.len()
    ));
}
