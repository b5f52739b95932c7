//! UTF-16 code units as characters: JavaScript matches units, the engines here match characters.
//!
//! A unit is the character of the same number; halves of surrogate pairs, which are no characters,
//! take places in the last private plane. Neither side of a match has real characters there,
//! because those have become pairs themselves.

use std::borrow::Cow;

/// Added to a surrogate.
const SURROGATE_SHIFT: u32 = 0x10_0000;

/// A text whose characters are UTF-16 code units.
pub(super) struct Units<'a>(Cow<'a, str>);

impl<'a> Units<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let is_plain = text.chars().all(|char| char.len_utf16() == 1);
        Self(if is_plain {
            Cow::Borrowed(text)
        } else {
            Cow::Owned(text.encode_utf16().filter_map(character).collect())
        })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The number of the character that stands for `unit`.
pub(super) fn code_point(unit: u16) -> u32 {
    let unit_is_surrogate = (0xd800..=0xdfff).contains(&unit);
    u32::from(unit)
        + if unit_is_surrogate {
            SURROGATE_SHIFT
        } else {
            0
        }
}

fn character(unit: u16) -> Option<char> {
    char::from_u32(code_point(unit))
}
