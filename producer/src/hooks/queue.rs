//! Queueing a notification durably: in our own store, or at a remote service that speaks `QStash`.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use bytes::Bytes;
use hookstash_shared::clock::Clock;
use hookstash_shared::environment::Environment;
use hookstash_shared::headers::{HeaderSource, Headers};
use hookstash_shared::http::{Request, Trust, is_trusted};
use hookstash_shared::message::{
    Destination, Fallback, Limits, MessageId, NewMessage, NewMessageError,
};
use hookstash_shared::store::host::HostError;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::error::{DeliveryError, HookErrorCode};
use super::outbound::{ContentType, Outbound, templates};
use super::webhook::{BaseOf, WebhookConfig};
use crate::publish::{PATIENCE_MAX, PublishError, Publisher};

/// Where a remote queue is unless `QSTASH_URL` says otherwise.
const REMOTE_URL: &str = "https://qstash.upstash.io";
const REMOTE_URL_VARIABLE: &str = "QSTASH_URL";
pub(crate) const REMOTE_TOKEN_VARIABLE: &str = "QSTASH_TOKEN";
/// How often a call to a remote queue is repeated when no answer comes.
const REMOTE_REPEATS_MAX: usize = 5;
const REMOTE_PAUSE_MIN: Duration = Duration::from_millis(50);

const BYPASS_VARIABLE: &str = "VERCEL_AUTOMATION_BYPASS_SECRET";
const BYPASS_HEADER: &str = "x-vercel-protection-bypass";
const FORWARD_PREFIX: &str = "upstash-forward-";

/// Who makes queued notifications durable.
#[derive(Clone)]
pub enum HookPublisher {
    /// Our own store. The message carries header templates; the worker fills them from its own
    /// environment at every attempt.
    Store {
        /// Puts messages into the store.
        publisher: Publisher,
        /// What the installation allows.
        limits: Limits,
    },
    /// A service that speaks the `QStash` protocol, named by the variables `QSTASH_URL` and
    /// `QSTASH_TOKEN`, which are read at every call. It gets headers with their values.
    Remote,
}

/// A notification that was not, or not surely, queued.
pub(crate) struct NotQueued {
    pub(crate) error: DeliveryError,
    /// Its id if it was queued nevertheless.
    pub(crate) id: Option<MessageId>,
    /// Whether it may have been queued.
    pub(crate) is_unknown: bool,
}

/// A notification ready to be queued.
pub(crate) struct Queued<'a> {
    url: Url,
    headers: Headers,
    body: Bytes,
    webhook: &'a WebhookConfig,
}

impl From<DeliveryError> for NotQueued {
    fn from(error: DeliveryError) -> Self {
        Self {
            error,
            id: None,
            is_unknown: false,
        }
    }
}

impl<'a> Queued<'a> {
    /// Resolves where it goes and checks its headers.
    ///
    /// # Errors
    /// `configuration`: it could never be sent, and nothing else may be sent in its place.
    pub(crate) fn new(
        webhook: &'a WebhookConfig,
        body: Bytes,
        environment: &dyn Environment,
    ) -> Result<Self, DeliveryError> {
        let url = webhook
            .url
            .resolve(BaseOf::Queue, environment)
            .ok_or_else(DeliveryError::configuration)?;
        let mut headers = templates(webhook, ContentType::Fixed)?;
        let is_bypass_set = environment
            .get(BYPASS_VARIABLE)
            .is_some_and(|it| !it.is_empty());
        if is_bypass_set && is_trusted(&url, environment) {
            let template = HeaderSource::Template {
                text: format!("${{{BYPASS_VARIABLE}}}"),
                allowed_env_vars: vec![BYPASS_VARIABLE.to_owned()],
            };
            let set = headers.set(BYPASS_HEADER.as_bytes(), template);
            set.map_err(|_| DeliveryError::configuration())?;
        }
        Ok(Self {
            url,
            headers,
            body,
            webhook,
        })
    }

    /// The headers with their values, for a queue that fills no templates.
    ///
    /// # Errors
    /// `configuration`: a variable is missing here.
    fn resolved(&self, environment: &dyn Environment) -> Result<HeaderMap, DeliveryError> {
        let resolved = self.headers.resolve(environment);
        resolved.map_err(|_| DeliveryError::configuration())
    }

