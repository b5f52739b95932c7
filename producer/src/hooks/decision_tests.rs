use super::*;

fn ignored(body: &[u8]) -> bool {
    matches!(parse(body), Ok(Decision::None(_)))
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "compared with what parsing returns"
)]
fn denied(reason: &str) -> Result<Decision, Invalid> {
    Ok(Decision::Deny(Some(reason.to_owned())))
}

#[test]
fn vector_094_an_allow_allows() {
    assert_eq!(parse(br#"{"decision":"allow"}"#), Ok(Decision::Allow));
}

#[test]
fn vector_095_a_deny_may_have_no_reason() {
    assert_eq!(parse(br#"{"decision":"deny"}"#), Ok(Decision::Deny(None)));
}

#[test]
fn vector_096_an_empty_reason_is_one() {
    assert_eq!(parse(br#"{"decision":"deny","reason":""}"#), denied(""));
}

#[test]
fn vector_097_a_reason_is_kept_as_it_is() {
    assert_eq!(
        parse(br#"{"decision":"deny","reason":" \n x "}"#),
        denied(" \n x ")
    );
}

#[test]
fn vector_100_whatever_has_no_decision_at_its_top_decides_nothing() {
    for body in [
        "{",
        "not JSON",
        "{}",
        "null",
        "[]",
        "true",
        "42",
        "\"x\"",
        "[{\"decision\":\"deny\"}]",
        "{\"reason\":\"x\"}",
        "{\"hookSpecificOutput\":{\"permissionDecision\":\"deny\"}}",
        "{\"decision\":\"deny\",}",
        "{\"decision\":\"deny\"} x",
        "{'decision':'deny'}",
        "\u{a0}{\"decision\":\"deny\"}",
        "{\"decision\":\"deny\",\"x\":NaN}",
        "{\"decision\":\"deny\",\"x\":\"\u{1}\"}",
        "",
        " \r\n\t",
    ] {
        assert!(ignored(body.as_bytes()), "{body}");
    }
}

#[test]
fn vector_101_another_decision_is_an_error() {
    for decision in [
        "\"block\"",
        "\"ask\"",
        "\"defer\"",
        "null",
        "1",
        "\"ALLOW\"",
        "\" allow\"",
        "[\"deny\"]",
        "{}",
        "true",
        "\"\"",
        "[100,101,110,121]",
        "\"\\ud800\"",
    ] {
        let body = format!("{{\"decision\":{decision}}}");
        assert_eq!(parse(body.as_bytes()), Err(Invalid), "{body}");
    }
}

#[test]
fn vector_102_a_reason_that_is_no_text_is_an_error() {
    for reason in ["3", "null", "[]", "{}", "false", "[1,2]"] {
        let body = format!("{{\"decision\":\"deny\",\"reason\":{reason}}}");
        assert_eq!(parse(body.as_bytes()), Err(Invalid), "{body}");
    }
}

#[test]
fn vector_103_an_allow_needs_no_good_reason() {
    assert_eq!(
        parse(br#"{"decision":"allow","reason":3}"#),
        Ok(Decision::Allow)
    );
}

#[test]
fn vector_104_nothing_else_of_an_answer_counts() {
    let body =
        br#"{"updatedInput":{"a":1},"decision":"allow","additionalContext":"x","requestId":1}"#;
    assert_eq!(parse(body), Ok(Decision::Allow));
}

#[test]
fn vector_109_bytes_that_are_not_utf_8_are_an_error() {
    for body in [
        &b"\xc3\x28"[..],
        b"{\"decision\":\"allow\"}\xff",
        b"\xed\xa0\x80",
        b"not json \xff",
    ] {
        assert_eq!(parse(body), Err(Invalid), "{body:?}");
    }
}

#[test]
fn vector_110_a_byte_order_mark_is_stripped_once() {
    assert_eq!(
        parse(b"\xef\xbb\xbf{\"decision\":\"deny\"}"),
        Ok(Decision::Deny(None))
    );
    assert!(ignored(b"\xef\xbb\xbf\xef\xbb\xbf{\"decision\":\"deny\"}"));
    assert!(ignored(b"\xef\xbb\xbf"));
}

#[test]
fn vector_111_the_last_of_several_keys_wins() {
    assert_eq!(
        parse(br#"{"decision":"deny","decision":"allow"}"#),
        Ok(Decision::Allow)
    );
    assert_eq!(
        parse(br#"{"decision":"allow","decision":"deny"}"#),
        Ok(Decision::Deny(None))
    );
    let body = br#"{"reason":1,"decision":"deny","reason":"a","reason":"b"}"#;
    assert_eq!(parse(body), denied("b"));
}

#[test]
fn vector_112_keys_are_case_sensitive() {
    assert!(ignored(br#"{"Decision":"deny"}"#));
}

#[test]
fn what_javascript_reads_is_read() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for (body, expected) in [
        // Lone surrogates, in values, keys and beside.
        (
            r#"{"decision":"deny","reason":"a\ud800b"}"#.to_owned(),
            denied("a\u{fffd}b"),
        ),
        (
            r#"{"decision":"deny","reason":"\udc00\ud83d"}"#.to_owned(),
            denied("\u{fffd}\u{fffd}"),
        ),
        (
            r#"{"decision":"deny","reason":"\ud83d\ude00"}"#.to_owned(),
            denied("😀"),
        ),
        (
            r#"{"\ud800":1,"decision":"deny"}"#.to_owned(),
            Ok(Decision::Deny(None)),
        ),
        (
            r#"{"x":"\udfff","decision":"deny"}"#.to_owned(),
            Ok(Decision::Deny(None)),
        ),
        // Any depth and any number.
        (
            format!(r#"{{"x":{deep},"decision":"deny"}}"#),
            Ok(Decision::Deny(None)),
        ),
        (
            r#"{"x":1e999,"y":-1e-999,"decision":"deny"}"#.to_owned(),
            Ok(Decision::Deny(None)),
        ),
        (
            format!(r#"{{"x":{},"decision":"deny"}}"#, "9".repeat(5_000)),
            Ok(Decision::Deny(None)),
        ),
        // Escapes in the words themselves.
        (
            r#"{"\u0064ecision":"\u0064en\u0079"}"#.to_owned(),
            Ok(Decision::Deny(None)),
        ),
        (
            r#"{"":0,"decision":"deny"}"#.to_owned(),
            Ok(Decision::Deny(None)),
        ),
    ] {
        assert_eq!(
            parse(body.as_bytes()),
            expected,
            "{}",
            body.get(..60).unwrap_or(&body)
        );
    }
    let body = format!("{{\"decision\":{deep}}}");
    assert_eq!(parse(body.as_bytes()), Err(Invalid));
}
