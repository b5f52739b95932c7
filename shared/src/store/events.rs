//! The event log: reading it in order, and its end. Entries are written by the scripts.
//!
//! Each shard has a stream of its own whose entries hold the events of one script run, packed as
//! `id|code|length|bytes`. A walk merges them by the time of their server:
//!
//! | code | what happened |
//! |---|---|
//! | `n` | accepted, by a publish, a redrive or a schedule |
//! | `k` | delivered |
//! | `r` | an attempt failed and another is due |
//! | `x` | dead |
//! | `q` `c` | a cancel was requested of the worker that holds it; cancelled |
//! | `v` | its worker was lost, and it waits again |
//! | `b` | handed back by a worker |

use std::collections::VecDeque;

use bytes::Bytes;
use futures::future::try_join_all;

use super::Store;
use super::args::{Reader, command};
use super::host::{HostError, Reply};
use super::order::Order;
use crate::message::{MessageId, Shard};

/// Entries that a walk reads from one shard at a time.
const ENTRIES: &[u8] = b"100";

/// The place of an event in the log, which orders all events. It stays valid while others come and
/// go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventPosition {
    /// When it happened, milliseconds since the epoch by the store's clock.
    pub ms: u64,
    /// Number of the entry within its millisecond.
    pub seq: u64,
    /// Its shard.
    pub shard: u16,
    /// Number of the event within its entry.
    pub index: u32,
}

/// One event as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Where and when.
    pub at: EventPosition,
    /// The message.
    pub id: MessageId,
    /// What happened: see the module.
    pub code: char,
    /// The encoded [`LoggedEvent`](crate::message::LoggedEvent); may be empty.
    pub event: Bytes,
}

/// Which part of the log is walked. The default: all of it, newest first.
#[derive(Debug, Clone, Default)]
pub struct EventRange {
    /// Which way.
    pub order: Order,
    /// Begins with this event.
    pub start: Option<EventPosition>,
    /// Only events of then or later, milliseconds since the epoch.
    pub from_ms: Option<u64>,
    /// Only events of then or before, milliseconds since the epoch.
    pub to_ms: Option<u64>,
    /// Only these shards; `None` = all.
    pub shards: Option<Vec<Shard>>,
}

/// A walk through the log. It reads as it goes: a hundred entries of a shard at a time.
pub struct EventWalk<'a> {
    store: &'a Store,
    range: EventRange,
    streams: Vec<Stream>,
}

/// Where the walk is in one shard.
struct Stream {
    shard: Shard,
    /// Read and not yet taken, in the order of the walk.
    events: VecDeque<StoredEvent>,
    /// The last entry that was read; `None` before the first.
    last: Option<String>,
    is_at_end: bool,
}

impl Store {
    /// A walk through `range`.
    pub fn events(&self, range: EventRange) -> EventWalk<'_> {
        let all = || self.shards().iter().collect();
        let shards: Vec<Shard> = range.shards.clone().unwrap_or_else(all);
        let stream = |shard| Stream {
            shard,
            events: VecDeque::new(),
            last: None,
            is_at_end: false,
        };
        EventWalk {
            store: self,
            range,
            streams: shards.into_iter().map(stream).collect(),
        }
    }

    /// Removes the log entries of `shard` that are older than the retention at `now_ms`, whole
    /// blocks at a time. Safe to repeat.
    pub async fn trim_events(&self, shard: Shard, now_ms: u64) -> Result<(), HostError> {
        let key = self.keys.of_shard(shard, "log");
        let oldest = now_ms.saturating_sub(self.retention.events_ms).to_string();
        let trim = command([b"XTRIM", &key, b"MINID", b"~", oldest.as_bytes()]);
        self.run_one(trim).await.map(drop)
    }
}

impl EventWalk<'_> {
    /// The next event; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<StoredEvent>, HostError> {
        let (store, range) = (self.store, &self.range);
        let fill = |stream| fill(store, range, stream);
        try_join_all(self.streams.iter_mut().map(fill)).await?;
        let streams = self.streams.iter_mut();
        let heads = streams.filter(|stream| !stream.events.is_empty());
        let place = |stream: &&mut Stream| stream.events.front().map(|event| event.at);
        let first = match self.range.order {
            Order::LatestFirst => heads.max_by_key(place),
            Order::EarliestFirst => heads.min_by_key(place),
        };
        Ok(first.and_then(|stream| stream.events.pop_front()))
    }
}

