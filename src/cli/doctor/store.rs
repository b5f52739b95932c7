//! The store: reachable, of a known version, persistent, safe from eviction, writable, of the same
//! time, and of the number of shards that this process was told.

use std::sync::Arc;
use std::time::Duration;

use hookstash_shared::clock::{Clock as _, SystemClock};
use hookstash_shared::config::Settings;
use hookstash_shared::message::{Shard, Shards};
use hookstash_shared::signing::KeySeal;
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::redis_host::{RedisHost, RedisOptions, RedisUrl, ServerFacts};
use hookstash_shared::store::{Retention, Store};
use hookstash_shared::telemetry::MaskedUrl;
use secrecy::ExposeSecret as _;

use super::Findings;

/// Time for everything that is asked of the store.
const TIMEOUT: Duration = Duration::from_secs(9);
/// Time for a connection, and for one answer.
const STEP_TIMEOUT: Duration = Duration::from_secs(4);
/// Oldest version, as major and minor.
const VERSION_MIN: (u32, u32) = (6, 2);
/// Clocks further apart than this are worth a word; receivers may refuse signatures of the future.
const SKEW_WARN_MS: u64 = 2_000;
/// And this far apart signatures have expired, or are of the future for everybody.
const SKEW_FAIL_MS: u64 = 60_000;
/// Workers send a heartbeat with every renewal; this many renewals without one, and it is gone.
const BEATS: u32 = 3;

/// Checks the store of `settings`.
pub(super) async fn check(settings: &Settings, findings: &mut Findings) {
    let Some(url) = &settings.redis_url else {
        return without_redis(settings, findings);
    };
    let shown = MaskedUrl(url.expose_secret()).to_string();
    let store = tokio::time::timeout(TIMEOUT, connect(url.expose_secret())).await;
    let (host, facts) = match store {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            return findings.fail(
                "store",
                format!("{shown}: {error}"),
                "Is Redis running there, and are host, port, user and password right? Set \
                 HOOKSTASH_REDIS_URL or give --redis-url.",
            );
        }
        Err(_) => {
            return findings.fail(
                "store",
                format!("{shown} does not answer within {} s", TIMEOUT.as_secs()),
                "Is Redis busy, or a firewall in between?",
            );
        }
    };
    findings.ok("store", format!("{shown} answers"));
    if facts.is_empty() {
        findings.warn(
            "version",
            "the server tells nothing about itself",
            "Look after version, persistence and eviction policy yourself.",
        );
    }
    for facts in &facts {
        server(facts, findings);
    }
    let store = store_on(host, settings);
    let asked = tokio::time::timeout(TIMEOUT, contents(&store, settings, findings)).await;
    match asked {
        Ok(Ok(())) => {}
        Ok(Err(error)) => refused(&error, findings),
        Err(_) => findings.fail(
            "store",
            "it stopped answering",
            "Is Redis busy, or a firewall in between?",
        ),
    }
}

fn without_redis(settings: &Settings, findings: &mut Findings) {
    if let Some(directory) = &settings.data_dir {
        return findings.ok(
            "store",
            format!("embedded, in {}: nothing to ask", directory.display()),
        );
    }
    findings.fail(
        "store",
        "HOOKSTASH_REDIS_URL is not set",
        "Set it or give --redis-url, such as redis://localhost:6379.",
    );
}

async fn connect(url: &str) -> Result<(RedisHost, Vec<ServerFacts>), String> {
    let options = RedisOptions {
        connect_timeout: STEP_TIMEOUT,
        response_timeout: STEP_TIMEOUT,
        ..RedisOptions::default()
    };
    let url = RedisUrl::parse(url).map_err(|error| error.to_string())?;
    let host = RedisHost::connect(&url, options).await;
    let host = host.map_err(|error| error.to_string())?;
    let facts = host.facts().await.unwrap_or_default();
    Ok((host, facts))
}

fn store_on(host: RedisHost, settings: &Settings) -> Store {
    Store::new(
        Arc::new(host),
        &settings.key_prefix,
        Shards::ONE,
        settings.lease,
        Retention::default(),
    )
}

fn server(facts: &ServerFacts, findings: &mut Findings) {
    let server = &facts.server;
    match facts.version.as_deref().map(|text| (text, version(text))) {
        Some((text, Some(found))) if found < VERSION_MIN => findings.fail(
            "version",
            format!("{server} is Redis {text}"),
            "Use Redis 6.2 or newer, or Valkey.",
        ),
        Some((text, _)) => findings.ok("version", format!("{server} is Redis {text}")),
        None => findings.warn(
            "version",
            format!("{server} does not tell its version (INFO is not allowed to our user)"),
            "Make sure that it is Redis 6.2 or newer, or Valkey; or allow +info.",
        ),
    }
    if facts.role.as_deref() == Some("slave") {
        findings.fail(
            "role",
            format!("{server} is a replica"),
            "Give the URL of the master, or redis-sentinel:// or redis-cluster://.",
        );
    }
    persistence(facts, findings);
    eviction(facts, findings);
}

