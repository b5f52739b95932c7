//! `hookstash keys`: the signing keys of a running server.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hookstash_shared::environment::Environment;
use hookstash_shared::signing::SigningKeys;
use hookstash_shared::signing::keys::{SETTING_CURRENT, SETTING_NEXT};
use http::Method;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::json;

use super::failure::Failure;
use super::out::say;
use super::remote::{Common, Output};
use super::transport::Server;

/// Show and rotate the signing keys
///
/// Every delivery is signed with the current key. Receivers know both keys and accept either, so
/// that a rotation (the next key becomes the current one, a new one becomes the next) breaks none of
/// them, as long as they learn the new pair before the rotation after it.
///
/// Talks to a running server over HTTP: --url, else QSTASH_URL, else http://127.0.0.1:8080. The
/// token comes from QSTASH_TOKEN; on this machine it may be missing, then it is that of
/// `hookstash dev`.
#[expect(clippy::doc_markdown, reason = "shown as it is by --help")]
#[derive(Args)]
#[command(
    arg_required_else_help = true,
    after_long_help = "\
Examples:
  hookstash keys show                     # lines to paste into a receiver's environment
  eval \"$(hookstash keys show)\"
  hookstash keys rotate

Keys can be rotated when they are stored: set HOOKSTASH_SECRET_KEY ($(openssl rand -base64 32)) for
all processes, and no signing keys.

Exit codes: 0 done, 1 failed or refused, 2 wrong command line, 3 no keys."
)]
pub(super) struct Keys {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print both keys
    Show(Show),
    /// Make the next key the current one, and a new one the next
    ///
    /// Twice without giving the receivers the new pair in between leaves them without a key that
    /// fits: they refuse every delivery.
    Rotate(Rotate),
}

#[derive(Args)]
struct Show {
    #[command(flatten)]
    common: Common,
}

#[derive(Args)]
struct Rotate {
    #[command(flatten)]
    common: Common,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

#[derive(Deserialize)]
struct Pair {
    current: String,
    next: String,
}

impl Keys {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Show(show) => {
                let server = show.common.server(environment)?;
                let keys = fetch(&server, Method::GET, "/v2/keys").await?;
                print(show.common.output, &keys);
            }
            Command::Rotate(rotate) => {
                let server = rotate.common.server(environment)?;
                if !rotate.yes {
                    ask()?;
                }
                let keys = fetch(&server, Method::POST, "/v2/keys/rotate").await?;
                print(rotate.common.output, &keys);
                eprintln!(
                    "Rotated. Give every receiver this pair before you rotate again: receivers \
                     that miss two rotations refuse all deliveries."
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The keys of a running server.
pub(super) async fn fetch(
    server: &Server,
    method: Method,
    path: &str,
) -> Result<SigningKeys, Failure> {
    let pair: Pair = server.ask(method, path).await?.success()?.json()?;
    let keys = SigningKeys::from_settings(Some(&pair.current), Some(&pair.next));
    let keys = keys.map_err(|_| Failure::failed("the server answered keys that are none"))?;
    keys.ok_or_else(|| Failure::failed("the server answered no keys"))
}

fn print(output: Output, keys: &SigningKeys) {
    let (current, next) = (keys.current().expose_secret(), keys.next().expose_secret());
    match output {
        Output::Json => say(json!({ "current": current, "next": next })),
        Output::Table => say(format_args!(
            "export {SETTING_CURRENT}=\"{current}\"\nexport {SETTING_NEXT}=\"{next}\""
        )),
    }
}

/// Asks a person; without one, nothing is rotated by accident.
fn ask() -> Result<(), Failure> {
    let warning = "The current key will be gone. Receivers that do not know today's next key refuse \
                   all deliveries from then on.";
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked here")
            .advise(format!("{warning}\nGive --yes to rotate all the same.")));
    }
    eprint!("{warning}\nRotate the signing keys? [y/N] ");
    drop(std::io::stderr().flush());
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match (read, answer.trim().to_ascii_lowercase().as_str()) {
        (Ok(_), "y" | "yes") => Ok(()),
        _ => Err(Failure::failed("not rotated")),
    }
}
