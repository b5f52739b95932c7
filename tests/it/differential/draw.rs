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

/// Commands that fill keys of every type, drawn now and then so that the others meet something.
const FILLERS: &str = "\
SET a <v>
SET h <n>
RPUSH c <v> <v> <v> <v>
RPUSH c x y x y x x
RPUSH c x y x y x
HSET d <m> <v> <m> <n>
HSET e <m> <n>
ZADD f 1 m1 2 m2 2 m3 3 m4
ZADD g <s> m1 <s> m2 <s> M
XADD b 1-1 <m> <v>
SADD i <m>*";

/// Every key there is.
pub(crate) const KEYS: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// What a placeholder may become: what is usual, and what is odd or wrong.
#[rustfmt::skip]
fn choices(placeholder: &str) -> (&'static [&'static str], &'static [&'static str]) {
    match placeholder {
        "m" => (&["m1", "m2", "m3", "m4"], &["M", ""]),
        "v" => (&["x", "y", "x", "10"], &["", "-3", "hello world", "\u{e9}\0\u{1}"]),
        "empty" => (&[""], &[""]),
        "n" => (&["1", "-1", "5"],
            &["9223372036854775000", "-9223372036854775808", "007", "x", "1.5"]),
        "i" => (&["0", "1", "2", "3", "-1", "-2", "-3"],
            &["5", "-100", "100", "", "z", "9999999999"]),
        "s" => (&["0", "1", "2", "2", "3", "-1", "1.5"],
            &["0.1", "1e20", "inf", "-inf", "nan", "abc", "", "1700000000123", "-0", "1e-7",
            "3.0000000001"]),
        "b" => (&["0", "1", "(1", "2", "(2", "3", "-inf", "+inf"],
            &["-1", "1.5", "(-inf", "inf", "zz", "(", "1700000000123"]),
        "nxxx" => (&["NX", "XX"], &["nx"]),
        "expiry" => (&["PX 2", "PX 5", "EX 100", "PX 100000", "PXAT 99999999999999"],
            &["EXAT 99999999999", "EX 0", "PX -5", "EX x", "EX 9223372036854775807", "PX",
            "PXAT 1000"]),
        "ttl" => (&["100", "1000"], &["0", "-1", "x", "9223372036854775807"]),
        "pttl" => (&["2", "5", "100000"], &["0", "-1", "", "9223372036854775807"]),
        "at" => (&["99999999999999", "1000"], &["0", "-5", "x"]),
        "ws" => (&["WITHSCORES"], &["withscores"]),
        "zflag" => (&["NX", "XX", "GT", "LT", "CH", "INCR"], &["ch"]),
        "id" => (&["1-1", "1-2", "2-1", "3-0", "5-*", "7-7", "9-9", "12-0"],
            &["5", "0-0", "0", "x-1", "1-"]),
        "idb" => (&["-", "+", "1", "2", "(1-1", "5"], &["(5", "3-0", "x", "0", "(0-0"]),
        "glob" => (&["*", "m*", "m[12]", "?"], &["[^a-c]", "M", "m\\1", "", "[a-"]),
        "type" => (&["string", "list", "hash", "zset"], &["nosuch"]),
        "word" => (&["NX", "XX", "KEEPTTL", "PX"], &["5", "FOO", "SET", "ZADD", "RENAME"]),
        other => panic!("no choices for {other}"),
    }
}

/// One thing done to both hosts.
#[derive(Clone)]
pub(crate) struct Action {
    /// Whether both are full meanwhile.
    pub(crate) full: bool,
    pub(crate) what: What,
}

/// What is done.
#[derive(Clone)]
pub(crate) enum What {
    Command(Vec<Bytes>),
    Walk(Vec<Bytes>),
    Script(String),
}

impl Action {
    fn from_chance(chance: &[u8]) -> Self {
        let mut draw = Draw(chance.iter());
        let full = draw.below(16) == 15;
        let what = match draw.below(32) {
            0..=3 => What::Command(draw.command(FILLERS)),
            4..=17 => What::Command(draw.command(COMMANDS)),
            18..=19 => What::Command(draw.command(PLAIN_COMMANDS)),
            20..=21 => What::Walk(draw.command(WALKS)),
            _ => What::Script(draw.script()),
        };
        Self { full, what }
    }

    /// Whether keys may have been given a time that this case waits for.
    pub(crate) fn expires_soon(&self) -> bool {
        match &self.what {
            What::Command(words) => words.iter().any(|word| word == "PX" || word == "PEXPIRE"),
            What::Script(source) => source.contains("'PX', ") || source.contains("'PEXPIRE', "),
            What::Walk(_) => false,
        }
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |words: &[Bytes]| {
            let words = words.iter().map(|word| String::from_utf8_lossy(word));
            words
                .map(|word| format!("{word:?}"))
                .collect::<Vec<_>>()
                .join(" ")
        };
        if self.full {
            write!(f, "(full) ")?;
        }
        match &self.what {
            What::Command(words) => write!(f, "{}", line(words)),
            What::Walk(words) => write!(f, "walk {}", line(words)),
            What::Script(source) => write!(f, "script:\n{source}"),
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

    /// One of the usual, rarely one of the odd.
    fn word(&mut self, placeholder: &str) -> &'static str {
        let (usual, odd) = choices(placeholder);
        let choices = if self.below(16) == 15 { odd } else { usual };
        choices[self.below(choices.len())]
    }

    /// One of the keys that commands of this type share, rarely any other.
    fn key(&mut self, command: &[u8]) -> &'static str {
        let usual: &[&str] = match command {
            [b'L' | b'R', b'P' | b'R' | b'L' | b'I' | b'T', ..] => &["c"],
            [b'H', ..] => &["d", "e"],
            [b'Z', ..] => &["f", "g"],
            [b'X', ..] => &["b"],
            [b'S', b'A' | b'R' | b'I' | b'C' | b'M' | b'S', ..] => &["i"],
            [b'G' | b'I' | b'A' | b'M' | b'S', ..] => &["a", "h"],
            _ => &KEYS,
        };
        let keys = if self.below(16) == 15 { &KEYS } else { usual };
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
                    _ => self.word(placeholder),
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
        if let "c" | "f" = text {
            return format!("KEYS[{}]", if text == "c" { 1 } else { 2 });
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