fn persistence(facts: &ServerFacts, findings: &mut Findings) {
    let server = &facts.server;
    match (facts.is_aof_on, facts.appendfsync.as_deref()) {
        (Some(false), _) => findings.warn(
            "persistence",
            format!("{server} keeps no append-only file: a restart loses messages"),
            "Set appendonly yes.",
        ),
        (Some(true), Some("no")) => findings.warn(
            "persistence",
            format!("{server} has appendonly on and appendfsync no: a lost machine loses seconds"),
            "Set appendfsync everysec (up to 2 s lost with the machine) or always (nothing).",
        ),
        (Some(true), Some(fsync)) => findings.ok(
            "persistence",
            format!("{server} has appendonly on, appendfsync {fsync}"),
        ),
        (Some(true), None) => findings.ok(
            "persistence",
            format!(
                "{server} has appendonly on; it does not tell appendfsync (CONFIG is not allowed \
                 to our user)"
            ),
        ),
        (None, _) => findings.warn(
            "persistence",
            format!("{server} does not tell whether it keeps an append-only file"),
            "Make sure that it has appendonly yes, or allow +info.",
        ),
    }
    if facts.is_persisting_well == Some(false) {
        findings.fail(
            "persistence",
            format!("{server} could not write to its disk last time"),
            "Look at its log: is the disk full?",
        );
    }
}

fn eviction(facts: &ServerFacts, findings: &mut Findings) {
    let server = &facts.server;
    match facts.maxmemory_policy.as_deref() {
        Some(policy) if facts.may_evict() => findings.fail(
            "eviction",
            format!("{server} has maxmemory-policy {policy}: it deletes messages when full"),
            "Set maxmemory-policy noeviction: a full store then refuses new messages instead.",
        ),
        Some(policy) => findings.ok(
            "eviction",
            format!("{server} has maxmemory-policy {policy}"),
        ),
        None => findings.warn(
            "eviction",
            format!(
                "{server} does not tell its maxmemory-policy (INFO and CONFIG are not allowed)"
            ),
            "Make sure that it is noeviction.",
        ),
    }
}

/// What is asked of the store as its processes use it.
async fn contents(
    store: &Store,
    settings: &Settings,
    findings: &mut Findings,
) -> Result<(), HostError> {
    match store.ping().await {
        Ok(()) => findings.ok("write", "it takes messages"),
        Err(error) => refused(&error, findings),
    }
    let before = SystemClock::new().now_ms();
    let theirs = store.clock_ms().await?;
    let after = SystemClock::new().now_ms();
    clock(before, theirs, after, findings);
    shards(store, settings, findings).await?;
    keys(store, settings, findings).await?;
    let life = u64::try_from((settings.renew * BEATS).as_millis()).unwrap_or(u64::MAX);
    let since = theirs.saturating_sub(life);
    let (workers, slots) = store.live_workers(Shard::default(), since).await?;
    if workers == 0 {
        findings.warn(
            "workers",
            "none was heard of lately: nothing is delivered",
            "Start `hookstash worker` or `hookstash serve`.",
        );
    } else {
        findings.ok("workers", format!("{workers} with {slots} slots"));
    }
    Ok(())
}

fn refused(error: &HostError, findings: &mut Findings) {
    let advice = match error {
        HostError::Full(_) => "Raise maxmemory, or delete dead letters.",
        HostError::RetryLater(_) | HostError::Unconfirmed(_) => {
            "Is it a replica, still loading, without enough replicas, or is its disk full?"
        }
        HostError::Fault(_) => {
            "Allow the user of HOOKSTASH_REDIS_URL all keys of our prefix and all commands on them."
        }
        HostError::Lost(_) => "Is Redis busy, or a firewall in between?",
    };
    findings.fail("write", error.to_string(), advice);
}

fn clock(before: u64, theirs: u64, after: u64, findings: &mut Findings) {
    // Between asking and the answer any time is right.
    let skew = before
        .saturating_sub(theirs)
        .max(theirs.saturating_sub(after));
    let text = format!("this machine and the store are {skew} ms apart");
    let advice = "Let both follow a time server (NTP).";
    match skew {
        SKEW_FAIL_MS.. => findings.fail("clock", text, advice),
        SKEW_WARN_MS.. => findings.warn("clock", text, advice),
        _ => findings.ok("clock", text),
    }
}

