use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn literal(name: &str, value: &[u8]) -> Result<Headers, HeaderError> {
    let mut headers = Headers::default();
    headers.append(name.as_bytes(), HeaderSource::literal(value))?;
    Ok(headers)
}

fn template(text: &str, allowed: &[&str]) -> Result<Headers, HeaderError> {
    let mut headers = Headers::default();
    let source = HeaderSource::Template {
        text: text.to_owned(),
        allowed_env_vars: allowed.iter().map(ToString::to_string).collect(),
    };
    headers.set(b"X-Key", source)?;
    Ok(headers)
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    pairs.iter().map(owned).collect()
}

fn sent(headers: &Headers, pairs: &[(&str, &str)]) -> Result<Vec<u8>, ResolveError> {
    let map = headers.resolve(&env(pairs))?;
    Ok(map.values().next().unwrap().as_bytes().to_vec())
}

#[test]
fn h18_legal_values_are_sent_byte_for_byte_without_surrounding_blanks() {
    for (given, expected) in [
        ("é".as_bytes(), "é".as_bytes()),
        ("🦀".as_bytes(), "🦀".as_bytes()),
        (b" \tv  w\t ", b"v  w"),
        (b"a\tb", b"a\tb"),
        (b"", b""),
        (b"   ", b""),
        (b"\xff\x80", b"\xff\x80"),
    ] {
        let headers = literal("X-N", given).unwrap();
        assert_eq!(sent(&headers, &[]).unwrap(), expected);
    }
}

#[test]
fn h18_illegal_headers_are_refused_by_name() {
    let long = "x".repeat(HEADER_VALUE_BYTES_MAX + 1);
    for value in [
        &b"a\r\nb"[..],
        b"a\nb",
        b"a\rb",
        b"a\0b",
        b"\x7f",
        b"\x1b[0m",
        long.as_bytes(),
    ] {
        let error = literal("X-N", value).unwrap_err().to_string();
        assert!(error.contains("header x-n"), "{error}");
    }
    for name in ["", "a b", "a:b", "é", "a\r\nb", "a(b", &"n".repeat(257)] {
        let error = literal(name, b"v").unwrap_err();
        assert!(matches!(error, HeaderError::Name(_)), "{error}");
        assert!(error.to_string().len() < 400);
    }
}

#[test]
fn h18_many_headers_are_refused_at_the_limit() {
    let mut headers = Headers::default();
    for n in 0..HEADERS_MAX {
        headers
            .append(format!("x-{n}").as_bytes(), HeaderSource::literal("v"))
            .unwrap();
    }
    let error = headers
        .append(b"x-last", HeaderSource::literal("v"))
        .unwrap_err();
    assert!(matches!(&error, HeaderError::TooMany(name) if name == "x-last"));

    let mut headers = Headers::default();
    let value = vec![b'v'; HEADER_VALUE_BYTES_MAX];
    let refused = (0..9).find_map(|n| {
        let name = format!("x-{n}");
        headers
            .append(name.as_bytes(), HeaderSource::literal(&value))
            .err()
    });
    assert!(matches!(refused, Some(HeaderError::TooLarge(_))));
}

