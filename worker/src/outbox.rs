//! Settlements on their way to a shard.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hookstash_shared::store::Settlement;
use tokio::sync::Notify;

/// The settlements of one shard that the store has not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: Mutex<VecDeque<Settlement>>,
    unanswered: AtomicUsize,
    /// Told at every change its claimer may have to act on.
    pub(crate) bell: Arc<Notify>,
}

impl Outbox {
    /// Adds a settlement and tells the claimer.
    pub(crate) fn push(&self, settlement: Settlement) {
        self.unanswered.fetch_add(1, Ordering::SeqCst);
        self.lock().push_back(settlement);
        self.bell.notify_one();
    }

    /// Moves settlements into `batch` until it has `most`.
    pub(crate) fn fill(&self, batch: &mut Vec<Settlement>, most: usize) {
        let mut queue = self.lock();
        let count = queue.len().min(most.saturating_sub(batch.len()));
        batch.extend(queue.drain(..count));
    }

    /// The store has answered `count` settlements that were taken out.
    pub(crate) fn answered(&self, count: usize) {
        self.unanswered.fetch_sub(count, Ordering::SeqCst);
    }

    /// How many are waiting or under way.
    pub(crate) fn len(&self) -> usize {
        self.unanswered.load(Ordering::SeqCst)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Settlement>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
