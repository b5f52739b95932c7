//! exchange: settle, promote, recover and lease a batch; renew and release leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use super::args::{Args, Reader};
use super::host::{HostError, Reply, Step};
use super::publish::host_name;
use super::record::Record;
use super::{Store, scripts};
use crate::message::{Envelope, EnvelopeError, Lane, LoggedEvent, MessageId, Shard};

/// At this many losses a message is leased once more, without a call, to be settled dead.
pub const LOST_MAX: u32 = 8;

/// Fences one lease: only its holder may settle, renew or release it. The number grows with every
/// lease; the nonce tells apart leases with one number after a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseToken {
    /// Number of the lease, from 1.
    pub number: u64,
    /// Drawn by the caller for each exchange.
    pub nonce: u32,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The destination took it.
    Delivered,
    /// It failed and is due again after this long.
    Retry {
        /// Time from the host's now to the next attempt.
        after: Duration,
    },
    /// It failed for good.
    Dead {
        /// The encoded last response, kept with the dead letter.
        response: Bytes,
    },
    /// Its cancellation was requested while it was leased.
    Cancelled,
}

/// A message that a settlement creates in the shard of its source: a callback.
#[derive(Debug, Clone)]
pub struct Child {
    /// Kept over resends: an existing child is skipped.
    pub id: MessageId,
    /// Its envelope, which may name its source's body.
    pub envelope: Bytes,
    /// The body key its envelope names.
    pub body_key: Option<String>,
    /// Its lane.
    pub lane: Lane,
    /// Its destination host.
    pub host: String,
    /// Its retries.
    pub retries: u32,
    /// What a worker must hold to send it, in bytes: see [`Envelope::bytes_held`].
    pub size: u64,
    /// How long it waits before it is ready.
    pub delay: Duration,
    /// Its event for the log.
    pub event: Bytes,
}

impl Child {
    /// The callback with this envelope. It is due so long after it was made; `source_bytes` is the
    /// size of the stored value whose body it names.
    pub fn new(
        id: MessageId,
        callback: Envelope,
        delay: Duration,
        source_bytes: usize,
    ) -> Result<Self, EnvelopeError> {
        let envelope = callback.encode()?;
        let header = callback.header;
        let size = Envelope::bytes_held(envelope.len(), source_bytes, true);
        Ok(Self {
            id,
            size: size as u64,
            envelope,
            host: host_name(header.url.host_lane()),
            lane: header.lane().clone(),
            retries: header.retries,
            delay,
            event: LoggedEvent::of(&header).encode(),
            body_key: header.body_of,
        })
    }
}

/// The end of one attempt. May be sent again until it is answered: a repeat is a counted no-op.
#[derive(Debug, Clone)]
pub struct Settlement {
    /// The message.
    pub id: MessageId,
    /// The lease it was attempted under.
    pub token: LeaseToken,
    /// How it ended.
    pub outcome: Outcome,
    /// Its event for the log.
    pub event: Bytes,
    /// Callbacks, entered by the same script.
    pub children: Vec<Child>,
}

/// What a settlement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// The message ended or waits for its retry.
    Applied,
    /// It is leased by another worker now; a success is noted and wins whatever that one reports.
    Noted,
    /// The token is no longer current: nothing was changed.
    Stale,
}

/// How many calls a lane may have in flight before others come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fair {
    /// For a flow-control lane.
    pub flow: u64,
    /// For a host lane, and for a destination host.
    pub host: u64,
}

/// One exchange with one shard.
#[derive(Debug, Clone)]
pub struct Exchange<'a> {
    /// Ends of attempts, all of this shard.
    pub settlements: &'a [Settlement],
    /// How many messages the caller can start now. 0 still promotes and recovers.
    pub want: u32,
    /// Drawn for this exchange.
    pub nonce: u32,
    /// The caller's fairness thresholds.
    pub fair: Fair,
    /// How many expired leases and ended messages it looks at; 0 leaves that to another exchange.
    pub upkeep: u32,
    /// Whether the caller has been in touch long enough to judge expired leases.
    pub may_recover: bool,
    /// Bytes of envelopes and bodies it may lease; at least one message comes whatever its size.
    pub byte_budget: u64,
}

/// A message this worker holds for one lease time.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The message.
    pub id: MessageId,
    /// Its fence.
    pub token: LeaseToken,
    /// Failures so far: `Upstash-Retried`.
    pub failed: u32,
    /// Losses so far; at [`LOST_MAX`] no call is made.
    pub lost: u32,
    /// Key whose body it shares.
    pub body_key: Option<String>,
    /// Its lane.
    pub lane: String,
    /// Whether a queue waits for its end: it is a callback of a message in that queue.
    pub holds_queue: bool,
    /// Its envelope, if that is small and came along; else [`Store::envelopes`] asks for it.
    pub envelope: Option<Bytes>,
}

