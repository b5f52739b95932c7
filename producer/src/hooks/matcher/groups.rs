//! Groups and references to them: how many there are, which are referred to, and whether the
//! reference means the same here as in JavaScript.

use std::collections::{BTreeMap, BTreeSet};

use super::PatternError;
use super::parse::Node;

/// Deepest nesting of groups: every pass over a pattern is recursive.
const NESTING_MAX: usize = 100;

/// What must be known of all groups before the first is read.
pub(super) struct Survey {
    pub(super) groups: u32,
    pub(super) has_names: bool,
    /// Names and their groups; several of one name are `None`.
    names: BTreeMap<Vec<u16>, Option<u32>>,
}

impl Survey {
    pub(super) fn of(units: &[u16]) -> Self {
        let mut survey = Self {
            groups: 0,
            has_names: false,
            names: BTreeMap::new(),
        };
        for opened in openings(units) {
            let rest = units.get(opened + 1..).unwrap_or_default();
            let is_named = begins(rest, b"?<") && !begins(rest, b"?<=") && !begins(rest, b"?<!");
            if begins(rest, b"?") && !is_named {
                continue;
            }
            survey.groups += 1;
            if is_named {
                let name = rest.get(2..).unwrap_or_default();
                let name = name.split(|unit| *unit == u16::from(b'>')).next();
                let number = survey.groups;
                survey.has_names = true;
                survey
                    .names
                    .entry(name.unwrap_or_default().to_vec())
                    .and_modify(|known| *known = None)
                    .or_insert(Some(number));
            }
        }
        survey
    }

    /// The one group of this name.
    pub(super) fn number_of(&self, name: &[u16]) -> Option<u32> {
        self.names.get(name).copied().flatten()
    }
}

/// # Errors
/// Groups lie deeper in each other than can be followed.
pub(super) fn check_nesting(units: &[u16]) -> Result<(), PatternError> {
    let mut depth = 0_usize;
    for (position, unit) in outside_classes(units) {
        match u8::try_from(unit) {
            Ok(b'(') => depth += 1,
            Ok(b')') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > NESTING_MAX {
            let what = "nesting of more than 100 groups";
            return Err(PatternError::Unsupported { what, position });
        }
    }
    Ok(())
}

/// Where the opening parentheses are.
fn openings(units: &[u16]) -> impl Iterator<Item = usize> + '_ {
    outside_classes(units)
        .filter(|(_, unit)| *unit == u16::from(b'('))
        .map(|(at, _)| at)
}

/// The units that are neither escaped nor in a class.
fn outside_classes(units: &[u16]) -> impl Iterator<Item = (usize, u16)> + '_ {
    let mut in_class = false;
    let mut is_escaped = false;
    units.iter().copied().enumerate().filter(move |(_, unit)| {
        if std::mem::take(&mut is_escaped) {
            return false;
        }
        match u8::try_from(*unit) {
            Ok(b'\\') => is_escaped = true,
            Ok(b'[') => in_class = true,
            Ok(b']') => in_class = false,
            _ => return !in_class,
        }
        false
    })
}

fn begins(units: &[u16], bytes: &[u8]) -> bool {
    units.len() >= bytes.len()
        && units
            .iter()
            .zip(bytes)
            .all(|(unit, byte)| *unit == u16::from(*byte))
}

/// Checks every reference, makes those to groups that cannot have captured anything empty, and
/// lets only groups capture that are referred to.
///
/// # Errors
/// A reference whose meaning differs in the engine that would match it.
pub(super) fn resolve(node: Node) -> Result<Node, PatternError> {
    let mut references = BTreeMap::new();
    collect(&node, &mut references);
    let mut walk = Walk {
        references,
        closed: BTreeSet::new(),
    };
    walk.resolve(node, Place::default())
}

fn collect(node: &Node, into: &mut BTreeMap<u32, usize>) {
    match node {
        Node::Back { number, position } => {
            into.entry(*number).or_insert(*position);
        }
        Node::Group { inner, .. } | Node::Look { inner, .. } | Node::Repeat { inner, .. } => {
            collect(inner, into);
        }
        Node::Sequence(parts) | Node::Choice(parts) => {
            for part in parts {
                collect(part, into);
            }
        }
        _ => {}
    }
}

