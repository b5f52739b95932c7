//! Dispatch: which delivery thread gets a leased message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hookstash_shared::store::{Held, Lease};
use tokio::sync::mpsc;

use crate::in_flight::InFlight;
use crate::job::{Job, Seat, Stored};
use crate::slots::Reserved;

/// So many jobs at a time are no load for a thread: most of them wait for their receivers. So little
/// work keeps one thread awake and not all.
const FEW_JOBS: usize = 8;

/// The delivery threads, as the store thread sees them.
#[derive(Debug)]
pub(crate) struct Dispatch {
    threads: Vec<Thread>,
    /// Up to here a thread gets jobs though others have fewer; never more than it runs at a time.
    few: usize,
}

/// One delivery thread.
#[derive(Debug, Default)]
struct Thread {
    /// `None` while it is not running.
    jobs: Mutex<Option<mpsc::UnboundedSender<Arc<Job>>>>,
    seats: Arc<AtomicUsize>,
}

impl Dispatch {
    /// `count` threads, none of them running; each runs `share` jobs at a time.
    pub(crate) fn new(count: usize, share: usize) -> Self {
        Self {
            threads: (0..count).map(|_| Thread::default()).collect(),
            few: share.min(FEW_JOBS),
        }
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
        (0..self.threads.len()).for_each(|number| self.close(number));
    }

    /// How many threads are running.
    pub(crate) fn running(&self) -> usize {
        self.threads
            .iter()
            .filter(|thread| lock(thread).is_some())
            .count()
    }

    /// Gives a lease that was asked for at `confirmed` to a running thread; without one the lease
    /// comes back, to be released.
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
        let Some((number, thread)) = self.next() else {
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

    /// Who gets the next job: the first running thread that has few, else the one with the fewest.
    fn next(&self) -> Option<(usize, &Thread)> {
        let threads = self.threads.iter().enumerate();
        let running = threads.filter(|(_, thread)| lock(thread).is_some());
        running.min_by_key(|(_, thread)| (thread.seats.load(Ordering::SeqCst) + 1).max(self.few))
    }

    fn set(&self, number: usize, jobs: Option<mpsc::UnboundedSender<Arc<Job>>>) {
        if let Some(thread) = self.threads.get(number) {
            *lock(thread) = jobs;
        }
    }
}

fn lock(thread: &Thread) -> std::sync::MutexGuard<'_, Option<mpsc::UnboundedSender<Arc<Job>>>> {
    thread.jobs.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `jobs` each thread gets.
    fn shares(threads: usize, share: usize, jobs: usize) -> Vec<usize> {
        let dispatch = Dispatch::new(threads, share);
        let _taken: Vec<_> = (0..threads).map(|number| dispatch.open(number)).collect();
        let _seats: Vec<Seat> = (0..jobs)
            .filter_map(|_| dispatch.next())
            .map(|(_, thread)| Seat::take(&thread.seats))
            .collect();
        let seats = |thread: &Thread| thread.seats.load(Ordering::SeqCst);
        dispatch.threads.iter().map(seats).collect()
    }

    #[test]
    fn a_thread_gets_no_more_than_it_runs_while_another_has_room() {
        assert_eq!(shares(8, 1, 8), [1; 8]);
        assert_eq!(shares(3, 2, 5), [2, 2, 1]);
        assert_eq!(shares(2, 4, 8), [4, 4]);
    }

    #[test]
    fn little_work_keeps_one_thread_awake_and_much_is_shared_alike() {
        assert_eq!(shares(2, 256, FEW_JOBS), [FEW_JOBS, 0]);
        assert_eq!(shares(2, 256, 100), [50, 50]);
    }
}
