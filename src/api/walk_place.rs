//! Where a walk over all shards is, page by page: the cursor of answers that end before the walk does.

use hookstash_shared::message::Shard;

use super::error::ApiError;

/// The page that comes next. The default is the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    pub(super) shard: u16,
    /// The store's cursor within the shard; 0 = its first page.
    pub(super) cursor: u64,
}

impl Place {
    pub(super) fn new(shard: Shard, cursor: u64) -> Self {
        let shard = shard.index();
        Self { shard, cursor }
    }

    /// As it is given out.
    pub(super) fn show(self) -> String {
        format!("{}-{}", self.shard, self.cursor)
    }

    /// Reads it back.
    pub(super) fn read(text: &str) -> Result<Self, ApiError> {
        let read = || {
            let (shard, cursor) = text.split_once('-')?;
            let (shard, cursor) = (shard.parse().ok()?, cursor.parse().ok()?);
            Some(Self { shard, cursor })
        };
        read().ok_or_else(|| ApiError::invalid("cursor", "use the one that the last page returned"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_shown() {
        let place = Place {
            shard: 3,
            cursor: 77,
        };
        assert_eq!(Place::read(&place.show()).unwrap(), place);
        for text in ["7", "-", "x-1", "1-x", "1--1"] {
            assert!(Place::read(text).is_err(), "{text}");
        }
    }
}
