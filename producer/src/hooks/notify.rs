//! Notifications: strictly one after the other, and no failure keeps a sibling from running.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt as _;
use serde_json::{Map, Value};

use super::dispatcher::Inner;
use super::error::{CriticalFailure, CriticalHookDeliveryError, DeliveryError};
use super::event::Event;
use super::hook::{Handler, HandlerError, Hook};
use super::mode::Mode;
use super::outbound::Purpose;
use super::payload;
use super::queue::{self, NotQueued, Queued};
use super::webhook::{Delivery, WebhookConfig};

/// What the hooks of one dispatch share.
struct Round<'a> {
    event: &'a Event,
    /// Made for the first webhook.
    fields: Option<Map<String, Value>>,
    /// Whether a publish without an answer is repeated; not after the first that stayed without,
    /// because the others would wait for the same queue.
    is_patient: bool,
}

impl Inner {
    /// Runs those of `hooks` that are notifications of `event`.
    ///
    /// # Errors
    /// Critical webhooks that were not delivered, after all others have run.
    pub(crate) async fn notify(
        &self,
        event: &Event,
        hooks: &[Arc<Hook>],
    ) -> Result<(), CriticalHookDeliveryError> {
        let mut round = Round {
            event,
            fields: None,
            is_patient: true,
        };
        let mut failures = Vec::new();
        for hook in hooks {
            if hook.moment != event.hook_type() || hook.is_control() || !self.runs(hook) {
                continue;
            }
            let ended = caught(self.run_if_matching(hook, &mut round)).await;
            if let Err(cause) = ended {
                let is_critical = self.is_critical(hook);
                log_failure(event, hook, &cause, is_critical);
                if is_critical {
                    let hook_id = hook.id.clone();
                    failures.push(CriticalFailure { hook_id, cause });
                }
            }
        }
        CriticalHookDeliveryError::of(failures).map_or(Ok(()), Err)
    }

    /// Whether a failure of `hook` reaches the caller: never a handler's.
    fn is_critical(&self, hook: &Hook) -> bool {
        let webhook = hook.webhook.as_ref();
        self.handler(hook).is_none() && webhook.is_some_and(|webhook| webhook.is_critical)
    }

