//! The key catalogue: every Redis key of Hookstash is named here or in the scripts' prelude, under
//! the hash tag of its shard, so that a script touches one cluster slot only.
//!
//! | key of shard i | type | holds |
//! |---|---|---|
//! | `hs:{i}:m` | hash | id -> packed record, for a message's whole life and 15 s after any end |
//! | `hs:{i}:b:<id>` | string | envelope; may name another `b:` key of its shard as its body |
//! | `hs:{i}:r:<id>` | string | last response of a dead letter |
//! | `hs:{i}:rc` | hash | users of a body key that several envelopes name; absent = 1 |
//! | `hs:{i}:ln:<lane>` | list | waiting ids of a lane |
//! | `hs:{i}:run` | list | ring of runnable lanes |
//! | `hs:{i}:fp` | zset | lanes at the fairness threshold, by their in-flight |
//! | `hs:{i}:tm` | zset | lane -> ms when its rate window lets it run again |
//! | `hs:{i}:st` `:inf` `:cfg` `:win` | hash | lane -> state; in-flight; settings; rate window |
//! | `hs:{i}:ch` | hash | queue -> ms when its in-flight last changed |
//! | `hs:{i}:hi` `:hw:<host>` `:hq` | hash, list, zset | in-flight per host; flow lanes waiting for a host; hosts with such lanes |
//! | `hs:{i}:d` `:l` `:x` | zset | id -> due ms; lease end ms; time of death ms |
//! | `hs:{i}:done` `:gone` | list | `<ms> <id>`, in `done` and the body key it shares: delivered and readable; ended, record only |
//! | `hs:{i}:trash` `:tl:…` | list | lists of deleted queues, drained by the sweeper |
//! | `hs:{i}:hb` | zset | heartbeats: `<slots> <worker>` by ms |
//! | `hs:{i}:u:<scope>` | string, PX | id of the first message with a deduplication id |
//! | `hs:{i}:c:<operation>:<tool message>` `…:final` | string | open placeholder of a deferred completion, with its context; its result |
//! | `hs:{i}:cw:<operation>` | zset | tool message -> ms when its placeholder was opened; those without a result only, and withdrawn ones whose row is not settled yet |
//! | `hs:{i}:cs:<operation>` | string | there for 30 days after an operation was cancelled: no placeholder of it is opened |
//! | `hs:{i}:o:<operation>` | hash | `record`: what another process needs to go on with an operation, its hooks among it; expires 30 days after its end |
//! | `hs:{i}:ug` | hash | URL group -> its endpoints and default headers, as JSON |
//! | `hs:{i}:sc` | zset | schedule -> due ms; not while it is paused |
//! | `hs:{i}:sd` | hash | schedule -> definition (JSON), never changed but by a new one, whose message is under a body key of its own |
//! | `hs:{i}:sf` | hash | schedule -> packed state: body key, paused, its last firing |
//! | `hs:{i}:log` | stream | events, one packed entry an exchange; bounded |
//! | `hs:{i}:w` | list | wake-up tokens: one, or two for a lane parked for want of room |
//! | `hs:{i}:ack` | string | written before replicas are waited for, so that there is a write to wait for |
//! | `hs:{i}:nil` | – | never exists; declared by every script |
//! | `hs:meta` | hash | number of shards, record version, time of birth, key ring |

use bytes::Bytes;

use crate::message::{Lane, Shard};

/// Builds keys under one prefix. Two prefixes share nothing, so that tests and tenants can share a
/// server.
#[derive(Debug, Clone)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// Keys under `prefix` (`HOOKSTASH_KEY_PREFIX`, default `hs`).
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
        }
    }

    /// `hs:{i}:<name>`.
    pub fn of_shard(&self, shard: Shard, name: &str) -> Bytes {
        format!("{}:{{{}}}:{name}", self.prefix, shard.index()).into()
    }

    /// The envelope of `id`.
    pub fn envelope(&self, shard: Shard, id: &str) -> Bytes {
        format!("{}:{{{}}}:b:{id}", self.prefix, shard.index()).into()
    }

    /// The waiting messages of `lane`.
    pub fn waiting(&self, shard: Shard, lane: &Lane) -> Bytes {
        self.of_shard(shard, &format!("ln:{}", lane.as_str()))
    }

    /// The last response of the dead letter `id`.
    pub fn response(&self, shard: Shard, id: &str) -> Bytes {
        format!("{}:{{{}}}:r:{id}", self.prefix, shard.index()).into()
    }

    /// The placeholder of a deferred completion.
    pub fn completion(&self, shard: Shard, name: &str) -> Bytes {
        format!("{}:{{{}}}:c:{name}", self.prefix, shard.index()).into()
    }

    /// The result of a deferred completion.
    pub fn completion_result(&self, shard: Shard, name: &str) -> Bytes {
        format!("{}:{{{}}}:c:{name}:final", self.prefix, shard.index()).into()
    }

    /// The placeholders of an operation that have no result. `operation` is escaped as in a name.
    pub fn open_completions(&self, shard: Shard, operation: &str) -> Bytes {
        format!("{}:{{{}}}:cw:{operation}", self.prefix, shard.index()).into()
    }

    /// That an operation was cancelled. `operation` is escaped as in a name.
    pub fn stopped(&self, shard: Shard, operation: &str) -> Bytes {
        format!("{}:{{{}}}:cs:{operation}", self.prefix, shard.index()).into()
    }

    /// The record of an operation.
    pub fn operation(&self, shard: Shard, operation: &str) -> Bytes {
        format!("{}:{{{}}}:o:{operation}", self.prefix, shard.index()).into()
    }

    /// What every process of one deployment shares.
    pub fn meta(&self) -> Bytes {
        format!("{}:meta", self.prefix).into()
    }
}
