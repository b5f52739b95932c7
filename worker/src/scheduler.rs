//! The scheduler: fires the schedules of one shard when they are due.
//!
//! Each worker has one for each shard, and none leads: all look at what is due first, and of those
//! that fire the same due time one wins. The next due time is found from now on, so minutes that all
//! workers missed fire once. Of copies of one schedule in several shards only the newest fires; the
//! others are removed when they are due. Between two looks it sleeps until the next due time, at
//! most 5 s, so that it sees new schedules.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use hookstash_shared::message::{Destination, GroupEndpoint, MessageId, Shard};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{Definition, DuePage, Schedule, Tick, Ticked};

use crate::patience::Patience;
use crate::phase::Phase;
use crate::worker::Worker;

/// Longest time between two looks.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Pause after a look at which something was due and nothing could be fired.
const STALL_PAUSE: Duration = Duration::from_millis(200);
/// Schedules that are fired together.
const PAGE: u32 = 32;
const GONE: &str = "the stored message is missing or cannot be read: create the schedule again";

const NO_ENDPOINT: &str = "the URL group has no endpoints";

/// Where one message goes; `None` = to the destination of the schedule's own.
type Endpoint = Option<(Destination, GroupEndpoint)>;

/// The scheduler of one shard.
struct Scheduler {
    worker: Arc<Worker>,
    shard: Shard,
    /// Firings without an answer, by schedule. They are sent again as they are.
    unanswered: BTreeMap<String, Tick>,
}

/// Fires the schedules of `shard` until the worker drains. What is due then is left to others.
pub(crate) async fn schedule(worker: Arc<Worker>, shard: Shard) {
    let mut patience = worker.patience();
    let mut scheduler = Scheduler {
        worker: Arc::clone(&worker),
        shard,
        unanswered: BTreeMap::new(),
    };
    tokio::select! {
        biased;
        () = worker.phases.reached(Phase::Draining) => {}
        () = scheduler.run(&mut patience) => {}
    }
}

