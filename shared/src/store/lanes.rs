//! Queues and flow-control keys: what an operator sets, and what the sweeper clears away.

use std::time::Duration;

use super::args::{Args, integer};
use super::host::{HostError, Step};
use super::{AuditWalk, Store, scripts};
use crate::message::{Lane, LaneKind, Shard};

/// How many lanes one page of a walk over the settings asks for.
const SETTINGS_PAGE: &str = "256";

/// One page of a walk over the flow-control keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowKeyPage {
    /// Where the next page starts; 0 when the walk is over.
    pub cursor: u64,
    /// How many keys were forgotten on this page.
    pub forgotten: u64,
}

/// What to change of a lane; `None` leaves a field as it is. Calls in flight are never interrupted.
#[derive(Debug, Clone, Copy, Default)]
pub struct LaneChange {
    /// Most calls in flight; 0 is no limit (for a queue: 1).
    pub cap: Option<u32>,
    /// Most starts in a period; 0 is no limit.
    pub rate: Option<u32>,
    /// The rate's period.
    pub period: Option<Duration>,
    /// Whether it waits.
    pub paused: Option<bool>,
    /// Whether messages leave its cap alone.
    pub pinned_cap: Option<bool>,
    /// Whether messages leave its rate alone.
    pub pinned_rate: Option<bool>,
    /// Starts the rate window anew.
    pub restart_window: bool,
}

impl Store {
    /// Applies `change` to `lane`, which need not exist yet. Safe to repeat.
    pub async fn set_lane(
        &self,
        shard: Shard,
        lane: &Lane,
        change: LaneChange,
    ) -> Result<(), HostError> {
        let number = |args: Args, value: Option<u64>| match value {
            Some(value) => args.number(value),
            None => args.text(""),
        };
        let flag = |args: Args, value: Option<bool>| match value {
            Some(value) => args.flag(value),
            None => args.text(""),
        };
        let period_ms = change
            .period
            .map(|period| period.as_millis().try_into().unwrap_or(u64::MAX));
        let mut args = Args::new().text(lane.as_str());
        args = number(args, change.cap.map(u64::from));
        args = number(args, change.rate.map(u64::from));
        args = number(args, period_ms);
        args = flag(args, change.paused);
        args = flag(args, change.pinned_cap);
        args = flag(args, change.pinned_rate);
        args = args.flag(change.restart_window);
        self.run_script(shard, &scripts::SET_LANE, args)
            .await
            .map(drop)
    }

    /// Deletes a queue. Its waiting messages are cancelled by [`Store::sweep_trash`]; those under
    /// way finish under the default settings. Safe to repeat.
    pub async fn delete_queue(&self, shard: Shard, queue: &Lane) -> Result<(), HostError> {
        let args = Args::new().text(queue.as_str());
        self.run_script(shard, &scripts::DELETE_QUEUE, args)
            .await
            .map(drop)
    }

    /// Cancels up to `count` messages of deleted queues; returns how many entries it took, 0 when
    /// nothing is left.
    pub async fn sweep_trash(&self, shard: Shard, count: u32) -> Result<u64, HostError> {
        let args = Args::new().number(count);
        let reply = self.run_script(shard, &scripts::SWEEP_TRASH, args).await?;
        Ok(integer(&reply)
            .and_then(|taken| taken.try_into().ok())
            .unwrap_or(0))
    }

    fn forget_step(&self, shard: Shard, lane: &Lane, unused: Duration) -> Step {
        let unused_ms: u64 = unused.as_millis().try_into().unwrap_or(u64::MAX);
        let args = Args::new().text(lane.as_str()).number(unused_ms);
        self.script(shard, &scripts::FORGET_FLOW_KEY, args)
    }

    /// Looks at one page of lanes with settings, starting at `cursor`, and forgets the flow-control
    /// keys among them that were not used for `unused`, are neither paused nor pinned, and that no
    /// message named in the whole `walk`, waiting, delayed or dead. O(page).
    pub async fn forget_flow_keys(
        &self,
        shard: Shard,
        cursor: u64,
        unused: Duration,
        walk: &AuditWalk,
    ) -> Result<FlowKeyPage, HostError> {
        let key = self.keys.of_shard(shard, "cfg");
        let (cursor, fields) = self.scan(&key, cursor, SETTINGS_PAGE).await?;
        let mut steps = Vec::new();
        for (name, _settings) in fields {
            let lane = Lane::parse(&name).ok();
            if let Some(lane) =
                lane.filter(|lane| lane.kind() == LaneKind::Flow && !walk.names(lane.as_str()))
            {
                steps.push(self.forget_step(shard, &lane, unused));
            }
        }
        let mut forgotten = 0;
        for reply in self.host.run(steps).await {
            forgotten += u64::from(integer(&reply?) == Some(1));
        }
        Ok(FlowKeyPage { cursor, forgotten })
    }
}
