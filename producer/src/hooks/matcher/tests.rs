//! The table below is what Node's `RegExp` says; where Node is installed, it is asked again, about
//! the table and about two thousand drawn patterns.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::*;

/// What JavaScript says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Match,
    None,
    Invalid,
}
use Said::{Invalid, Match, None as No};

/// Patterns without a slash, each with names of tools (`identifier/apiName`).
const TABLE: &[(&str, &str, Said)] = &[
    // Where a match may be.
    ("^fs/read", "fs/readFile", Match),
    ("^fs/read", "fs/writeFile", No),
    ("^fs/read", "http/readFile", No),
    ("read", "fs/readFile", Match),
    ("FS/", "fs/x", No),
    ("fs/*", "fs/readFile", Match),
    ("fs/*", "fsx/y", Match),
    ("^(fs/readFile|http/get)$", "http/get", Match),
    ("^(fs/readFile|http/get)$", "http/readFile", No),
    (" fs/readFile", "fs/readFile", No),
    (r"readFile\(.*\)", "fs/readFile", No),
    ("fs/(read|write)File", "fs/writeFile", Match),
    ("", "fs/x", Match),
    ("|a", "x/y", Match),
    // No line modes.
    ("^b", "a\n/b", No),
    ("a$", "a/a\n", No),
    ("a.b", "x/a\nb", No),
    ("a.b", "x/a\r/b", No),
    ("a.b", "x/a\u{2028}b", No),
    ("a.b", "x/a\u{85}b", Match),
    // Classes of characters are ASCII.
    (r"\d", "x/٣", No),
    (r"\w", "é/ж", No),
    (r"\bж", "x/ж", No),
    (r"\Bж", "x/ж", Match),
    (r"\b", "é/é", No),
    (r"a\b", "x/aé", Match),
    (r"^\w+/\w+$", "my_server/read_file", Match),
    (r"^\w+/\w+$", "my-server/read_file", No),
    // White space is JavaScript's.
    (r"a\sb", "x/a\u{feff}b", Match),
    (r"a\sb", "x/a\u{85}b", No),
    (r"a\sb", "x/a\u{180e}b", No),
    (r"a\sb", "x/a\u{2003}b", Match),
    (r"a\Sb", "x/a\u{85}b", Match),
    // Braces that are no quantifier.
    ("{", "x/{", Match),
    ("a{", "x/a{", Match),
    ("a{,3}", "x/a{,3}", Match),
    ("a{,3}", "x/aaa", No),
    ("a{1", "x/a{1", Match),
    ("a{1}b{2,}c{1,3}d", "x/abbbccd", Match),
    ("^x/a{2}$", "x/a", No),
    ("}", "x/}", Match),
    ("]", "x/]", Match),
    ("a{2,1}", "x/a", Invalid),
    ("x{1}{2}", "x/x", Invalid),
    // Classes.
    ("[]", "x/y", No),
    ("[^]", "x/y", Match),
    ("a[^]b", "x/a\nb", Match),
    ("[]a]", "x/a]", No),
    ("[[]", "x/[", Match),
    ("[a&&b]", "x/&", Match),
    ("[a&&b]", "x/a", Match),
    ("[a~~b]", "x/~", Match),
    ("[a--b]", "x/a", Invalid),
    ("[+--]", "x/,", Match),
    ("[[:alpha:]]", "x/a]", Match),
    ("[[:alpha:]]", "x/z]", No),
    ("[[a]b]", "x/[b]", Match),
    ("[[a]b]", "x/ab", No),
    (r"[\w-a]", "x/-", Match),
    (r"[a-\d]", "x/-", Match),
    (r"[\b]", "x/\u{8}", Match),
    (r"[\b]", "x/b", No),
    (r"[\B]", "x/B", Match),
    (r"[\c]", "x/\\", Match),
    (r"[\c1]", "x/\u{11}", Match),
    (r"[\ca]", "x/\u{1}", Match),
    (r"[^\s\S]", "x/y", No),
    ("[b-a]", "x/b", Invalid),
    ("[", "x/[", Invalid),
    // Escapes.
    (r"\p{L}", "x/p{L}", Match),
    (r"\p{L}", "x/é", No),
    (r"\Z", "x/Z", Match),
    (r"\A", "x/A", Match),
    (r"\z", "x/z", Match),
    (r"\h", "x/h", Match),
    (r"\Q", "x/Q", Match),
    (r"\x41", "x/A", Match),
    (r"\x4", "x/x4", Match),
    (r"\x{4}", "i/xxxx", Match),
    (r"\x{4}", "i/xxx", No),
    (r"\u0041", "x/A", Match),
    (r"\u41", "x/u41", Match),
    (r"\u{2}", "x/uu", Match),
    (r"\cA", "x/\u{1}", Match),
    (r"\c1", r"x/\c1", Match),
    (r"\c", r"x/\c", Match),
    (r"\0", "x/\0", Match),
    (r"\101", "x/A", Match),
    (r"\8", "x/8", Match),
    (r"\1", "x/\u{1}", Match),
    (r"\400", "x/ 0", Match),
    (r"\t\n\v\f\r", "x/\t\n\u{b}\u{c}\r", Match),
    (r"\e", "x/e", Match),
    (r"\-", "x/-", Match),
    (r"\k", "x/k", Match),
    (r"\k<a>", "x/k<a>", Match),
    ("\\", "x/y", Invalid),
    // UTF-16: a character outside the basic plane is two.
    ("^x/.$", "x/😀", No),
    ("^x/..$", "x/😀", Match),
    ("😀", "x/😀", Match),
    ("^x/[😀]$", "x/😀", No),
    ("^x/[😀]{2}$", "x/😀", Match),
    (r"\ud83d", "x/😀", Match),
    (r"\ud83d\ude00", "x/😀", Match),
    (r"^x/[^a]$", "x/😀", No),
    ("😀+", "x/😀", Match),
    ("^x/😀{2}$", "x/😀😀", No),
    // Groups and what is not there.
    ("(?i)fs", "fs/x", Invalid),
    ("(?<year>a)b", "x/ab", Match),
    ("(?P<a>b)", "x/b", Invalid),
    ("(?>a)", "x/a", Invalid),
    ("(?#c)", "x/c", Invalid),
    ("(", "x/(", Invalid),
    (")", "x/)", Invalid),
    ("**", "x/*", Invalid),
    ("a**", "x/a", Invalid),
    ("a*+", "x/a", Invalid),
    ("+", "x/+", Invalid),
    ("a++", "x/a", Invalid),
    ("(?:)", "x/y", Match),
    ("()*a", "x/a", Match),
    ("(a*)*$", "x/b", Match),
    ("a*?b", "x/aab", Match),
    // Look-around.
    ("(?<=f)s", "fs/x", Match),
    ("(?<=x)y", "a/xy", Match),
    ("(?<=x)y", "a/zy", No),
    ("(?<!x)y", "a/xy", No),
    ("(?<=a+)b", "x/aab", Match),
    ("(?<=a|bc)d", "x/bcd", Match),
    ("^(?!fs/)", "fs/x", No),
    ("^(?!fs/)", "http/x", Match),
    ("^(?!.*delete).*$", "fs/deleteAll", No),
    ("^(?!.*delete).*$", "fs/read", Match),
    (r"(?=.*read)^fs\b", "fs/read", Match),
    (r"(?=a)\b", "é/éa", Match),
    (r"(?=é)\b", "x/aé", Match),
    (r"(?=é)\B", "x/éé", Match),
    ("(?=a)*b", "x/b", Match),
    ("(?=a){0}b", "x/b", Match),
    ("(?=a)+ab", "x/ab", Match),
    ("(?=a)+b", "x/b", No),
    ("(?<=a)*b", "x/b", Invalid),
    ("(?=(a+))a*b", "x/aab", Match),
    // Back-references.
    (r"^(\w+)/\1$", "fs/fs", Match),
    (r"^(\w+)/\1$", "fs/http", No),
    (r"(a)?\1b", "x/b", Match),
    (r"(?:(a)|b)\1$", "x/b", Match),
    (r"^x/(?:(a)|b)\1$", "x/aa", Match),
    (r"^x/(?:(a)|b)\1$", "x/a", No),
    (r"\1(a)", "x/a", Match),
    (r"^x/(a\1)$", "x/a", Match),
    (r"(?<n>a)\k<n>", "x/aa", Match),
    (r"^x/(?<n>a)\k<n>$", "x/a", No),
    (r"(?<n>a)\k", "x/aa", Invalid),
    (r"(a)\2", "x/a\u{2}", Match),
    (r"(.)\1", "x/😀😀", No),
    (r"(..)\1", "x/😀😀", Match),
    (r"(?=(a+))\1b", "x/aab", Match),
];

