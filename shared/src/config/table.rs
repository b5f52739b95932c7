//! Every setting, once: its names, its kind with bounds, its default and its meaning.

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// How a value is written, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A URL, which may hold a password and is not shown.
    Url,
    /// An IP address with a port.
    Address,
    /// A directory.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A whole number between two others.
    Count(u64, u64),
    /// A duration between two others, in milliseconds.
    Duration(u64, u64),
    /// A size between two others, in bytes.
    Size(u64, u64),
    /// A secret. Never shown, never taken from the command line.
    Secret,
}

/// One setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The variables it is read from, the first of which is its name.
    pub names: &'static [&'static str],
    /// How its value is written.
    pub kind: Kind,
    /// The value when none is given; `None` when there is none.
    pub default: Option<&'static str>,
    /// What it does, as one sentence or two.
    pub meaning: &'static str,
}

impl Setting {
    /// The variable that is documented first.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// The flag, such as `--data-dir`. Secrets have none: a command line can be seen by others.
    pub fn flag(&self) -> Option<String> {
        let word = self.name().strip_prefix("HOOKSTASH_")?;
        let is_secret = self.kind == Kind::Secret;
        (!is_secret).then(|| format!("--{}", word.to_ascii_lowercase().replace('_', "-")))
    }
}

/// A setting of one name.
const fn setting(
    names: &'static [&'static str],
    kind: Kind,
    default: Option<&'static str>,
    meaning: &'static str,
) -> Setting {
    Setting {
        names,
        kind,
        default,
        meaning,
    }
}

/// The settings by name.
pub mod names {
    use super::{DAY, HOUR, KIB, Kind, MIB, MINUTE, SECOND, Setting, setting};

