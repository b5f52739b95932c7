//! How much of a worker one lane may take, without tuning.
//!
//! A lane leases only while it has less in flight than the slots that are still free, so one hog
//! gets half of them and k hogs leave 1/(k+1) for newcomers.

use hookstash_shared::store::Fair;

/// The thresholds of a process with `free` of its `slots` free, while all live workers together
/// have `live_slots`. Host lanes exist in every one of `shards` shards, so each gets its share.
pub fn fair(live_slots: u64, free: u64, slots: u64, shards: u16) -> Fair {
    let flow = (live_slots.max(slots).saturating_mul(free) / slots.max(1)).max(1);
    Fair {
        flow,
        host: (flow / u64::from(shards.max(1))).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_worker_still_lets_every_lane_have_one() {
        assert_eq!(fair(512, 0, 512, 1), Fair { flow: 1, host: 1 });
    }

    #[test]
    fn the_free_share_counts_over_all_workers() {
        assert_eq!(
            fair(1024, 256, 512, 4),
            Fair {
                flow: 512,
                host: 128
            }
        );
    }
}
