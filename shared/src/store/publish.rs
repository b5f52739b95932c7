//! publish: accepting messages.

use bytes::Bytes;

use super::args::{Args, Reader};
use super::host::{HostError, Step};
use super::{Store, scripts};
use crate::message::{
    EnvelopeError, FlowLimits, Lane, LoggedEvent, MessageId, NewMessage, Shard, When,
};

/// A body that no script has accepted goes away after this long.
const GUARD_S: &str = "600";
/// How often a message whose guarded body was gone is sent again.
const BODY_MISSING_RESENDS: u32 = 3;

/// What a message brings to its lane's settings. Zero means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaneLimits {
    /// Most calls in flight.
    pub cap: u32,
    /// Most starts in a period.
    pub rate: u32,
    /// The rate's period in milliseconds.
    pub period_ms: u64,
}

impl LaneLimits {
    /// What a message brings whose flow-control key came with `flow`.
    pub fn of(flow: Option<FlowLimits>) -> Self {
        flow.map_or_else(Self::default, |flow| Self {
            cap: flow.parallelism.unwrap_or(0),
            rate: flow.rate.unwrap_or(0),
            period_ms: flow.period_ms,
        })
    }
}

/// One message on its way into the store. The same value may be sent any number of times.
#[derive(Debug, Clone)]
pub struct Enqueue {
    /// Drawn before the first try and kept over all tries.
    pub id: MessageId,
    /// The encoded envelope.
    pub envelope: Bytes,
    /// Deduplication scope; `None` accepts every message.
    pub dedup_scope: Option<String>,
    /// The lane it waits in.
    pub lane: Lane,
    /// Destination host, counted for fairness.
    pub host: String,
    /// When it is due; a delay counts from the host's time of acceptance.
    pub when: When,
    /// Retries after the first attempt.
    pub retries: u32,
    /// Limits of its flow-control key.
    pub limits: LaneLimits,
    /// Its event for the log.
    pub event: Bytes,
}

impl Enqueue {
    /// `message` under the name `id`, ready to be sent any number of times.
    pub fn new(id: MessageId, message: NewMessage) -> Result<Self, EnvelopeError> {
        let header = message.header();
        let limits = LaneLimits::of(header.flow);
        Ok(Self {
            id,
            dedup_scope: message.dedup_name(),
            lane: message.lane().clone(),
            host: host_name(header.url.host_lane()),
            when: message.when(),
            retries: header.retries,
            limits,
            event: LoggedEvent::of(header).encode(),
            envelope: message.into_envelope().encode()?,
        })
    }
}

/// The name under which a destination host is counted: its lane without the kind.
pub fn host_name(host_lane: &Lane) -> String {
    host_lane.as_str().trim_start_matches("h:").to_owned()
}

/// Several messages that share one body. All belong to one shard. The same value may be sent any
/// number of times.
#[derive(Debug, Clone)]
pub struct EnqueueGroup {
    /// Name of the body they share, of this shard and used by nothing else.
    pub body_key: String,
    /// The encoded envelope that holds the body.
    pub body: Bytes,
    /// The members, whose envelopes name the body.
    pub members: Vec<Enqueue>,
}

impl EnqueueGroup {
    /// `messages` of one body under their names, ready to be sent.
    pub fn new(messages: Vec<(MessageId, NewMessage)>) -> Result<Self, EnvelopeError> {
        let first = messages.first();
        let body_key = first.map_or_else(String::new, |(id, _)| format!("g_{id}"));
        let body = first.map(|(_, message)| message.clone().into_envelope().encode());
        let body = body.transpose()?.unwrap_or_default();
        let members = messages
            .into_iter()
            .map(|(id, message)| Enqueue::new(id, message.sharing_body(&body_key)));
        Ok(Self {
            members: members.collect::<Result<_, _>>()?,
            body_key,
            body,
        })
    }
}

/// The store's answer to a publish: durable when it is returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepted {
    /// The message is in the store, now or since an earlier try.
    Message(MessageId),
    /// Another message with the same deduplication id came first; nothing was stored.
    Duplicate(MessageId),
}

impl Store {
    /// Publishes `batch`, whose ids all belong to `shard`, in one pipeline, each with its own
    /// result. Order is kept. A repeat with the same ids is safe and changes nothing; after
    /// [`HostError::Lost`] a message may or may not have been accepted.
    pub async fn publish(
        &self,
        shard: Shard,
        batch: &[Enqueue],
    ) -> Vec<Result<Accepted, HostError>> {
        let mut results: Vec<Result<Accepted, HostError>> =
            batch.iter().map(|_| Err(body_missing())).collect();
        let mut open: Vec<usize> = (0..batch.len()).collect();
        for _ in 0..=BODY_MISSING_RESENDS {
            let items: Vec<&Enqueue> = open.iter().filter_map(|&i| batch.get(i)).collect();
            let answers = self.publish_once(shard, &items).await;
            let mut missing = Vec::new();
            for (&index, answer) in open.iter().zip(answers) {
                match answer {
                    Ok(None) => missing.push(index),
                    Ok(Some(accepted)) => set(&mut results, index, Ok(accepted)),
                    Err(error) => set(&mut results, index, Err(error)),
                }
            }
            if missing.is_empty() {
                break;
            }
            open = missing;
        }
        results
    }

