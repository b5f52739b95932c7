//! Room for work: how many messages this process holds, and how many bytes of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The room of one process, shared by its parts. What is reserved comes back when the reservation
/// is dropped, wherever that happens.
#[derive(Debug)]
pub(crate) struct Slots {
    total: usize,
    room: Mutex<Room>,
}

#[derive(Debug)]
struct Room {
    free: usize,
    /// Below 0 while a single message is larger than the whole budget.
    bytes_free: i64,
    /// Who is told when something comes free, each once.
    waiting: VecDeque<Arc<Notify>>,
}

impl Slots {
    /// `total` free slots and a budget of `bytes`.
    pub(crate) fn new(total: usize, bytes: u64) -> Arc<Self> {
        let room = Room {
            free: total,
            bytes_free: signed(bytes),
            waiting: VecDeque::new(),
        };
        Arc::new(Self {
            total,
            room: Mutex::new(room),
        })
    }

    /// All slots, free or not.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Slots that can be used now; 0 when the bytes are used up.
    pub(crate) fn free(&self) -> usize {
        let room = self.lock();
        if room.bytes_free > 0 { room.free } else { 0 }
    }

    /// Slots that nothing holds, whatever the bytes say.
    pub(crate) fn unused(&self) -> usize {
        self.lock().free
    }

    /// Bytes that nothing holds; below 0 while a single message is larger than what was left.
    pub(crate) fn bytes_unused(&self) -> i64 {
        self.lock().bytes_free
    }

    /// Whether nothing is held.
    pub(crate) fn is_idle(&self) -> bool {
        self.lock().free == self.total
    }

    /// As much as is free, at most `count` slots and `bytes`.
    pub(crate) fn reserve(self: &Arc<Self>, count: usize, bytes: u64) -> Reserved {
        let mut room = self.lock();
        let count = if room.bytes_free > 0 {
            room.free.min(count)
        } else {
            0
        };
        let bytes = if count > 0 {
            room.bytes_free.clamp(0, signed(bytes))
        } else {
            0
        };
        room.free -= count;
        room.bytes_free -= bytes;
        drop(room);
        Reserved {
            slots: Arc::clone(self),
            count,
            bytes,
        }
    }

    /// Tells `who` once a slot can be used; at once if one can be used now.
    pub(crate) fn tell_when_free(&self, who: &Arc<Notify>) {
        let mut room = self.lock();
        if room.free > 0 && room.bytes_free > 0 {
            who.notify_one();
        } else if !room.waiting.iter().any(|other| Arc::ptr_eq(other, who)) {
            room.waiting.push_back(Arc::clone(who));
        }
    }

    fn give_back(&self, count: usize, bytes: i64) {
        let mut room = self.lock();
        room.free += count;
        room.bytes_free += bytes;
        // All are told: whoever is told first may have nothing to do with the slot.
        if room.free > 0 && room.bytes_free > 0 {
            room.waiting.drain(..).for_each(|who| who.notify_one());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reserved slots and bytes.
#[derive(Debug)]
pub(crate) struct Reserved {
    slots: Arc<Slots>,
    count: usize,
    bytes: i64,
}

impl Reserved {
    /// How many slots.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// How many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        u64::try_from(self.bytes).unwrap_or(0)
    }

    /// Gives back all slots above `count`.
    pub(crate) fn keep(&mut self, count: usize) {
        let over = self.count.saturating_sub(count);
        self.count -= over;
        self.slots.give_back(over, 0);
    }

    /// One slot of these, with exactly `bytes`: what is not reserved here is taken from the
    /// budget beyond its end. Without a slot left, only the bytes.
    pub(crate) fn take_one(&mut self, bytes: usize) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX / 4);
        let count = self.count.min(1);
        self.count -= count;
        let reserved = self.bytes.min(bytes);
        self.bytes -= reserved;
        self.slots.lock().bytes_free -= bytes - reserved;
        Self {
            slots: Arc::clone(&self.slots),
            count,
            bytes,
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.count > 0 || self.bytes > 0 {
            self.slots.give_back(self.count, self.bytes);
        }
    }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn what_is_reserved_comes_back_when_dropped() {
        let slots = Slots::new(10, 100);
        let mut many = slots.reserve(8, 60);
        assert_eq!((many.count(), many.bytes(), slots.free()), (8, 60, 2));
        many.keep(8);
        let one = many.take_one(25);
        assert_eq!(
            (one.count(), one.bytes(), many.count(), many.bytes()),
            (1, 25, 7, 35)
        );
        many.keep(3);
        assert_eq!((slots.free(), many.count()), (6, 3));
        drop(many);
        assert_eq!((slots.free(), slots.is_idle()), (9, false));
        drop(one);
        assert!(slots.is_idle());
        assert_eq!(slots.reserve(99, 999).bytes(), 100);
    }

    #[test]
    fn a_message_above_the_budget_stops_others_until_it_ends() {
        let slots = Slots::new(10, 100);
        let large = slots.reserve(5, 100).take_one(1_000);
        assert_eq!(slots.free(), 0);
        assert_eq!(slots.reserve(1, 1).count(), 0);
        drop(large);
        assert_eq!(slots.free(), 10);
    }

    #[test]
    fn a_free_slot_tells_all_who_wait() {
        let slots = Slots::new(1, 100);
        let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let told = |who: &Notify| who.notified().now_or_never().is_some();
        let held = slots.reserve(1, 1);
        slots.tell_when_free(&first);
        slots.tell_when_free(&first);
        slots.tell_when_free(&second);
        assert!(!told(&first));
        drop(held);
        assert!(told(&first) && told(&second));
        drop(slots.reserve(1, 1));
        assert!(!told(&first) && !told(&second));
        slots.tell_when_free(&first);
        assert!(told(&first), "a slot is free already");
    }
}
