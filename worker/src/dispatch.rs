//! Dispatch: which delivery thread gets a leased message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hookstash_shared::store::{Held, Lease};
use tokio::sync::mpsc;

use crate::in_flight::InFlight;
use crate::job::{Job, Seat, Stored};
use crate::slots::Reserved;

/// So many jobs at a time are no load for a thread: most of them wait for their receivers.
const FEW_JOBS: usize = 8;

/// The delivery threads, as the store thread sees them.
#[derive(Debug)]
pub(crate) struct Dispatch(Vec<Thread>);

/// One delivery thread.
#[derive(Debug, Default)]
struct Thread {
    /// `None` while it is not running.
    jobs: Mutex<Option<mpsc::UnboundedSender<Arc<Job>>>>,
    seats: Arc<AtomicUsize>,
}

impl Dispatch {
    /// `count` threads, none of them running.
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| Thread::default()).collect())
    }

    /// From now on thread `number` gets its jobs from the returned end. Whoever drops that end loses them.
    pub(crate) fn open(&self, number: usize) -> mpsc::UnboundedReceiver<Arc<Job>> {
        // Bounded by the slots that every job holds.
        let (jobs, taken) = mpsc::unbounded_channel();
        self.set(number, Some(jobs));
        taken
    }

    /// Thread `number` gets no more jobs.
    pub(crate) fn close(&self, number: usize) {
        self.set(number, None);
    }

    /// No thread gets jobs any more; each ends when it has none.
    pub(crate) fn close_all(&self) {
        (0..self.0.len()).for_each(|number| self.close(number));
    }

    /// How many threads are running.
    pub(crate) fn running(&self) -> usize {
        self.0
            .iter()
            .filter(|thread| lock(thread).is_some())
            .count()
    }

    /// Gives a lease that was asked for at `confirmed` to the first running thread that has few jobs,
    /// so that little work keeps one thread awake and not all; else to the one with the fewest.
    /// Without a running thread the lease comes back, to be released.
    pub(crate) fn send(
        &self,
        in_flight: &InFlight,
        (lease, stored, room): (Lease, Stored, Reserved),
        confirmed: Duration,
    ) -> Result<(), Held> {
        let held = Held {
            id: lease.id,
            token: lease.token,
            started: false,
        };
        let running = self
            .0
            .iter()
            .enumerate()
            .filter(|(_, thread)| lock(thread).is_some());
        let seats = |thread: &Thread| thread.seats.load(Ordering::SeqCst).max(FEW_JOBS);
        let emptiest = running.min_by_key(|(_, thread)| seats(thread));
        let Some((number, thread)) = emptiest else {
            return Err(held);
        };
        let interruption = in_flight.insert(&lease, number, confirmed);
        let job = Job::new(lease, stored, interruption, room, Seat::take(&thread.seats));
        let is_sent = lock(thread)
            .as_ref()
            .is_some_and(|jobs| jobs.send(Arc::new(job)).is_ok());
        if !is_sent && in_flight.finish(&held.id, held.token) {
            return Err(held);
        }
        Ok(())
    }

    fn set(&self, number: usize, jobs: Option<mpsc::UnboundedSender<Arc<Job>>>) {
        if let Some(thread) = self.0.get(number) {
            *lock(thread) = jobs;
        }
    }
}

fn lock(thread: &Thread) -> std::sync::MutexGuard<'_, Option<mpsc::UnboundedSender<Arc<Job>>>> {
    thread.jobs.lock().unwrap_or_else(PoisonError::into_inner)
}
