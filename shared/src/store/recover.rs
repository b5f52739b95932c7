//! recover: taking back every lease at once, by whoever knows that no holder lives.

use bytes::Bytes;

use super::args::{Reader, command};
use super::host::{HostError, Step};
use super::{Exchange, Fair, Store};
use crate::message::Shard;

/// Leases of one step: what one exchange recovers.
const BATCH: &[u8] = b"63";

impl Store {
    /// Ends every lease of `shard` as a loss, whenever it would have ended, and says how many there
    /// were. Only for a store that no worker uses: a holder that lives would deliver in vain. Safe
    /// to repeat.
    pub async fn recover_all(&self, shard: Shard) -> Result<u64, HostError> {
        let key = self.keys.of_shard(shard, "l");
        let exchange = Exchange {
            settlements: &[],
            want: 0,
            nonce: 0,
            fair: Fair { flow: 0, host: 0 },
            upkeep: 64,
            may_recover: true,
            byte_budget: 0,
        };
        let mut recovered = 0;
        loop {
            let page = command([b"ZRANGE", &key, b"0", BATCH]);
            let mut ids = Reader::new(self.run_one(page).await?, "leases")?;
            if ids.len() == 0 {
                return Ok(recovered);
            }
            // Over since 1970, so that the exchange finds these first and takes all of them out.
            let mut over = vec![Bytes::from_static(b"ZADD"), key.clone()];
            while ids.len() > 0 {
                over.push(Bytes::from_static(b"0"));
                over.push(Bytes::from(ids.text()?));
            }
            self.run_one(Step::Command(over)).await?;
            let counters = self.exchange(shard, &exchange).await?.counters;
            if counters.recovered == 0 {
                let text = "leases were not recovered though nobody holds them";
                return Err(HostError::Fault(text.to_owned()));
            }
            recovered += counters.recovered;
        }
    }
}
