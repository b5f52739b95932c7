//! The auditor's view: walking all records at a low rate and repairing half states.

use std::collections::BTreeMap;

use super::args::{Args, Reader, command, integer, text};
use super::host::{HostError, Reply};
use super::{Record, Store, scripts};
use crate::message::{Shard, State};

/// How many records one page of a walk asks for.
const PAGE: &str = "256";
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

/// Which ids hold a slot of which lane, gathered over one walk.
#[derive(Debug, Default)]
pub struct SlotHolders(BTreeMap<String, Vec<String>>);

impl Store {
    /// Audits one page of the records of `shard`, starting at `cursor`, and notes in `holders` who
    /// holds a slot. O(page).
    pub async fn audit(
        &self,
        shard: Shard,
        cursor: u64,
        holders: &mut SlotHolders,
    ) -> Result<AuditPage, HostError> {
        let key = self.keys.of_shard(shard, "m");
        let from = cursor.to_string();
        let reply = self
            .run_one(command([
                b"HSCAN",
                &key,
                from.as_bytes(),
                b"COUNT",
                PAGE.as_bytes(),
            ]))
            .await?;
        let mut reader = Reader::new(reply, "audit")?;
        let cursor = reader.number()?;
        let mut fields = reader.array()?;
        let mut args = Args::new().number(self.lease_ms);
        let mut count = 0;
        while fields.len() > 0 {
            let (id, packed) = (fields.text()?, fields.next()?);
            if let Reply::Bytes(packed) = packed {
                holders.note(&id, &packed);
            }
            args = args.text(&id);
            count += 1;
        }
        if count == 0 {
            return Ok(AuditPage {
                cursor,
                audited: Audited::default(),
            });
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

    /// Recounts every lane whose in-flight differs from what a whole walk found; returns how many
    /// counts changed. `previous` are the differences of the walk before: a lane is touched only
    /// when it differs in both alike, so that work under way is not mistaken for damage.
    pub async fn recount(
        &self,
        shard: Shard,
        holders: &SlotHolders,
        previous: &mut BTreeMap<String, i64>,
    ) -> Result<u64, HostError> {
        let counts = self
            .run_one(command([b"HGETALL", &self.keys.of_shard(shard, "inf")]))
            .await?;
        let mut reader = Reader::new(counts, "recount")?;
        let mut differences = BTreeMap::new();
        let mut changed = 0;
        while reader.len() > 0 {
            let (lane, in_flight) = (reader.text()?, reader.integer()?);
            let empty = Vec::new();
            let ids = holders.0.get(&lane).unwrap_or(&empty);
            let difference = in_flight - i64::try_from(ids.len()).unwrap_or(i64::MAX);
            if difference == 0 || ids.len() > CANDIDATES_MAX {
                continue;
            }
            if previous.get(&lane) == Some(&difference) {
                let seen = u64::try_from(in_flight).unwrap_or(0);
                let mut args = Args::new().text(&lane).number(seen);
                for id in ids {
                    args = args.text(id);
                }
                let count = self.run_script(shard, &scripts::RECOUNT_LANE, args).await?;
                changed += u64::from(integer(&count).is_some_and(|n| n >= 0 && n != in_flight));
            }
            differences.insert(lane, difference);
        }
        *previous = differences;
        Ok(changed)
    }

    /// Whether the store answers, and takes writes.
    pub async fn ping(&self) -> Result<(), HostError> {
        let key = self.keys.of_shard(Shard::default(), "nil");
        self.run_one(command([b"HDEL", &key, b"x"])).await.map(drop)
    }

    /// The number of shards this deployment was started with; records `shards` if it is new. A
    /// store that is full still tells, because workers must be able to empty it.
    pub async fn agree_on_shards(&self, shards: u16) -> Result<u16, HostError> {
        if let Some(agreed) = self.known_shards().await? {
            return Ok(agreed);
        }
        let key = self.keys.meta();
        let count = shards.to_string();
        self.run_one(command([b"HSETNX", &key, b"shards", count.as_bytes()]))
            .await?;
        self.run_one(command([b"HSETNX", &key, b"record", b"1"]))
            .await?;
        Ok(self.known_shards().await?.unwrap_or(shards))
    }

    async fn known_shards(&self) -> Result<Option<u16>, HostError> {
        let key = self.keys.meta();
        let known = self.run_one(command([b"HGET", &key, b"shards"])).await?;
        Ok(text(&known).and_then(|text| text.parse().ok()))
    }
}

impl SlotHolders {
    fn note(&mut self, id: &str, packed: &[u8]) {
        let Some(record) = Record::parse(packed) else {
            return;
        };
        let is_live = !matches!(
            record.state,
            State::Delivered | State::Dead | State::Cancelled
        );
        if matches!(record.state, State::Leased | State::Holding) {
            self.0.entry(record.lane).or_default().push(id.to_owned());
        }
        if let Some(lane) = record.holds.filter(|_| is_live) {
            self.0.entry(lane).or_default().push(id.to_owned());
        }
    }
}
