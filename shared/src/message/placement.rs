//! Which shard a message lives in, and under which name its deduplication id is kept.
//!
//! Changing anything here would separate stored messages from their lanes: the hash is written out
//! so that no dependency can change it.

use sha2::{Digest as _, Sha256};

use super::dedup::DedupId;
use super::destination::Destination;
use super::id::{Shard, Shards};
use super::lane::{Lane, LaneKind};
use super::policy::GroupEndpoint;
use crate::random::Random;

/// 64-bit FNV-1a of `bytes`. The same for ever: stored placements depend on it.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(PRIME)
    })
}

/// The shard of a pinned lane: a queue or a flow-control key lives in one shard.
pub fn shard_of_lane(lane: &Lane, shards: Shards) -> Shard {
    shards.pick(stable_hash(lane.as_str().as_bytes()))
}

/// The shard of an operation: all that is kept for it lies there.
pub fn shard_of_operation(operation: &str, shards: Shards) -> Shard {
    shards.pick(stable_hash(operation.as_bytes()))
}

/// The shard of a URL group's record. Its messages lie anywhere.
pub fn shard_of_url_group(name: &str, shards: Shards) -> Shard {
    shards.pick(stable_hash(name.as_bytes()))
}

/// The shard of a new message: that of its queue or flow key (`pinned`), else that of its
/// deduplication id, else a random one.
pub fn place(
    pinned: Option<&Lane>,
    dedup: Option<&DedupId>,
    shards: Shards,
    random: &dyn Random,
) -> Shard {
    match (pinned, dedup) {
        (Some(lane), _) if lane.kind() != LaneKind::Host => shard_of_lane(lane, shards),
        (_, Some(id)) => shards.pick(stable_hash(id.as_str().as_bytes())),
        _ => shards.pick(random.next_u64()),
    }
}

/// The shard of the schedule `id`: that of the queue or flow key of its messages, else that of its
/// own deduplication id, else that of its id.
pub fn place_schedule(
    id: &str,
    pinned: Option<&Lane>,
    dedup: Option<&DedupId>,
    shards: Shards,
) -> Shard {
    match (pinned, dedup) {
        (Some(lane), _) if lane.kind() != LaneKind::Host => shard_of_lane(lane, shards),
        (_, Some(dedup)) => shards.pick(stable_hash(dedup.as_str().as_bytes())),
        _ => shards.pick(stable_hash(id.as_bytes())),
    }
}

/// The end of the key that remembers a deduplication id: `<scope>:<id>`, where the scope is the
/// pinned lane or empty. Ids hold no `:`, so no two pairs share a name, and the answer does not
/// depend on the number of shards.
pub fn dedup_name(pinned: Option<&Lane>, id: &DedupId) -> String {
    let scope = pinned.map_or("", Lane::as_str);
    format!("{scope}:{}", id.as_str())
}

/// The same for a message to one endpoint of a URL group: an id counts for each endpoint by itself.
/// One `:` more than any other name of its scope, and a hash of group and URL behind it.
pub(super) fn dedup_name_of_endpoint(
    name: &str,
    endpoint: &GroupEndpoint,
    url: &Destination,
) -> String {
    const HASH_BYTES: usize = 16;
    let mut hash = Sha256::new();
    hash.update(&endpoint.group);
    // No group name holds it.
    hash.update(b" ");
    hash.update(url.as_str());
    let hash = hash.finalize();
    let hex = hash
        .iter()
        .take(HASH_BYTES)
        .map(|byte| format!("{byte:02x}"));
    format!("{name}:{}", hex.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SeededRandom;

    #[test]
    fn the_hash_gives_the_published_values_of_fnv_1a() {
        assert_eq!(stable_hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(stable_hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(stable_hash(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_queue_keeps_its_shard_whatever_the_deduplication_id() {
        let shards = Shards::new(16).unwrap();
        let queue = Lane::queue("orders").unwrap();
        let random = SeededRandom::new(1);
        for id in ["a", "b", "c"] {
            let id = DedupId::parse(id).unwrap();
            let shard = place(Some(&queue), Some(&id), shards, &random);
            assert_eq!(shard, shard_of_lane(&queue, shards));
        }
    }

    #[test]
    fn a_deduplication_id_decides_when_nothing_is_pinned() {
        let shards = Shards::new(16).unwrap();
        let random = SeededRandom::new(1);
        let id = DedupId::parse("order-17").unwrap();
        let first = place(None, Some(&id), shards, &random);
        assert!((0..50).all(|_| place(None, Some(&id), shards, &random) == first));
    }

    #[test]
    fn other_messages_spread_over_all_shards() {
        let shards = Shards::new(8).unwrap();
        let random = SeededRandom::new(1);
        let mut counts = [0u32; 8];
        for _ in 0..8_000 {
            counts[usize::from(place(None, None, shards, &random).index())] += 1;
        }
        assert!(
            counts.iter().all(|count| (800..1200).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_scope_and_an_id_have_one_name() {
        let id = DedupId::parse("x").unwrap();
        let queue = Lane::queue("orders").unwrap();
        assert_eq!(dedup_name(Some(&queue), &id), "q:orders:x");
        assert_eq!(dedup_name(None, &id), ":x");
    }

    #[test]
    fn an_id_counts_for_each_endpoint_by_itself() {
        let endpoint = |group: &str, url: &str| {
            let endpoint = GroupEndpoint {
                group: group.to_owned(),
                name: Some("any".to_owned()),
            };
            dedup_name_of_endpoint(":x", &endpoint, &Destination::parse(url).unwrap())
        };
        let name = endpoint("g", "http://a/");
        assert_eq!(name, endpoint("g", "http://a/"));
        assert_eq!(name.len(), 3 + 32);
        assert!(name.starts_with(":x:"), "{name}");
        for other in [endpoint("g", "http://b/"), endpoint("h", "http://a/")] {
            assert_ne!(name, other);
        }
    }
}
