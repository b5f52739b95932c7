//! A schedule: it is put, put again, paused, resumed and removed, and fires into a queue or to a
//! group while two schedulers try.

use hookstash_shared::cron::Cron;
use hookstash_shared::store::{
    PutSchedule, Resumed, Schedule as Definition, SchedulePut, Tick, TickMember, Ticked,
};

use super::*;

const NAME: &str = "s";
const MINUTE_MS: u64 = 60_000;

/// What the world knows of the schedule.
#[derive(Debug, Clone, Default)]
pub(super) struct Schedule {
    /// The body key of the one that is there.
    put: Option<String>,
    is_paused: bool,
    due_ms: u64,
}

impl World {
    pub(super) fn schedule(&mut self) {
        match self.below(10) {
            0 => self.put_schedule(),
            1 => self.pause_schedule(),
            2 => self.resume_schedule(),
            3 => self.remove_schedule(),
            _ => self.tick(),
        }
    }

    fn next_minute(&self) -> u64 {
        self.clock.now_ms() / MINUTE_MS * MINUTE_MS + MINUTE_MS
    }

    pub(super) fn put_schedule(&mut self) {
        let (body_key, due_ms) = (self.fresh_id().to_string(), self.next_minute());
        let cron = Cron::parse("* * * * *").expect("an expression");
        let put = PutSchedule {
            id: NAME.to_owned(),
            schedule: Definition::new(cron, self.clock.now_ms(), body_key.clone()),
            envelope: "HS".into(),
            due_ms,
            most: 1,
            dedup_scope: None,
        };
        self.note(&format!("put schedule {body_key}"));
        // The second call is the repeat of one whose answer was lost.
        for _ in 0..2 {
            match block_on(self.store.put_schedule(shard(), &put)) {
                Ok(SchedulePut::Accepted) => {}
                Err(HostError::Full(_)) if self.is_full => return,
                other => self.broken.push(format!("put a schedule: {other:?}")),
            }
        }
        self.schedule = Schedule {
            put: Some(body_key),
            is_paused: false,
            due_ms,
        };
    }

    fn pause_schedule(&mut self) {
        self.note("pause the schedule");
        let paused = block_on(self.store.pause_schedule(shard(), NAME));
        if paused != Ok(self.schedule.put.is_some()) {
            self.broken.push(format!("pause a schedule: {paused:?}"));
        }
        self.schedule.is_paused = self.schedule.put.is_some();
    }

    fn resume_schedule(&mut self) {
        self.note("resume the schedule");
        let due_ms = self.next_minute();
        let key = self.schedule.put.clone();
        let (asked, expected) = match (&key, self.chance(20)) {
            (None, _) => ("", Resumed::None),
            (Some(_), true) => ("another", Resumed::Changed),
            (Some(key), false) => (key.as_str(), Resumed::Resumed),
        };
        let resumed = self.store.resume_schedule(shard(), NAME, asked, due_ms);
        if block_on(resumed) != Ok(expected) {
            self.broken
                .push("a resume is not answered as it should be".to_owned());
        }
        if expected == Resumed::Resumed && std::mem::take(&mut self.schedule.is_paused) {
            self.schedule.due_ms = due_ms;
        }
    }

    pub(super) fn remove_schedule(&mut self) {
        self.note("remove the schedule");
        let other = self.store.remove_schedule(shard(), NAME, Some("another"));
        if block_on(other) != Ok(false) {
            self.broken.push("another schedule was removed".to_owned());
        }
        let removed = block_on(self.store.remove_schedule(shard(), NAME, None));
        if removed != Ok(self.schedule.put.take().is_some()) {
            self.broken.push(format!("remove a schedule: {removed:?}"));
        }
    }

    fn member(&self, lane: Lane, host: usize) -> TickMember {
        TickMember {
            id: self.fresh_id(),
            envelope: "tick".into(),
            lane,
            host: HOSTS[host].to_owned(),
            event: Bytes::new(),
        }
    }

    /// A firing; sometimes of a schedule that was read before it changed, which must do nothing.
    fn tick(&mut self) {
        let Some(body_key) = self.schedule.put.clone() else {
            return;
        };
        let expected_ms = self.schedule.due_ms;
        let members = match self.below(4) {
            0 => Vec::new(),
            1 => (0..3)
                .map(|host| self.member(Lane::host(HOSTS[host]).expect("a host"), host))
                .collect(),
            _ => vec![self.member(queue("a"), 0)],
        };
        let mut tick = Tick {
            id: NAME.to_owned(),
            body_key,
            expected_ms,
            next_ms: Some(self.next_minute()),
            delay_ms: if self.chance(20) { 3_000 } else { 0 },
            retries: 1,
            size: 100,
            limits: LaneLimits::default(),
            fault: if members.is_empty() {
                "no endpoint"
            } else {
                ""
            }
            .to_owned(),
            members,
        };
        let is_stale = self.chance(20);
        match self.below(2) {
            0 if is_stale => "another".clone_into(&mut tick.body_key),
            1 if is_stale => tick.expected_ms -= MINUTE_MS,
            _ => {}
        }
        let is_due = !self.schedule.is_paused && expected_ms <= self.clock.now_ms();
        match block_on(self.store.tick_schedule(shard(), &tick)) {
            Ok(Ticked::Fired) => self.fired(&tick, is_due && !is_stale),
            Ok(Ticked::NotDue) if !is_due || is_stale => {}
            Err(HostError::Full(_)) if self.is_full => {}
            other => self
                .broken
                .push(format!("tick: {other:?}, due {is_due}, stale {is_stale}")),
        }
    }

    fn fired(&mut self, tick: &Tick, may_fire: bool) {
        self.note(&format!("tick {:?}", tick.members));
        if !may_fire {
            self.broken
                .push("a schedule fired that was not due".to_owned());
        }
        self.schedule.due_ms = tick.next_ms.expect("a due time");
        self.accepted
            .extend(tick.members.iter().map(|member| member.id));
        let mut second = tick.clone();
        for member in &mut second.members {
            member.id = self.fresh_id();
        }
        // Another scheduler that looked before, and this one whose answer was lost.
        for again in [&second, tick] {
            if block_on(self.store.tick_schedule(shard(), again)) == Ok(Ticked::Fired) {
                let text = "a schedule fired twice for one due time";
                self.broken.push(text.to_owned());
            }
        }
    }
}
