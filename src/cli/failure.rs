//! Why a command did not do what was asked: what to print, and how to exit.

use std::error::Error;
use std::process::ExitCode;

use hookstash_shared::config::ConfigError;

use crate::app::{AppError, OpenError};
use crate::lifecycle::RunError;

/// The command failed.
pub(super) const FAILED: u8 = 1;
/// The command line or a setting is wrong; also clap's own code.
const USAGE: u8 = 2;
/// What was named does not exist.
const NOT_FOUND: u8 = 3;
/// Deliveries were running when the process was stopped.
pub(super) const CUT: u8 = 4;

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(super) struct Failure {
    code: u8,
    text: String,
    advice: Option<String>,
}

impl Failure {
    /// `text` says what was attempted.
    pub(super) fn failed(text: impl Into<String>) -> Self {
        Self::new(FAILED, text)
    }

    /// The command line or a setting is wrong.
    pub(super) fn usage(text: impl Into<String>) -> Self {
        Self::new(USAGE, text)
    }

    /// What was named does not exist.
    pub(super) fn not_found(text: impl Into<String>) -> Self {
        Self::new(NOT_FOUND, text)
    }

    fn new(code: u8, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            advice: None,
        }
    }

    /// Adds the causes.
    #[must_use]
    pub(super) fn because(mut self, error: &dyn Error) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            self.text = format!("{}: {error}", self.text);
            cause = error.source();
        }
        self
    }

    /// Adds what to do next.
    #[must_use]
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// Whether what was named does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        self.code == NOT_FOUND
    }

    /// The text without the advice.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// How to exit.
    pub(super) fn code(&self) -> ExitCode {
        self.code.into()
    }

    /// Prints it.
    pub(super) fn tell(&self) {
        eprintln!("error: {}", self.text);
        if let Some(advice) = &self.advice {
            eprintln!("\n{advice}");
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        let failure = Self::usage(error.to_string());
        match error {
            ConfigError::Missing {
                name: "QSTASH_TOKEN",
            } => failure.advise(
                "Callers authenticate with this token. Set it to a random text of your own:\n\n  \
                 export QSTASH_TOKEN=$(openssl rand -hex 32)\n\n\
                 On your own machine, `hookstash dev` needs no token.",
            ),
            ConfigError::Missing {
                name: "HOOKSTASH_REDIS_URL",
            } => failure.advise(
                "Set it or give --redis-url, such as redis://localhost:6379. Without a Redis, \
                 `hookstash serve --data-dir DIRECTORY` keeps everything on this machine, and \
                 `hookstash dev` needs nothing at all.",
            ),
            ConfigError::Unknown { .. } => failure
                .advise("Correct the name or unset it; `hookstash serve --help` lists them all."),
            _ => failure,
        }
    }
}

impl From<AppError> for Failure {
    fn from(error: AppError) -> Self {
        match error {
            AppError::Config(error) => error.into(),
            AppError::Http(error) => Self::failed("make the HTTP client").because(&error),
            AppError::Hooks(error) => Self::failed(error.to_string()),
            AppError::Seal(error) => Self::failed("use HOOKSTASH_SECRET_KEY").because(&error),
            AppError::Embedded(error) => Self::failed("start the embedded store").because(&error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Config(error) => error.into(),
            RunError::Listen(error) => Self::failed(error.to_string()),
            RunError::Open(OpenError::Keys(error)) => {
                let failure = Self::usage("use the stored signing keys").because(&error);
                failure.advise(
                    "To do without them, delete the field `keys` of the hash `hs:meta`: receivers \
                     then need the keys of the environment.",
                )
            }
            RunError::Open(error) => Self::failed("open the store").because(&error),
            RunError::Worker(error) => Self::failed("start the worker").because(&error),
        }
    }
}
