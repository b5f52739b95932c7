//! Reading a pattern that is known to be valid: ECMAScript with its annex B, without flags.
//!
//! What annex B adds is most of the work, here and in `escape`: a brace that is no quantifier is a
//! brace, an escape that means nothing is its character, a number that names no group is octal.

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

pub(super) struct Parser<'a> {
    pub(super) units: &'a [u16],
    /// The next unit to read.
    pub(super) at: usize,
    pub(super) survey: Survey,
    /// Groups begun so far.
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

    pub(super) fn peek(&self, ahead: usize) -> Option<u16> {
        self.units.get(self.at + ahead).copied()
    }

    pub(super) fn next(&mut self) -> Option<u16> {
        let unit = self.peek(0)?;
        self.at += 1;
        Some(unit)
    }

    pub(super) fn eat(&mut self, byte: u8) -> bool {
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

    pub(super) fn unexpected(&self) -> PatternError {
        unsupported("the construct", self.at)
    }
}

pub(super) fn is(unit: u16, byte: u8) -> bool {
    unit == u16::from(byte)
}

pub(super) fn digit(unit: u16, radix: u32) -> Option<u32> {
    char::from_u32(u32::from(unit))?.to_digit(radix)
}

pub(super) fn unsupported(what: &'static str, position: usize) -> PatternError {
    PatternError::Unsupported { what, position }
}