/// What an exchange did besides leasing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Due messages that became ready.
    pub promoted: u64,
    /// Expired leases that came back.
    pub recovered: u64,
    /// Lane entries whose message had moved on.
    pub skipped: u64,
    /// Messages without an envelope, now dead.
    pub buried: u64,
    /// Records that could not be read; the auditor looks at them.
    pub unreadable: u64,
    /// Dead letters past their retention, now deleted.
    pub trimmed: u64,
}

/// The answer to an exchange.
#[derive(Debug, Clone)]
pub struct Exchanged {
    /// The host's time.
    pub now_ms: u64,
    /// When the next delayed message, timed lane or lease is due.
    pub next_due_ms: Option<u64>,
    /// Work was left, or only skipped: call again.
    pub more: bool,
    /// Its upkeep has reached its limit: there is more to look at.
    pub is_behind: bool,
    /// One for each settlement.
    pub settled: Vec<Settled>,
    /// The new leases.
    pub leases: Vec<Lease>,
    /// Counts for metrics.
    pub counters: Counters,
}

/// A lease to renew or release.
#[derive(Debug, Clone)]
pub struct Held {
    /// The message.
    pub id: MessageId,
    /// Its fence.
    pub token: LeaseToken,
    /// Whether its call had started: then a release is a loss.
    pub started: bool,
}

/// The answer to a renewal.
#[derive(Debug, Clone, Default)]
pub struct Renewed {
    /// No longer held: drop the call, settle nothing but a success.
    pub lost: Vec<MessageId>,
    /// Cancelled while leased: drop the call and settle it cancelled.
    pub cancelled: Vec<MessageId>,
}

impl Store {
    /// Settles, promotes, recovers and leases in one script. After [`HostError::Lost`] the
    /// settlements may be sent again; messages it leased come back when their leases expire.
    pub async fn exchange(
        &self,
        shard: Shard,
        exchange: &Exchange<'_>,
    ) -> Result<Exchanged, HostError> {
        let mut args = Args::new()
            .number(exchange.want)
            .number(exchange.nonce)
            .number(exchange.fair.flow)
            .number(exchange.fair.host)
            .number(exchange.upkeep)
            .flag(exchange.may_recover)
            .number(self.lease_ms)
            .number(exchange.byte_budget)
            .number(self.retention.delivered_grace_ms)
            .number(self.retention.dead_letter_ms)
            .number(exchange.settlements.len() as u64);
        for settlement in exchange.settlements {
            args = push_settlement(args, settlement);
        }
        let reply = self.run_script(shard, &scripts::EXCHANGE, args).await?;
        read_exchanged(reply, exchange.nonce)
    }

    /// The envelopes of `leases`, and each body that they share: asks for what did not come along,
    /// each once. `None` where a key is missing. Safe to repeat.
    pub async fn envelopes(
        &self,
        shard: Shard,
        leases: &[Lease],
    ) -> Result<Vec<(Option<Bytes>, Option<Bytes>)>, HostError> {
        let body_keys: BTreeSet<&str> = leases
            .iter()
            .filter_map(|lease| lease.body_key.as_deref())
            .collect();
        let asked = leases.iter().filter(|lease| lease.envelope.is_none());
        let names = asked.map(|lease| lease.id.as_str()).chain(body_keys);
        let names: Vec<&str> = names.collect();
        let mut found = BTreeMap::new();
        if !names.is_empty() {
            let mut mget = vec![Bytes::from_static(b"MGET")];
            mget.extend(names.iter().map(|name| self.keys.envelope(shard, name)));
            let reply = self.run_one(Step::Command(mget)).await?;
            let mut values = Reader::new(reply, "envelopes")?;
            for name in names {
                found.insert(name, bytes(values.next()?));
            }
        }
        let find = |name: &str| found.get(name).cloned().flatten();
        let envelope = |lease: &Lease| lease.envelope.clone().or_else(|| find(lease.id.as_str()));
        let body = |lease: &Lease| find(lease.body_key.as_deref()?);
        Ok(leases
            .iter()
            .map(|lease| (envelope(lease), body(lease)))
            .collect())
    }