impl Scheduler {
    async fn run(&mut self, patience: &mut Patience) {
        loop {
            let pause = match self.look().await {
                Ok(pause) => {
                    patience.reset();
                    pause
                }
                Err(error) => {
                    tracing::warn!(shard = %self.shard, %error, "schedules cannot be fired");
                    patience.next_pause()
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Fires what is due; how long until the next look.
    async fn look(&mut self) -> Result<Duration, HostError> {
        let desk = self.worker.desk(self.shard);
        if !desk.is_some_and(|desk| desk.is_in_touch.load(Ordering::Relaxed)) {
            // The claimer finds out whether the store serves, and whether it has as many shards as
            // this process was told.
            return Ok(STALL_PAUSE);
        }
        let page = self.worker.store.first_due(self.shard, PAGE).await?;
        let due: Vec<(&str, u64)> = page
            .first
            .iter()
            .filter(|(_, due_ms)| *due_ms <= page.now_ms)
            .map(|(id, due_ms)| (id.as_str(), *due_ms))
            .collect();
        self.unanswered
            .retain(|id, tick| due.contains(&(id.as_str(), tick.expected_ms)));
        if due.is_empty() {
            return Ok(until_first(&page));
        }
        let (ticks, mut failure) = self.plan(&due, page.now_ms).await?;
        let answers = join_all(ticks.iter().map(|tick| self.fire(tick))).await;
        let mut fired = 0;
        for (tick, answer) in ticks.into_iter().zip(answers) {
            self.unanswered.remove(&tick.id);
            match answer {
                Ok(answer) => fired += usize::from(answer == Ticked::Fired),
                Err(error) => {
                    self.unanswered.insert(tick.id.clone(), tick);
                    failure = Some(error);
                }
            }
        }
        match failure {
            Some(error) => Err(error),
            // There may be more, and the first due time is another one now.
            None if fired > 0 => Ok(Duration::ZERO),
            None => Ok(STALL_PAUSE),
        }
    }

    /// The firings of what is due, in its order, and why some could not be planned: a URL group may
    /// be in a shard that cannot be reached, which holds up no other schedule.
    async fn plan(
        &self,
        due: &[(&str, u64)],
        now_ms: u64,
    ) -> Result<(Vec<Tick>, Option<HostError>), HostError> {
        let store = &self.worker.store;
        let ids: Vec<&str> = due.iter().map(|(id, _)| *id).collect();
        let definitions = store.definitions(self.shard, &ids).await?;
        let elsewhere = store.newest_elsewhere(self.shard, &ids).await;
        let read = due.iter().zip(definitions.into_iter().zip(elsewhere));
        let plans = read.map(|((id, due_ms), (definition, elsewhere))| async move {
            match definition {
                Definition::Readable(schedule) => match elsewhere {
                    Some(newer) if newer.age() > schedule.age() => {
                        self.remove_older(id, &schedule).await.map(|()| None)
                    }
                    _ => self.tick(id, &schedule, *due_ms, now_ms).await.map(Some),
                },
                Definition::Unreadable(stored) => self.put_aside(id, &stored).await.map(|()| None),
                Definition::Gone => store.remove_undefined(self.shard, id).await.map(|()| None),
            }
        });
        let mut failure = None;
        let mut ticks = Vec::with_capacity(due.len());
        for plan in join_all(plans).await {
            match plan {
                Ok(tick) => ticks.extend(tick),
                Err(error) => failure = Some(error),
            }
        }
        Ok((ticks, failure))
    }

    /// One firing, with ids drawn now, or as it was sent before.
    async fn tick(
        &self,
        id: &str,
        schedule: &Schedule,
        due_ms: u64,
        now_ms: u64,
    ) -> Result<Tick, HostError> {
        let next_ms = schedule.cron.next_after(now_ms);
        if let Some(sent) = self.unanswered.get(id)
            && sent.body_key == schedule.body_key
        {
            return Ok(Tick {
                next_ms,
                ..sent.clone()
            });
        }
        let store = &self.worker.store;
        let found = store
            .schedule_header(self.shard, &schedule.body_key)
            .await?;
        let nothing = || Tick::without_message(id, schedule, due_ms, next_ms, GONE);
        let Some((header, bytes)) = found else {
            return Ok(nothing());
        };
        let endpoints = match &schedule.group {
            None => vec![None],
            Some(group) => self.endpoints(group).await?,
        };
        if endpoints.is_empty() {
            return Ok(Tick::without_message(
                id,
                schedule,
                due_ms,
                next_ms,
                NO_ENDPOINT,
            ));
        }
        let mut tick = Tick::new(id, schedule, (due_ms, next_ms), (&header, bytes));
        for endpoint in endpoints {
            let message = MessageId::new(self.shard, now_ms, &*self.worker.random);
            if tick.add(message, now_ms, &header, endpoint).is_err() {
                return Ok(nothing());
            }
        }
        Ok(tick)
    }

    /// The endpoints of a URL group as they are now; none when there is no such group.
    async fn endpoints(&self, name: &str) -> Result<Vec<Endpoint>, HostError> {
        let stored = match self.worker.store.url_group(name).await {
            // One that cannot be read holds up no other schedule.
            Err(HostError::Fault(_)) | Ok(None) => return Ok(Vec::new()),
            Ok(Some(stored)) => stored,
            Err(error) => return Err(error),
        };
        let endpoints = stored.group.endpoints.into_iter().map(|endpoint| {
            let group = name.to_owned();
            let name = endpoint.name;
            Some((endpoint.url, GroupEndpoint { group, name }))
        });
        Ok(endpoints.collect())
    }

    async fn fire(&self, tick: &Tick) -> Result<Ticked, HostError> {
        let store = &self.worker.store;
        let mut answer = store.tick_schedule(self.shard, tick).await?;
        if answer == Ticked::Gone {
            let nothing = Tick {
                fault: GONE.to_owned(),
                members: Vec::new(),
                ..tick.clone()
            };
            answer = store.tick_schedule(self.shard, &nothing).await?;
        }
        if answer == Ticked::Fired {
            let (id, count, fault) = (&tick.id, tick.members.len(), &tick.fault);
            tracing::debug!(schedule = %id, count, fault, "a schedule fired");
        }
        Ok(answer)
    }

    /// Removes a copy of a schedule of which there is a newer one in another shard.
    async fn remove_older(&self, id: &str, schedule: &Schedule) -> Result<(), HostError> {
        let (store, key) = (&self.worker.store, Some(schedule.body_key.as_str()));
        if store.remove_schedule(self.shard, id, key).await? {
            tracing::info!(schedule = id, shard = %self.shard, "an older copy is removed");
        }
        Ok(())
    }

    /// Takes a schedule that cannot be read out of those that are due: others wait behind it.
    async fn put_aside(&self, id: &str, stored: &[u8]) -> Result<(), HostError> {
        let store = &self.worker.store;
        if store.pause_unreadable(self.shard, id, stored).await? {
            tracing::error!(
                schedule = id,
                "a stored schedule cannot be read: it is paused"
            );
        }
        Ok(())
    }
}

fn until_first(page: &DuePage) -> Duration {
    let Some((_, due_ms)) = page.first.first() else {
        return LOOK_MAX;
    };
    // One more, because the host counts whole milliseconds.
    Duration::from_millis(due_ms.saturating_sub(page.now_ms) + 1).min(LOOK_MAX)
}
