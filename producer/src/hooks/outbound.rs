//! Calling a receiver directly: where, with which headers, once.

use std::sync::Arc;

use bytes::Bytes;
use hookstash_shared::environment::Environment;
use hookstash_shared::headers::{HeaderSource, Headers, is_forbidden_in_hooks};
use hookstash_shared::http::{HttpClient, OpenResponse, Request, Trust};
use hookstash_shared::message::MessageId;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::error::DeliveryError;
use super::hook::Hook;
use super::webhook::{BaseOf, WebhookConfig};

const JSON: &str = "application/json";
const MESSAGE_ID: HeaderName = HeaderName::from_static("upstash-message-id");
/// The codings of an answer that can be read here.
const CODINGS: HeaderValue = HeaderValue::from_static("gzip, deflate");

/// Calls receivers.
pub(crate) struct Outbound {
    pub(crate) http: HttpClient,
    pub(crate) environment: Arc<dyn Environment>,
}

/// What a call is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// The answer's status counts.
    Notify,
    /// In place of a queued message, which may exist nevertheless.
    InPlaceOf(Option<&'a MessageId>),
    /// The answer's body counts.
    Control,
}

impl Outbound {
    /// Sends `body` to the hook's receiver and returns its answer unread. Everything is resolved
    /// now, so that a changed variable counts from the next call on.
    ///
    /// # Errors
    /// Nothing was sent, or the answer is no success.
    pub(crate) async fn call(
        &self,
        hook: &Hook,
        webhook: &WebhookConfig,
        body: Bytes,
        purpose: Purpose<'_>,
    ) -> Result<OpenResponse, DeliveryError> {
        let is_control = matches!(purpose, Purpose::Control);
        if webhook.is_control() != is_control {
            return Err(DeliveryError::configuration());
        }
        let url = webhook
            .url
            .resolve(BaseOf::Fetch, &*self.environment)
            .ok_or_else(DeliveryError::configuration)?;
        let headers = self.headers(webhook, purpose)?;
        self.send(url.as_str(), headers, body, webhook, hook.trust)
            .await
    }

    fn headers(
        &self,
        webhook: &WebhookConfig,
        purpose: Purpose<'_>,
    ) -> Result<HeaderMap, DeliveryError> {
        let resolved = templates(webhook, ContentType::MayBeSet)?.resolve(&*self.environment);
        let mut headers = resolved.map_err(|_| DeliveryError::configuration())?;
        match purpose {
            Purpose::InPlaceOf(Some(id)) => {
                let id = HeaderValue::from_str(id.as_str());
                headers.insert(MESSAGE_ID, id.map_err(|_| DeliveryError::configuration())?);
            }
            Purpose::Control => drop(headers.insert(header::ACCEPT_ENCODING, CODINGS)),
            Purpose::Notify | Purpose::InPlaceOf(None) => {}
        }
        Ok(headers)
    }

    async fn send(
        &self,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
        webhook: &WebhookConfig,
        trust: Trust,
    ) -> Result<OpenResponse, DeliveryError> {
        let request = Request {
            method: Method::POST,
            url,
            headers,
            body,
            timeout: webhook.timeout,
            response_keep_bytes: 0,
            trust,
        };
        let answer = self.http.open(request).await?;
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(DeliveryError::status(answer.status()))
        }
    }
}

/// Whether a hook may say what its body is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentType {
    MayBeSet,
    /// Always JSON.
    Fixed,
}

/// The headers of a hook as templates, checked as far as that needs no environment. A later one of
/// the same name takes the place of an earlier one.
///
/// # Errors
/// `configuration`, without a name or value.
pub(crate) fn templates(
    webhook: &WebhookConfig,
    content_type: ContentType,
) -> Result<Headers, DeliveryError> {
    let refused = |_| DeliveryError::configuration();
    let mut headers = Headers::default();
    let json = HeaderSource::literal(JSON);
    headers
        .set(header::CONTENT_TYPE.as_str().as_bytes(), json)
        .map_err(refused)?;
    for (name, text) in &webhook.headers {
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed = parsed.map_err(|_| DeliveryError::configuration())?;
        if is_forbidden_in_hooks(&parsed) {
            return Err(DeliveryError::configuration());
        }
        let template = HeaderSource::Template {
            text: text.clone(),
            allowed_env_vars: webhook.allowed_env_vars.clone(),
        };
        if parsed == header::CONTENT_TYPE && content_type == ContentType::Fixed {
            // Checked like the others, but not sent.
            Headers::default()
                .set(name.as_bytes(), template)
                .map_err(refused)?;
        } else {
            headers.set(name.as_bytes(), template).map_err(refused)?;
        }
    }
    Ok(headers)
}

#[cfg(test)]
#[path = "outbound_tests.rs"]
mod tests;
