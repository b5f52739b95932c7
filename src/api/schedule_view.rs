//! A schedule as clients see it. Absent fields are left out, never null or empty.

use hookstash_shared::message::{EnvelopeHeader, RedactField, RetryDelay, State};
use hookstash_shared::store::StoredSchedule;
use serde_json::{Map, Value};

use super::message_view::{Object, put, put_body, put_callbacks, put_flow, put_headers};

/// What there is to show.
pub(super) struct Shown<'a> {
    pub(super) stored: &'a StoredSchedule,
    /// The header of its message; `None` when that cannot be read.
    pub(super) header: Option<&'a EnvelopeHeader>,
    /// The body of its message; empty when there is none, or when it is left out.
    pub(super) body: &'a [u8],
    /// What became of the messages that it made last, in their order.
    pub(super) states: &'a [Option<State>],
}

/// All that is stored of a schedule, with the redacted parts of its message as hashes.
pub(super) fn view(shown: &Shown<'_>) -> Object {
    let (stored, schedule) = (shown.stored, &shown.stored.schedule);
    let mut object = Object::new();
    put(&mut object, "scheduleId", Some(&stored.id));
    put(&mut object, "cron", Some(schedule.cron.as_str()));
    put(&mut object, "createdAt", Some(schedule.created_ms));
    put(&mut object, "isPaused", Some(stored.is_paused));
    let delay_s = Some(schedule.delay_ms.div_ceil(1_000)).filter(|delay| *delay > 0);
    put(&mut object, "delay", delay_s);
    match shown.header {
        Some(header) => put_message(&mut object, header, schedule.group.as_deref(), shown.body),
        None => put_nothing(&mut object),
    }
    put(&mut object, "nextScheduleTime", stored.due_ms);
    put(&mut object, "lastScheduleTime", stored.fired_ms);
    let states = last_states(stored, shown.states);
    put(
        &mut object,
        "lastScheduleStates",
        Some(states).filter(|states| !states.is_empty()),
    );
    put(&mut object, "error", stored.fault.as_ref());
    object
}

fn put_message(object: &mut Object, header: &EnvelopeHeader, group: Option<&str>, body: &[u8]) {
    let destination = group.unwrap_or(header.url.as_str());
    put(object, "destination", Some(destination));
    put(object, "method", Some(header.method.as_str()));
    put(object, "retries", Some(header.retries));
    put_headers(object, "header", &header.headers, &header.redact);
    put_body(
        object,
        ["body", "bodyBase64"],
        body,
        header.redact.contains(&RedactField::Body),
    );
    put(object, "timeout", Some(header.timeout_ms.div_ceil(1_000)));
    put(object, "callerIP", header.caller_ip);
    put(object, "queueName", header.queue());
    let delay = header.retry_delay.as_ref().map(RetryDelay::as_str);
    put(object, "retryDelayExpression", delay);
    put(object, "label", header.labels.first());
    let labels = Some(&header.labels).filter(|labels| !labels.is_empty());
    put(object, "labels", labels);
    put_callbacks(object, header);
    put(object, "flowControlKey", header.flow_key());
    put_flow(object, header.flow);
}

/// The fields that clients rely on, of a schedule whose message is missing.
fn put_nothing(object: &mut Object) {
    put(object, "destination", Some(""));
    put(object, "method", Some("POST"));
    put(object, "retries", Some(0));
}

/// What became of the last messages, by id; those of which nothing is known any more are left out.
fn last_states(stored: &StoredSchedule, states: &[Option<State>]) -> Map<String, Value> {
    let known = stored.fired.iter().zip(states);
    known
        .filter_map(|(id, state)| {
            let state = match (*state)? {
                State::Ready | State::Delayed | State::Holding | State::Leased => "IN_PROGRESS",
                State::Delivered => "SUCCESS",
                State::Dead | State::Cancelled => "FAIL",
            };
            Some((id.to_string(), state.into()))
        })
        .collect()
}