async fn shards(
    store: &Store,
    settings: &Settings,
    findings: &mut Findings,
) -> Result<(), HostError> {
    match (store.known_shards().await?, settings.shards) {
        (Some(known), Some(told)) if told.count() != known => findings.fail(
            "shards",
            format!(
                "the store has {known}, HOOKSTASH_SHARDS says {}: this process would deliver nothing",
                told.count()
            ),
            "Unset HOOKSTASH_SHARDS, or set it to the store's own number.",
        ),
        (Some(known), _) => findings.ok("shards", known.to_string()),
        (None, _) => findings.ok("shards", "the store is new: the first process settles the number"),
    }
    Ok(())
}

async fn keys(
    store: &Store,
    settings: &Settings,
    findings: &mut Findings,
) -> Result<(), HostError> {
    let place = format!("{}:meta keys", settings.key_prefix);
    let secret = settings.secret_key.as_ref();
    let seal = secret.and_then(|secret| KeySeal::new(secret, &place).ok());
    match (store.key_ring().await?, seal) {
        (Some(_), None) => findings.fail(
            "keys",
            "signing keys are stored, and HOOKSTASH_SECRET_KEY is not set",
            "Set it to the value that other processes have.",
        ),
        (Some(record), Some(seal)) if seal.open(&record).is_err() => findings.fail(
            "keys",
            "the stored signing keys do not open with HOOKSTASH_SECRET_KEY",
            "Set it to the value that they were stored with.",
        ),
        (Some(_), Some(_)) if settings.signing_keys.is_some() => findings.warn(
            "keys",
            "stored signing keys are used, not those of the environment",
            "Unset QSTASH_CURRENT_SIGNING_KEY and QSTASH_NEXT_SIGNING_KEY.",
        ),
        (Some(_), Some(_)) => findings.ok("keys", "stored, and they open"),
        (None, _) if settings.signing_keys.is_some() => {
            findings.ok("keys", "set by the environment");
        }
        (None, Some(_)) => findings.ok("keys", "the first process makes and stores them"),
        (None, None) => findings.warn(
            "keys",
            "there are none: deliveries are not signed",
            "Set HOOKSTASH_SECRET_KEY to 32 random bytes in base64 (openssl rand -base64 32), or \
             both signing keys.",
        ),
    }
    Ok(())
}

/// Major and minor of a version.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    type Change = fn(&mut ServerFacts);

    fn levels(check: impl FnOnce(&mut Findings)) -> Vec<(&'static str, Level)> {
        let mut findings = Findings::default();
        check(&mut findings);
        findings
            .0
            .iter()
            .map(|one| (one.check, one.level))
            .collect()
    }

    fn good() -> ServerFacts {
        ServerFacts {
            server: "h:1".to_owned(),
            version: Some("7.0.15".to_owned()),
            role: Some("master".to_owned()),
            maxmemory_policy: Some("noeviction".to_owned()),
            is_aof_on: Some(true),
            appendfsync: Some("everysec".to_owned()),
            is_persisting_well: Some(true),
            is_cluster_node: Some(false),
        }
    }

    #[test]
    fn f17_every_setting_under_which_messages_vanish_is_named() {
        let all_ok = [
            ("version", Level::Ok),
            ("persistence", Level::Ok),
            ("eviction", Level::Ok),
        ];
        assert_eq!(levels(|findings| server(&good(), findings)), all_ok);
        let changes: [(Change, &str, Level); 9] = [
            (
                |facts| facts.version = Some("6.0.16".to_owned()),
                "version",
                Level::Fail,
            ),
            (|facts| facts.version = None, "version", Level::Warn),
            (
                |facts| facts.role = Some("slave".to_owned()),
                "role",
                Level::Fail,
            ),
            (
                |facts| facts.is_aof_on = Some(false),
                "persistence",
                Level::Warn,
            ),
            (
                |facts| facts.appendfsync = Some("no".to_owned()),
                "persistence",
                Level::Warn,
            ),
            (|facts| facts.is_aof_on = None, "persistence", Level::Warn),
            (
                |facts| facts.is_persisting_well = Some(false),
                "persistence",
                Level::Fail,
            ),
            (
                |facts| facts.maxmemory_policy = Some("volatile-lru".to_owned()),
                "eviction",
                Level::Fail,
            ),
            (
                |facts| facts.maxmemory_policy = None,
                "eviction",
                Level::Warn,
            ),
        ];
        for (change, check, level) in changes {
            let mut facts = good();
            change(&mut facts);
            let found = levels(|findings| server(&facts, findings));
            assert!(found.contains(&(check, level)), "{facts:?}: {found:?}");
        }
    }

    #[test]
    fn clocks_that_differ_are_told() {
        let level = |theirs| levels(|findings| clock(100_000, theirs, 100_010, findings))[0].1;
        assert_eq!(level(100_005), Level::Ok);
        assert_eq!(level(98_001), Level::Ok);
        assert_eq!(level(98_000), Level::Warn);
        assert_eq!(level(102_010), Level::Warn);
        assert_eq!(level(160_010), Level::Fail);
        assert_eq!(level(40_000), Level::Fail);
    }
}
