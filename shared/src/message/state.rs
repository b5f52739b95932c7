//! The life of a message: its states and the one table of legal transitions.
//!
//! The scripts implement this table; the tests of the store hold them to it. Flags decide which
//! event happens, not where it leads: with `cancel` set, a retry, a death, a release or a loss is
//! [`Event::Cancelled`]; with `done` set, whatever ends the lease is [`Event::Delivered`].
//! A redrive and a deletion remove the record; a redriven message begins a life of its own.

use serde::{Deserialize, Serialize};

/// Where a message is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waiting in its lane.
    Ready,
    /// Due later; not in its lane.
    Delayed,
    /// Due later, while it keeps its slot of a FIFO queue, so that no later message overtakes it.
    Holding,
    /// Held by a worker.
    Leased,
    /// Ended: the destination accepted it.
    Delivered,
    /// Ended: a dead letter.
    Dead,
    /// Ended: cancelled.
    Cancelled,
}

impl State {
    /// All states.
    pub const ALL: [Self; 7] = [
        Self::Ready,
        Self::Delayed,
        Self::Holding,
        Self::Leased,
        Self::Delivered,
        Self::Dead,
        Self::Cancelled,
    ];

    /// The letter in the packed record.
    pub fn code(self) -> char {
        match self {
            Self::Ready => 'w',
            Self::Delayed => 'd',
            Self::Holding => 'h',
            Self::Leased => 'l',
            Self::Delivered => 'k',
            Self::Dead => 'x',
            Self::Cancelled => 'c',
        }
    }

    /// The state of a letter; `None` for any other.
    pub fn from_code(code: char) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// The word used in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Holding => "holding",
            Self::Leased => "leased",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing can happen to the message any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Delivered | Self::Dead | Self::Cancelled)
    }

    /// Whether the message takes a slot of its lane.
    pub fn holds_slot(self) -> bool {
        matches!(self, Self::Leased | Self::Holding)
    }
}

/// What can happen to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Its time has come.
    Promote,
    /// A worker takes it.
    Lease,
    /// The lease ends well.
    Delivered,
    /// The lease ends in a failure that is tried again later.
    Retry,
    /// The same in a FIFO queue.
    RetryInQueue,
    /// The lease ends in a failure for good.
    Died,
    /// The lease ends after a request to cancel.
    Cancelled,
    /// The lease is handed back or recovered, and the message goes to the head of its lane.
    Return,
    /// The lease was lost for the second time or later: a pause first.
    ReturnLater,
    /// The same in a FIFO queue.
    ReturnLaterInQueue,
    /// Somebody asks to cancel.
    Cancel,
    /// A success arrives with a token that is no longer current.
    LateSuccess,
    /// Its envelope is missing when a worker would take it.
    Bury,
}

impl Event {
    /// All events.
    pub const ALL: [Self; 13] = [
        Self::Promote,
        Self::Lease,
        Self::Delivered,
        Self::Retry,
        Self::RetryInQueue,
        Self::Died,
        Self::Cancelled,
        Self::Return,
        Self::ReturnLater,
        Self::ReturnLaterInQueue,
        Self::Cancel,
        Self::LateSuccess,
        Self::Bury,
    ];
}

/// The state after `event`, or `None` when the event means nothing in `state` and is dropped.
pub fn next(state: State, event: Event) -> Option<State> {
    use Event as E;
    use State as S;
    match (state, event) {
        (S::Delayed | S::Holding, E::Promote) | (S::Leased, E::Return) => Some(S::Ready),
        // A leased message that is cancelled, or was delivered by an earlier holder, stays with its
        // holder; a flag remembers what was asked or what is already done.
        (S::Ready, E::Lease) | (S::Leased, E::Cancel | E::LateSuccess) => Some(S::Leased),
        (S::Leased, E::Retry | E::ReturnLater) => Some(S::Delayed),
        (S::Leased, E::RetryInQueue | E::ReturnLaterInQueue) => Some(S::Holding),
        (S::Leased, E::Delivered) | (S::Ready | S::Delayed | S::Holding, E::LateSuccess) => {
            Some(S::Delivered)
        }
        (S::Leased, E::Died) | (S::Ready, E::Bury) => Some(S::Dead),
        (S::Leased, E::Cancelled) | (S::Ready | S::Delayed | S::Holding, E::Cancel) => {
            Some(S::Cancelled)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row per event: the letters it leads to from w d h l k x c, `-` for none.
    const TABLE: [(Event, &str); 13] = [
        (Event::Promote, "-ww----"),
        (Event::Lease, "l------"),
        (Event::Delivered, "---k---"),
        (Event::Retry, "---d---"),
        (Event::RetryInQueue, "---h---"),
        (Event::Died, "---x---"),
        (Event::Cancelled, "---c---"),
        (Event::Return, "---w---"),
        (Event::ReturnLater, "---d---"),
        (Event::ReturnLaterInQueue, "---h---"),
        (Event::Cancel, "cccl---"),
        (Event::LateSuccess, "kkkl---"),
        (Event::Bury, "x------"),
    ];

    #[test]
    fn every_pair_leads_where_the_table_says() {
        assert_eq!(TABLE.map(|(event, _)| event), Event::ALL);
        for (event, row) in TABLE {
            for (state, code) in State::ALL.into_iter().zip(row.chars()) {
                assert_eq!(
                    next(state, event),
                    State::from_code(code),
                    "{state:?} {event:?}"
                );
            }
        }
    }

    #[test]
    fn final_states_stay_and_others_can_end() {
        for state in State::ALL {
            let after: Vec<_> = Event::ALL.iter().filter_map(|e| next(state, *e)).collect();
            assert_eq!(after.is_empty(), state.is_final(), "{state:?}");
            if !state.is_final() {
                assert!(after.iter().any(|state| state.is_final()), "{state:?}");
            }
        }
    }

    #[test]
    fn letters_are_the_stored_ones() {
        let letters: String = State::ALL.iter().map(|state| state.code()).collect();
        assert_eq!(letters, "wdhlkxc");
        assert_eq!(State::from_code('-'), None);
    }
}
