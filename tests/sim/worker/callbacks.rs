//! Callbacks in a run: which were made, and the laws between them and their messages.
//!
//! - A death makes one failure callback, a success one callback, a cancel none; they enter the store
//!   with the settlement, or the settlement changed nothing.
//! - One settled attempt has one set of callbacks, however often its settlement is sent.
//! - What is told is about that message, with its body.
//! - A queue of one starts nothing while a callback of it is live.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hookstash_shared::message::{CallbackSpec, Destination, Envelope, MessageId};
use hookstash_shared::store::{Child, LeaseToken, Outcome, Settlement};

use super::caller::Answer;
use super::ledger::{Ledger, Sent, Strictness};
use crate::view::{Rec, View};

/// Hosts of the two kinds.
const CALLBACK: &str = "http://told.test/";
const FAILURE: &str = "http://mourned.test/";
/// How a receiver of callbacks fares, by its path.
const PATHS: [&str; 3] = ["ok", "flaky", "bad"];

/// Which callback of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Callback,
    Failure,
}

/// All callbacks of one run.
#[derive(Default)]
pub struct Made {
    /// Of which message each is.
    sources: BTreeMap<MessageId, (MessageId, Kind)>,
    of_attempt: BTreeMap<(MessageId, LeaseToken, Kind), MessageId>,
    /// In the store, since it was last emptied.
    entered: BTreeMap<(MessageId, Kind), BTreeSet<MessageId>>,
    /// Whether an envelope may have gone while its message was leased.
    was_emptied: bool,
}

impl Made {
    /// The store lost all it held.
    pub fn emptied(&mut self) {
        self.entered.clear();
        self.was_emptied = true;
    }
}

/// Both callbacks of a message; `fate` chooses how their receivers fare.
pub fn both(fate: usize) -> [CallbackSpec; 2] {
    let path = PATHS[fate % PATHS.len()];
    [CALLBACK, FAILURE].map(|host| {
        let url = format!("{host}{path}");
        CallbackSpec::to(Destination::parse(&url).expect("a URL"))
    })
}

fn kind(child: &Envelope) -> Kind {
    if child.header.url.as_str().starts_with(CALLBACK) {
        Kind::Callback
    } else {
        Kind::Failure
    }
}

fn answers(url: &str) -> Vec<Answer> {
    let ok = Answer::Status(200, 300);
    match url.rsplit('/').next() {
        Some("ok") => vec![ok],
        Some("flaky") => vec![Answer::Break(5), ok],
        _ => vec![Answer::Status(500, 5)],
    }
}

impl Ledger {
    /// A settlement with these children reached the store.
    pub fn made(&mut self, settlement: &Settlement) -> Vec<String> {
        let id = settlement.id;
        let Some(source) = self.sent.get(&id) else {
            return vec![format!("{id} was settled and never published")];
        };
        let (is_told, body) = (source.is_told, source.body.clone());
        let mut broken = Vec::new();
        let mut kinds = Vec::new();
        for child in &settlement.children {
            let envelope = Envelope::decode(&child.envelope).expect("an envelope");
            let kind = kind(&envelope);
            kinds.push(kind);
            let told = envelope.payload(&body).expect("what is told");
            let story: serde_json::Value = serde_json::from_slice(&told).expect("JSON");
            let source_body = story["sourceBody"].as_str().unwrap_or_default();
            if story["sourceMessageId"] != id.as_str() || source_body != BASE64.encode(&body) {
                broken.push(format!("{} tells of another message than {id}", child.id));
            }
            let attempt = (id, settlement.token, kind);
            let first = *self.callbacks.of_attempt.entry(attempt).or_insert(child.id);
            if first != child.id {
                broken.push(format!("one attempt of {id} made {first} and {}", child.id));
            }
            self.callbacks.sources.insert(child.id, (id, kind));
            self.sent
                .entry(child.id)
                .or_insert_with(|| sent(child, &envelope, told));
        }
        let expected: &[&[Kind]] = match settlement.outcome {
            Outcome::Delivered => &[&[Kind::Callback]],
            // No call, no callback.
            Outcome::Retry { .. } => &[&[Kind::Callback], &[]],
            Outcome::Dead { .. } => &[&[Kind::Callback, Kind::Failure], &[Kind::Failure]],
            Outcome::Cancelled => &[&[]],
        };
        // Whose envelope is gone cannot say whom to tell.
        let is_unreadable = self.callbacks.was_emptied
            && kinds.is_empty()
            && matches!(settlement.outcome, Outcome::Dead { .. });
        let is_right = if is_told {
            is_unreadable || expected.contains(&&kinds[..])
        } else {
            kinds.is_empty()
        };
        if !is_right {
            let outcome = &settlement.outcome;
            broken.push(format!(
                "{id} ended as {outcome:?} with callbacks {kinds:?}"
            ));
        }
        broken
    }

    /// Notes what is in the store by now, and looks at the messages that have ended.
    pub fn callbacks_entered(&mut self, view: &View) -> Vec<String> {
        for (id, source) in &self.callbacks.sources {
            if view.records.contains_key(id.as_str()) {
                self.accepted.insert(*id);
                self.callbacks
                    .entered
                    .entry(*source)
                    .or_default()
                    .insert(*id);
            }
        }
        let entered = |id: MessageId, kind| {
            let entered = self.callbacks.entered.get(&(id, kind));
            entered.map_or(0, BTreeSet::len)
        };
        let mut broken = Vec::new();
        for (id, record) in &view.records {
            let id: MessageId = id.parse().expect("an id");
            if !self.sent.get(&id).is_some_and(|sent| sent.is_told) {
                continue;
            }
            let deaths = entered(id, Kind::Failure);
            let is_told = match record.state {
                'x' => deaths == 1,
                // By a success that was told, whoever settled it in the end.
                'k' => deaths == 0 && entered(id, Kind::Callback) > 0,
                // A dead letter that was sent again.
                'g' => true,
                _ => deaths == 0,
            };
            if !is_told {
                broken.push(format!(
                    "{id} is {} and {deaths} deaths were told",
                    record.state
                ));
            }
        }
        broken
    }

    /// What is wrong when `id` starts before the callbacks of its queue have ended.
    pub fn starts_early(&self, id: &MessageId) -> Option<String> {
        let Sent { lane, cap, .. } = self.sent.get(id)?;
        let holds =
            |record: &&Rec| record.holds == *lane && matches!(record.state, 'w' | 'd' | 'l');
        let live = self.view.records.values().filter(holds).count();
        // With room for more, another may have been leased before the callbacks came.
        let is_strict = self.strictness != Strictness::Zombies && *cap == 1;
        let is_early = is_strict && lane.starts_with("q:") && live > 0;
        is_early.then(|| format!("{id} starts before the callbacks of {lane} have ended"))
    }
}

fn sent(child: &Child, envelope: &Envelope, told: bytes::Bytes) -> Sent {
    let url = envelope.header.url.as_str().to_owned();
    Sent {
        answers: answers(&url),
        url,
        body: told,
        lane: child.lane.as_str().to_owned(),
        cap: usize::try_from(u32::MAX).expect("32 bits"),
        is_told: false,
    }
}
