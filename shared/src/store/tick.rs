//! Firing schedules: at most once for each due time, by any number of processes.

use bytes::Bytes;

use super::args::{Args, Reader, command, text};
use super::host::{HostError, StepResult};
use super::schedules::{Schedule, milliseconds};
use super::{LaneLimits, Store, host_name, scripts};
use crate::message::{
    Destination, Envelope, EnvelopeError, EnvelopeHeader, GroupEndpoint, Lane, LoggedEvent,
    MessageId, Shard,
};

/// How often a tick whose guarded envelopes were gone is sent again.
const BODY_MISSING_RESENDS: u32 = 3;

/// One firing of a schedule. The same value may be sent any number of times.
#[derive(Debug, Clone)]
pub struct Tick {
    /// The schedule.
    pub id: String,
    /// The body key of the one that was read.
    pub body_key: String,
    /// The due time the caller saw, in milliseconds since the epoch.
    pub expected_ms: u64,
    /// The due time after it; `None` = it is due no more.
    pub next_ms: Option<u64>,
    /// How long the messages wait before they are ready, in milliseconds.
    pub delay_ms: u64,
    /// Retries of each message.
    pub retries: u32,
    /// Bytes of an envelope and of the body it names.
    pub size: u64,
    /// Limits of the flow-control key.
    pub limits: LaneLimits,
    /// Why there are no messages, or not all; empty when there is nothing to say.
    pub fault: String,
    /// The messages, in the shard of the schedule. Without any the due time goes on all the same.
    pub members: Vec<TickMember>,
}

/// One message of a firing.
#[derive(Debug, Clone)]
pub struct TickMember {
    /// Its id, drawn before the first try and kept over all tries.
    pub id: MessageId,
    /// Its envelope, which names the schedule's body.
    pub envelope: Bytes,
    /// Its lane.
    pub lane: Lane,
    /// Its destination host.
    pub host: String,
    /// Its event for the log.
    pub event: Bytes,
}

impl Tick {
    /// The firing of `schedule` (called `id`) that was due at `expected_ms` and is due next at
    /// `next_ms`, without messages yet; `header` is that of its message, which has `bytes`.
    pub fn new(
        id: &str,
        schedule: &Schedule,
        (expected_ms, next_ms): (u64, Option<u64>),
        (header, bytes): (&EnvelopeHeader, u64),
    ) -> Self {
        Self {
            retries: header.retries,
            size: bytes,
            limits: LaneLimits::of(header.flow),
            delay_ms: schedule.delay_ms,
            ..Self::without_message(id, schedule, expected_ms, next_ms, "")
        }
    }

    /// A firing that makes nothing, because of `fault`.
    pub fn without_message(
        id: &str,
        schedule: &Schedule,
        expected_ms: u64,
        next_ms: Option<u64>,
        fault: &str,
    ) -> Self {
        Self {
            id: id.to_owned(),
            body_key: schedule.body_key.clone(),
            expected_ms,
            next_ms,
            delay_ms: 0,
            retries: 0,
            size: 0,
            limits: LaneLimits::default(),
            fault: fault.to_owned(),
            members: Vec::new(),
        }
    }

    /// Adds the message `id`, made at `now_ms` from the schedule's own (`header`), for an endpoint
    /// of its URL group or for its own destination.
    pub fn add(
        &mut self,
        id: MessageId,
        now_ms: u64,
        header: &EnvelopeHeader,
        endpoint: Option<(Destination, GroupEndpoint)>,
    ) -> Result<(), EnvelopeError> {
        let mut header = header.clone();
        if let Some((destination, endpoint)) = endpoint {
            header.url = destination;
            header.endpoint = Some(endpoint);
        }
        let due_ms = now_ms.saturating_add(self.delay_ms);
        header.not_before_ms = Some(due_ms).filter(|_| self.delay_ms > 0);
        header.body_of = Some(self.body_key.clone());
        let (lane, host) = (header.lane().clone(), host_name(header.url.host_lane()));
        let event = LoggedEvent::of(&header).encode();
        let body = Bytes::new();
        self.members.push(TickMember {
            id,
            envelope: Envelope { header, body }.encode()?,
            lane,
            host,
            event,
        });
        Ok(())
    }
}

/// The answer to a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ticked {
    /// This call fired it.
    Fired,
    /// It is not due, another process fired it, or it is another one now.
    NotDue,
    /// The schedule's message is missing; nothing was applied.
    Gone,
}

/// The schedules of a shard that are due first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePage {
    /// The host's time, in milliseconds since the epoch.
    pub now_ms: u64,
    /// Schedules with their due times in milliseconds since the epoch, the earliest first.
    pub first: Vec<(String, u64)>,
}

impl Store {
    /// The `count` schedules of `shard` that are due first, whenever that is.
    pub async fn first_due(&self, shard: Shard, count: u32) -> Result<DuePage, HostError> {
        let last = count.saturating_sub(1).to_string();
        let due = self.keys.of_shard(shard, "sc");
        let steps = vec![
            command([b"ZRANGE", &due, b"0", last.as_bytes(), b"WITHSCORES"]),
            command([b"TIME"]),
        ];
        let [due, time] = self.run_all(steps).await?;
        let mut reader = Reader::new(due, "due schedules")?;
        let mut first = Vec::new();
        while reader.len() > 0 {
            first.push((reader.text()?, reader.number()?));
        }
        let now_ms = milliseconds(time)?;
        Ok(DuePage { now_ms, first })
    }

    /// Fires a schedule if its due time is still the expected one and has come. Safe to repeat: of
    /// all calls for one due time, one fires.
    pub async fn tick_schedule(&self, shard: Shard, tick: &Tick) -> Result<Ticked, HostError> {
        for _ in 0..=BODY_MISSING_RESENDS {
            let mut replies = self.tick_once(shard, tick).await;
            let lost = || Err(HostError::Lost("the host gave no reply".to_owned()));
            let answer = replies.pop().unwrap_or_else(lost)?;
            match text(&answer).as_deref() {
                Some("fired") => return Ok(Ticked::Fired),
                Some("gone") => return Ok(Ticked::Gone),
                // An envelope that could not be set is no use to wait for.
                Some("body_missing") => replies.into_iter().collect::<Result<Vec<_>, _>>()?,
                _ => return Ok(Ticked::NotDue),
            };
        }
        let text = "an envelope was gone before the schedule was fired";
        Err(HostError::RetryLater(text.to_owned()))
    }

    async fn tick_once(&self, shard: Shard, tick: &Tick) -> Vec<StepResult> {
        let mut steps = Vec::with_capacity(tick.members.len() + 1);
        let mut args = Args::new()
            .text(&tick.id)
            .text(&tick.body_key)
            .number(tick.expected_ms)
            .number(tick.next_ms.unwrap_or(0))
            .number(tick.delay_ms)
            .number(tick.retries)
            .number(tick.size)
            .number(tick.limits.cap)
            .number(tick.limits.rate)
            .number(tick.limits.period_ms)
            .text(&tick.fault)
            .number(tick.members.len() as u64);
        for member in &tick.members {
            steps.push(self.guarded_envelope(shard, member.id.as_str(), &member.envelope));
            args = args
                .text(member.id.as_str())
                .text(member.lane.as_str())
                .text(&member.host)
                .bytes(member.event.clone());
        }
        steps.push(self.script(shard, &scripts::TICK_SCHEDULE, args));
        self.host.run(steps).await
    }
}