    /// The handler, where handlers run.
    pub(crate) fn handler<'a>(&self, hook: &'a Hook) -> Option<&'a Handler> {
        hook.handler.as_ref().filter(|_| self.mode == Mode::Local)
    }

    async fn run_if_matching(
        &self,
        hook: &Hook,
        round: &mut Round<'_>,
    ) -> Result<(), DeliveryError> {
        match hook.matcher.matches(round.event.tool()) {
            Ok(false) => Ok(()),
            Ok(true) => self.run(hook, round).await,
            Err(error) => Err(DeliveryError::configuration().with_detail(error.to_string())),
        }
    }

    async fn run(&self, hook: &Hook, round: &mut Round<'_>) -> Result<(), DeliveryError> {
        if let Some(handler) = self.handler(hook) {
            if let Err(error) = call(handler, round.event).await {
                log_handler(round.event, hook, &*error);
            }
            return Ok(());
        }
        match &hook.webhook {
            Some(webhook) => self.deliver(hook, webhook, round).await,
            None => Ok(()),
        }
    }

    async fn deliver(
        &self,
        hook: &Hook,
        webhook: &WebhookConfig,
        round: &mut Round<'_>,
    ) -> Result<(), DeliveryError> {
        let fields = match &mut round.fields {
            Some(fields) => fields,
            none => none.insert(fields_of(round.event)?),
        };
        let body = self.body(hook, webhook, fields).await?;
        match webhook.delivery {
            Delivery::Fetch => self.fetch(hook, webhook, body, Purpose::Notify).await,
            Delivery::Queue => {
                self.enqueue(hook, webhook, body, &mut round.is_patient, round.event)
                    .await
            }
        }
    }

    /// The exact bytes to send.
    pub(crate) async fn body(
        &self,
        hook: &Hook,
        webhook: &WebhookConfig,
        fields: &Map<String, Value>,
    ) -> Result<Bytes, DeliveryError> {
        let mut payload = payload::build(fields, &hook.id, hook.moment, webhook);
        let email = match payload::email_owner(&payload, fields, webhook) {
            Some(owner) => self.emails.of(owner).await,
            None => None,
        };
        if let Some(email) = email {
            payload::add_email(&mut payload, &email);
        }
        let body = serde_json::to_vec(&payload).map_err(|_| DeliveryError::configuration())?;
        Ok(body.into())
    }

    /// One call, whose answer is dropped unread.
    async fn fetch(
        &self,
        hook: &Hook,
        webhook: &WebhookConfig,
        body: Bytes,
        purpose: Purpose<'_>,
    ) -> Result<(), DeliveryError> {
        let answer = self.outbound.call(hook, webhook, body, purpose).await?;
        drop(answer);
        Ok(())
    }

    /// Queues durably, or sends once from here when that fails and the hook allows it.
    async fn enqueue(
        &self,
        hook: &Hook,
        webhook: &WebhookConfig,
        body: Bytes,
        is_patient: &mut bool,
        event: &Event,
    ) -> Result<(), DeliveryError> {
        let queued = Queued::new(webhook, body.clone(), &*self.outbound.environment)?;
        let publisher = self.publisher.as_ref();
        let published = queue::publish(
            publisher,
            &self.outbound,
            &*self.clock,
            &queued,
            *is_patient,
        )
        .await?;
        let Err(NotQueued {
            error,
            id,
            is_unanswered,
        }) = published
        else {
            return Ok(());
        };
        *is_patient &= !is_unanswered;
        if webhook.is_critical {
            return Err(error);
        }
        tracing::warn!(
            operation_id = event.operation_id(),
            hook_id = hook.id,
            hook_type = hook.moment.as_str(),
            code = error.code.as_str(),
            status = error.status,
            "[HookDispatcher] QStash delivery failed, falling back to fetch"
        );
        let purpose = Purpose::InPlaceOf(id.as_ref());
        self.fetch(hook, webhook, body, purpose).await
    }
}

/// Calls a handler. One that panics has failed like any other.
pub(crate) async fn call(handler: &Handler, event: &Event) -> Result<(), HandlerError> {
    let called = AssertUnwindSafe(async { handler(event.clone()).await });
    let ended = called.catch_unwind().await;
    ended.unwrap_or_else(|_| Err("the handler panicked".into()))
}

/// What runs a hook, whose panic must touch no other hook and is an error like any other.
pub(crate) async fn caught<T>(
    running: impl Future<Output = Result<T, DeliveryError>>,
) -> Result<T, DeliveryError> {
    let ended = AssertUnwindSafe(running).catch_unwind().await;
    ended.unwrap_or_else(|_| Err(DeliveryError::configuration().with_detail("it panicked")))
}

/// # Errors
/// The event cannot be written as JSON.
pub(crate) fn fields_of(event: &Event) -> Result<Map<String, Value>, DeliveryError> {
    event
        .to_fields()
        .map_err(|_| DeliveryError::configuration())
}

pub(crate) fn log_handler(event: &Event, hook: &Hook, error: &(dyn std::error::Error + 'static)) {
    tracing::debug!(
        operation_id = event.operation_id(),
        hook_id = hook.id,
        hook_type = hook.moment.as_str(),
        error,
        "[HookDispatcher] Hook handler failed (non-fatal)"
    );
}

fn log_failure(event: &Event, hook: &Hook, cause: &DeliveryError, is_critical: bool) {
    let operation_id = event.operation_id();
    let hook_type = hook.moment.as_str();
    let (hook_id, code, status, detail) = (
        &hook.id,
        cause.code.as_str(),
        cause.status,
        cause.detail.as_deref(),
    );
    if is_critical {
        tracing::error!(
            operation_id,
            hook_id,
            hook_type,
            code,
            status,
            detail,
            "[HookDispatcher] Critical webhook delivery failed"
        );
    } else {
        tracing::warn!(
            operation_id,
            hook_id,
            hook_type,
            code,
            status,
            detail,
            "[HookDispatcher] Webhook delivery failed (non-fatal)"
        );
    }
}
