//! Options of the commands that add to a stream or trim it.

use bytes::Bytes;

use super::super::refusal::Refusal;
use super::super::stream::{Stream, StreamId};
use super::{int, is};

/// Most entries one approximate trim removes when no `LIMIT` is given, as in Redis.
const TRIM_LIMIT: usize = 10_000;

/// What a trim keeps.
#[derive(Clone, Copy)]
enum Keep {
    Newest(usize),
    From(StreamId),
}

/// A trim: what it keeps and how many entries it removes at most.
#[derive(Clone, Copy)]
pub(super) struct Trim {
    keep: Keep,
    most: usize,
}

/// The options before the id of `XADD`, or after the key of `XTRIM`.
#[derive(Default)]
pub(super) struct Options {
    pub(super) trim: Option<Trim>,
    /// `NOMKSTREAM`: an absent stream stays absent.
    pub(super) must_exist: bool,
}

impl Options {
    /// The options and the words after the last of them.
    pub(super) fn parse(mut words: &[Bytes], adds: bool) -> Result<(Self, &[Bytes]), Refusal> {
        let mut must_exist = false;
        let (mut keep, mut approximate, mut limit) = (None, false, None);
        while let [word, rest @ ..] = words {
            if adds && is(word, "NOMKSTREAM") {
                must_exist = true;
                words = rest;
            } else if (is(word, "MAXLEN") || is(word, "MINID")) && !rest.is_empty() {
                if keep.is_some() {
                    let text = "syntax error, MAXLEN and MINID options at the same time are not \
                                compatible";
                    return Err(Refusal::err(text));
                }
                let (kept, is_about, rest) = threshold(is(word, "MAXLEN"), rest)?;
                (keep, approximate) = (Some(kept), is_about);
                words = rest;
            } else if is(word, "LIMIT") && !rest.is_empty() {
                let (value, rest) = rest.split_first().ok_or(Refusal::Syntax)?;
                let refused = |_| Refusal::err("The LIMIT argument must be >= 0.");
                limit = Some(usize::try_from(int(value)?).map_err(refused)?);
                words = rest;
            } else if adds {
                break;
            } else {
                return Err(Refusal::Syntax);
            }
        }
        let trim = trim(keep, approximate, limit)?;
        Ok((Self { trim, must_exist }, words))
    }
}

/// The threshold after `MAXLEN` or `MINID`, whether it is approximate, and the words after it.
fn threshold(is_len: bool, words: &[Bytes]) -> Result<(Keep, bool, &[Bytes]), Refusal> {
    let (approximate, words) = match words {
        [sign, rest @ ..] if matches!(&**sign, b"~" | b"=") && !rest.is_empty() => {
            (&**sign == b"~", rest)
        }
        words => (false, words),
    };
    let (value, rest) = words.split_first().ok_or(Refusal::Syntax)?;
    let keep = if is_len {
        let refused = |_| Refusal::err("The MAXLEN argument must be >= 0.");
        Keep::Newest(usize::try_from(int(value)?).map_err(refused)?)
    } else {
        Keep::From(id(value, 0)?)
    };
    Ok((keep, approximate, rest))
}

fn trim(
    keep: Option<Keep>,
    approximate: bool,
    limit: Option<usize>,
) -> Result<Option<Trim>, Refusal> {
    let Some(keep) = keep else {
        if limit.is_some() {
            return Err(Refusal::err(
                "syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        return Ok(None);
    };
    if limit.is_some() && !approximate {
        return Err(Refusal::err(
            "syntax error, LIMIT cannot be used without the special ~ option",
        ));
    }
    let most = match limit {
        None if approximate => TRIM_LIMIT,
        None | Some(0) => usize::MAX,
        Some(most) => most,
    };
    Ok(Some(Trim { keep, most }))
}

impl Trim {
    /// Removes the oldest entries that are not kept and counts them.
    pub(super) fn apply(self, stream: &mut Stream) -> usize {
        let mut removed = 0;
        while removed < self.most {
            let goes = match self.keep {
                Keep::Newest(len) => stream.entries.len() > len,
                Keep::From(id) => stream
                    .entries
                    .first_key_value()
                    .is_some_and(|(at, _)| *at < id),
            };
            if !goes || stream.entries.pop_first().is_none() {
                break;
            }
            removed += 1;
        }
        removed
    }
}

/// The id `text` spells; without a sequence it is `seq`.
pub(super) fn id(text: &[u8], seq: u64) -> Result<StreamId, Refusal> {
    let refused = || Refusal::err("Invalid stream ID specified as stream command argument");
    StreamId::parse(text, seq).ok_or_else(refused)
}
