//! Sets of UTF-16 code units, and those that JavaScript has names for.

/// A set of code units: sorted ranges that do not touch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Set(Vec<(u16, u16)>);

const DIGITS: [(u16, u16); 1] = [(0x30, 0x39)];
const WORD: [(u16, u16); 4] = [(0x30, 0x39), (0x41, 0x5a), (0x5f, 0x5f), (0x61, 0x7a)];
/// White space and line ends (ECMAScript, sections 12.2 and 12.3).
const SPACE: [(u16, u16); 10] = [
    (0x09, 0x0d),
    (0x20, 0x20),
    (0xa0, 0xa0),
    (0x1680, 0x1680),
    (0x2000, 0x200a),
    (0x2028, 0x2029),
    (0x202f, 0x202f),
    (0x205f, 0x205f),
    (0x3000, 0x3000),
    (0xfeff, 0xfeff),
];
const LINE_ENDS: [(u16, u16); 3] = [(0x0a, 0x0a), (0x0d, 0x0d), (0x2028, 0x2029)];

impl Set {
    pub(super) fn of(ranges: &[(u16, u16)]) -> Self {
        let mut set = Self::default();
        for (first, last) in ranges {
            set.0.push((*first, *last));
        }
        set.normalised()
    }

    pub(super) fn one(unit: u16) -> Self {
        Self(vec![(unit, unit)])
    }

    /// What `.` matches.
    pub(super) fn dot() -> Self {
        Self::of(&LINE_ENDS).negated()
    }

    /// What the escape of this letter matches; `None` when the letter names no set.
    pub(super) fn of_escape(letter: u16) -> Option<Self> {
        Some(match u8::try_from(letter).ok()? {
            b'd' => Self::of(&DIGITS),
            b'D' => Self::of(&DIGITS).negated(),
            b'w' => Self::of(&WORD),
            b'W' => Self::of(&WORD).negated(),
            b's' => Self::of(&SPACE),
            b'S' => Self::of(&SPACE).negated(),
            _ => return None,
        })
    }

    pub(super) fn union(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self.normalised()
    }

    pub(super) fn negated(&self) -> Self {
        let mut ranges = Vec::with_capacity(self.0.len() + 1);
        let mut next = Some(0_u16);
        for (first, last) in &self.0 {
            if let Some(start) = next
                && start < *first
            {
                ranges.push((start, first - 1));
            }
            next = last.checked_add(1);
        }
        if let Some(start) = next {
            ranges.push((start, u16::MAX));
        }
        Self(ranges)
    }

    pub(super) fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    fn normalised(mut self) -> Self {
        self.0.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::with_capacity(self.0.len());
        for (first, last) in self.0 {
            match merged.last_mut() {
                Some((_, end)) if u32::from(first) <= u32::from(*end) + 1 => {
                    *end = last.max(*end);
                }
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }
}
