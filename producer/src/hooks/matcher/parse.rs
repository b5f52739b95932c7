//! Reading a pattern that is known to be valid: ECMAScript with its annex B, without flags.
//!
//! What annex B adds is most of the work: a brace that is no quantifier is a brace, an escape that
//! means nothing is its character, a number that names no group is octal.

use super::PatternError;
use super::groups::Survey;
use super::set::Set;

/// Most repeats a quantifier may ask for. A counted repeat is written out when compiled, so that
/// higher numbers would not compile either.
const COUNT_MAX: u32 = 1_000_000;

/// A part of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node {
    Empty,
    /// One code unit of the set.
    Unit(Set),
    Start,
    End,
    Boundary,
    NotBoundary,
    /// A group that captures, numbered from 1.
    Group {
        number: u32,
        inner: Box<Node>,
    },
    Look {
        is_ahead: bool,
        is_negative: bool,
        inner: Box<Node>,
    },
    /// What a group captured.
    Back {
        number: u32,
        position: usize,
    },
    Repeat {
        min: u32,
        /// `None`: without an end.
        max: Option<u32>,
        is_greedy: bool,
        inner: Box<Node>,
    },
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
}

struct Parser<'a> {
    units: &'a [u16],
    at: usize,
    survey: Survey,
    groups: u32,
}

/// Reads all of `units`.
///
/// # Errors
/// A construct that is not supported, or a syntax error that the judge did not see.
pub(super) fn parse(units: &[u16]) -> Result<Node, PatternError> {
    let mut parser = Parser {
        units,
        at: 0,
        survey: Survey::of(units),
        groups: 0,
    };
    let node = parser.choice()?;
    if parser.at < units.len() {
        return Err(parser.unexpected());
    }
    Ok(node)
}

