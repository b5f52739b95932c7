use std::collections::BTreeMap;

use secrecy::ExposeSecret;

use super::*;
use crate::config::{Kind, SETTINGS};

const KEY: &str = "sig_LEAKEDLEAKEDLEAKEDLEAKED";
const WEBHOOK: &str = "whsec_LEAKEDLEAKEDLEAKEDLEAKEDLEAKEDLE";

fn read(pairs: &[(&str, &str)]) -> Result<Settings, ConfigError> {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    let env: BTreeMap<String, String> = pairs.iter().map(owned).collect();
    Settings::from_environment(&env, &Overrides::default())
}

fn error(pairs: &[(&str, &str)]) -> String {
    read(pairs).expect_err("a wrong setting").to_string()
}

#[test]
fn without_any_variable_the_defaults_hold() {
    let settings = read(&[]).unwrap();
    assert_eq!(settings.limits, Limits::default());
    assert_eq!(settings.key_prefix, "hs");
    assert_eq!((settings.slots, settings.batch), (512, 64));
    assert_eq!(settings.lease, Duration::from_secs(15));
    assert_eq!(settings.renew, Duration::from_secs(5));
    assert_eq!(settings.drain, Duration::from_secs(25));
    assert_eq!(settings.response_keep_bytes, 65_536);
    assert_eq!(settings.dedup_window, Duration::from_mins(10));
    assert_eq!(settings.delivered_grace, Duration::from_mins(1));
    assert_eq!(settings.dlq_retention, Duration::from_hours(30 * 24));
    assert_eq!(settings.events_retention, Duration::from_hours(7 * 24));
    assert_eq!(settings.log_format, LogFormat::Text);
    assert!(settings.listen.is_none() && settings.token.is_none());
    assert!(settings.redis_url.is_none() && settings.shards.is_none());
}

#[test]
fn a_flag_wins_over_our_name_and_that_over_the_usual_one() {
    let env = BTreeMap::from([
        ("REDIS_URL".to_owned(), "redis://usual".to_owned()),
        ("HOOKSTASH_REDIS_URL".to_owned(), "redis://ours".to_owned()),
    ]);
    let url = |env: &BTreeMap<String, String>, overrides: &Overrides| {
        let settings = Settings::from_environment(env, overrides).unwrap();
        settings.redis_url.unwrap().expose_secret().to_owned()
    };
    let mut overrides = Overrides::default();
    assert_eq!(url(&env, &overrides), "redis://ours");
    overrides.set(&names::REDIS_URL, "redis://flag");
    assert_eq!(url(&env, &overrides), "redis://flag");
    let usual = BTreeMap::from([("REDIS_URL".to_owned(), "redis://usual".to_owned())]);
    assert_eq!(url(&usual, &Overrides::default()), "redis://usual");
}

#[test]
fn errors_name_where_the_value_came_from() {
    assert!(error(&[("REDIS_URL", "http://h")]).starts_with("REDIS_URL is not the URL of a Redis"));
    assert!(error(&[("HOOKSTASH_LEASE", "soon")]).starts_with("HOOKSTASH_LEASE is not"));
    let mut overrides = Overrides::default();
    overrides.set(&names::LISTEN, "nowhere");
    let env = BTreeMap::new();
    let error = Settings::from_environment(&env, &overrides).unwrap_err();
    assert!(error.to_string().starts_with("--listen must be"), "{error}");
}