struct Walk {
    /// Groups that are referred to, and from where first.
    references: BTreeMap<u32, usize>,
    /// Groups that have ended before the place of the walk.
    closed: BTreeSet<u32>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    is_repeated: bool,
    is_in_negative: bool,
    is_in_behind: bool,
}

impl Walk {
    fn resolve(&mut self, node: Node, place: Place) -> Result<Node, PatternError> {
        Ok(match node {
            Node::Group { number, inner } => {
                let Some(position) = self.references.get(&number).copied() else {
                    return self.resolve(*inner, place);
                };
                check_place(place, position)?;
                let inner = Box::new(self.resolve(*inner, place)?);
                self.closed.insert(number);
                Node::Group { number, inner }
            }
            Node::Back { number, position } => {
                if place.is_in_behind {
                    let what = "a back-reference in a look-behind";
                    return Err(PatternError::Unsupported { what, position });
                }
                if self.closed.contains(&number) {
                    Node::Back { number, position }
                } else {
                    Node::Empty
                }
            }
            Node::Look {
                is_ahead,
                is_negative,
                inner,
            } => {
                let place = Place {
                    is_in_negative: place.is_in_negative || is_negative,
                    is_in_behind: place.is_in_behind || !is_ahead,
                    ..place
                };
                let inner = Box::new(self.resolve(*inner, place)?);
                Node::Look {
                    is_ahead,
                    is_negative,
                    inner,
                }
            }
            Node::Repeat {
                min,
                max,
                is_greedy,
                inner,
            } => {
                // Looking at the same place again changes nothing, and a repeat that takes
                // nothing and need not be is not made at all.
                if inner.is_empty_always() {
                    return match min {
                        0 => Ok(Node::Empty),
                        _ => self.resolve(*inner, place),
                    };
                }
                let place = Place {
                    is_repeated: place.is_repeated || max.is_none_or(|max| max > 1),
                    ..place
                };
                let inner = Box::new(self.resolve(*inner, place)?);
                Node::Repeat {
                    min,
                    max,
                    is_greedy,
                    inner,
                }
            }
            Node::Sequence(parts) => Node::Sequence(self.resolve_all(parts, place)?),
            Node::Choice(parts) => Node::Choice(self.resolve_all(parts, place)?),
            other => other,
        })
    }

    fn resolve_all(&mut self, parts: Vec<Node>, place: Place) -> Result<Vec<Node>, PatternError> {
        parts
            .into_iter()
            .map(|part| self.resolve(part, place))
            .collect()
    }
}

/// JavaScript forgets captures at every repeat and after a negative look-around, and captures from
/// the right in a look-behind.
fn check_place(place: Place, position: usize) -> Result<(), PatternError> {
    let what = if place.is_repeated {
        "a back-reference to a repeated group"
    } else if place.is_in_negative {
        "a back-reference to a group in a negative look-around"
    } else if place.is_in_behind {
        "a back-reference to a group in a look-behind"
    } else {
        return Ok(());
    };
    Err(PatternError::Unsupported { what, position })
}

impl Node {
    /// Whether it can match the empty text only.
    fn is_empty_always(&self) -> bool {
        match self {
            Self::Unit(_) | Self::Back { .. } => false,
            Self::Empty
            | Self::Start
            | Self::End
            | Self::Boundary
            | Self::NotBoundary
            | Self::Look { .. } => true,
            Self::Group { inner, .. } => inner.is_empty_always(),
            Self::Repeat { max, inner, .. } => *max == Some(0) || inner.is_empty_always(),
            Self::Sequence(parts) | Self::Choice(parts) => parts.iter().all(Self::is_empty_always),
        }
    }

    /// Whether an engine with a limit on backtracking is needed.
    pub(super) fn needs_backtracking(&self) -> bool {
        match self {
            Self::Look { .. } | Self::Back { .. } => true,
            Self::Group { inner, .. } | Self::Repeat { inner, .. } => inner.needs_backtracking(),
            Self::Sequence(parts) | Self::Choice(parts) => {
                parts.iter().any(Self::needs_backtracking)
            }
            _ => false,
        }
    }
}