    /// Publishes the members of a group in one step: one answer for each, in order, or none when it
    /// failed. When and limits are those of the first member. A repeat with the same ids is safe and
    /// changes nothing; after [`HostError::Lost`] all may have been accepted.
    pub async fn publish_group(
        &self,
        shard: Shard,
        group: &EnqueueGroup,
    ) -> Result<Vec<Accepted>, HostError> {
        for _ in 0..=BODY_MISSING_RESENDS {
            let answers = self.publish_group_once(shard, group).await?;
            if answers.len() == group.members.len() {
                return Ok(answers);
            }
        }
        Err(body_missing())
    }

    /// One pipeline. No answers: a guarded body was gone when the script ran.
    async fn publish_group_once(
        &self,
        shard: Shard,
        group: &EnqueueGroup,
    ) -> Result<Vec<Accepted>, HostError> {
        let Some(first) = group.members.first() else {
            return Ok(Vec::new());
        };
        let mut steps = vec![self.guarded_envelope(shard, &group.body_key, &group.body)];
        for member in &group.members {
            steps.push(self.guarded_envelope(shard, member.id.as_str(), &member.envelope));
        }
        let (due_ms, delay_ms) = due(first.when);
        let mut args = Args::new()
            .text(&group.body_key)
            .number(due_ms)
            .number(delay_ms)
            .number(first.retries)
            .number((group.body.len() + first.envelope.len()) as u64)
            .number(first.limits.cap)
            .number(first.limits.rate)
            .number(first.limits.period_ms)
            .number(self.retention.dedup_window_ms)
            .number(group.members.len() as u64);
        for member in &group.members {
            args = args
                .text(member.id.as_str())
                .text(member.dedup_scope.as_deref().unwrap_or_default())
                .text(member.lane.as_str())
                .text(&member.host)
                .bytes(member.event.clone());
        }
        steps.push(self.script(shard, &scripts::PUBLISH_GROUP, args));
        let mut replies = self.host.run(steps).await;
        let script = replies.pop();
        let script = script.unwrap_or_else(|| Err(HostError::Lost(String::new())))?;
        let mut reader = Reader::new(script, "publish group")?;
        let mut answers = Vec::with_capacity(group.members.len());
        while reader.len() > 0 {
            answers.extend(read_accepted(&mut reader)?);
        }
        // What kept the script from finding a body says more than that it did not.
        match replies.into_iter().find_map(Result::err) {
            Some(error) if answers.is_empty() => Err(error),
            _ => Ok(answers),
        }
    }

    /// One pipeline. `None`: the guarded body was gone when the script ran.
    async fn publish_once(
        &self,
        shard: Shard,
        batch: &[&Enqueue],
    ) -> Vec<Result<Option<Accepted>, HostError>> {
        let mut steps = Vec::with_capacity(batch.len() * 2);
        for message in batch {
            steps.push(self.guarded_envelope(shard, message.id.as_str(), &message.envelope));
            steps.push(self.publish_step(shard, message));
        }
        let mut replies = self.host.run(steps).await.into_iter();
        let mut results = Vec::with_capacity(batch.len());
        while let (Some(body), Some(script)) = (replies.next(), replies.next()) {
            results.push(match (script.and_then(read_answer), body) {
                (Ok(None), Err(error)) => Err(error),
                (answer, _) => answer,
            });
        }
        results
    }

    pub(super) fn guarded_envelope(&self, shard: Shard, id: &str, envelope: &Bytes) -> Step {
        Step::Command(vec![
            Bytes::from_static(b"SET"),
            self.keys.envelope(shard, id),
            envelope.clone(),
            Bytes::from_static(b"NX"),
            Bytes::from_static(b"EX"),
            Bytes::from_static(GUARD_S.as_bytes()),
        ])
    }

    fn publish_step(&self, shard: Shard, message: &Enqueue) -> Step {
        let (due_ms, delay_ms) = due(message.when);
        let args = Args::new()
            .text(message.id.as_str())
            .text(message.dedup_scope.as_deref().unwrap_or_default())
            .number(self.retention.dedup_window_ms)
            .text(message.lane.as_str())
            .text(&message.host)
            .number(due_ms)
            .number(delay_ms)
            .number(message.retries)
            .number(message.envelope.len() as u64)
            .number(message.limits.cap)
            .number(message.limits.rate)
            .number(message.limits.period_ms)
            .bytes(message.event.clone());
        self.script(shard, &scripts::PUBLISH_MESSAGE, args)
    }
}

/// A time in milliseconds since the epoch and a delay in milliseconds; 0 = none.
pub(super) fn due(when: When) -> (u64, u64) {
    match when {
        When::Now => (0, 0),
        When::At(ms) => (ms, 0),
        When::After(delay) => (0, u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
    }
}

fn set<T>(results: &mut [T], index: usize, value: T) {
    if let Some(slot) = results.get_mut(index) {
        *slot = value;
    }
}

fn body_missing() -> HostError {
    HostError::RetryLater("the body was gone before the message was accepted".to_owned())
}

fn read_answer(reply: super::host::Reply) -> Result<Option<Accepted>, HostError> {
    read_accepted(&mut Reader::new(reply, "publish")?)
}

/// The next answer and its id; `None`: the body was missing.
fn read_accepted(reader: &mut Reader) -> Result<Option<Accepted>, HostError> {
    let answer = reader.text()?;
    let id = reader
        .text()?
        .parse::<MessageId>()
        .map_err(|error| HostError::Fault(error.to_string()))?;
    match answer.as_str() {
        "accepted" => Ok(Some(Accepted::Message(id))),
        "duplicate" => Ok(Some(Accepted::Duplicate(id))),
        _ => Ok(None),
    }
}
