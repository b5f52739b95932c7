//! Names that look like ours and are not: a misspelt setting must not be ignored.

use super::error::ConfigError;
use super::table::SETTINGS;
use crate::environment::Environment;

const PREFIX: &str = "HOOKSTASH_";
/// Longest name for which a similar one is looked for, in bytes.
const COMPARED_BYTES_MAX: usize = 64;
/// Most letters a suggestion may differ by.
const DISTANCE_MAX: usize = 4;

/// Fails on the first `HOOKSTASH_*` variable that is no setting, except those that Kubernetes adds
/// for Services named `hookstash*`.
pub(super) fn refuse_unknown(env: &dyn Environment) -> Result<(), ConfigError> {
    let is_known = |name: &str| SETTINGS.iter().any(|setting| setting.names.contains(&name));
    let unknown = env
        .names()
        .into_iter()
        .find(|name| name.starts_with(PREFIX) && !is_known(name) && !is_from_kubernetes(name));
    match unknown {
        Some(name) => Err(ConfigError::Unknown {
            closest: closest(&name).map(ToOwned::to_owned),
            name,
        }),
        None => Ok(()),
    }
}

/// Whether Kubernetes makes this name for a Service:
/// `HOOKSTASH_(\w+_)?(SERVICE_(HOST|PORT)\w*|PORT(_\d+_(TCP|UDP)\w*)?)`.
fn is_from_kubernetes(name: &str) -> bool {
    let is_word = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let Some(rest) = name.strip_prefix(PREFIX).filter(|rest| is_word(rest)) else {
        return false;
    };
    let after_service_name = rest
        .match_indices('_')
        .filter_map(|(at, _)| rest.get(at + 1..));
    std::iter::once(rest).chain(after_service_name).any(|end| {
        end == "PORT"
            || end.starts_with("SERVICE_HOST")
            || end.starts_with("SERVICE_PORT")
            || end.strip_prefix("PORT_").is_some_and(is_numbered_port)
    })
}

/// Whether `text` is a port number, `_TCP` or `_UDP`, and anything.
fn is_numbered_port(text: &str) -> bool {
    let after = text.trim_start_matches(|c: char| c.is_ascii_digit());
    after.len() < text.len() && (after.starts_with("_TCP") || after.starts_with("_UDP"))
}

/// The setting whose name is most like `name`.
fn closest(name: &str) -> Option<&'static str> {
    let names = SETTINGS.iter().flat_map(|setting| setting.names);
    names
        .map(|known| (distance(name, known), *known))
        .filter(|(distance, _)| *distance <= DISTANCE_MAX)
        .min()
        .map(|(_, known)| known)
}

/// Letters to insert, remove or replace to make `a` of `b` (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    if a.len() > COMPARED_BYTES_MAX {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, y) in row.iter_mut().skip(1).zip(b.bytes()) {
            let replaced = diagonal + usize::from(x != y);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn check(name: &str) -> Result<(), ConfigError> {
        refuse_unknown(&BTreeMap::from([(name.to_owned(), String::new())]))
    }

    #[test]
    fn a_misspelt_name_is_refused_with_the_closest_one() {
        for (name, closest) in [
            ("HOOKSTASH_DATADIR", "HOOKSTASH_DATA_DIR"),
            ("HOOKSTASH_LEASES", "HOOKSTASH_LEASE"),
            ("HOOKSTASH_REDIS_URI", "HOOKSTASH_REDIS_URL"),
        ] {
            let error = check(name).unwrap_err().to_string();
            let expected = format!("{name} is not a setting of Hookstash: did you mean {closest}?");
            assert_eq!(error, expected);
        }
        let error = check("HOOKSTASH_SOMETHING_ELSE_ENTIRELY")
            .unwrap_err()
            .to_string();
        assert!(!error.contains("did you mean"), "{error}");
        let long = format!("HOOKSTASH_{}", "X".repeat(9_999));
        assert!(check(&long).is_err());
    }

    #[test]
    fn names_of_others_are_left_alone() {
        for name in [
            "PATH",
            "QSTASH_URL",
            "XHOOKSTASH_Y",
            "hookstash_lease",
            "HOOKSTASH",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for setting in SETTINGS {
            assert_eq!(check(setting.name()), Ok(()));
        }
    }

    #[test]
    fn what_kubernetes_adds_for_services_is_ignored() {
        for name in [
            "HOOKSTASH_SERVICE_HOST",
            "HOOKSTASH_SERVICE_PORT",
            "HOOKSTASH_SERVICE_PORT_HTTP",
            "HOOKSTASH_PORT",
            "HOOKSTASH_PORT_8080_TCP",
            "HOOKSTASH_PORT_8080_TCP_ADDR",
            "HOOKSTASH_API_SERVICE_HOST",
            "HOOKSTASH_REDIS_MASTER_PORT",
            "HOOKSTASH_REDIS_PORT_6379_TCP_PROTO",
            "HOOKSTASH_DNS_PORT_53_UDP",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for name in [
            "HOOKSTASH_PORTS",
            "HOOKSTASH_PORT_8080",
            "HOOKSTASH_PORT__TCP",
            "HOOKSTASH_MYPORT",
            "HOOKSTASH_SERVICE",
            "HOOKSTASH_PORT_8080_SCTP",
        ] {
            assert!(check(name).is_err(), "{name}");
        }
        assert!(
            SETTINGS
                .iter()
                .all(|setting| !is_from_kubernetes(setting.name()))
        );
    }
}