fn ours(pattern: &str, subject: &str) -> Result<bool, PatternError> {
    let matcher = Matcher::parse(pattern)?;
    let (identifier, api_name) = subject.split_once('/').expect("a tool");
    Ok(matcher
        .matches(Some((identifier, api_name)))
        .expect("no limit is hit"))
}

/// What Node says of each pair; `None` where there is no Node.
fn node<S: AsRef<str>>(pairs: &[(S, S)]) -> Option<Vec<Said>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/matcher/oracle.mjs");
    let node = Command::new("node")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut node) = node else {
        eprintln!("skipped: node is not installed");
        return None;
    };
    let mut input = node.stdin.take().expect("piped");
    let lines: Vec<String> = pairs
        .iter()
        .map(|(pattern, subject)| {
            serde_json::to_string(&[pattern.as_ref(), subject.as_ref()]).expect("JSON")
        })
        .collect();
    let writer = std::thread::spawn(move || {
        for line in lines {
            writeln!(input, "{line}").expect("node reads");
        }
    });
    let output = node.wait_with_output().expect("node ends");
    writer.join().expect("all is written");
    let said = String::from_utf8(output.stdout).expect("text");
    let said: Vec<Said> = said
        .lines()
        .map(|line| match line {
            "match" => Match,
            "none" => No,
            "invalid" => Invalid,
            other => panic!("node said {other}"),
        })
        .collect();
    assert_eq!(said.len(), pairs.len(), "node answers every pair");
    Some(said)
}

