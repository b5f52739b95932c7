//! `hookstash verify`: whether a delivery is what it claims to be.

use std::process::ExitCode;

use clap::Args;
use hookstash_shared::clock::{Clock as _, SystemClock};
use hookstash_shared::duration;
use hookstash_shared::environment::Environment;
use hookstash_shared::signing::keys::{SETTING_CURRENT, SETTING_NEXT};
use hookstash_shared::signing::receiver::VerifyError;
use hookstash_shared::signing::standard_webhooks::{HEADER_ID, HEADER_SIGNATURE, HEADER_TIMESTAMP};
use hookstash_shared::signing::{Receiver, SigningKeys, WebhookSecret};
use http::{HeaderMap, Method};
use serde_json::{Value, json};

use super::failure::Failure;
use super::out::say;
use super::paint::harmless;
use super::remote::{Common, Output};
use super::{input, keys, table};

/// The header of a `QStash` signature.
const SIGNATURE: &str = "upstash-signature";
/// The secret of the Standard Webhooks signature.
const WEBHOOK_SECRET: &str = "HOOKSTASH_WEBHOOK_SECRET";

/// Check the signature of a delivery that a receiver got
///
/// Says whether it is good, and if not, which check failed first: the key, the time, the URL or the
/// body. Checks the QStash signature of `Upstash-Signature`, and the Standard Webhooks signature of
/// `webhook-id`, `webhook-timestamp` and `webhook-signature` where these are given.
///
/// The keys come from QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY, else from the running
/// server (--url, else QSTASH_URL); the secret from HOOKSTASH_WEBHOOK_SECRET.
#[expect(clippy::doc_markdown, reason = "shown as it is by --help")]
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  hookstash verify -H \"Upstash-Signature: $signature\" -d @body --to https://example.com/hook
  hookstash verify -H \"Upstash-Signature: $signature\" < body
  hookstash verify -H \"Upstash-Signature: $signature\" -d @body --tolerance 1d   # an old one

The body must be the raw bytes as received: JSON that was parsed and written again is another body.

Exit codes: 0 good, 1 not good, 2 wrong command line.")]
pub(super) struct Verify {
    #[command(flatten)]
    common: Common,
    /// A header of the delivery, 'Name: value'; may be repeated, others than those of signatures
    /// are ignored
    #[arg(short = 'H', long = "header", value_name = "HEADER", required = true)]
    headers: Vec<String>,
    /// The body: a text, @FILE, or - for standard input [default: -]
    #[arg(
        short = 'd',
        long = "body",
        value_name = "BODY",
        allow_hyphen_values = true
    )]
    body: Option<String>,
    /// The URL as it was published; not checked without it
    #[arg(long, value_name = "DESTINATION")]
    to: Option<String>,
    /// How far clocks may differ, and how late a delivery may be
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    tolerance: String,
}

/// One signature and what came of it.
struct Checked {
    kind: &'static str,
    result: Result<Value, VerifyError>,
}

impl Verify {
    pub(super) async fn run(self, environment: &dyn Environment) -> Result<ExitCode, Failure> {
        let mut headers = HeaderMap::new();
        for text in &self.headers {
            let (name, value) = input::header(text)?;
            headers.append(name, value);
        }
        let tolerance = duration::parse(&self.tolerance)
            .map_err(|error| Failure::usage("--tolerance is not a duration").because(&error))?;
        let body = input::body(self.body.as_deref().unwrap_or("-"))?;
        let now_s = SystemClock::new().now_ms() / 1_000;
        let mut checked = Vec::new();
        if let Some(signature) = value(&headers, SIGNATURE)? {
            let keys = self.keys(environment).await?;
            let receiver = Receiver::new(Some(&keys), None, tolerance);
            let url = self.to.as_deref();
            let result = receiver.verify_qstash(signature, &body, url, now_s);
            let result = result.map(
                |claims| json!({ "url": claims.sub, "expires": claims.exp, "id": claims.jti }),
            );
            checked.push(Checked {
                kind: "QStash",
                result,
            });
        }
        if let Some(signatures) = value(&headers, HEADER_SIGNATURE)? {
            let part = |name| value(&headers, name).map(Option::unwrap_or_default);
            let (id, timestamp) = (part(HEADER_ID)?, part(HEADER_TIMESTAMP)?);
            let secret = secret(environment)?;
            let receiver = Receiver::new(None, Some(&secret), tolerance);
            let result = receiver.verify_webhook(id, timestamp, signatures, &body, now_s);
            checked.push(Checked {
                kind: "Standard Webhooks",
                result: result.map(|()| json!({ "id": id })),
            });
        }
        if checked.is_empty() {
            let text = "no header is a signature";
            return Err(Failure::usage(text).advise(
                "Give the signature as the receiver got it: -H 'Upstash-Signature: eyJ…', or the \
                 three webhook-… headers.",
            ));
        }
        Ok(conclude(self.common.output, &checked))
    }

    async fn keys(&self, environment: &dyn Environment) -> Result<SigningKeys, Failure> {
        let (current, next) = (
            environment.get(SETTING_CURRENT),
            environment.get(SETTING_NEXT),
        );
        let given = SigningKeys::from_settings(current.as_deref(), next.as_deref());
        let given = given.map_err(|error| Failure::usage(error.to_string()))?;
        if let Some(keys) = given {
            return Ok(keys);
        }
        let server = self.common.server(environment)?;
        keys::fetch(&server, Method::GET, "/v2/keys").await
    }
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Failure> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .map_err(|_| Failure::usage(format!("{name} has a character that no signature has")))?;
    Ok(Some(text))
}

fn secret(environment: &dyn Environment) -> Result<WebhookSecret, Failure> {
    let Some(secret) = environment.get(WEBHOOK_SECRET) else {
        return Err(
            Failure::usage(format!("{WEBHOOK_SECRET} is required and not set"))
                .advise("Set it to the secret of the server: whsec_ and base64."),
        );
    };
    WebhookSecret::parse(&secret).map_err(|error| Failure::usage(error.to_string()))
}

fn conclude(output: Output, checked: &[Checked]) -> ExitCode {
    let failed = checked.iter().filter(|one| one.result.is_err()).count();
    if output == Output::Json {
        let shown = checked.iter().map(|one| match &one.result {
            Ok(claims) => json!({ "signature": one.kind, "good": true, "claims": claims }),
            Err(error) => {
                json!({ "signature": one.kind, "good": false, "error": error.to_string() })
            }
        });
        say(json!({ "good": failed == 0, "signatures": shown.collect::<Vec<_>>() }));
    } else {
        let rows = checked.iter().map(|one| {
            let (mark, what) = match &one.result {
                Ok(claims) => ("good", harmless(claims["url"].as_str().unwrap_or_default())),
                Err(error) => ("BAD", error.to_string()),
            };
            vec![one.kind.to_owned(), mark.to_owned(), what]
        });
        say(table::table(
            &["SIGNATURE", "", "URL OR REASON"],
            &rows.collect::<Vec<_>>(),
        ));
    }
    match failed {
        0 => ExitCode::SUCCESS,
        _ => super::failure::FAILED.into(),
    }
}
