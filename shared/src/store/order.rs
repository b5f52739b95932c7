//! Which way a list goes.

/// The order of a page and of the pages after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Newest first.
    #[default]
    LatestFirst,
    /// Oldest first.
    EarliestFirst,
}

impl Order {
    /// Whether `a` comes after `b` in this order.
    pub fn is_after<T: Ord + ?Sized>(self, a: &T, b: &T) -> bool {
        match self {
            Self::LatestFirst => a < b,
            Self::EarliestFirst => a > b,
        }
    }

    /// Puts `items` into this order.
    pub fn sort<T: Ord>(self, items: &mut [T]) {
        match self {
            Self::LatestFirst => items.sort_by(|a, b| b.cmp(a)),
            Self::EarliestFirst => items.sort(),
        }
    }
}