#[test]
fn g06_every_setting_refuses_a_blank_and_what_it_does_not_understand() {
    for setting in SETTINGS
        .iter()
        .filter(|setting| setting.default != Some(""))
    {
        for name in setting.names {
            for blank in ["", "  "] {
                assert!(error(&[(name, blank)]).contains(name), "{name}");
            }
            if !matches!(setting.kind, Kind::Text | Kind::Path) {
                for value in ["??", "\u{1}", "-1", "1e3x"] {
                    if setting.kind != Kind::Secret {
                        assert!(error(&[(name, value)]).contains(name), "{name}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_number_has_bounds() {
    for (name, value) in [
        ("HOOKSTASH_SLOTS", "0"),
        ("HOOKSTASH_SHARDS", "0"),
        ("HOOKSTASH_SHARDS", "1025"),
        ("HOOKSTASH_BATCH", "65"),
        ("HOOKSTASH_BATCH", "+5"),
        ("HOOKSTASH_BODY_MAX", "0"),
        ("HOOKSTASH_BODY_MAX", "10MB"),
        ("HOOKSTASH_RESPONSE_KEEP", "1MiB"),
        ("HOOKSTASH_LEASE", "0"),
        ("HOOKSTASH_LEASE", "-5s"),
        ("HOOKSTASH_TIMEOUT_MAX", "99999d"),
        ("HOOKSTASH_KEY_PREFIX", "a{b}"),
    ] {
        assert!(error(&[(name, value)]).contains(name), "{name}={value}");
    }
    let settings = read(&[("HOOKSTASH_SHARDS", "16"), ("HOOKSTASH_LEASE", "30.5s")]).unwrap();
    assert_eq!(settings.shards.map(Shards::count), Some(16));
    assert_eq!(settings.lease, Duration::from_millis(30_500));
}

#[test]
fn settings_that_contradict_each_other_stop_the_start() {
    assert!(error(&[("HOOKSTASH_RENEW", "10s")]).contains("half"));
    assert!(error(&[("HOOKSTASH_TIMEOUT_MAX", "1m")]).contains("HOOKSTASH_TIMEOUT_DEFAULT"));
}

#[test]
fn one_signing_key_of_two_is_an_error() {
    for name in ["QSTASH_CURRENT_SIGNING_KEY", "QSTASH_NEXT_SIGNING_KEY"] {
        assert!(error(&[(name, KEY)]).contains("set both or none"));
    }
    let both = [
        ("QSTASH_CURRENT_SIGNING_KEY", KEY),
        ("QSTASH_NEXT_SIGNING_KEY", KEY),
    ];
    let keys = read(&both).unwrap().signing_keys.unwrap();
    assert_eq!(keys.current().expose_secret(), KEY);
}

#[test]
fn s10_a_blank_or_placeholder_secret_stops_the_start_and_is_named() {
    let secrets = SETTINGS
        .iter()
        .filter(|setting| setting.kind == Kind::Secret);
    for setting in secrets {
        let name = setting.name();
        for value in ["", " \n", "<insert-secret>", "change-me"] {
            let error = error(&[(name, value)]);
            assert!(error.starts_with(name), "{error}");
            assert!(!error.contains("insert-secret") && !error.contains("change-me"));
        }
    }
}

#[test]
fn the_secret_key_has_32_bytes() {
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    let settings = read(&[("HOOKSTASH_SECRET_KEY", key)]).unwrap();
    assert_eq!(settings.secret_key.unwrap().expose_secret()[31], 31);
    for wrong in ["AAEC", "no base64!", &key[1..]] {
        assert!(error(&[("HOOKSTASH_SECRET_KEY", wrong)]).starts_with("HOOKSTASH_SECRET_KEY"));
    }
}

#[test]
fn a_missing_token_is_named() {
    let error = read(&[]).unwrap().require_token().unwrap_err();
    assert_eq!(error.to_string(), "QSTASH_TOKEN is required and not set");
    assert!(
        read(&[("QSTASH_TOKEN", "t0k3n")])
            .unwrap()
            .require_token()
            .is_ok()
    );
}

#[test]
fn debug_shows_no_secret() {
    let settings = read(&[
        ("REDIS_URL", "redis://:LEAKED@h"),
        ("QSTASH_TOKEN", "LEAKED"),
        ("QSTASH_CURRENT_SIGNING_KEY", KEY),
        ("QSTASH_NEXT_SIGNING_KEY", KEY),
        ("HOOKSTASH_WEBHOOK_SECRET", WEBHOOK),
        (
            "HOOKSTASH_SECRET_KEY",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        ),
    ]);
    let shown = format!("{:?}", settings.unwrap());
    assert!(
        !shown.contains("LEAKED") && !shown.contains("30, 31"),
        "{shown}"
    );
}

#[test]
fn a_misspelt_name_stops_the_start_and_kubernetes_does_not() {
    assert!(error(&[("HOOKSTASH_SLOT", "5")]).contains("did you mean HOOKSTASH_SLOTS?"));
    assert!(read(&[("HOOKSTASH_SERVICE_HOST", "10.0.0.1")]).is_ok());
}

#[test]
fn names_are_unique_and_defaults_are_valid() {
    let names: Vec<_> = SETTINGS.iter().flat_map(|setting| setting.names).collect();
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(names.len(), distinct.len());
    let defaults: Vec<_> = SETTINGS
        .iter()
        .filter_map(|setting| Some((setting.name(), setting.default?)))
        .collect();
    assert!(read(&defaults).is_ok());
}
