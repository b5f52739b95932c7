//! Settlements on their way to a shard.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hookstash_shared::store::Settlement;
use tokio::sync::Notify;

/// The settlements of one shard that the store has not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    unanswered: AtomicUsize,
    /// Told at every change its claimer may have to act on.
    pub(crate) bell: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Queue {
    settlements: VecDeque<Settlement>,
    is_urgent: bool,
}

/// Whether settlements wait in an outbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// None does.
    No,
    /// All that do can wait a moment for company.
    Patiently,
    /// Something waits for one of them.
    Urgently,
}

impl Outbox {
    /// Adds a settlement and tells the claimer. One that `can_wait` tells it only of the first.
    pub(crate) fn push(&self, settlement: Settlement, can_wait: bool) {
        self.unanswered.fetch_add(1, Ordering::SeqCst);
        let mut queue = self.lock();
        let is_news = queue.settlements.is_empty() || (!can_wait && !queue.is_urgent);
        queue.settlements.push_back(settlement);
        queue.is_urgent |= !can_wait;
        drop(queue);
        if is_news {
            self.bell.notify_one();
        }
    }

    /// Whether there is something to fill a batch with.
    pub(crate) fn waiting(&self) -> Waiting {
        let queue = self.lock();
        match queue.is_urgent {
            true => Waiting::Urgently,
            false if queue.settlements.is_empty() => Waiting::No,
            false => Waiting::Patiently,
        }
    }

    /// Moves settlements into `batch` until it has `most`.
    pub(crate) fn fill(&self, batch: &mut Vec<Settlement>, most: usize) {
        let mut queue = self.lock();
        let settlements = &mut queue.settlements;
        let count = settlements.len().min(most.saturating_sub(batch.len()));
        batch.extend(settlements.drain(..count));
        queue.is_urgent &= !queue.settlements.is_empty();
    }

    /// The store has answered `count` settlements that were taken out.
    pub(crate) fn answered(&self, count: usize) {
        self.unanswered.fetch_sub(count, Ordering::SeqCst);
    }

    /// How many are waiting or under way.
    pub(crate) fn len(&self) -> usize {
        self.unanswered.load(Ordering::SeqCst)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt;
    use hookstash_shared::message::{MessageId, Shard};
    use hookstash_shared::random::SeededRandom;
    use hookstash_shared::store::{LeaseToken, Outcome};

    use super::*;

    fn settlement(seed: u64) -> Settlement {
        Settlement {
            id: MessageId::new(Shard::default(), 1, &SeededRandom::new(seed)),
            token: LeaseToken {
                number: 1,
                nonce: 7,
            },
            outcome: Outcome::Delivered,
            event: Bytes::new(),
            children: Vec::new(),
        }
    }

    #[test]
    fn the_bell_rings_for_the_first_settlement_and_for_an_urgent_one() {
        let outbox = Outbox::default();
        let rang = || outbox.bell.notified().now_or_never().is_some();
        assert_eq!(outbox.waiting(), Waiting::No);
        outbox.push(settlement(1), true);
        assert!(rang());
        outbox.push(settlement(2), true);
        assert!(!rang(), "it has company");
        assert_eq!(outbox.waiting(), Waiting::Patiently);
        outbox.push(settlement(3), false);
        assert!(rang());
        assert_eq!(outbox.waiting(), Waiting::Urgently);
    }

    #[test]
    fn what_a_batch_has_no_room_for_stays_as_urgent_as_it_was() {
        let outbox = Outbox::default();
        let mut batch = Vec::new();
        for (seed, can_wait) in [(1, true), (2, false), (3, true)] {
            outbox.push(settlement(seed), can_wait);
        }
        outbox.fill(&mut batch, 1);
        assert_eq!((batch.len(), outbox.waiting()), (1, Waiting::Urgently));
        outbox.fill(&mut batch, 9);
        assert_eq!((batch.len(), outbox.waiting()), (3, Waiting::No));
        assert_eq!(outbox.len(), 3, "until they are answered");
    }
}
