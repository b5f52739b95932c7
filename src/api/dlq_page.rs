//! Which dead letters a request means: a page of them, found without an index.
//!
//! A filtered page looks at no more than [`EXAMINED_MAX`] letters and ends there, with a cursor,
//! even when it found fewer than it may hold.

use hookstash_shared::message::{Envelope, EnvelopeHeader, LastResponse, Peek};
use hookstash_shared::store::host::HostError;
use hookstash_shared::store::{DeadLetter, DeathRange, DlqCursor, Store};

use super::error::ApiError;
use super::selection::{Facts, Selection};

/// Entries of a page, by default and at most.
pub(super) const PAGE_MAX: usize = 100;
/// Most letters that one filtered page looks at.
const EXAMINED_MAX: usize = 2_000;
/// Letters that are looked at together.
const CHUNK: usize = 200;

/// A page that was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// In the order asked for.
    pub(super) letters: Vec<DlqCursor>,
    /// Where the next page begins; `None` = nothing is left.
    pub(super) next: Option<DlqCursor>,
}

/// The letters that `selection` means.
pub(super) async fn find(store: &Store, selection: &Selection) -> Result<Found, ApiError> {
    let after = selection.cursor.as_deref().map(read_cursor).transpose()?;
    let range = DeathRange {
        order: selection.order.unwrap_or_default(),
        after,
        from_ms: selection.from_ms,
        to_ms: selection.to_ms,
    };
    let count = selection.count.unwrap_or(PAGE_MAX).min(PAGE_MAX);
    let found = if selection.ids.is_some() {
        by_id(store, selection, range, count).await
    } else if selection.filter.is_open() {
        all(store, range, count).await
    } else {
        filtered(store, selection, range, count).await
    };
    found.map_err(ApiError::of_read)
}

/// A cursor as it is given out.
pub(super) fn show_cursor(at: &DlqCursor) -> String {
    format!("{}-{}", at.died_ms, at.id)
}

fn read_cursor(text: &str) -> Result<DlqCursor, ApiError> {
    let read = || {
        let (died_ms, id) = text.split_once('-')?;
        Some(DlqCursor {
            died_ms: died_ms.parse().ok()?,
            id: id.parse().ok()?,
        })
    };
    read().ok_or_else(|| ApiError::invalid("cursor", "use the one that the last page returned"))
}

async fn all(store: &Store, range: DeathRange, count: usize) -> Result<Found, HostError> {
    let deaths = store.deaths(&range, count).await?;
    let next = deaths.found.last().cloned().filter(|_| deaths.has_more);
    Ok(Found {
        letters: deaths.found,
        next,
    })
}

async fn by_id(
    store: &Store,
    selection: &Selection,
    range: DeathRange,
    count: usize,
) -> Result<Found, HostError> {
    let ids = selection.ids.as_deref().unwrap_or_default();
    let mut letters = store.deaths_by_id(ids).await?;
    range.order.sort(&mut letters);
    if let Some(after) = &range.after {
        letters.retain(|letter| range.order.is_after(letter, after));
    }
    let has_more = letters.len() > count;
    letters.truncate(count);
    let next = letters.last().cloned().filter(|_| has_more);
    Ok(Found { letters, next })
}

async fn filtered(
    store: &Store,
    selection: &Selection,
    mut range: DeathRange,
    count: usize,
) -> Result<Found, HostError> {
    let mut letters = Vec::new();
    let mut examined = 0;
    while examined < EXAMINED_MAX {
        let deaths = store.deaths(&range, CHUNK).await?;
        let heads = store.dead_letter_heads(&deaths.found).await?;
        let mut chunk = deaths.found.into_iter().zip(heads).peekable();
        while let Some((death, head)) = chunk.next() {
            examined += 1;
            range.after = Some(death.clone());
            if let Some(letter) = head
                && fits(store, selection, letter).await?
            {
                letters.push(death);
            }
            if letters.len() == count {
                let has_more = deaths.has_more || chunk.peek().is_some();
                let next = range.after.filter(|_| has_more);
                return Ok(Found { letters, next });
            }
        }
        if !deaths.has_more {
            return Ok(Found {
                letters,
                next: None,
            });
        }
    }
    let next = range.after;
    Ok(Found { letters, next })
}

async fn fits(store: &Store, selection: &Selection, letter: DeadLetter) -> Result<bool, HostError> {
    let mut letter = letter;
    let mut response = LastResponse::decode(&letter.response);
    if response.is_err() && !letter.response.is_empty() {
        let Some(whole) = store.dead_letter(&letter.id).await? else {
            return Ok(false);
        };
        letter = whole;
        response = LastResponse::decode(&letter.response);
    }
    let header = header_of(store, &letter).await?;
    let status = response.map_or(0, |response| response.status());
    let facts = Facts {
        status,
        ..header.as_ref().map(Facts::of).unwrap_or_default()
    };
    Ok(selection.filter.fits(&facts))
}

/// The header of a letter of which the beginning was read; `None` when it cannot be read.
pub(super) async fn header_of(
    store: &Store,
    letter: &DeadLetter,
) -> Result<Option<EnvelopeHeader>, HostError> {
    match Envelope::decode_header(&letter.envelope) {
        Ok(Peek::Header(header)) => Ok(Some(*header)),
        Ok(Peek::NeedMore { .. }) if letter.is_cut => {
            let whole = store.dead_letter(&letter.id).await?;
            let envelope = whole.and_then(|whole| Envelope::decode(&whole.envelope).ok());
            Ok(envelope.map(|envelope| envelope.header))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_shown() {
        let text = "7-msg_0000000000000000000000000000";
        assert_eq!(show_cursor(&read_cursor(text).unwrap()), text);
        for text in [
            "7",
            "x",
            "-",
            "7-msg_1",
            "x-msg_0000000000000000000000000000",
        ] {
            let error = read_cursor(text).unwrap_err().to_string();
            assert!(error.starts_with("invalid cursor"), "{error}");
        }
    }
}
