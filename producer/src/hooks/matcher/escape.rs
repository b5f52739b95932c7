//! Escapes and classes of characters: what a backslash or a bracket begins.

use super::PatternError;
use super::parse::{Node, Parser, digit, is, unsupported};
use super::set::Set;

impl Parser<'_> {
    /// After the backslash, outside a class.
    pub(super) fn escape(&mut self) -> Result<Node, PatternError> {
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
    pub(super) fn class(&mut self) -> Result<Set, PatternError> {
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
}

/// The only unit of a set that came from one character. Sets of escapes have many.
fn single(set: &Set) -> Option<u16> {
    match set.ranges() {
        [(first, last)] if first == last => Some(*first),
        _ => None,
    }
}