impl Parser<'_> {
    fn choice(&mut self) -> Result<Node, PatternError> {
        let mut branches = vec![self.sequence()?];
        while self.eat(b'|') {
            branches.push(self.sequence()?);
        }
        Ok(match branches.pop() {
            Some(only) if branches.is_empty() => only,
            Some(last) => {
                branches.push(last);
                Node::Choice(branches)
            }
            None => Node::Empty,
        })
    }

    fn sequence(&mut self) -> Result<Node, PatternError> {
        let mut parts = Vec::new();
        while let Some(unit) = self.peek(0) {
            if is(unit, b'|') || is(unit, b')') {
                break;
            }
            let atom = self.atom()?;
            parts.push(self.quantified(atom)?);
        }
        Ok(match parts.len() {
            0 => Node::Empty,
            _ => Node::Sequence(parts),
        })
    }

    fn atom(&mut self) -> Result<Node, PatternError> {
        let Some(unit) = self.next() else {
            return Ok(Node::Empty);
        };
        match u8::try_from(unit) {
            Ok(b'^') => Ok(Node::Start),
            Ok(b'$') => Ok(Node::End),
            Ok(b'.') => Ok(Node::Unit(Set::dot())),
            Ok(b'(') => self.group(),
            Ok(b'[') => self.class().map(Node::Unit),
            Ok(b'\\') => self.escape(),
            Ok(b'*' | b'+' | b'?') => Err(PatternError::Syntax("Nothing to repeat".to_owned())),
            _ => Ok(Node::Unit(Set::one(unit))),
        }
    }

    /// After the opening parenthesis.
    fn group(&mut self) -> Result<Node, PatternError> {
        let opened = self.at.saturating_sub(1);
        let look = |is_ahead, is_negative, inner| Node::Look {
            is_ahead,
            is_negative,
            inner: Box::new(inner),
        };
        let node = if self.eat_all(b"?:") {
            self.choice()?
        } else if self.eat_all(b"?=") {
            look(true, false, self.choice()?)
        } else if self.eat_all(b"?!") {
            look(true, true, self.choice()?)
        } else if self.eat_all(b"?<=") {
            look(false, false, self.choice()?)
        } else if self.eat_all(b"?<!") {
            look(false, true, self.choice()?)
        } else {
            if self.eat_all(b"?<") {
                while self.next().is_some_and(|unit| !is(unit, b'>')) {}
            } else if self.peek(0).is_some_and(|unit| is(unit, b'?')) {
                let what = "a group with flags";
                return Err(unsupported(what, opened));
            }
            self.groups += 1;
            let number = self.groups;
            Node::Group {
                number,
                inner: Box::new(self.choice()?),
            }
        };
        if self.eat(b')') {
            Ok(node)
        } else {
            Err(self.unexpected())
        }
    }

    fn quantified(&mut self, atom: Node) -> Result<Node, PatternError> {
        let (min, max) = match self.peek(0).map(u8::try_from) {
            Some(Ok(b'*')) => (0, None),
            Some(Ok(b'+')) => (1, None),
            Some(Ok(b'?')) => (0, Some(1)),
            Some(Ok(b'{')) => match self.counts()? {
                Some(counts) => counts,
                None => return Ok(atom),
            },
            _ => return Ok(atom),
        };
        if self.eat(b'{') {
            while self.next().is_some_and(|unit| !is(unit, b'}')) {}
        } else {
            self.at += 1;
        }
        let is_greedy = !self.eat(b'?');
        Ok(Node::Repeat {
            min,
            max,
            is_greedy,
            inner: Box::new(atom),
        })
    }

    /// The counts in braces at this place; `None` when the brace is just one.
    fn counts(&self) -> Result<Option<(u32, Option<u32>)>, PatternError> {
        let mut ahead = 1;
        let Some(min) = self.count(&mut ahead)? else {
            return Ok(None);
        };
        let mut max = Some(min);
        if self.peek(ahead).is_some_and(|unit| is(unit, b',')) {
            ahead += 1;
            max = self.count(&mut ahead)?;
        }
        let is_closed = self.peek(ahead).is_some_and(|unit| is(unit, b'}'));
        Ok(is_closed.then_some((min, max)))
    }

    fn count(&self, ahead: &mut usize) -> Result<Option<u32>, PatternError> {
        let mut count = None;
        while let Some(digit) = self.peek(*ahead).and_then(|unit| digit(unit, 10)) {
            let next = count
                .unwrap_or(0_u32)
                .saturating_mul(10)
                .saturating_add(digit);
            if next > COUNT_MAX {
                return Err(unsupported("a repeat of more than a million", self.at));
            }
            count = Some(next);
            *ahead += 1;
        }
        Ok(count)
    }

    /// After the backslash, outside a class.
    fn escape(&mut self) -> Result<Node, PatternError> {
        let position = self.at.saturating_sub(1);
        match self.peek(0).map(u8::try_from) {
            Some(Ok(b'b')) => {
                self.at += 1;
                Ok(Node::Boundary)
            }
            Some(Ok(b'B')) => {
                self.at += 1;
                Ok(Node::NotBoundary)
            }
            Some(Ok(b'k')) if self.survey.has_names => {
                self.at += 1;
                let number = self.named_group(position)?;
                Ok(Node::Back { number, position })
            }
            Some(Ok(b'1'..=b'9')) => Ok(match self.group_number() {
                Some(number) => Node::Back { number, position },
                None => Node::Unit(self.unit_or_set(false)),
            }),
            _ => Ok(Node::Unit(self.unit_or_set(false))),
        }
    }

    /// The number at this place, when a group has it.
    fn group_number(&mut self) -> Option<u32> {
        let mut number = 0_u32;
        let mut ahead = 0;
        while let Some(digit) = self.peek(ahead).and_then(|unit| digit(unit, 10)) {
            number = number.saturating_mul(10).saturating_add(digit);
            ahead += 1;
        }
        if number > self.survey.groups {
            return None;
        }
        self.at += ahead;
        Some(number)
    }

    /// After `\k`.
    fn named_group(&mut self, position: usize) -> Result<u32, PatternError> {
        let start = self.at + 1;
        while self.next().is_some_and(|unit| !is(unit, b'>')) {}
        let name = self.units.get(start..self.at.saturating_sub(1));
        let name = name.unwrap_or_default();
        if name.contains(&u16::from(b'\\')) {
            return Err(unsupported("a group name with an escape", position));
        }
        self.survey
            .number_of(name)
            .ok_or_else(|| unsupported("a reference to several groups of one name", position))
    }

    /// A class, after its opening bracket.
    fn class(&mut self) -> Result<Set, PatternError> {
        let is_negated = self.eat(b'^');
        let mut set = Set::default();
        loop {
            let Some(unit) = self.next() else {
                return Err(self.unexpected());
            };
            if is(unit, b']') {
                break;
            }
            let first = self.class_atom(unit);
            let is_range = self.peek(0).is_some_and(|unit| is(unit, b'-'))
                && self.peek(1).is_some_and(|unit| !is(unit, b']'));
            if !is_range {
                set = set.union(first);
                continue;
            }
            self.at += 1;
            let Some(unit) = self.next() else {
                return Err(self.unexpected());
            };
            let last = self.class_atom(unit);
            set = set.union(match (single(&first), single(&last)) {
                (Some(first), Some(last)) if first <= last => Set::of(&[(first, last)]),
                (Some(_), Some(_)) => {
                    let text = "Range out of order in character class";
                    return Err(PatternError::Syntax(text.to_owned()));
                }
                // A set at either end: the dash is one.
                _ => first.union(last).union(Set::one(u16::from(b'-'))),
            });
        }
        Ok(if is_negated { set.negated() } else { set })
    }

    fn class_atom(&mut self, unit: u16) -> Set {
        if is(unit, b'\\') {
            self.unit_or_set(true)
        } else {
            Set::one(unit)
        }
    }

    /// What an escape stands for, after its backslash.
    fn unit_or_set(&mut self, in_class: bool) -> Set {
        let Some(unit) = self.next() else {
            return Set::one(u16::from(b'\\'));
        };
        if let Some(set) = Set::of_escape(unit) {
            return set;
        }
        Set::one(match u8::try_from(unit) {
            Ok(b'b') if in_class => 0x08,
            Ok(b't') => 0x09,
            Ok(b'n') => 0x0a,
            Ok(b'v') => 0x0b,
            Ok(b'f') => 0x0c,
            Ok(b'r') => 0x0d,
            Ok(b'c') => self.control(in_class),
            Ok(b'x') => self.hex(2).unwrap_or(unit),
            Ok(b'u') => self.hex(4).unwrap_or(unit),
            Ok(b'0'..=b'7') => self.octal(unit),
            _ => unit,
        })
    }

    /// After `\c`: a control character, or the backslash by itself.
    fn control(&mut self, in_class: bool) -> u16 {
        let letter = self.peek(0).and_then(|unit| u8::try_from(unit).ok());
        match letter {
            Some(letter) if letter.is_ascii_alphabetic() => {}
            Some(letter) if in_class && (letter.is_ascii_digit() || letter == b'_') => {}
            _ => {
                self.at -= 1;
                return u16::from(b'\\');
            }
        }
        self.at += 1;
        u16::from(letter.unwrap_or_default()) % 32
    }

    /// So many hexadecimal digits; `None`, and nothing is read, when there are fewer.
    fn hex(&mut self, count: usize) -> Option<u16> {
        let mut value = 0;
        for ahead in 0..count {
            value = value * 16 + digit(self.peek(ahead)?, 16)?;
        }
        self.at += count;
        u16::try_from(value).ok()
    }

    /// Up to three octal digits, the first of which is read, at most 255.
    fn octal(&mut self, first: u16) -> u16 {
        let mut value = digit(first, 8).unwrap_or_default();
        for _ in 0..2 {
            let Some(digit) = self.peek(0).and_then(|unit| digit(unit, 8)) else {
                break;
            };
            if value * 8 + digit > 0xff {
                break;
            }
            value = value * 8 + digit;
            self.at += 1;
        }
        u16::try_from(value).unwrap_or_default()
    }

    fn peek(&self, ahead: usize) -> Option<u16> {
        self.units.get(self.at + ahead).copied()
    }

    fn next(&mut self) -> Option<u16> {
        let unit = self.peek(0)?;
        self.at += 1;
        Some(unit)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_there = self.peek(0).is_some_and(|unit| is(unit, byte));
        self.at += usize::from(is_there);
        is_there
    }

    fn eat_all(&mut self, bytes: &[u8]) -> bool {
        let is_there = bytes
            .iter()
            .enumerate()
            .all(|(ahead, byte)| self.peek(ahead).is_some_and(|unit| is(unit, *byte)));
        if is_there {
            self.at += bytes.len();
        }
        is_there
    }

    fn unexpected(&self) -> PatternError {
        unsupported("the construct", self.at)
    }
}

fn is(unit: u16, byte: u8) -> bool {
    unit == u16::from(byte)
}

fn digit(unit: u16, radix: u32) -> Option<u32> {
    char::from_u32(u32::from(unit))?.to_digit(radix)
}

/// The only unit of a set that came from one character. Sets of escapes have many.
fn single(set: &Set) -> Option<u16> {
    match set.ranges() {
        [(first, last)] if first == last => Some(*first),
        _ => None,
    }
}

fn unsupported(what: &'static str, position: usize) -> PatternError {
    PatternError::Unsupported { what, position }
}
