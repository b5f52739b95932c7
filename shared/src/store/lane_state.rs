//! Reading what a lane allows, what waits in it and what is in flight.

use super::args::{Reader, command, integer, text};
use super::host::{HostError, Reply};
use super::{LaneLimits, Store};
use crate::message::{Lane, LaneKind, Shard, shard_of_lane};

/// How many lanes one page of a walk over the settings asks for.
const PAGE: &str = "256";

/// A queue or a flow-control key as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneState {
    /// Which.
    pub lane: Lane,
    /// What it allows.
    pub limits: LaneLimits,
    /// Whether it waits for an operator.
    pub is_paused: bool,
    /// Whether messages leave its cap alone.
    pub is_cap_pinned: bool,
    /// Whether messages leave its rate alone.
    pub is_rate_pinned: bool,
    /// When it came to be, in milliseconds since the epoch.
    pub created_ms: u64,
    /// Ids in its list: messages that wait for their turn, and those cancelled there that nobody
    /// has come across yet.
    pub waiting: u64,
    /// Calls in flight. A queue counts what holds a slot of it, too.
    pub in_flight: u64,
    /// The rate's period that runs now; `None` without a rate.
    pub window: Option<Window>,
}

/// A period of a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// When it began, in milliseconds since the epoch.
    pub start_ms: u64,
    /// Messages that it has admitted. Some of them may still wait.
    pub count: u64,
    /// Those of them that still wait.
    credit: u64,
}

/// One page of a walk over the flow-control keys of a shard.
#[derive(Debug, Clone)]
pub struct FlowLanes {
    /// Where the next page starts; 0 when the walk is over.
    pub cursor: u64,
    /// The keys of this page. A walk may meet a key more than once.
    pub lanes: Vec<Lane>,
}

impl Store {
    /// The queue or flow-control key `lane`; `None` when nobody has used it.
    pub async fn lane_state(&self, lane: &Lane) -> Result<Option<LaneState>, HostError> {
        let states = self.lane_states(std::slice::from_ref(lane)).await?;
        Ok(states.into_iter().next())
    }

    /// Those of `lanes` that somebody has used, in their order. Each is read at one moment, but not
    /// all at the same.
    pub async fn lane_states(&self, lanes: &[Lane]) -> Result<Vec<LaneState>, HostError> {
        let shard = |lane: &Lane| shard_of_lane(lane, self.shards());
        let read = |store: &Self, lane: &Lane| {
            let name = lane.as_str().as_bytes();
            let key = |name: &str| store.keys.of_shard(shard(lane), name);
            vec![
                command([b"TIME"]),
                command([b"HGET", &key("cfg"), name]),
                command([b"HGET", &key("win"), name]),
                command([b"HGET", &key("inf"), name]),
                command([b"LLEN", &key(&format!("ln:{lane}"))]),
            ]
        };
        let replies = self.batched(lanes, shard, read).await?;
        let mut states = Vec::new();
        for (lane, replies) in lanes.iter().zip(replies) {
            let short = |_| HostError::Fault("lane: reply is short".to_owned());
            let replies: [Reply; 5] = replies.try_into().map_err(short)?;
            states.extend(read_state(lane, replies)?);
        }
        Ok(states)
    }

    /// One page of the flow-control keys of `shard` that somebody has used, starting at `cursor`.
    /// O(page).
    pub async fn flow_lanes(&self, shard: Shard, cursor: u64) -> Result<FlowLanes, HostError> {
        let key = self.keys.of_shard(shard, "cfg");
        let (cursor, fields) = self.scan(&key, cursor, PAGE).await?;
        let lanes = fields
            .into_iter()
            .filter_map(|(name, _)| Lane::parse(&name).ok());
        let lanes = lanes.filter(|lane| lane.kind() == LaneKind::Flow).collect();
        Ok(FlowLanes { cursor, lanes })
    }

    /// How many messages of all shards are leased: their calls are under way.
    pub async fn leased(&self) -> Result<u64, HostError> {
        let mut leased = 0;
        for shard in self.shards().iter() {
            let key = self.keys.of_shard(shard, "l");
            let count = self.run_one(command([b"ZCARD", &key])).await?;
            leased += number(&count);
        }
        Ok(leased)
    }
}

/// Settings are `cap|rate|period ms|paused|pinned cap|pinned rate|created ms|used ms`; a lane whose
/// settings do not parse has none, as for the scripts.
fn read_state(lane: &Lane, replies: [Reply; 5]) -> Result<Option<LaneState>, HostError> {
    let [time, settings, window, in_flight, waiting] = replies;
    let mut time = Reader::new(time, "time")?;
    let now_ms = time.number()? * 1_000 + time.number()? / 1_000;
    let settings = text(&settings).unwrap_or_default();
    let numbers: Option<Vec<u64>> = settings.split('|').map(|part| part.parse().ok()).collect();
    let Some(
        [
            cap,
            rate,
            period_ms,
            paused,
            pinned_cap,
            pinned_rate,
            created_ms,
            _used,
        ],
    ) = numbers.as_deref()
    else {
        return Ok(None);
    };
    let limit = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let limits = LaneLimits {
        cap: limit(*cap),
        rate: limit(*rate),
        period_ms: *period_ms,
    };
    let waiting = number(&waiting);
    let window = Window::parse(&text(&window).unwrap_or_default(), now_ms);
    Ok(Some(LaneState {
        lane: lane.clone(),
        limits,
        is_paused: *paused == 1,
        is_cap_pinned: *pinned_cap == 1,
        is_rate_pinned: *pinned_rate == 1,
        created_ms: *created_ms,
        waiting,
        in_flight: number(&in_flight),
        window: (*rate > 0).then(|| window.turned(limits, waiting, now_ms)),
    }))
}

fn number(reply: &Reply) -> u64 {
    integer(reply)
        .and_then(|number| number.try_into().ok())
        .unwrap_or(0)
}

impl Window {
    /// Reads `start|count|credit`; none begins now.
    fn parse(packed: &str, now_ms: u64) -> Self {
        let mut parts = packed.split('|').map(|part| part.parse().ok());
        let mut next = || parts.next().flatten();
        Self {
            start_ms: next().unwrap_or(now_ms),
            count: next().unwrap_or(0),
            credit: next().unwrap_or(0),
        }
    }

    /// The same after its period, if that is over: what every script makes of it before it looks.
    fn turned(mut self, limits: LaneLimits, waiting: u64, now_ms: u64) -> Self {
        self.start_ms = self.start_ms.min(now_ms);
        if now_ms >= self.start_ms.saturating_add(limits.period_ms) {
            self.start_ms = now_ms;
            self.credit = self.credit.min(limits.rate.into()).min(waiting);
            self.count = self.credit;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_turns_as_in_the_scripts() {
        let limits = LaneLimits {
            cap: 0,
            rate: 5,
            period_ms: 1_000,
        };
        for (packed, waiting, expected) in [
            ("", 0, (9_000, 0)),
            ("8500|4|2", 2, (8_500, 4)),
            ("8001|4|2", 2, (8_001, 4)),
            ("8000|4|2", 2, (9_000, 2)),
            ("8000|4|2", 1, (9_000, 1)),
            ("1|9|9", 20, (9_000, 5)),
            ("9500|3|0", 0, (9_000, 3)),
        ] {
            let window = Window::parse(packed, 9_000).turned(limits, waiting, 9_000);
            assert_eq!((window.start_ms, window.count), expected, "{packed}");
        }
    }
}
