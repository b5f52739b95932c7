//! `hookstash worker`: deliveries alone.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use hookstash_shared::environment::Environment;

use super::failure::Failure;
use super::serve;
use super::setting_flags::{SettingFlags, after_help};
use crate::lifecycle::Role;

/// Deliver messages only (another process accepts them)
///
/// Leases messages from Redis, signs and sends them, retries, and keeps what failed for good as
/// dead letters. Stateless: start and stop as many as you like. Needs no token.
///
/// With --listen it answers `/healthz` and `/readyz` there, for probes.
#[derive(Args)]
#[command(after_long_help = after_help("\
Examples:
  hookstash worker --redis-url redis://localhost:6379
  hookstash worker --slots 2048 --listen 0.0.0.0:8081"))]
pub(super) struct Worker {
    #[command(flatten)]
    settings: SettingFlags,
}

impl Worker {
    pub(super) async fn run(self, environment: Arc<dyn Environment>) -> Result<ExitCode, Failure> {
        serve::run(&self.settings, environment, Role::Worker).await
    }
}
