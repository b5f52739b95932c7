//! The scripts, each joined from small files that are readable alone.

use std::sync::LazyLock;

use super::script::Script;

const PRELUDE: &str = include_str!("lua/prelude.lua");
const LANE: &str = include_str!("lua/lane.lua");
const ENTER: &str = include_str!("lua/enter.lua");
const LIFE: &str = concat!(
    include_str!("lua/host.lua"),
    include_str!("lua/enter.lua"),
    include_str!("lua/life.lua")
);
const ENTER_LANE: &str = include_str!("lua/enter_lane.lua");
const SCHEDULE: &str = include_str!("lua/schedule.lua");

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $file:literal [$($part:expr),*];)*) => {
        $(
            $(#[$doc])*
            pub static $name: LazyLock<Script> = LazyLock::new(|| {
                const PARTS: &[&str] =
                    &[PRELUDE, $($part,)* include_str!(concat!("lua/", $file, ".lua"))];
                Script::new($file, PARTS)
            });
        )*

        /// Every script.
        pub fn all() -> Vec<&'static Script> {
            vec![$(&*$name),*]
        }
    };
}

scripts! {
    /// Accepts one message.
    PUBLISH_MESSAGE = "publish_message" [LANE, ENTER, ENTER_LANE];
    /// Accepts several messages that share one body.
    PUBLISH_GROUP = "publish_group" [LANE, LIFE, ENTER_LANE];
    /// Settles, promotes, recovers and leases a batch.
    EXCHANGE = "exchange" [
        LANE,
        LIFE,
        include_str!("lua/place.lua"),
        include_str!("lua/settle.lua"),
        include_str!("lua/promote.lua"),
        include_str!("lua/upkeep.lua"),
        include_str!("lua/lease.lua")
    ];
    /// Extends leases.
    RENEW_LEASES = "renew_leases" [];
    /// Hands leases back.
    RELEASE_LEASES = "release_leases" [LANE, LIFE];
    /// Counts the slots of live workers.
    HEARTBEAT = "heartbeat" [];
    /// Cancels one message.
    CANCEL_MESSAGE = "cancel_message" [LANE, LIFE];
    /// Turns a dead letter into a new message.
    REDRIVE_MESSAGE = "redrive_message" [LANE, LIFE, ENTER_LANE];
    /// Deletes a dead letter.
    DELETE_DEAD_LETTER = "delete_dead_letter" [LANE, LIFE];
    /// Sets a queue or flow key.
    SET_LANE = "set_lane" [LANE];
    /// Deletes a queue.
    DELETE_QUEUE = "delete_queue" [LANE];
    /// Cancels messages of deleted queues.
    SWEEP_TRASH = "sweep_trash" [LANE, LIFE];
    /// Forgets an unused flow key.
    FORGET_FLOW_KEY = "forget_flow_key" [LANE];
    /// Creates or replaces a schedule.
    PUT_SCHEDULE = "put_schedule" [LANE, LIFE, ENTER_LANE, SCHEDULE];
    /// Removes a schedule.
    REMOVE_SCHEDULE = "remove_schedule" [LANE, LIFE, SCHEDULE];
    /// Pauses a schedule.
    PAUSE_SCHEDULE = "pause_schedule" [SCHEDULE];
    /// Resumes a schedule.
    RESUME_SCHEDULE = "resume_schedule" [SCHEDULE];
    /// Fires a schedule.
    TICK_SCHEDULE = "tick_schedule" [LANE, LIFE, ENTER_LANE, SCHEDULE];
    /// Opens a deferred completion.
    OPEN_COMPLETION = "open_completion" [];
    /// Claims and stores a deferred completion's result.
    COMPLETE_COMPLETION = "complete_completion" [];
    /// Takes back a deferred completion that nothing will complete.
    WITHDRAW_COMPLETION = "withdraw_completion" [];
    /// Replaces a URL group.
    REPLACE_URL_GROUP = "replace_url_group" [];
    /// Replaces the key ring.
    REPLACE_KEY_RING = "replace_key_ring" [];
    /// Repairs half states.
    AUDIT_RECORDS = "audit_records" [LANE, LIFE];
    /// Recounts a lane's in-flight.
    RECOUNT_LANE = "recount_lane" [LANE];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What scripts must not use: not on both hosts, not deterministic, or lossy.
    const FORBIDDEN: [&str; 13] = [
        "cjson",
        "cmsgpack",
        "struct.",
        "bit.",
        "math.random",
        "pairs(",
        "tostring(",
        "#!lua",
        "redis.pcall",
        "KEYS[2]",
        "os.",
        "loadstring",
        "goto ",
    ];

    #[test]
    fn scripts_keep_to_the_rules() {
        for script in all() {
            let (name, source) = (script.name(), script.source());
            for word in FORBIDDEN {
                assert!(!source.contains(word), "{name} uses {word}");
            }
            assert_eq!(
                source.matches("call('TIME')").count(),
                1,
                "{name} asks the time once"
            );
            assert!(source.is_ascii(), "{name} is plain text");
        }
    }

    #[test]
    fn every_script_file_is_used() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/store/lua");
        let sources: Vec<&str> = all().iter().map(|script| script.source()).collect();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(
                sources.iter().any(|source| source.contains(&text)),
                "{path:?} is unused"
            );
        }
    }

    #[test]
    fn every_script_says_what_it_takes_and_returns() {
        for script in all() {
            let file = format!(
                "{}/src/store/lua/{}.lua",
                env!("CARGO_MANIFEST_DIR"),
                script.name()
            );
            let text = std::fs::read_to_string(file).unwrap();
            let head: String = text
                .lines()
                .take_while(|line| line.starts_with("--"))
                .collect();
            assert!(
                head.contains("ARGV") && head.contains("Returns"),
                "{}",
                script.name()
            );
        }
    }
}
