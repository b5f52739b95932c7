//! Queueing at a remote service, in the words of its SDKs.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use hookstash_shared::environment::Environment;
use hookstash_shared::http::{Request, Trust};
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::{NotQueued, Queued, no_token, refused, unreachable};
use crate::hooks::error::DeliveryError;
use crate::hooks::outbound::Outbound;

/// Where the service is unless `QSTASH_URL` says otherwise.
const URL: &str = "https://qstash.upstash.io";
const URL_VARIABLE: &str = "QSTASH_URL";
pub(crate) const TOKEN_VARIABLE: &str = "QSTASH_TOKEN";
/// How often a call is repeated when no answer comes.
const REPEATS_MAX: usize = 5;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const FORWARD_PREFIX: &str = "upstash-forward-";

pub(super) async fn publish(
    outbound: &Outbound,
    queued: &Queued<'_>,
    patience: Duration,
) -> Result<Result<(), NotQueued>, DeliveryError> {
    let environment = &*outbound.environment;
    let given = resolved(queued, environment)?;
    let token = environment.get(TOKEN_VARIABLE);
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        return Ok(Err(no_token().into()));
    };
    let headers = remote_headers(&given, &token, queued.webhook.timeout)?;
    let base = environment
        .get(URL_VARIABLE)
        .filter(|base| !base.is_empty());
    let base = base.as_deref().unwrap_or(URL).trim_end_matches('/');
    let mut destination = queued.url.clone();
    destination.set_fragment(None);
    let url = format!("{base}/v2/publish/{destination}");
    let call = || async {
        let request = Request {
            method: Method::POST,
            url: &url,
            headers: headers.clone(),
            body: queued.body.clone(),
            timeout: queued.webhook.timeout,
            response_keep_bytes: 0,
            trust: Trust::Operator,
        };
        outbound.http.open(request).await
    };
    let pauses = ExponentialBuilder::default()
        .with_min_delay(PAUSE_MIN)
        .with_factor(std::f32::consts::E)
        .with_max_times(REPEATS_MAX)
        .with_total_delay(Some(patience));
    Ok(match call.retry(pauses).await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(refused(answer.status().as_u16()).into()),
        Err(_) => Err(NotQueued {
            error: unreachable(),
            id: None,
            is_unanswered: true,
        }),
    })
}

/// What the SDKs of the service send.
fn remote_headers(
    given: &HeaderMap,
    token: &str,
    timeout: Duration,
) -> Result<HeaderMap, DeliveryError> {
    let configuration = || DeliveryError::configuration();
    let mut headers = HeaderMap::new();
    let mut bearer =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| configuration())?;
    bearer.set_sensitive(true);
    headers.insert(header::AUTHORIZATION, bearer);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert("upstash-method", HeaderValue::from_static("POST"));
    // The service takes whole seconds.
    let seconds = timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0);
    let seconds = HeaderValue::from_str(&format!("{seconds}s")).map_err(|_| configuration())?;
    headers.insert("upstash-timeout", seconds);
    for (name, value) in given {
        if name != header::CONTENT_TYPE {
            let name = HeaderName::from_bytes(format!("{FORWARD_PREFIX}{name}").as_bytes());
            headers.append(name.map_err(|_| configuration())?, value.clone());
        }
    }
    Ok(headers)
}

/// The headers with their values, for a queue that fills no templates.
///
/// # Errors
/// `configuration`: a variable is missing here.
fn resolved(
    queued: &Queued<'_>,
    environment: &dyn Environment,
) -> Result<HeaderMap, DeliveryError> {
    let resolved = queued.headers.resolve(environment);
    resolved.map_err(|_| DeliveryError::configuration())
}
