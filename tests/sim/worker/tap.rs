//! The store's side of a connection: what passes is told to the ground, and the laws are checked
//! after every request that changed something.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use hookstash_shared::message::Lane;
use hookstash_shared::store::host::{Host, HostError, Reply, Step, StepResult};
use hookstash_shared::store::{Child, Lease, LeaseToken, Outcome, Record, Settlement};

use super::ground::Ground;

/// Words of one settlement before its children, and of a child.
const SETTLEMENT_WORDS: usize = 7;
const CHILD_WORDS: usize = 9;

pub struct Tap {
    ground: Arc<Ground>,
    /// The worker on this connection; `None` for a publisher.
    worker: Option<usize>,
}

impl Tap {
    pub fn new(ground: Arc<Ground>, worker: Option<usize>) -> Self {
        Self { ground, worker }
    }

    fn told(&self, step: &Step, result: &StepResult) {
        let Step::Script { script, args, .. } = step else {
            return self.ground.count("command");
        };
        self.ground.count(script.name());
        let (Some(worker), Ok(reply)) = (self.worker, result) else {
            return;
        };
        match script.name() {
            "exchange" => {
                let leases = leases(reply, text(&args[1]).parse().expect("a nonce"));
                let settlements = settlements(args);
                self.ground.exchanged(worker, &settlements, &leases);
            }
            "tick_schedule" => self.ground.ticked(args, reply),
            "release_leases" => self.ground.released(worker, args, reply),
            _ => {}
        }
    }
}

impl Host for Tap {
    fn run(&self, steps: Vec<Step>) -> BoxFuture<'_, Vec<StepResult>> {
        Box::pin(async move {
            let results = self.ground.embedded.run(steps.clone()).await;
            for (step, result) in steps.iter().zip(&results) {
                self.told(step, result);
            }
            self.ground.check_if_changed();
            results
        })
    }

    fn wait(&self, key: Bytes, timeout: Duration) -> BoxFuture<'_, Result<bool, HostError>> {
        self.ground.embedded.wait(key, timeout)
    }
}

pub fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn number(bytes: &Bytes) -> u64 {
    text(bytes).parse().expect("a number")
}

fn settlements(args: &[Bytes]) -> Vec<Settlement> {
    let mut rest = &args[11..];
    let mut found = Vec::new();
    while rest.len() >= SETTLEMENT_WORDS {
        let outcome = match text(&rest[3]).split_at(1) {
            ("k", _) => Outcome::Delivered,
            ("r", delay_ms) => Outcome::Retry {
                after: Duration::from_millis(delay_ms.parse().expect("a number")),
            },
            ("c", _) => Outcome::Cancelled,
            _ => Outcome::Dead {
                response: Bytes::new(),
            },
        };
        found.push(Settlement {
            id: text(&rest[0]).parse().expect("an id"),
            token: LeaseToken {
                number: number(&rest[1]),
                nonce: u32::try_from(number(&rest[2])).expect("32 bits"),
            },
            outcome,
            event: Bytes::new(),
            children: Vec::new(),
        });
        let children = usize::try_from(number(&rest[6])).expect("few");
        let (words, behind) = rest[SETTLEMENT_WORDS..].split_at(children * CHILD_WORDS);
        if let Some(settlement) = found.last_mut() {
            settlement.children = words.chunks(CHILD_WORDS).map(child).collect();
        }
        rest = behind;
    }
    found
}

fn child(words: &[Bytes]) -> Child {
    Child {
        id: text(&words[0]).parse().expect("an id"),
        envelope: words[1].clone(),
        body_key: Some(text(&words[2])).filter(|key| !key.is_empty()),
        lane: Lane::parse(&text(&words[3])).expect("a lane"),
        host: text(&words[4]),
        retries: u32::try_from(number(&words[5])).expect("32 bits"),
        size: number(&words[6]),
        delay: Duration::from_millis(number(&words[7])),
        event: words[8].clone(),
    }
}

fn leases(reply: &Reply, nonce: u32) -> Vec<Lease> {
    let Reply::Array(parts) = reply else {
        return Vec::new();
    };
    let Some(Reply::Array(flat)) = parts.get(5) else {
        return Vec::new();
    };
    let word = |reply: &Reply| match reply {
        Reply::Bytes(bytes) => text(bytes),
        other => panic!("a lease of {other:?}"),
    };
    flat.chunks(3)
        .map(|lease| {
            let record = Record::parse(word(&lease[1]).as_bytes()).expect("a record");
            Lease {
                id: word(&lease[0]).parse().expect("an id"),
                token: LeaseToken {
                    number: record.leases,
                    nonce,
                },
                failed: record.failed,
                lost: record.lost,
                body_key: None,
                lane: record.lane,
                holds_queue: false,
                envelope: None,
            }
        })
        .collect()
}
