//! `hookstash dev`: everything on a developer's machine.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use hookstash_shared::config::{Settings, names};
use hookstash_shared::environment::Environment;
use hookstash_shared::signing::SigningKeys;
use hookstash_shared::store::embedded::DataSync;
use hookstash_shared::telemetry::MaskedUrl;
use secrecy::ExposeSecret as _;

use super::credentials;
use super::failure::Failure;
use super::out::say;
use super::setting_flags::{SettingFlags, after_help};
use crate::app::{App, Egress};
use crate::lifecycle::{Patience, Plan, Role};

/// Where it listens when it is not told: where the SDKs' development mode expects it.
const PORT: u16 = 8080;

/// Everything in one process, for development
///
/// Front door and worker with the public credentials of QStash's development server: paste the
/// lines it prints into your application's environment. An SDK with devMode (QSTASH_DEV=1) finds
/// it on port 8080 by itself.
///
/// Destinations on your own machine and network are allowed. It listens on loopback only and answers
/// no web page. Without --data-dir or --redis-url the store is in memory and everything is lost on
/// exit; REDIS_URL is not looked at.
#[expect(clippy::doc_markdown, reason = "shown as it is by --help")]
#[derive(Args)]
#[command(after_long_help = after_help("\
Examples:
  hookstash dev
  hookstash dev --port 0                                # any free port; it is printed
  hookstash dev --data-dir ./hookstash                  # messages survive a restart
  hookstash dev --redis-url redis://localhost:6379      # so they do here

  # Send something:
  curl -X POST http://127.0.0.1:8080/v2/publish/http://localhost:3000/hook \\
      -H \"Authorization: Bearer $QSTASH_TOKEN\" -d '{\"hello\":\"world\"}'"))]
pub(super) struct Dev {
    /// Port to listen on, on 127.0.0.1; 0 is any free one [default: 8080]
    #[arg(long, value_name = "PORT", conflicts_with = "HOOKSTASH_LISTEN")]
    port: Option<u16>,
    #[command(flatten)]
    settings: SettingFlags,
}

impl Dev {
    pub(super) async fn run(
        mut self,
        environment: Arc<dyn Environment>,
    ) -> Result<ExitCode, Failure> {
        if let Some(port) = self.port {
            let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            self.settings.set(&names::LISTEN, address.to_string());
        }
        let given = self.settings.read(&OwnRedis(Arc::clone(&environment)))?;
        let listen = listen(&given)?;
        super::start_log(&given)?;
        let lines = Lines::of(&given);
        let app = App::new(credentials::fill(given), environment, Egress::Development)?;
        let plan = Plan {
            role: Role::Both,
            listen: Some(listen),
            patience: Patience::None,
            observer: None,
        };
        super::run(&app, plan, |address| {
            say(lines.text(address.unwrap_or(listen)));
        })
        .await
    }
}

/// The usual name of an application's own Redis.
const USUAL_REDIS: &str = "REDIS_URL";

/// The environment without the usual name of an application's Redis: it may be one that real
/// workers serve, and `dev` must not take their messages by accident.
struct OwnRedis(Arc<dyn Environment>);

impl Environment for OwnRedis {
    fn get(&self, name: &str) -> Option<String> {
        (name != USUAL_REDIS).then(|| self.0.get(name)).flatten()
    }

    fn names(&self) -> Vec<String> {
        let mut names = self.0.names();
        names.retain(|name| name != USUAL_REDIS);
        names
    }
}

/// Loopback only, because anybody knows the credentials.
fn listen(settings: &Settings) -> Result<SocketAddr, Failure> {
    let usual = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);
    let listen = settings.listen.unwrap_or(usual);
    if listen.ip().to_canonical().is_loopback() {
        return Ok(listen);
    }
    let text = "`hookstash dev` listens on loopback only, because its credentials are public";
    Err(Failure::usage(text).advise(
        "Give --port, or an address such as 127.0.0.1:8080 in --listen or HOOKSTASH_LISTEN.\n\
         To be reached from elsewhere, use `hookstash serve` with a QSTASH_TOKEN of your own.",
    ))
}

/// What is printed when it is ready.
struct Lines {
    has_own_token: bool,
    has_own_keys: bool,
    has_stored_keys: bool,
    store: Kept,
}

/// Where messages are.
enum Kept {
    Nowhere,
    Directory(PathBuf, DataSync),
    Redis(String),
}

impl Lines {
    fn of(given: &Settings) -> Self {
        let store = match (&given.redis_url, &given.data_dir) {
            (Some(url), _) => Kept::Redis(MaskedUrl(url.expose_secret()).to_string()),
            (None, Some(path)) => Kept::Directory(path.clone(), given.data_sync),
            (None, None) => Kept::Nowhere,
        };
        Self {
            has_own_token: given.token.is_some(),
            has_own_keys: given.signing_keys.is_some(),
            has_stored_keys: given.secret_key.is_some(),
            store,
        }
    }

    fn text(&self, address: SocketAddr) -> String {
        let keys = SigningKeys::development();
        let mut text = format!(
            "hookstash dev is ready on http://{address}\n\n\
             Paste into your application's environment:\n\n\
             export QSTASH_URL=\"http://{address}\"\n"
        );
        let mut line = |name: &str, value: &str, is_own: bool| {
            // One that was set is a secret, which is never shown.
            let _ = if is_own {
                writeln!(text, "# {name}: as you set it here")
            } else if self.has_stored_keys && name != names::TOKEN.name() {
                writeln!(text, "# {name}: `hookstash keys show` prints it")
            } else {
                writeln!(text, "export {name}=\"{value}\"")
            };
        };
        line(
            "QSTASH_TOKEN",
            credentials::DEVELOPMENT_TOKEN,
            self.has_own_token,
        );
        let (current, next) = (keys.current().expose_secret(), keys.next().expose_secret());
        line("QSTASH_CURRENT_SIGNING_KEY", current, self.has_own_keys);
        line("QSTASH_NEXT_SIGNING_KEY", next, self.has_own_keys);
        let _ = match &self.store {
            Kept::Nowhere => write!(
                text,
                "\nThe store is in memory: EVERYTHING IS LOST when this process ends.\n\
                 With --data-dir or --redis-url it is kept."
            ),
            Kept::Directory(path, sync) => {
                let when = match sync {
                    DataSync::EverySecond => "every second",
                    DataSync::Always => "before every answer",
                };
                let path = path.display();
                write!(
                    text,
                    "\nThe store is in {path}, forced onto the disk {when}."
                )
            }
            Kept::Redis(url) => write!(text, "\nThe store is the Redis at {url}."),
        };
        text + "\nThe credentials are public: for development only. Ctrl-C ends it."
    }
}
