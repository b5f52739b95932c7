//! Queueing in our own store. The message carries templates, never what they stand for.

use std::time::Duration;

use hookstash_shared::clock::Clock;
use hookstash_shared::message::{Destination, Fallback, Limits, NewMessage, NewMessageError};
use hookstash_shared::store::host::HostError;

use super::{NotQueued, Queued, refused, unreachable};
use crate::publish::{PublishError, Publisher};

pub(super) async fn publish(
    publisher: &Publisher,
    limits: &Limits,
    clock: &dyn Clock,
    queued: &Queued<'_>,
    patience: Duration,
) -> Result<(), NotQueued> {
    const BAD_REQUEST: u16 = 400;
    const TOO_LARGE: u16 = 413;
    const UNAVAILABLE: u16 = 503;
    let message = message_of(queued, clock.now_ms(), limits).map_err(|error| {
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
    let (error, is_unanswered) = match result {
        Some(Ok(_)) => return Ok(()),
        Some(Err(PublishError::NotAccepted(HostError::Fault(_)) | PublishError::Envelope(_))) => {
            (refused(BAD_REQUEST), false)
        }
        Some(Err(PublishError::NotAccepted(host))) if host.is_refusal() => {
            (refused(UNAVAILABLE), false)
        }
        Some(Err(PublishError::NotAccepted(_) | PublishError::Unknown { .. })) | None => {
            (unreachable(), true)
        }
    };
    Err(NotQueued {
        error,
        id: Some(id),
        is_unanswered,
    })
}

/// A message to our own store.
fn message_of(
    queued: &Queued<'_>,
    now_ms: u64,
    limits: &Limits,
) -> Result<NewMessage, NewMessageError> {
    let fallback = if queued.webhook.is_critical {
        Fallback::None
    } else {
        Fallback::Fetch
    };
    NewMessage::to(Destination::parse(queued.url.as_str())?)
        .headers(queued.headers.clone())
        .body(queued.body.clone())
        .timeout(queued.webhook.timeout.min(limits.timeout_max))
        .fallback(fallback)
        .build(now_ms, limits)
}