    /// A message to our own store.
    fn message(&self, now_ms: u64, limits: &Limits) -> Result<NewMessage, NewMessageError> {
        let fallback = if self.webhook.is_critical {
            Fallback::None
        } else {
            Fallback::Fetch
        };
        NewMessage::to(Destination::parse(self.url.as_str())?)
            .headers(self.headers.clone())
            .body(self.body.clone())
            .timeout(self.webhook.timeout.min(limits.timeout_max))
            .fallback(fallback)
            .build(now_ms, limits)
    }
}

/// Queues through `publisher`, repeating an unclear call for up to `patience`.
///
/// # Errors
/// See [`NotQueued`]. The outer error is `configuration`, for which there is no fallback.
pub(crate) async fn publish(
    publisher: Option<&HookPublisher>,
    outbound: &Outbound,
    clock: &dyn Clock,
    queued: &Queued<'_>,
    is_patient: bool,
) -> Result<Result<(), NotQueued>, DeliveryError> {
    let patience = if is_patient {
        queued.webhook.timeout.min(PATIENCE_MAX)
    } else {
        Duration::ZERO
    };
    match publisher {
        None => Ok(Err(no_token().into())),
        Some(HookPublisher::Store { publisher, limits }) => {
            Ok(into_store(publisher, limits, clock, queued, patience).await)
        }
        Some(HookPublisher::Remote) => to_remote(outbound, queued, patience).await,
    }
}

fn no_token() -> DeliveryError {
    DeliveryError::configuration().with_detail("QSTASH_TOKEN not available")
}

fn refused(status: u16) -> DeliveryError {
    DeliveryError {
        code: HookErrorCode::HttpError,
        status: Some(status),
        detail: Some(format!("QStash publish failed (HTTP {status})")),
    }
}

fn unreachable() -> DeliveryError {
    DeliveryError::new(HookErrorCode::NetworkError).with_detail("QStash publish failed")
}

async fn into_store(
    publisher: &Publisher,
    limits: &Limits,
    clock: &dyn Clock,
    queued: &Queued<'_>,
    patience: Duration,
) -> Result<(), NotQueued> {
    const BAD_REQUEST: u16 = 400;
    const TOO_LARGE: u16 = 413;
    const UNAVAILABLE: u16 = 503;
    let message = queued.message(clock.now_ms(), limits).map_err(|error| {
        refused(match error {
            NewMessageError::BodyTooLarge { .. } => TOO_LARGE,
            _ => BAD_REQUEST,
        })
    })?;
    let id = publisher.id_for(&message);
    let result = publisher
        .publish_many(vec![(id, message)], patience)
        .await
        .pop();
    let (error, is_unknown) = match result {
        Some(Ok(_)) => return Ok(()),
        Some(Err(PublishError::NotAccepted(HostError::Fault(_)) | PublishError::Envelope(_))) => {
            (refused(BAD_REQUEST), false)
        }
        Some(Err(PublishError::NotAccepted(host))) if host.is_refusal() => {
            (refused(UNAVAILABLE), false)
        }
        Some(Err(PublishError::NotAccepted(_))) => (unreachable(), false),
        Some(Err(PublishError::Unknown { .. })) | None => (unreachable(), true),
    };
    Err(NotQueued {
        error,
        id: Some(id),
        is_unknown,
    })
}

async fn to_remote(
    outbound: &Outbound,
    queued: &Queued<'_>,
    patience: Duration,
) -> Result<Result<(), NotQueued>, DeliveryError> {
    let environment = &*outbound.environment;
    let given = queued.resolved(environment)?;
    let token = environment.get(REMOTE_TOKEN_VARIABLE);
    let Some(token) = token.filter(|token| !token.is_empty()) else {
        return Ok(Err(no_token().into()));
    };
    let headers = remote_headers(&given, &token, queued.webhook.timeout)?;
    let base = environment
        .get(REMOTE_URL_VARIABLE)
        .filter(|base| !base.is_empty());
    let base = base.as_deref().unwrap_or(REMOTE_URL).trim_end_matches('/');
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
        .with_min_delay(REMOTE_PAUSE_MIN)
        .with_factor(std::f32::consts::E)
        .with_max_times(REMOTE_REPEATS_MAX)
        .with_total_delay(Some(patience));
    Ok(match call.retry(pauses).await {
        Ok(answer) if answer.status().is_success() => Ok(()),
        Ok(answer) => Err(refused(answer.status().as_u16()).into()),
        Err(_) => Err(NotQueued {
            error: unreachable(),
            id: None,
            is_unknown: true,
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
