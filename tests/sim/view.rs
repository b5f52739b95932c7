//! One shard as plain maps, read from what the embedded host holds.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::FutureExt;
use hookstash_shared::store::embedded::{Contents, DumpedKey, EmbeddedHost};
use hookstash_shared::store::host::{Host, Reply, Step};

/// A record, as the scripts pack it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rec {
    pub state: char,
    pub number: u64,
    pub nonce: String,
    pub failed: u32,
    pub lost: u32,
    pub retries: u32,
    pub flags: String,
    pub body_key: String,
    pub lane: String,
    pub host: String,
    pub holds: String,
}

/// Everything one shard holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    pub records: BTreeMap<String, Rec>,
    pub scores: BTreeMap<&'static str, BTreeMap<String, i64>>,
    pub hashes: BTreeMap<&'static str, BTreeMap<String, String>>,
    pub lists: BTreeMap<String, Vec<String>>,
    pub bodies: BTreeSet<String>,
    pub responses: BTreeSet<String>,
    pub tokens: usize,
}

const ZSETS: [&str; 7] = ["d", "l", "x", "tm", "fp", "hq", "sc"];
const HASHES: [&str; 8] = ["st", "inf", "hi", "cfg", "win", "rc", "sd", "sf"];

/// The result of a call to the embedded host, which answers at once.
pub fn block_on<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never()
        .expect("the embedded host answers at once")
}

pub fn run(host: &dyn Host, words: &[&str]) -> Reply {
    let step = Step::Command(
        words
            .iter()
            .map(|w| Bytes::copy_from_slice(w.as_bytes()))
            .collect(),
    );
    let mut replies = block_on(host.run(vec![step]));
    replies.remove(0).expect("a plain command succeeds")
}

fn text(bytes: &Bytes) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn record(packed: &str) -> Rec {
    let f: Vec<&str> = packed.split('|').collect();
    assert_eq!(f.len(), 13, "a record has 13 fields: {packed}");
    Rec {
        state: f[1].chars().next().expect("a state"),
        number: f[2].parse().expect("a number"),
        nonce: f[3].to_owned(),
        failed: f[4].parse().expect("a number"),
        lost: f[5].parse().expect("a number"),
        retries: f[6].parse().expect("a number"),
        flags: f[7].to_owned(),
        body_key: f[9].to_owned(),
        lane: f[10].to_owned(),
        host: f[11].to_owned(),
        holds: f[12].to_owned(),
    }
}

impl View {
    /// Reads the shard whose keys start with `prefix` (`hs:{0}:`).
    pub fn read(host: &EmbeddedHost, prefix: &str) -> Self {
        let dump = host.dump().into_iter();
        Self::of(
            dump.map(|(key, DumpedKey { contents, .. })| (key, contents)),
            prefix,
        )
    }

    /// The same from all keys of any host.
    pub fn of(keys: impl Iterator<Item = (Bytes, Contents)>, prefix: &str) -> Self {
        let mut view = Self::default();
        for (key, contents) in keys {
            let key = text(&key);
            let Some(name) = key.strip_prefix(prefix) else {
                continue;
            };
            match contents {
                Contents::SortedSet(entries) => {
                    if let Some(zset) = ZSETS.iter().find(|zset| **zset == name) {
                        let scores = entries.into_iter().map(|(member, score)| {
                            (text(&member), score.parse().expect("integer scores"))
                        });
                        view.scores.insert(zset, scores.collect());
                    }
                }
                Contents::Hash(fields) if name == "m" => {
                    let records = fields.iter().map(|(id, packed)| {
                        let packed = std::str::from_utf8(packed).expect("text");
                        (text(id), record(packed))
                    });
                    view.records = records.collect();
                }
                Contents::Hash(fields) => {
                    if let Some(hash) = HASHES.iter().find(|hash| **hash == name) {
                        let fields = fields.iter().map(|(name, value)| (text(name), text(value)));
                        view.hashes.insert(hash, fields.collect());
                    }
                }
                Contents::List(items) if name == "w" => view.tokens = items.len(),
                Contents::List(items) => {
                    let is_read = ["ln:", "hw:", "tl:"].iter().any(|p| name.starts_with(p))
                        || ["run", "done", "gone", "trash"].contains(&name);
                    if is_read {
                        let items = items.iter().map(text).collect();
                        view.lists.insert(name.to_owned(), items);
                    }
                }
                Contents::Text(_) => {
                    if let Some(id) = name.strip_prefix("b:") {
                        view.bodies.insert(id.to_owned());
                    } else if let Some(id) = name.strip_prefix("r:") {
                        view.responses.insert(id.to_owned());
                    }
                }
                Contents::Set(_) | Contents::Stream(..) => {}
            }
        }
        view
    }

    pub fn score(&self, zset: &str, member: &str) -> Option<i64> {
        self.scores.get(zset)?.get(member).copied()
    }

    pub fn zset(&self, zset: &str) -> impl Iterator<Item = (&String, i64)> {
        self.scores
            .get(zset)
            .into_iter()
            .flatten()
            .map(|(member, score)| (member, *score))
    }

    pub fn field(&self, hash: &str, field: &str) -> Option<&str> {
        self.hashes.get(hash)?.get(field).map(String::as_str)
    }

    pub fn number(&self, hash: &str, field: &str) -> i64 {
        self.field(hash, field)
            .map_or(0, |text| text.parse().expect("a number"))
    }

    pub fn list(&self, name: &str) -> &[String] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }

    /// Lists whose name starts with `prefix`, with the rest of their name.
    pub fn lists_of<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a [String])> {
        self.lists.iter().filter_map(move |(name, items)| {
            name.strip_prefix(prefix)
                .map(|rest| (rest, items.as_slice()))
        })
    }

    pub fn in_flight(&self, lane: &str) -> i64 {
        self.number("inf", lane)
    }

    /// cap, rate, period ms, paused.
    pub fn settings(&self, lane: &str) -> (i64, i64, i64, bool) {
        let fields: Vec<i64> = self
            .field("cfg", lane)
            .unwrap_or("0|0|0|0|0|0|0|0")
            .split('|')
            .map(|n| n.parse().expect("a number"))
            .collect();
        let cap = match (fields[0], lane.starts_with("q:")) {
            (0, true) => 1,
            (0, false) => i64::MAX,
            (cap, _) => cap,
        };
        (cap, fields[1], fields[2], fields[3] == 1)
    }

    /// What one lane looks like, for the trace of a failing seed.
    pub fn describe(&self, lane: &str) -> String {
        let waiting = self.list(&format!("ln:{lane}"));
        let others: Vec<String> = self
            .records
            .iter()
            .filter(|(_, r)| r.lane == lane && r.state != 'w')
            .map(|(id, r)| format!("{id} {} lease {} failed {}", r.state, r.number, r.failed))
            .collect();
        format!(
            "    {lane}: state {:?}, in flight {}, window {:?}, waiting {waiting:?}, others {others:?}",
            self.field("st", lane),
            self.in_flight(lane),
            self.field("win", lane)
        )
    }
}
