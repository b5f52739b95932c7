//! What is done to both hosts: commands, walks and scripts, drawn from bytes of chance.
//!
//! Every placeholder of a template stands for a small set of words, many of them wrong, so that
//! commands meet each other's keys, other types and their own limits.

use std::fmt;

use bytes::Bytes;
use proptest::prelude::*;

/// Most actions of one case.
const STEPS_MAX: usize = 60;

/// Bytes of chance that one action may use.
const CHANCE: usize = 96;

/// Templates of commands, one a line: a word in `<>` is replaced by one of its choices, with `*`
/// by one to three of them, with `?` by none or one.
const COMMANDS: &str = include_str!("commands.txt");

/// Commands whose replies are compared with a tolerance or sorted, so that no script has them.
const PLAIN_COMMANDS: &str = "\
HGETALL <k>
HKEYS <k>
HVALS <k>
SMEMBERS <k>
TTL <k>
PTTL <k>
PEXPIRETIME <k>";

/// Walks over everything, page by page.
const WALKS: &str = "\
SCAN 0
SCAN 0 COUNT <i>
SCAN 0 MATCH <glob>
SCAN 0 TYPE <type>
HSCAN <k> 0
HSCAN <k> 0 MATCH <glob> COUNT 3
SSCAN <k> 0 COUNT 2
ZSCAN <k> 0
HSCAN <k> x
ZSCAN <k> 0 MATCH <glob>";

/// What may come after the commands of a script, one a line.
const SCRIPT_ENDS: &str = include_str!("script_ends.txt");

/// What a placeholder may become.
#[rustfmt::skip]
pub(crate) fn choices(placeholder: &str) -> &'static [&'static str] {
    match placeholder {
        "k" => &["a", "b", "c", "d", "e", "f", "g", "h"],
        "m" => &["m1", "m2", "m3", "m4", "M", ""],
        "v" => &["x", "y", "", "10", "-3", "hello world", "x", "\u{e9}\0\u{1}"],
        "empty" => &[""],
        "n" => &["1", "-1", "5", "9223372036854775000", "-9223372036854775808", "007", "x", "1.5"],
        "i" => &["0", "1", "2", "3", "-1", "-2", "-3", "5", "-100", "100", "", "z", "9999999999"],
        "s" => &["0", "1", "2", "2", "3", "-1", "1.5", "0.1", "1e20", "inf", "-inf", "nan", "abc",
            "", "1700000000123", "-0", "1e-7", "3.0000000001"],
        "b" => &["0", "1", "(1", "2", "(2", "3", "-1", "1.5", "-inf", "+inf", "(-inf", "inf", "zz",
            "(", "1700000000123"],
        "nxxx" => &["NX", "XX", "nx"],
        "expiry" => &["PX 5", "PX 15", "EX 100", "PX 100000", "PXAT 99999999999999",
            "EXAT 99999999999", "EX 0", "PX -5", "EX x", "EX 9223372036854775807", "PX",
            "PXAT 1000"],
        "ttl" => &["100", "1000", "0", "-1", "x", "9223372036854775807"],
        "pttl" => &["5", "15", "100000", "0", "-1", "", "9223372036854775807"],
        "at" => &["99999999999999", "0", "-5", "1000", "x"],
        "ws" => &["WITHSCORES"],
        "zflag" => &["NX", "XX", "GT", "LT", "CH", "INCR", "ch"],
        "id" => &["1-1", "1-2", "2-1", "3-0", "5", "5-*", "7-7", "0-0", "0", "x-1", "9-9", "12-0",
            "1-"],
        "idb" => &["-", "+", "1", "2", "(1-1", "5", "(5", "3-0", "x", "0", "(0-0"],
        "glob" => &["*", "m*", "m[12]", "?", "[^a-c]", "M", "m\\1", "", "[a-"],
        "type" => &["string", "list", "hash", "zset", "nosuch"],
        "word" => &["NX", "XX", "KEEPTTL", "PX", "5", "FOO", "SET", "ZADD", "RENAME"],
        other => panic!("no choices for {other}"),
    }
}

/// One thing done to both hosts.
#[derive(Clone)]
pub(crate) enum Action {
    Command(Vec<Bytes>),
    Walk(Vec<Bytes>),
    Script(String),
    /// Both become full, or have room again.
    Full(bool),
}

impl Action {
    pub(crate) fn from_chance(chance: &[u8]) -> Self {
        let mut draw = Draw(chance.iter());
        match draw.below(32) {
            0..=15 => Self::Command(draw.command(COMMANDS)),
            16..=18 => Self::Command(draw.command(PLAIN_COMMANDS)),
            19..=20 => Self::Walk(draw.command(WALKS)),
            21..=30 => Self::Script(draw.script()),
            _ => Self::Full(draw.below(2) == 0),
        }
    }