    /// Where the store is.
    pub const REDIS_URL: Setting = setting(
        &["HOOKSTASH_REDIS_URL", "REDIS_URL"],
        Kind::Url,
        None,
        "Redis or Valkey, 6.2 or newer: `redis://`, `rediss://` (TLS), `redis-cluster://`, \
         `redis-sentinel://` or `unix://`. Without it `dev` and, with a data directory, `serve` \
         start on the embedded store.",
    );
    /// Where the embedded store keeps its log.
    pub const DATA_DIR: Setting = setting(
        &["HOOKSTASH_DATA_DIR"],
        Kind::Path,
        None,
        "Directory in which `dev` and `serve` keep the embedded store, instead of a Redis; made \
         when it is not there, used by one process at a time. Without it the embedded store of \
         `dev` is lost on exit.",
    );
    /// When the embedded store's log is forced onto the disk.
    pub const DATA_SYNC: Setting = setting(
        &["HOOKSTASH_DATA_SYNC"],
        Kind::Choice(&["everysec", "always"]),
        Some("everysec"),
        "When what is in the data directory is forced onto the disk. A process that is killed \
         loses nothing with either; a machine that is lost loses up to two seconds with \
         `everysec` and nothing with `always`.",
    );
    /// The first part of every key.
    pub const KEY_PREFIX: Setting = setting(
        &["HOOKSTASH_KEY_PREFIX"],
        Kind::Text,
        Some("hs"),
        "First part of every Redis key: 1 to 64 characters of `[A-Za-z0-9._:-]`. Installations \
         that share a Redis need different ones.",
    );
    /// How many shards.
    pub const SHARDS: Setting = setting(
        &["HOOKSTASH_SHARDS"],
        Kind::Count(1, 1024),
        None,
        "Shards of the store, fixed when it is first used. Without it: 1 on a single Redis, 4 for \
         each master of a cluster but at most 16.",
    );
    /// How many replicas acknowledge a publish.
    pub const PUBLISH_REPLICAS: Setting = setting(
        &["HOOKSTASH_PUBLISH_REPLICAS"],
        Kind::Count(0, 16),
        Some("0"),
        "Replicas of the Redis that must have a message before its publish is answered, so that a \
         failover to one of them loses nothing accepted. With fewer, publishes answer 503 and \
         `/readyz` says so. Needs the right to `WAIT`.",
    );
    /// Where the HTTP server listens.
    pub const LISTEN: Setting = setting(
        &["HOOKSTASH_LISTEN"],
        Kind::Address,
        None,
        "Address and port of the HTTP server. Without it: `127.0.0.1:8080` for `dev`, \
         `0.0.0.0:8080` for `serve` and `api`, none for `worker`, which answers probes only.",
    );
    /// What callers authenticate with.
    pub const TOKEN: Setting = setting(
        &["QSTASH_TOKEN"],
        Kind::Secret,
        None,
        "Token that callers send as `Authorization: Bearer`. `serve` and `api` do not start \
         without it.",
    );
    /// What callers who only look authenticate with.
    pub const READ_ONLY_TOKEN: Setting = setting(
        &["HOOKSTASH_READ_ONLY_TOKEN"],
        Kind::Secret,
        None,
        "A second token, with which callers can read everything but the signing keys, and change \
         nothing: every other call is answered 403.",
    );
    /// The signing key in use.
    pub const CURRENT_SIGNING_KEY: Setting = setting(
        &["QSTASH_CURRENT_SIGNING_KEY"],
        Kind::Secret,
        None,
        "Key that signs deliveries. Set both signing keys or neither. They are never stored; stored \
         ones win over them.",
    );
    /// The signing key to come.
    pub const NEXT_SIGNING_KEY: Setting = setting(
        &["QSTASH_NEXT_SIGNING_KEY"],
        Kind::Secret,
        None,
        "Key that signs deliveries after the next rotation.",
    );
    /// The Standard Webhooks secret.
    pub const WEBHOOK_SECRET: Setting = setting(
        &["HOOKSTASH_WEBHOOK_SECRET"],
        Kind::Secret,
        None,
        "Secret of the Standard Webhooks signature: `whsec_` and the base64 of 24 to 64 bytes. \
         Without it that signature is not sent.",
    );
    /// What the key ring is encrypted with.
    pub const SECRET_KEY: Setting = setting(
        &["HOOKSTASH_SECRET_KEY"],
        Kind::Secret,
        None,
        "32 bytes in base64 that encrypt the stored signing keys, the same for all processes. With it, \
         and without signing keys of the environment, new ones are made, stored and can be rotated.",
    );
    /// Private destinations that are allowed.
    pub const EGRESS_ALLOW: Setting = setting(
        &["HOOKSTASH_EGRESS_ALLOW"],
        Kind::Text,
        Some(""),
        "Destinations that the egress policy would refuse and that are allowed, separated by \
         commas: a network, an address, `host`, `host:port`, `*.suffix`, `loopback` or `private`.",
    );
    /// Deliveries at once.
    pub const SLOTS: Setting = setting(
        &["HOOKSTASH_SLOTS"],
        Kind::Count(1, 65_536),
        Some("512"),
        "Deliveries that one process makes at once.",
    );
    /// How long a worker holds a message.
    pub const LEASE: Setting = setting(
        &["HOOKSTASH_LEASE"],
        Kind::Duration(SECOND, 10 * MINUTE),
        Some("15s"),
        "Time after which the messages of a worker that has vanished go to another.",
    );
    /// How often a worker extends its leases.
    pub const RENEW: Setting = setting(
        &["HOOKSTASH_RENEW"],
        Kind::Duration(100, 5 * MINUTE),
        Some("5s"),
        "Time between two extensions of a lease; at most half of the lease.",
    );
    /// Items of one exchange with the store.
    pub const BATCH: Setting = setting(
        &["HOOKSTASH_BATCH"],
        Kind::Count(1, 64),
        Some("64"),
        "Most messages of one exchange with the store.",
    );
    /// How long a stop may take.
    pub const DRAIN: Setting = setting(
        &["HOOKSTASH_DRAIN"],
        Kind::Duration(0, HOUR),
        Some("25s"),
        "Time that running deliveries get at shutdown. What is left is handed back and delivered \
         again.",
    );
    /// Largest body.
    pub const BODY_MAX: Setting = setting(
        &["HOOKSTASH_BODY_MAX"],
        Kind::Size(1, 100 * MIB),
        Some("10MiB"),
        "Largest body of a message. A larger one is refused with 413.",
    );
    /// How much of a response is kept.
    pub const RESPONSE_KEEP: Setting = setting(
        &["HOOKSTASH_RESPONSE_KEEP"],
        Kind::Size(0, 64 * KIB),
        Some("64KiB"),
        "How much of a destination's answer is kept for callbacks and dead letters.",
    );
    /// Deadline of an attempt by default.
    pub const TIMEOUT_DEFAULT: Setting = setting(
        &["HOOKSTASH_TIMEOUT_DEFAULT"],
        Kind::Duration(1, DAY),
        Some("15m"),
        "Deadline of one attempt when the message does not set `Upstash-Timeout`.",
    );
    /// Longest deadline of an attempt.
    pub const TIMEOUT_MAX: Setting = setting(
        &["HOOKSTASH_TIMEOUT_MAX"],
        Kind::Duration(1, DAY),
        Some("2h"),
        "Longest `Upstash-Timeout`. A longer one is refused.",
    );
    /// Deadline of connecting.
    pub const CONNECT_TIMEOUT: Setting = setting(
        &["HOOKSTASH_CONNECT_TIMEOUT"],
        Kind::Duration(1, 10 * MINUTE),
        Some("10s"),
        "Deadline of name resolution, connection and TLS handshake together.",
    );
    /// How long a deduplication id counts.
    pub const DEDUP_WINDOW: Setting = setting(
        &["HOOKSTASH_DEDUP_WINDOW"],
        Kind::Duration(SECOND, 366 * DAY),
        Some("10m"),
        "Time in which a second message with the same deduplication id is a duplicate.",
    );
    /// How long a delivered message can be read.
    pub const DELIVERED_GRACE: Setting = setting(
        &["HOOKSTASH_DELIVERED_GRACE"],
        Kind::Duration(15 * SECOND, DAY),
        Some("60s"),
        "Time for which a delivered message can still be read.",
    );
    /// How long dead letters are kept.
    pub const DLQ_RETENTION: Setting = setting(
        &["HOOKSTASH_DLQ_RETENTION"],
        Kind::Duration(MINUTE, 3660 * DAY),
        Some("30d"),
        "Time for which dead letters are kept.",
    );
    /// How long events are kept.
    pub const EVENTS_RETENTION: Setting = setting(
        &["HOOKSTASH_EVENTS_RETENTION"],
        Kind::Duration(MINUTE, 3660 * DAY),
        Some("7d"),
        "Time for which events are kept.",
    );
    /// Longest delay.
    pub const DELAY_MAX: Setting = setting(
        &["HOOKSTASH_DELAY_MAX"],
        Kind::Duration(0, 3660 * DAY),
        Some("366d"),
        "Longest `Upstash-Delay`, and how far `Upstash-Not-Before` may lie ahead.",
    );
    /// How long results of deferred completions are kept.
    pub const COMPLETION_RETENTION: Setting = setting(
        &["HOOKSTASH_COMPLETION_RETENTION"],
        Kind::Duration(MINUTE, 3660 * DAY),
        Some("30d"),
        "Time for which the result of a deferred completion is kept.",
    );
    /// What is logged.
    pub const LOG: Setting = setting(
        &["HOOKSTASH_LOG"],
        Kind::Text,
        Some("info"),
        "What is logged: a level, or directives such as `info,hookstash_worker=debug`.",
    );
    /// How it is logged.
    pub const LOG_FORMAT: Setting = setting(
        &["HOOKSTASH_LOG_FORMAT"],
        Kind::Choice(&["text", "json"]),
        Some("text"),
        "Form of the log, which goes to standard error.",
    );
}

/// All settings in the order of the documentation.
pub const SETTINGS: [Setting; 32] = [
    names::REDIS_URL,
    names::DATA_DIR,
    names::DATA_SYNC,
    names::KEY_PREFIX,
    names::SHARDS,
    names::PUBLISH_REPLICAS,
    names::LISTEN,
    names::TOKEN,
    names::READ_ONLY_TOKEN,
    names::CURRENT_SIGNING_KEY,
    names::NEXT_SIGNING_KEY,
    names::WEBHOOK_SECRET,
    names::SECRET_KEY,
    names::EGRESS_ALLOW,
    names::SLOTS,
    names::LEASE,
    names::RENEW,
    names::BATCH,
    names::DRAIN,
    names::BODY_MAX,
    names::RESPONSE_KEEP,
    names::TIMEOUT_DEFAULT,
    names::TIMEOUT_MAX,
    names::CONNECT_TIMEOUT,
    names::DEDUP_WINDOW,
    names::DELIVERED_GRACE,
    names::DLQ_RETENTION,
    names::EVENTS_RETENTION,
    names::DELAY_MAX,
    names::COMPLETION_RETENTION,
    names::LOG,
    names::LOG_FORMAT,
];
