//! Who waits for a token of which list.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tokio::sync::oneshot;

/// Waiters by list, first come first served.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    by_key: BTreeMap<Bytes, VecDeque<Waiter>>,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    hand_over: oneshot::Sender<Bytes>,
}

impl Waiters {
    /// Adds a waiter for the list `key`: its number, and where its token arrives.
    pub(super) fn join(&mut self, key: &Bytes) -> (u64, oneshot::Receiver<Bytes>) {
        let id = self.next_id;
        self.next_id += 1;
        let (hand_over, arrives) = oneshot::channel();
        let queue = self.by_key.entry(key.clone()).or_default();
        queue.push_back(Waiter { id, hand_over });
        (id, arrives)
    }

    pub(super) fn leave(&mut self, key: &Bytes, id: u64) {
        if let Some(queue) = self.by_key.get_mut(key) {
            queue.retain(|waiter| waiter.id != id);
            if queue.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    /// Lists somebody waits for.
    pub(super) fn keys(&self) -> Vec<Bytes> {
        self.by_key.keys().cloned().collect()
    }

    /// Gives `token` to the first waiter for `key`; it comes back when nobody waits any more.
    pub(super) fn hand_over(&mut self, key: &Bytes, mut token: Bytes) -> Result<(), Bytes> {
        while let Some(waiter) = self.by_key.get_mut(key).and_then(VecDeque::pop_front) {
            match waiter.hand_over.send(token) {
                Ok(()) => return Ok(()),
                Err(back) => token = back,
            }
        }
        self.by_key.remove(key);
        Err(token)
    }
}
