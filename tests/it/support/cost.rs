//! What a request costs Redis.

use super::redis::RedisServer;

/// Since the last `CONFIG RESETSTAT`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    /// Commands, those of scripts among them.
    pub(crate) commands: u64,
    /// Bytes that it sent.
    pub(crate) bytes: u64,
}

impl Cost {
    /// Begins to count.
    pub(crate) fn reset(redis: &RedisServer) {
        redis.cli::<()>(&["CONFIG", "RESETSTAT"]);
    }

    /// What was counted so far.
    pub(crate) fn now(redis: &RedisServer) -> Self {
        let stats: String = redis.cli(&["INFO", "stats"]);
        let commands: String = redis.cli(&["INFO", "commandstats"]);
        let ours = |line: &&str| {
            line.starts_with("cmdstat_")
                && !line.starts_with("cmdstat_info")
                && !line.starts_with("cmdstat_config")
        };
        let calls = commands.lines().filter(ours);
        Self {
            commands: calls.map(|line| number(line, "calls=")).sum(),
            bytes: number(&stats, "total_net_output_bytes:"),
        }
    }
}

/// The number behind `name`.
pub(crate) fn number(text: &str, name: &str) -> u64 {
    let rest = text
        .split(name)
        .nth(1)
        .unwrap_or_else(|| panic!("no {name}"));
    let digits = rest.chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().expect("a number")
}