/// Reads on in `stream` until it has an event, or has none any more.
async fn fill(store: &Store, range: &EventRange, stream: &mut Stream) -> Result<(), HostError> {
    while stream.events.is_empty() && !stream.is_at_end {
        let (lowest, highest) = bounds(range, stream);
        let key = store.keys.of_shard(stream.shard, "log");
        let (name, from, to): (&[u8], _, _) = match range.order {
            Order::LatestFirst => (b"XREVRANGE", highest, lowest),
            Order::EarliestFirst => (b"XRANGE", lowest, highest),
        };
        let words = [
            name,
            &key,
            from.as_bytes(),
            to.as_bytes(),
            b"COUNT",
            ENTRIES,
        ];
        let reply = store.run_one(command(words)).await?;
        let mut entries = match reply {
            Reply::Nil => {
                stream.is_at_end = true;
                break;
            }
            reply => Reader::new(reply, "event log")?,
        };
        stream.is_at_end = entries.len() == 0;
        while entries.len() > 0 {
            let mut entry = entries.array()?;
            let id = entry.text()?;
            let mut fields = entry.array()?;
            let _name = fields.next()?;
            if let (Reply::Bytes(packed), Some(entry)) =
                (fields.next()?, entry_at(&id, stream.shard))
            {
                let mut events = unpack(&packed, entry);
                if range.order == Order::LatestFirst {
                    events.reverse();
                }
                let is_before_start = |event: &StoredEvent| {
                    range
                        .start
                        .is_some_and(|start| range.order.is_after(&start, &event.at))
                };
                stream
                    .events
                    .extend(events.into_iter().filter(|event| !is_before_start(event)));
            }
            stream.last = Some(id);
        }
    }
    Ok(())
}

/// The lowest and the highest id of entries that are still to be read. The time of the start bounds
/// them too: entries of that time are read again and dropped.
fn bounds(range: &EventRange, stream: &Stream) -> (String, String) {
    let bound =
        |ms: Option<u64>, open: &str| ms.map_or_else(|| open.to_owned(), |ms| ms.to_string());
    let start = range
        .start
        .map(|start| (start.ms, format!("{}-{}", start.ms, start.seq)));
    let mut lowest = bound(range.from_ms, "-");
    let mut highest = bound(range.to_ms, "+");
    if let Some((ms, start)) = start {
        match range.order {
            Order::LatestFirst if range.to_ms.is_none_or(|to| ms <= to) => highest = start,
            Order::EarliestFirst if range.from_ms.is_none_or(|from| ms >= from) => lowest = start,
            _ => {}
        }
    }
    if let Some(last) = &stream.last {
        match range.order {
            Order::LatestFirst => highest = format!("({last}"),
            Order::EarliestFirst => lowest = format!("({last}"),
        }
    }
    (lowest, highest)
}

/// The place of the first event of an entry.
fn entry_at(id: &str, shard: Shard) -> Option<EventPosition> {
    let (ms, seq) = id.split_once('-')?;
    Some(EventPosition {
        ms: ms.parse().ok()?,
        seq: seq.parse().ok()?,
        shard: shard.index(),
        index: 0,
    })
}

/// The events of one entry, in the order in which they happened. What cannot be read, and all after
/// it, is left out.
fn unpack(packed: &Bytes, mut at: EventPosition) -> Vec<StoredEvent> {
    let mut events = Vec::new();
    let mut rest = packed.clone();
    while let Some((event, after)) = unpack_one(&rest, at) {
        events.extend(event);
        at.index += 1;
        rest = after;
    }
    events
}

/// The first event, `None` within when its id is none of ours; and what follows.
fn unpack_one(rest: &Bytes, at: EventPosition) -> Option<(Option<StoredEvent>, Bytes)> {
    let mut parts = rest.splitn(4, |byte| *byte == b'|');
    let (id, code, length) = (parts.next()?, parts.next()?, parts.next()?);
    let begin = id.len() + code.len() + length.len() + 3;
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let end = begin.checked_add(text(length)?.parse().ok()?)?;
    if end > rest.len() {
        return None;
    }
    let code = text(code)?.chars().next()?;
    let event = text(id)?.parse().ok().map(|id| StoredEvent {
        at,
        id,
        code,
        event: rest.slice(begin..end),
    });
    Some((event, rest.slice(end..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u32) -> EventPosition {
        EventPosition {
            ms: 1,
            seq: 2,
            shard: 3,
            index,
        }
    }

    #[test]
    fn an_entry_holds_events_whose_bytes_may_be_anything() {
        let id = "msg_0000000000000000000000000000";
        let packed = format!("{id}|n|5|a|b|c{id}|k|0|alien|r|2|xy{id}|c|3|{{}}\n{id}|x|9|cut");
        let events = unpack(&Bytes::from(packed), at(0));
        let found: Vec<(u32, char, &[u8])> = events
            .iter()
            .map(|event| (event.at.index, event.code, &*event.event))
            .collect();
        let expected: [(u32, char, &[u8]); 3] =
            [(0, 'n', b"a|b|c"), (1, 'k', b""), (3, 'c', b"{}\n")];
        assert_eq!(found, expected);
    }

    #[test]
    fn arbitrary_bytes_are_no_events() {
        for bytes in [
            "",
            "|",
            "|||",
            "a|b",
            "a|b|x|",
            "a|b|99999999999999999999|",
            "\u{fffd}|n|1|x",
        ] {
            assert_eq!(unpack(&Bytes::from(bytes), at(0)), []);
        }
    }

    #[test]
    fn events_are_ordered_by_time_then_entry_then_shard_then_place() {
        let place = |ms, seq, shard, index| EventPosition {
            ms,
            seq,
            shard,
            index,
        };
        let ordered = [
            place(1, 0, 9, 9),
            place(1, 1, 0, 9),
            place(1, 1, 1, 0),
            place(1, 1, 1, 1),
            place(2, 0, 0, 0),
        ];
        assert!(ordered.is_sorted());
    }
}
