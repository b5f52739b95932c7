//! The leases this process holds, from dispatch to settlement.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hookstash_shared::clock::Clock;
use hookstash_shared::message::{MessageId, Shard};
use hookstash_shared::store::{Held, Lease, LeaseToken};
use tokio::sync::SetOnce;

/// How long after its total deadline an attempt's lease is still renewed.
const RENEW_AFTER_DEADLINE: Duration = Duration::from_secs(5);

/// Why a call must end before its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupt {
    /// Its lease is no longer ours.
    Lost,
    /// Its message was cancelled.
    Cancelled,
    /// This process stops.
    Stopped,
}

/// Tells a running call to end. Set once.
pub(crate) type Interruption = Arc<SetOnce<Interrupt>>;

/// All leases held. Safe to share between threads.
pub(crate) struct InFlight {
    clock: Arc<dyn Clock>,
    lease: Duration,
    /// A call starts only while its lease is younger than this: the next renewal comes in time.
    start_within: Duration,
    /// Ordered, so that what is renewed and released is in the same order in every run.
    entries: Mutex<BTreeMap<MessageId, Entry>>,
}

#[derive(Debug)]
struct Entry {
    token: LeaseToken,
    thread: usize,
    /// When it was asked for, by the monotonic clock: the lease ends no sooner than a lease later.
    confirmed: Duration,
    /// Set when its call started.
    renew_until: Option<Duration>,
    interruption: Interruption,
}

impl Entry {
    fn held(&self, id: MessageId) -> Held {
        Held {
            id,
            token: self.token,
            started: self.renew_until.is_some(),
        }
    }
}

impl InFlight {
    /// None held. `lease` is the lease time, `renew` the time between renewals.
    pub(crate) fn new(clock: Arc<dyn Clock>, lease: Duration, renew: Duration) -> Self {
        let start_within = lease.saturating_sub(renew).max(lease / 2);
        Self {
            clock,
            lease,
            start_within,
            entries: Mutex::default(),
        }
    }

    /// Notes a lease that was asked for at `confirmed` and goes to `thread`. Of two leases of one
    /// message the older is lost, in whatever order they arrive.
    pub(crate) fn insert(&self, lease: &Lease, thread: usize, confirmed: Duration) -> Interruption {
        let interruption = Interruption::default();
        let entry = Entry {
            token: lease.token,
            thread,
            confirmed,
            renew_until: None,
            interruption: Arc::clone(&interruption),
        };
        let mut entries = self.lock();
        if entries
            .get(&lease.id)
            .is_some_and(|known| known.token.number > lease.token.number)
        {
            interrupt(&entry, Interrupt::Lost);
        } else if let Some(older) = entries.insert(lease.id, entry) {
            interrupt(&older, Interrupt::Lost);
        }
        interruption
    }

    /// Whether the call of this lease may start now; from then on the lease is renewed until
    /// `timeout` and a little more have passed. `false` when it was handed back or is too old.
    pub(crate) fn start(&self, id: &MessageId, token: LeaseToken, timeout: Duration) -> bool {
        let now = self.clock.monotonic();
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(id).filter(|entry| entry.token == token) else {
            return false;
        };
        if now.saturating_sub(entry.confirmed) >= self.start_within {
            return false;
        }
        entry.renew_until = Some(now + timeout + RENEW_AFTER_DEADLINE);
        true
    }

    /// Forgets a lease whose call has ended; `false` when it was not ours any more.
    pub(crate) fn finish(&self, id: &MessageId, token: LeaseToken) -> bool {
        let mut entries = self.lock();
        let is_ours = entries.get(id).is_some_and(|entry| entry.token == token);
        if is_ours {
            entries.remove(id);
        }
        is_ours
    }

    /// The leases of `shard` to renew now: those of started calls that are not past their time.
    pub(crate) fn renewable(&self, shard: Shard) -> Vec<Held> {
        let now = self.clock.monotonic();
        let is_due = |entry: &Entry| entry.renew_until.is_some_and(|until| now < until);
        let entries = self.lock();
        let of_shard = entries
            .iter()
            .filter(|(id, entry)| id.shard() == shard && is_due(entry));
        of_shard.map(|(id, entry)| entry.held(*id)).collect()
    }

    /// Ends the call under this lease. A lost lease is forgotten.
    pub(crate) fn interrupt(&self, held: &Held, why: Interrupt) {
        let mut entries = self.lock();
        if let Some(entry) = entries
            .get(&held.id)
            .filter(|entry| entry.token == held.token)
        {
            interrupt(entry, why);
            if why == Interrupt::Lost {
                entries.remove(&held.id);
            }
        }
    }

    /// Takes out the leases of `shard` whose calls have not started within the lease time.
    pub(crate) fn take_overdue(&self, shard: Shard) -> Vec<Held> {
        let now = self.clock.monotonic();
        self.take(|id, entry| {
            id.shard() == shard
                && entry.renew_until.is_none()
                && now.saturating_sub(entry.confirmed) >= self.lease
        })
    }

    /// Takes out the leases whose calls have not started.
    pub(crate) fn take_unstarted(&self) -> Vec<Held> {
        self.take(|_, entry| entry.renew_until.is_none())
    }

    /// Takes out all leases of a delivery thread.
    pub(crate) fn take_thread(&self, thread: usize) -> Vec<Held> {
        self.take(|_, entry| entry.thread == thread)
    }

