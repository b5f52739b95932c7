//! `hookstash api`: the front door alone.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use hookstash_shared::environment::Environment;

use super::failure::Failure;
use super::serve;
use super::setting_flags::{SettingFlags, after_help};
use crate::lifecycle::Role;

/// Accept messages only (workers deliver them)
///
/// The HTTP front door without a worker: what it accepts is in Redis when it answers, and is
/// delivered by any `hookstash worker` or `hookstash serve` on the same Redis.
#[derive(Args)]
#[command(after_long_help = after_help("\
Examples:
  QSTASH_TOKEN=... hookstash api --redis-url redis://localhost:6379
  QSTASH_TOKEN=... hookstash api --listen 127.0.0.1:9000"))]
pub(super) struct Api {
    #[command(flatten)]
    settings: SettingFlags,
}

impl Api {
    pub(super) async fn run(self, environment: Arc<dyn Environment>) -> Result<ExitCode, Failure> {
        serve::run(&self.settings, environment, Role::Api).await
    }
}
