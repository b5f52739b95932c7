//! What the settings and the machine allow this process.

use hookstash_shared::config::Settings;
use hookstash_shared::descriptors::soft_limit;
use hookstash_shared::http::EgressPolicy;
use hookstash_shared::signing::SigningKeys;
use hookstash_worker::slots_for;
use secrecy::ExposeSecret as _;

use super::Findings;
use crate::cli::credentials::DEVELOPMENT_TOKEN;

/// Checks `settings` against the machine.
pub(super) fn check(settings: &Settings, findings: &mut Findings) {
    token(settings, findings);
    if settings
        .signing_keys
        .as_ref()
        .is_some_and(SigningKeys::are_development)
    {
        findings.warn(
            "keys",
            "the signing keys of the environment are the public ones of the development mode",
            "Set keys of your own: anybody can sign with these.",
        );
    }
    egress(&settings.egress_allow, findings);
    descriptors(settings.slots, soft_limit(), findings);
}

fn token(settings: &Settings, findings: &mut Findings) {
    match &settings.token {
        None => findings.warn(
            "token",
            "QSTASH_TOKEN is not set: `serve` and `api` do not start (`worker` does)",
            "Set it to a random text of your own, such as of openssl rand -hex 32.",
        ),
        Some(token) if token.expose_secret() == DEVELOPMENT_TOKEN => findings.warn(
            "token",
            "QSTASH_TOKEN is the public one of the development mode",
            "Set it to a random text of your own, such as of openssl rand -hex 32.",
        ),
        Some(_) => findings.ok("token", "set"),
    }
}

fn egress(allow: &str, findings: &mut Findings) {
    match EgressPolicy::parse(allow) {
        Err(_) => findings.fail(
            "egress",
            "HOOKSTASH_EGRESS_ALLOW has an entry that cannot be read",
            "Write networks, addresses, host, host:port, *.suffix, loopback or private, with commas \
             in between.",
        ),
        Ok(_) if allow.trim().is_empty() => {
            findings.ok("egress", "public destinations only; private ones are refused");
        }
        Ok(_) => findings.ok("egress", format!("public destinations, and {allow}")),
    }
}

fn descriptors(slots: usize, limit: Option<usize>, findings: &mut Findings) {
    let Some(limit) = limit else {
        return findings.ok("descriptors", "no limit is known");
    };
    let carried = slots_for(limit);
    let text = format!("{limit} open files carry {carried} slots of {slots}");
    if carried < slots {
        findings.warn(
            "descriptors",
            text,
            "Raise the limit of open files (ulimit -n, LimitNOFILE=), or lower HOOKSTASH_SLOTS.",
        );
    } else {
        findings.ok("descriptors", text);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn too_few_open_files_are_told() {
        let level = |limit| {
            let mut findings = Findings::default();
            descriptors(512, limit, &mut findings);
            findings.0[0].level
        };
        assert_eq!(level(None), Level::Ok);
        assert_eq!(level(Some(65_536)), Level::Ok);
        assert_eq!(level(Some(256)), Level::Warn);
    }
}