    /// Whether keys may have been given a time that this case waits for.
    pub(crate) fn expires_soon(&self) -> bool {
        match self {
            Self::Command(words) => words.iter().any(|word| word == "PX" || word == "PEXPIRE"),
            Self::Script(source) => source.contains("'PX', ") || source.contains("'PEXPIRE', "),
            Self::Walk(_) | Self::Full(_) => false,
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |words: &[Bytes]| {
            let words = words
                .iter()
                .map(|word| format!("{:?}", String::from_utf8_lossy(word)));
            words.collect::<Vec<_>>().join(" ")
        };
        match self {
            Self::Command(words) => write!(f, "{}", line(words)),
            Self::Walk(words) => write!(f, "walk {}", line(words)),
            Self::Script(source) => write!(f, "script:\n{source}"),
            Self::Full(full) => write!(f, "full: {full}"),
        }
    }
}

/// One to [`STEPS_MAX`] actions.
pub(crate) fn case() -> impl Strategy<Value = Vec<Action>> {
    let chance = prop::collection::vec(any::<u8>(), CHANCE);
    let action = chance.prop_map(|chance| Action::from_chance(&chance));
    prop::collection::vec(action, 1..=STEPS_MAX)
}

/// Draws from bytes of chance; without any left it always draws the first.
struct Draw<'a>(std::slice::Iter<'a, u8>);

impl Draw<'_> {
    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % bound
    }

    fn of<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        choices[self.below(choices.len())]
    }

    /// A line of `text`; two bytes, because there are more lines than one reaches evenly.
    fn line<'c>(&mut self, text: &'c str) -> &'c str {
        let index = self.below(256) * 256 + self.below(256);
        let lines: Vec<&str> = text.lines().collect();
        lines[index % lines.len()]
    }

    /// Any key; more often one that commands of this type share.
    fn key(&mut self, command: &[u8]) -> &'static str {
        let usual: &[&str] = match command.first() {
            Some(b'L' | b'R') => &["a", "c"],
            Some(b'H') => &["a", "d", "e"],
            Some(b'Z') => &["a", "f", "g"],
            Some(b'X') => &["b"],
            _ => choices("k"),
        };
        let keys = if self.below(4) == 0 {
            choices("k")
        } else {
            usual
        };
        keys[self.below(keys.len())]
    }

    fn command(&mut self, templates: &str) -> Vec<Bytes> {
        let mut words = Vec::new();
        for word in self.line(templates).split(' ') {
            let Some((placeholder, rest)) = word.strip_prefix('<').and_then(|w| w.split_once('>'))
            else {
                words.push(Bytes::copy_from_slice(word.as_bytes()));
                continue;
            };
            let times = match rest {
                "*" => 1 + self.below(3),
                "?" => self.below(2),
                _ => 1,
            };
            for _ in 0..times {
                let choice = match (placeholder, words.first()) {
                    ("k", Some(name)) => self.key(name),
                    _ => self.of(choices(placeholder)),
                };
                let parts = choice.split(if placeholder == "expiry" { ' ' } else { '\n' });
                words.extend(parts.map(|part| Bytes::copy_from_slice(part.as_bytes())));
            }
        }
        words
    }

    /// A script of a few commands that returns what they answered, or fails on the way.
    fn script(&mut self) -> String {
        let mut source = String::from("local r = {}\n");
        for _ in 0..=self.below(5) {
            let function = self.of(&["call", "call", "call", "pcall"]);
            let words = self.command(COMMANDS);
            let words: Vec<String> = words.iter().map(|word| self.literal(word)).collect();
            let keeps = self.of(&["r[#r + 1] = ", "local _ = "]);
            let words = words.join(", ");
            source.extend([keeps, "redis.", function, "(", &words, ")\n"]);
        }
        source.push_str(self.line(SCRIPT_ENDS));
        source
    }

    /// `word` as Lua text, a number where it can be one and chance wants it.
    fn literal(&mut self, word: &[u8]) -> String {
        let text = std::str::from_utf8(word).unwrap();
        let is_number = text.parse::<f64>().is_ok_and(f64::is_finite) && !text.starts_with('+');
        if is_number && self.below(2) == 0 {
            return text.to_owned();
        }
        if text == "a" {
            return "KEYS[1]".to_owned();
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -.+()".contains(&byte);
        let escaped = word.iter().fold(String::new(), |text, byte| {
            if is_plain(*byte) {
                text + &char::from(*byte).to_string()
            } else {
                text + &format!("\\{byte:03}")
            }
        });
        format!("'{escaped}'")
    }
}