    /// Extends leases that are still held, even expired ones that nobody recovered. Safe to repeat.
    pub async fn renew(&self, shard: Shard, held: &[Held]) -> Result<Renewed, HostError> {
        let mut args = Args::new().number(self.lease_ms);
        for lease in held {
            args = push_token(args, &lease.id, lease.token);
        }
        let reply = self.run_script(shard, &scripts::RENEW_LEASES, args).await?;
        let mut reader = Reader::new(reply, "renew")?;
        Ok(Renewed {
            lost: ids(reader.array()?)?,
            cancelled: ids(reader.array()?)?,
        })
    }

    /// Hands leases back and returns how many were still held. Safe to repeat.
    pub async fn release(&self, shard: Shard, held: &[Held]) -> Result<u64, HostError> {
        let mut args = Args::new().number(self.lease_ms);
        for lease in held {
            args = push_token(args, &lease.id, lease.token).flag(lease.started);
        }
        let reply = self
            .run_script(shard, &scripts::RELEASE_LEASES, args)
            .await?;
        Reader::new(Reply::Array(vec![reply]), "release")?.number()
    }
}

fn push_token(args: Args, id: &MessageId, token: LeaseToken) -> Args {
    args.text(id.as_str())
        .number(token.number)
        .number(token.nonce)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn push_settlement(args: Args, settlement: &Settlement) -> Args {
    let (outcome, response) = match &settlement.outcome {
        Outcome::Delivered => (Bytes::from_static(b"k"), Bytes::new()),
        Outcome::Retry { after } => (format!("r{}", millis(*after)).into(), Bytes::new()),
        Outcome::Dead { response } => (Bytes::from_static(b"x"), response.clone()),
        Outcome::Cancelled => (Bytes::from_static(b"c"), Bytes::new()),
    };
    let mut args = push_token(args, &settlement.id, settlement.token)
        .bytes(outcome)
        .bytes(response)
        .bytes(settlement.event.clone())
        .number(settlement.children.len() as u64);
    for child in &settlement.children {
        args = args
            .text(child.id.as_str())
            .bytes(child.envelope.clone())
            .text(child.body_key.as_deref().unwrap_or_default())
            .text(child.lane.as_str())
            .text(&child.host)
            .number(child.retries)
            .number(child.size)
            .number(millis(child.delay))
            .bytes(child.event.clone());
    }
    args
}

fn bytes(reply: Reply) -> Option<Bytes> {
    match reply {
        Reply::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn message_id(text: &str) -> Result<MessageId, HostError> {
    text.parse::<MessageId>()
        .map_err(|error| HostError::Fault(error.to_string()))
}

fn ids(mut reader: Reader) -> Result<Vec<MessageId>, HostError> {
    (0..reader.len())
        .map(|_| message_id(&reader.text()?))
        .collect()
}

fn read_exchanged(reply: Reply, nonce: u32) -> Result<Exchanged, HostError> {
    let mut reader = Reader::new(reply, "exchange")?;
    let now_ms = reader.number()?;
    let next_due_ms = u64::try_from(reader.integer()?).ok();
    let more = reader.integer()? == 1;
    let is_behind = reader.integer()? == 1;
    let states = reader.text()?;
    let settled = states.chars().map(|state| match state {
        '-' => Settled::Stale,
        'l' => Settled::Noted,
        _ => Settled::Applied,
    });
    let settled = settled.collect();
    let leases = read_leases(reader.array()?, nonce)?;
    let mut counts = reader.array()?;
    let counters = Counters {
        promoted: counts.number()?,
        recovered: counts.number()?,
        skipped: counts.number()?,
        buried: counts.number()?,
        unreadable: counts.number()?,
        trimmed: counts.number()?,
    };
    Ok(Exchanged {
        now_ms,
        next_due_ms,
        more,
        is_behind,
        settled,
        leases,
        counters,
    })
}

fn read_leases(mut flat: Reader, nonce: u32) -> Result<Vec<Lease>, HostError> {
    let mut leases = Vec::with_capacity(flat.len() / 3);
    while flat.len() > 0 {
        let (id, packed) = (message_id(&flat.text()?)?, flat.text()?);
        let unreadable = || HostError::Fault(format!("exchange: the record of {id} is unreadable"));
        let record = Record::parse(packed.as_bytes()).ok_or_else(unreadable)?;
        let envelope = bytes(flat.next()?).filter(|envelope| !envelope.is_empty());
        leases.push(Lease {
            id,
            token: LeaseToken {
                number: record.leases,
                nonce,
            },
            failed: record.failed,
            lost: record.lost,
            body_key: record.body_key,
            lane: record.lane,
            holds_queue: record.holds.is_some(),
            envelope,
        });
    }
    Ok(leases)
}
