//! Walking a hash page by page, and the messages that live.

use bytes::Bytes;

use super::args::{Reader, command};
use super::host::{HostError, Reply};
use super::{Record, Store};
use crate::message::{MessageId, Shard};

/// How many records one page of a walk over the messages asks for.
const MESSAGES_PAGE: &str = "256";

/// One page of a walk over the messages of a shard.
#[derive(Debug, Clone)]
pub struct LiveMessages {
    /// Where the next page starts; 0 when the walk is over.
    pub cursor: u64,
    /// The messages of this page that have not come to their end, with their records. A walk may
    /// meet a message more than once.
    pub found: Vec<(MessageId, Record)>,
}

impl Store {
    /// One page of the messages of `shard` that have not come to their end, starting at `cursor`.
    /// A walk meets every message that lives from its begin to its end. O(page).
    pub async fn live_messages(
        &self,
        shard: Shard,
        cursor: u64,
    ) -> Result<LiveMessages, HostError> {
        let key = self.keys.of_shard(shard, "m");
        let (cursor, fields) = self.scan(&key, cursor, MESSAGES_PAGE).await?;
        let live = fields.into_iter().filter_map(|(id, packed)| {
            let record = Record::parse(&packed).filter(|record| !record.state.is_final())?;
            Some((id.parse().ok()?, record))
        });
        let found = live.collect();
        Ok(LiveMessages { cursor, found })
    }

    /// The first 4,096 bytes of the envelopes of a page of one shard, in one pipeline; empty for a
    /// message that is not there.
    pub async fn live_heads(&self, page: &[MessageId]) -> Result<Vec<Bytes>, HostError> {
        let read = |id: &MessageId| {
            let key = self.keys.envelope(id.shard(), id.as_str());
            command([b"GETRANGE", &key, b"0", b"4095"])
        };
        let replies = self.host.run(page.iter().map(read).collect()).await;
        let mut heads = Vec::with_capacity(page.len());
        for reply in replies {
            heads.push(match reply? {
                Reply::Bytes(head) => head,
                _ => Bytes::new(),
            });
        }
        Ok(heads)
    }

    /// The next cursor, and a page of the fields of the hash `key` with their values.
    pub(super) async fn scan(
        &self,
        key: &Bytes,
        cursor: u64,
        page: &str,
    ) -> Result<(u64, Vec<(String, Bytes)>), HostError> {
        let from = cursor.to_string();
        let scan = command([b"HSCAN", key, from.as_bytes(), b"COUNT", page.as_bytes()]);
        let mut reader = Reader::new(self.run_one(scan).await?, "scan")?;
        let cursor = reader.number()?;
        let mut fields = reader.array()?;
        let mut found = Vec::with_capacity(fields.len() / 2);
        while fields.len() > 0 {
            let field = fields.text()?;
            if let Reply::Bytes(value) = fields.next()? {
                found.push((field, value));
            }
        }
        Ok((cursor, found))
    }
}
