//! Schedules: firing one at most once for each due time, by any number of processes.

use std::time::Duration;

use bytes::Bytes;

use super::args::{Args, text};
use super::host::HostError;
use super::{Store, scripts};
use crate::message::{Lane, MessageId, Shard};

/// One firing of a schedule.
#[derive(Debug, Clone)]
pub struct Tick {
    /// The schedule.
    pub schedule: String,
    /// The due time the caller saw.
    pub expected_ms: u64,
    /// The due time after it.
    pub next_ms: u64,
    /// The message, in the shard of the schedule.
    pub id: MessageId,
    /// Its envelope, which names the schedule's body.
    pub envelope: Bytes,
    /// The schedule's body key.
    pub body_key: String,
    /// Its lane.
    pub lane: Lane,
    /// Its destination host.
    pub host: String,
    /// Its retries.
    pub retries: u32,
    /// Bytes of its envelope and of the body it names.
    pub size: u64,
    /// How long it waits before it is ready.
    pub delay: Duration,
    /// Its event for the log.
    pub event: Bytes,
}

/// The answer to a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticked {
    /// This call fired it.
    Fired,
    /// It is not due, or another process fired it.
    NotDue,
    /// A body was missing; nothing was applied.
    BodyMissing,
}

impl Store {
    /// Fires a schedule if its due time is still the expected one and has come.
    pub async fn tick_schedule(&self, shard: Shard, tick: &Tick) -> Result<Ticked, HostError> {
        let delay_ms: u64 = tick.delay.as_millis().try_into().unwrap_or(u64::MAX);
        let args = Args::new()
            .text(&tick.schedule)
            .number(tick.expected_ms)
            .number(tick.next_ms)
            .text(tick.id.as_str())
            .text(&tick.body_key)
            .text(tick.lane.as_str())
            .text(&tick.host)
            .number(tick.retries)
            .number(tick.size)
            .number(delay_ms)
            .bytes(tick.event.clone());
        let steps = vec![
            self.guarded_envelope(shard, tick.id.as_str(), &tick.envelope),
            self.script(shard, &scripts::TICK_SCHEDULE, args),
        ];
        let last = self.host.run(steps).await.into_iter().nth(1);
        let reply = last.unwrap_or_else(|| Err(HostError::Lost(String::new())))?;
        Ok(match text(&reply).as_deref() {
            Some("accepted") => Ticked::Fired,
            Some("body_missing") => Ticked::BodyMissing,
            _ => Ticked::NotDue,
        })
    }
}