    /// Takes out everything and ends all calls.
    pub(crate) fn stop(&self) -> Vec<Held> {
        self.take(|_, entry| {
            interrupt(entry, Interrupt::Stopped);
            true
        })
    }

    /// How many leases are held.
    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn take(&self, mut is_taken: impl FnMut(&MessageId, &Entry) -> bool) -> Vec<Held> {
        let mut entries = self.lock();
        let taken = entries.extract_if(.., |id, entry| is_taken(id, entry));
        taken.map(|(id, entry)| entry.held(id)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<MessageId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn interrupt(entry: &Entry, why: Interrupt) {
    // Refused only when the call was told to end before.
    let _ = entry.interruption.set(why);
}

#[cfg(test)]
mod tests {
    use hookstash_shared::clock::ManualClock;
    use hookstash_shared::random::SeededRandom;

    use super::*;

    const LEASE: Duration = Duration::from_secs(15);
    const RENEW: Duration = Duration::from_secs(5);
    const TIMEOUT: Duration = Duration::from_mins(1);

    fn lease(seed: u64, number: u64) -> Lease {
        let id = MessageId::new(Shard::default(), 1, &SeededRandom::new(seed));
        let token = LeaseToken { number, nonce: 7 };
        let lane = "h:x".to_owned();
        Lease {
            id,
            token,
            failed: 0,
            lost: 0,
            body_key: None,
            lane,
            holds_queue: false,
            envelope: None,
        }
    }

    fn in_flight() -> (Arc<ManualClock>, InFlight) {
        let clock = Arc::new(ManualClock::at(0));
        let in_flight = InFlight::new(Arc::clone(&clock) as _, LEASE, RENEW);
        (clock, in_flight)
    }

    #[test]
    fn a_call_starts_only_under_a_young_lease_of_ours() {
        let (clock, in_flight) = in_flight();
        let lease = lease(1, 1);
        let stranger = LeaseToken {
            number: 2,
            nonce: 7,
        };
        in_flight.insert(&lease, 0, Duration::ZERO);
        assert!(!in_flight.start(&lease.id, stranger, TIMEOUT));
        clock.advance(Duration::from_secs(9));
        assert!(in_flight.start(&lease.id, lease.token, TIMEOUT));
        clock.advance(Duration::from_secs(1));
        assert!(!in_flight.start(&lease.id, lease.token, TIMEOUT));
    }

    #[test]
    fn only_started_calls_are_renewed_and_not_for_ever() {
        let (clock, in_flight) = in_flight();
        let (started, unstarted) = (lease(1, 1), lease(2, 1));
        in_flight.insert(&started, 0, Duration::ZERO);
        in_flight.insert(&unstarted, 0, Duration::ZERO);
        assert!(in_flight.start(&started.id, started.token, TIMEOUT));
        let renewable = || in_flight.renewable(Shard::default());
        assert_eq!(
            renewable().iter().map(|held| held.id).collect::<Vec<_>>(),
            [started.id]
        );
        clock.advance(LEASE);
        let overdue = in_flight.take_overdue(Shard::default());
        assert_eq!(
            overdue.iter().map(|held| held.id).collect::<Vec<_>>(),
            [unstarted.id]
        );
        assert!(!overdue[0].started);
        clock.advance(Duration::from_secs(49));
        assert_eq!(renewable().len(), 1);
        clock.advance(Duration::from_secs(1));
        assert!(renewable().is_empty());
        assert_eq!(in_flight.len(), 1, "it is still ours to settle");
    }

    #[test]
    fn a_newer_lease_of_the_same_message_ends_the_older_call() {
        let (_, in_flight) = in_flight();
        let (old, new) = (lease(1, 1), lease(1, 2));
        let interruption = in_flight.insert(&old, 0, Duration::ZERO);
        in_flight.insert(&new, 1, Duration::ZERO);
        assert_eq!(interruption.get(), Some(&Interrupt::Lost));
        assert!(!in_flight.finish(&old.id, old.token));
        assert!(in_flight.finish(&new.id, new.token));
    }

    #[test]
    fn an_older_lease_that_arrives_late_does_not_end_the_newer_call() {
        let (_, in_flight) = in_flight();
        let (old, new) = (lease(1, 1), lease(1, 2));
        let newer = in_flight.insert(&new, 0, Duration::ZERO);
        let older = in_flight.insert(&old, 1, Duration::ZERO);
        assert_eq!((older.get(), newer.get()), (Some(&Interrupt::Lost), None));
        assert!(in_flight.start(&new.id, new.token, TIMEOUT));
        assert!(!in_flight.start(&old.id, old.token, TIMEOUT));
    }

    #[test]
    fn stopping_takes_all_and_says_which_had_started() {
        let (_, in_flight) = in_flight();
        let leases = [lease(1, 1), lease(2, 1)];
        let told: Vec<_> = leases
            .iter()
            .map(|lease| in_flight.insert(lease, 0, Duration::ZERO))
            .collect();
        assert!(in_flight.start(&leases[0].id, leases[0].token, TIMEOUT));
        let taken = in_flight.stop();
        let started = |lease: &Lease| {
            taken
                .iter()
                .find(|held| held.id == lease.id)
                .map(|held| held.started)
        };
        assert_eq!(
            (started(&leases[0]), started(&leases[1])),
            (Some(true), Some(false))
        );
        assert!(
            told.iter()
                .all(|told| told.get() == Some(&Interrupt::Stopped))
        );
        assert_eq!(in_flight.len(), 0);
    }
}
