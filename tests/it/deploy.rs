//! What stands in `deploy/` agrees with the program.

use std::path::{Path, PathBuf};

use hookstash_shared::config::SETTINGS;

use crate::support::redis::{RedisOptions, RedisServer};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

fn files() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![deploy()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    files
}

/// Words that look like one of our settings.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'))
        .filter(|word| {
            ["HOOKSTASH_", "QSTASH_"]
                .iter()
                .any(|start| word.starts_with(start))
        })
}

#[test]
fn every_setting_that_deployments_name_exists() {
    let known = |name: &str| SETTINGS.iter().any(|setting| setting.names.contains(&name));
    let mut seen = 0;
    for (path, text) in files() {
        for name in names(&text) {
            assert!(known(name), "{name} in {}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn every_deployment_gives_more_time_to_end_than_deliveries_get() {
    let drain = SETTINGS
        .iter()
        .find(|setting| setting.name() == "HOOKSTASH_DRAIN")
        .unwrap();
    let drain: u64 = drain
        .default
        .unwrap()
        .trim_end_matches('s')
        .parse()
        .unwrap();
    let mut seen = 0;
    for (path, text) in files() {
        for line in text.lines() {
            let limit = ["TimeoutStopSec=", "stop_grace_period: "]
                .iter()
                .find_map(|name| line.trim_start().strip_prefix(name));
            if let Some(limit) = limit {
                let seconds: u64 = limit.trim_end_matches('s').parse().unwrap();
                assert!(
                    seconds >= drain + 10,
                    "{} gives {seconds} s",
                    path.display()
                );
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 4, "three units and the services of the compose file");
}

#[test]
fn redis_starts_with_the_given_configuration_and_is_durable() {
    let conf = deploy().join("redis.conf");
    let text = std::fs::read_to_string(conf).unwrap();
    let settings = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let extra = settings.flat_map(|line| {
        let (name, value) = line.split_once(' ').unwrap();
        [format!("--{name}"), value.trim_matches('"').to_owned()]
    });
    let redis = RedisServer::start_with(RedisOptions {
        extra: extra.collect(),
        ..RedisOptions::default()
    });
    let mut connection = redis.connection();
    let mut get = |name: &str| -> String {
        let pair: Vec<String> = redis::cmd("CONFIG")
            .arg("GET")
            .arg(name)
            .query(&mut connection)
            .unwrap();
        pair.last().cloned().unwrap()
    };
    assert_eq!(get("appendonly"), "yes");
    assert_eq!(get("appendfsync"), "everysec");
    assert_eq!(get("maxmemory-policy"), "noeviction");
    assert_eq!(get("save"), "");
    assert_eq!(get("maxmemory"), (1024_u64 * 1024 * 1024).to_string());
}

#[test]
fn every_unit_runs_a_command_and_knows_its_exit_codes() {
    for role in ["serve", "api", "worker"] {
        let path = deploy().join(format!("systemd/hookstash-{role}.service"));
        let text = std::fs::read_to_string(path).unwrap();
        for line in [
            &*format!("ExecStart=/usr/local/bin/hookstash {role}"),
            // A wrong setting is not tried again and again, and a cut stop is no failure.
            "RestartPreventExitStatus=2",
            "SuccessExitStatus=4",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {role}");
        }
        let help = crate::support::process::hookstash(&[role, "--help"], &[])
            .output()
            .unwrap();
        assert!(help.status.success());
    }
}
