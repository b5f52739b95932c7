//! The auditor's view: walking all records at a low rate and repairing half states.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::args::{Args, Reader, command};
use super::host::{HostError, Reply};
use super::{Record, Store, scripts};
use crate::message::Shard;

/// How many records one page of a walk asks for.
const PAGE: &str = "64";
/// How many candidates a recount takes; a lane with more is recounted at a quieter time.
const CANDIDATES_MAX: usize = 10_000;

/// One page of a walk.
#[derive(Debug, Clone)]
pub struct AuditPage {
    /// Where the next page starts; 0 when the walk is over.
    pub cursor: u64,
    /// What was repaired on this page.
    pub audited: Audited,
}

/// What an audit repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Audited {
    /// Records and lanes put back into their place.
    pub repaired: u64,
    /// Records that could not be read and are dead letters now.
    pub unreadable: u64,
}

/// What one walk over the records of a shard has seen.
#[derive(Debug, Default)]
pub struct AuditWalk {
    /// The host's time before the first page, in milliseconds since the epoch.
    since_ms: Option<u64>,
    /// Which ids held a slot of which lane.
    holders: BTreeMap<String, Vec<String>>,
    /// Flow-control lanes that some record names.
    flow_lanes: BTreeSet<String>,
}

impl Store {
    /// Audits one page of the records of `shard`, starting at `cursor`, and notes what it sees in
    /// `walk`. O(page).
    pub async fn audit(
        &self,
        shard: Shard,
        cursor: u64,
        walk: &mut AuditWalk,
    ) -> Result<AuditPage, HostError> {
        let (now_ms, cursor, page) = self.page_of_records(shard, cursor).await?;
        walk.since_ms.get_or_insert(now_ms);
        if page.is_empty() {
            let audited = Audited::default();
            return Ok(AuditPage { cursor, audited });
        }
        let mut args = Args::new().number(self.lease_ms);
        for (id, packed) in &page {
            walk.note(id, packed);
            args = args.text(id);
        }
        let reply = self
            .run_script(shard, &scripts::AUDIT_RECORDS, args)
            .await?;
        let mut reader = Reader::new(reply, "audit")?;
        let audited = Audited {
            repaired: reader.number()?,
            unreadable: reader.number()?,
        };
        Ok(AuditPage { cursor, audited })
    }

    /// The host's time, the next cursor, and a page of ids with their packed records.
    async fn page_of_records(
        &self,
        shard: Shard,
        cursor: u64,
    ) -> Result<(u64, u64, Vec<(String, Bytes)>), HostError> {
        let (key, from) = (self.keys.of_shard(shard, "m"), cursor.to_string());
        let scan = command([b"HSCAN", &key, from.as_bytes(), b"COUNT", PAGE.as_bytes()]);
        let mut replies = self
            .host
            .run(vec![command([b"TIME"]), scan])
            .await
            .into_iter();
        let mut next = || {
            replies
                .next()
                .unwrap_or_else(|| Err(HostError::Lost(String::new())))
        };
        let (mut time, mut scan) = (
            Reader::new(next()?, "time")?,
            Reader::new(next()?, "audit")?,
        );
        let now_ms = time.number()? * 1000 + time.number()? / 1000;
        let cursor = scan.number()?;
        let mut fields = scan.array()?;
        let mut page = Vec::new();
        while fields.len() > 0 {
            let id = fields.text()?;
            if let Reply::Bytes(packed) = fields.next()? {
                page.push((id, packed));
            }
        }
        Ok((now_ms, cursor, page))
    }

    /// Recounts every lane whose in-flight differs from what a whole walk found; returns how many
    /// counts changed. `previous` are the differences of the walk before: a lane is looked at
    /// closely only when it differs in both alike. A queue that moved during the walk is left
    /// alone, because its holding messages are known from the walk only.
    pub async fn recount(
        &self,
        shard: Shard,
        walk: &AuditWalk,
        previous: &mut BTreeMap<String, i64>,
    ) -> Result<u64, HostError> {
        let counts = self
            .run_one(command([b"HGETALL", &self.keys.of_shard(shard, "inf")]))
            .await?;
        let mut reader = Reader::new(counts, "recount")?;
        let mut differences: BTreeMap<String, i64> = walk
            .holders
            .iter()
            .map(|(lane, ids)| (lane.clone(), -count(ids)))
            .collect();
        while reader.len() > 0 {
            let (lane, in_flight) = (reader.text()?, reader.integer()?);
            *differences.entry(lane).or_default() += in_flight;
        }
        differences.retain(|_, difference| *difference != 0);
        let mut changed = 0;
        for (lane, difference) in &differences {
            let ids = walk.holders.get(lane).map_or(&[][..], Vec::as_slice);
            if previous.get(lane) != Some(difference) || ids.len() > CANDIDATES_MAX {
                continue;
            }
            let mut args = Args::new().text(lane).number(walk.since_ms.unwrap_or(0));
            for id in ids {
                args = args.text(id);
            }
            let reply = self.run_script(shard, &scripts::RECOUNT_LANE, args).await?;
            let mut counts = Reader::new(reply, "recount")?;
            changed += u64::from(counts.integer()? != counts.integer()?);
        }
        *previous = differences;
        Ok(changed)
    }
}

fn count(ids: &[String]) -> i64 {
    i64::try_from(ids.len()).unwrap_or(i64::MAX)
}

impl AuditWalk {
    /// Whether some record of the walk names this flow-control lane.
    pub(super) fn names(&self, flow_lane: &str) -> bool {
        self.flow_lanes.contains(flow_lane)
    }

    fn note(&mut self, id: &str, packed: &[u8]) {
        let Some(record) = Record::parse(packed) else {
            return;
        };
        if record.lane.starts_with("f:") {
            self.flow_lanes.insert(record.lane.clone());
        }
        let is_live = !record.state.is_final();
        if record.state.holds_slot() {
            self.holders
                .entry(record.lane)
                .or_default()
                .push(id.to_owned());
        }
        if let Some(lane) = record.holds.filter(|_| is_live) {
            self.holders.entry(lane).or_default().push(id.to_owned());
        }
    }
}