#[test]
fn k09_every_pattern_means_what_it_means_in_javascript() {
    let mut wrong = Vec::new();
    for (pattern, subject, said) in TABLE {
        let is_as_said = match ours(pattern, subject) {
            Ok(matches) => matches == (*said == Match) && *said != Invalid,
            Err(PatternError::Syntax(_)) => *said == Invalid,
            Err(_) => false,
        };
        if !is_as_said {
            wrong.push((pattern, subject, said, ours(pattern, subject)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_table_is_what_node_says() {
    let pairs: Vec<_> = TABLE
        .iter()
        .map(|(pattern, subject, _)| (*pattern, *subject))
        .collect();
    let Some(said) = node(&pairs) else { return };
    for ((pattern, subject, expected), said) in TABLE.iter().zip(said) {
        assert_eq!(said, *expected, "{pattern} in {subject}");
    }
}

/// Parts of drawn patterns: everything that the parser tells apart.
fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a", "b", "/", "é", "😀", ".", "^", "$", r"\b", r"\B", r"\d", r"\w", r"\W", r"\s", r"\S",
        "{", "}", "]", "{1", "{,2}", r"\x61", r"\u0061", r"\ud83d", r"\1", r"\2", r"\0", r"\07",
        r"\ca", r"\c", r"\8", r"\p{L}", r"\k", r"\-", "[ab]", "[^a]", "[]", "[^]", r"[\w-a]",
        "[a-c]", "[😀]", r"[\b\1]", "[[a]", "[a&&b]", "-", "|",
    ]);
    let leaf = leaf.prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let wrap = prop::sample::select(vec!["(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?<n>"]);
        let times = prop::sample::select(vec![
            "*", "+", "?", "*?", "+?", "??", "{2}", "{1,}", "{0,2}",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            (wrap, inner.clone()).prop_map(|(wrap, inner)| format!("{wrap}{inner})")),
            (inner.clone(), times).prop_map(|(inner, times)| format!("(?:{inner}){times}")),
            (inner.clone(), inner).prop_map(|(left, right)| format!("{left}|{right}")),
        ]
    })
}

#[test]
fn two_thousand_drawn_patterns_mean_what_node_says_or_are_refused_by_name() {
    let config = Config {
        rng_seed: RngSeed::Fixed(9),
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let subject = "[ab é😀1-]{0,4}/[ab é😀1-]{0,6}";
    let mut draw = || {
        let drawn = (pattern(), subject).new_tree(&mut runner).expect("a tree");
        proptest::strategy::ValueTree::current(&drawn)
    };
    let pairs: Vec<(String, String)> = (0..2_000).map(|_| draw()).collect();
    let Some(said) = node(&pairs) else { return };
    let (mut compared, mut refused, mut wrong) = (0, 0, Vec::new());
    for ((pattern, subject), said) in pairs.iter().zip(said) {
        match (ours(pattern, subject), said) {
            (Ok(true), Match) | (Ok(false), No) | (Err(PatternError::Syntax(_)), Invalid) => {
                compared += 1;
            }
            (Err(PatternError::Unsupported { .. }), Match | No) => refused += 1,
            (ours, said) => wrong.push((pattern, subject, said, ours)),
        }
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong: {:#?}",
        wrong.len(),
        wrong.iter().take(12).collect::<Vec<_>>()
    );
    assert!(compared > 1_500, "{compared} compared, {refused} refused");
}

#[test]
fn k11_limits_are_refused_when_the_pattern_is_read() {
    let huge = "a".repeat(1_000_000);
    let deep = format!("{}a{}", "(".repeat(101), ")".repeat(101));
    for (pattern, expected) in [
        (huge.as_str(), PatternError::TooLong),
        (&"é".repeat(1_001), PatternError::TooLong),
        ("((((a{99}){99}){99}){99})", PatternError::TooLarge),
        ("(?=((((a{99}){99}){99}){99}))", PatternError::TooLarge),
    ] {
        assert_eq!(Matcher::parse(pattern).unwrap_err(), expected);
    }
    let error = Matcher::parse(&deep).unwrap_err().to_string();
    assert!(error.contains("nesting"), "{error}");
    assert!(Matcher::parse(&"é".repeat(1_000)).is_ok());
    for pattern in ["[", "(", "**", "a{2,1}"] {
        let error = Matcher::parse(pattern).unwrap_err();
        assert!(
            matches!(error, PatternError::Syntax(_)),
            "{pattern}: {error}"
        );
    }
}

#[test]
fn what_cannot_mean_the_same_is_refused_by_name_and_place() {
    for (pattern, what, at) in [
        (r"(?:(a)|b)*\1", "a back-reference to a repeated group", 10),
        (
            r"(?!(a))\1",
            "a back-reference to a group in a negative look-around",
            7,
        ),
        (
            r"(?<=(a))\1",
            "a back-reference to a group in a look-behind",
            8,
        ),
        (r"(a)(?<=\1)", "a back-reference in a look-behind", 7),
    ] {
        let expected = PatternError::Unsupported { what, position: at };
        assert_eq!(Matcher::parse(pattern).unwrap_err(), expected, "{pattern}");
    }
}

#[test]
fn a_match_that_hits_a_limit_is_neither_yes_nor_no() {
    let slow = Matcher::parse(r"^(a+)+(?!x)\/(?:(?:a|a)+)+(?=z)$").unwrap();
    let name = "a".repeat(200);
    assert_eq!(
        slow.matches(Some(("a", &name))),
        Err(MatchError::TooManySteps)
    );
    let long = "a".repeat(SUBJECT_BYTES_MAX);
    let linear = Matcher::parse("^a").unwrap();
    assert_eq!(
        linear.matches(Some(("a", &long))),
        Err(MatchError::SubjectTooLong)
    );
    assert_eq!(
        Matcher::parse("*").unwrap().matches(Some(("a", &long))),
        Ok(true)
    );
}

#[test]
fn exponential_patterns_of_other_engines_are_linear_here() {
    let matcher = Matcher::parse("^(?:a+)+$").unwrap();
    let name = format!("{}b", "a".repeat(2_000));
    assert_eq!(matcher.matches(Some(("a", &name))), Ok(false));
}

#[test]
fn vector_040_an_event_without_a_tool_matches_no_pattern() {
    assert_eq!(Matcher::parse("^fs/").unwrap().matches(None), Ok(false));
    let literal = Matcher::parse("undefined/readFile").unwrap();
    assert_eq!(literal.matches(None), Ok(false));
    assert_eq!(Matcher::parse("").unwrap().matches(None), Ok(true));
}

proptest! {
    #[test]
    fn no_pattern_panics(pattern in ".{0,40}", name in ".{0,40}") {
        if let Ok(matcher) = Matcher::parse(&pattern) {
            let _ = matcher.matches(Some(("x", &name)));
        }
    }
}