#[test]
fn h18_repeated_names_are_kept_or_replaced() {
    let mut headers = literal("X-A", b"1").unwrap();
    headers.append(b"x-a", HeaderSource::literal("2")).unwrap();
    let map = headers.resolve(&env(&[])).unwrap();
    assert_eq!(map.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    headers.set(b"x-A", HeaderSource::literal("3")).unwrap();
    assert_eq!(headers.len(), 1);
    assert!(headers.set(b"x-a", HeaderSource::literal("\n")).is_err());
    assert_eq!(sent(&headers, &[]).unwrap(), b"3");
}

#[test]
fn a_template_is_filled_at_every_attempt_and_stays_as_it_is() {
    let headers = template("Bearer ${HOOK_TOKEN}", &["HOOK_TOKEN"]).unwrap();
    let before = headers.clone();
    assert_eq!(
        sent(&headers, &[("HOOK_TOKEN", "first")]).unwrap(),
        b"Bearer first"
    );
    assert_eq!(
        sent(&headers, &[("HOOK_TOKEN", "second")]).unwrap(),
        b"Bearer second"
    );
    assert_eq!(sent(&headers, &[("HOOK_TOKEN", "")]).unwrap(), b"Bearer");
    assert_eq!(headers, before);
}

#[test]
fn a_template_may_use_only_allowed_variables_in_braces() {
    for text in [
        "${NOPE}",
        "${ HOOK_TOKEN }",
        "${}",
        "${hook_token}",
        "${a${HOOK_TOKEN}",
    ] {
        assert!(template(text, &["HOOK_TOKEN"]).is_err(), "{text}");
    }
    assert!(template("${HOOK_TOKEN}", &[]).is_err());
    assert!(template("${broken", &["broken"]).is_err());
    let plain = template("$HOOK_TOKEN $ { }", &["HOOK_TOKEN"]).unwrap();
    assert_eq!(
        sent(&plain, &[("HOOK_TOKEN", "x")]).unwrap(),
        b"$HOOK_TOKEN $ { }"
    );
}

#[test]
fn allow_lists_hold_variable_names_only() {
    for name in ["A", "a_1", "_x"] {
        assert!(template("v", &[name]).is_ok(), "{name}");
    }
    for name in ["1A", "A-B", "", "A B", "É"] {
        assert!(template("v", &[name]).is_err(), "{name}");
    }
}

#[test]
fn our_own_settings_are_never_sent() {
    for name in [
        "HOOKSTASH_SECRET_KEY",
        "QSTASH_TOKEN",
        "QSTASH_CURRENT_SIGNING_KEY",
        "REDIS_URL",
    ] {
        let error = template(&format!("${{{name}}}"), &[name]).unwrap_err();
        assert!(error.to_string().contains("never sent"), "{error}");
    }
}

#[test]
fn a_missing_variable_is_a_configuration_error_that_names_it() {
    let headers = template("Bearer ${HOOK_TOKEN}", &["HOOK_TOKEN"]).unwrap();
    let error = sent(&headers, &[("OTHER", "SECRET")]).unwrap_err();
    assert_eq!(error.class().as_str(), "configuration");
    assert_eq!(
        error.to_string(),
        "header x-key needs variable HOOK_TOKEN, which is not set"
    );
}

#[test]
fn filled_values_are_checked_again_and_never_shown() {
    let headers = template("${A}{x}", &["A"]).unwrap();
    let big = "SECRET".repeat(HEADER_VALUE_BYTES_MAX);
    for value in [
        "SECRET${B}",
        "SECRET\r\nX: y",
        "SECRET\0",
        "SECRET中",
        "SECRET$",
        &big,
    ] {
        let error = sent(&headers, &[("A", value)]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("SECRET"), "{error}");
    }
}

#[test]
fn template_characters_are_sent_as_latin_1() {
    assert_eq!(sent(&template("é", &[]).unwrap(), &[]).unwrap(), b"\xe9");
    assert_eq!(sent(&template("  v  ", &[]).unwrap(), &[]).unwrap(), b"v");
    assert!(template("中", &[]).is_err());
    assert!(template("bad\r\nsecret", &[]).is_err());
}

#[test]
fn debug_shows_names_only() {
    let mut headers = literal("X-Token", b"SECRET").unwrap();
    let source = HeaderSource::Template {
        text: "SECRET".into(),
        allowed_env_vars: vec![],
    };
    headers.append(b"x-t", source).unwrap();
    let shown = format!("{headers:?} {:?}", headers.resolve(&env(&[])).unwrap());
    assert!(
        shown.contains("x-token") && !shown.contains("SECRET"),
        "{shown}"
    );
}

#[test]
fn stored_headers_use_text_where_they_can() {
    let mut headers = literal("X-A", "é".as_bytes()).unwrap();
    headers
        .append(b"x-b", HeaderSource::literal(b"\xff"))
        .unwrap();
    let source = HeaderSource::Template {
        text: "${T}".into(),
        allowed_env_vars: vec!["T".into()],
    };
    headers.append(b"x-c", source).unwrap();
    let json = serde_json::to_string(&headers).unwrap();
    assert_eq!(
        json,
        r#"[{"n":"x-a","v":"é"},{"n":"x-b","b":"/w=="},{"n":"x-c","t":"${T}","env":["T"]}]"#
    );
    assert_eq!(serde_json::from_str::<Headers>(&json).unwrap(), headers);
    for bad in [
        r#"[{"n":"a b","v":""}]"#,
        r#"[{"n":"a","b":"%"}]"#,
        r#"[{"n":"a","v":"\n"}]"#,
    ] {
        assert!(serde_json::from_str::<Headers>(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn accepted_literals_can_always_be_sent(
        name in proptest::collection::vec(any::<u8>(), 0..12),
        value in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut headers = Headers::default();
        if headers.append(&name, HeaderSource::literal(&value)).is_ok() {
            let map = headers.resolve(&env(&[])).unwrap();
            let expected = trim_blanks(&value);
            prop_assert_eq!(map.values().next().unwrap().as_bytes(), expected);
        }
    }

    #[test]
    fn filling_never_panics(text in r"[\$\{\}AB é]{0,24}", value in ".{0,8}") {
        if let Ok(headers) = template(&text, &["A", "B"]) {
            let _ = headers.resolve(&env(&[("A", &value), ("B", "b")]));
        }
    }
}
