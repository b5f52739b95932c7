//! `hookstash serve`: front door and worker in one process, on Redis or in a directory.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use hookstash_shared::config::{ConfigError, Settings, names};
use hookstash_shared::environment::Environment;
use hookstash_shared::signing::SigningKeys;
use secrecy::ExposeSecret as _;

use super::credentials;
use super::failure::Failure;
use super::setting_flags::{SettingFlags, after_help};
use crate::app::{App, Egress};
use crate::lifecycle::{Patience, Plan, Role};

/// Where a server listens when it is not told.
const LISTEN: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 8080);

/// Accept and deliver messages, on Redis or in a directory (production)
///
/// The HTTP front door and a worker in one process. Start as many as you like on one Redis; or
/// scale the two apart with `hookstash api` and `hookstash worker`.
///
/// On a single machine --data-dir takes the place of a Redis: one process keeps everything in that
/// directory, in Redis's own format, so that a Redis can take it over later.
///
/// It starts before its Redis does, and is ready (`/readyz`) once that answers. The first SIGTERM
/// or Ctrl-C drains: no request is accepted, running deliveries get --drain. A second one ends it
/// at once; what was running is delivered again.
#[derive(Args)]
#[command(after_long_help = after_help("\
Examples:
  QSTASH_TOKEN=... hookstash serve --redis-url redis://localhost:6379

  # One machine, no Redis:
  QSTASH_TOKEN=... hookstash serve --data-dir /var/lib/hookstash

  # Signed deliveries, through TLS, more at once, logs for a collector:
  export REDIS_URL=rediss://user:password@redis.internal:6380
  export QSTASH_TOKEN=... QSTASH_CURRENT_SIGNING_KEY=... QSTASH_NEXT_SIGNING_KEY=...
  hookstash serve --slots 1024 --log-format json

  # Allow a destination inside your network:
  hookstash serve --egress-allow 'api.internal:3000,10.1.0.0/16'"))]
pub(super) struct Serve {
    #[command(flatten)]
    settings: SettingFlags,
}

impl Serve {
    pub(super) async fn run(self, environment: Arc<dyn Environment>) -> Result<ExitCode, Failure> {
        run(&self.settings, environment, Role::Both).await
    }
}

/// Runs `role` as a server does: on Redis or in a directory, and with a token where there is a
/// front door.
pub(super) async fn run(
    flags: &SettingFlags,
    environment: Arc<dyn Environment>,
    role: Role,
) -> Result<ExitCode, Failure> {
    let settings = flags.read(&*environment)?;
    require(&settings, role)?;
    super::start_log(&settings)?;
    let listen = match role {
        Role::Worker => settings.listen,
        Role::Api | Role::Both => Some(settings.listen.unwrap_or(LISTEN)),
    };
    warn_of_public_keys(&settings);
    let app = App::new(settings, environment, Egress::Production)?;
    let plan = Plan {
        role,
        listen,
        patience: Patience::Endless,
        observer: None,
    };
    super::run(&app, plan, |address| {
        let address = address.map(tracing::field::display);
        tracing::info!(address, ?role, "ready");
    })
    .await
}

fn require(settings: &Settings, role: Role) -> Result<(), ConfigError> {
    if role != Role::Worker {
        let token = settings.require_token()?;
        let listen = settings.listen.unwrap_or(LISTEN);
        let is_public = token.expose_secret() == credentials::DEVELOPMENT_TOKEN;
        if is_public && !listen.ip().to_canonical().is_loopback() {
            return Err(ConfigError::Value {
                name: names::TOKEN.name().to_owned(),
                reason: "is the public token of the development mode: choose one of your own, or \
                         listen on loopback"
                    .to_owned(),
            });
        }
    }
    let has_directory = settings.data_dir.is_some();
    match (role, &settings.redis_url) {
        (_, Some(_)) => Ok(()),
        (Role::Both, None) if has_directory => Ok(()),
        (Role::Api | Role::Worker, None) if has_directory => Err(ConfigError::Value {
            name: names::DATA_DIR.name().to_owned(),
            reason: "holds the store of one process, so it is for `serve` and `dev`; `api` and \
                     `worker` share a Redis (--redis-url)"
                .to_owned(),
        }),
        (_, None) => Err(ConfigError::Missing {
            name: names::REDIS_URL.name(),
        }),
    }
}

fn warn_of_public_keys(settings: &Settings) {
    let keys = settings.signing_keys.as_ref();
    if keys.is_some_and(SigningKeys::are_development) {
        tracing::warn!(
            "the signing keys are the public ones of the development mode: anybody can sign with \
             them"
        );
    }
}
