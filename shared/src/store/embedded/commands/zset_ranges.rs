//! Commands on ranges of a sorted set.

use bytes::Bytes;

use super::super::number::parse_float;
use super::super::refusal::Refusal;
use super::super::sorted_set::{Bound, ScoreRange, SortedSet};
use super::Access::{Read, Write};
use super::zsets::score_reply;
use super::{Answer, Call, Spec, count, index_range, int, is};
use crate::store::host::Reply;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("zrange", -4, Read, zrange),
    Spec::new("zrevrange", -4, Read, zrevrange),
    Spec::new("zrangebyscore", -4, Read, zrangebyscore),
    Spec::new("zrevrangebyscore", -4, Read, zrevrangebyscore),
    Spec::new("zcount", 4, Read, zcount),
    Spec::new("zrank", 3, Read, zrank),
    Spec::new("zrevrank", 3, Read, zrevrank),
    Spec::new("zremrangebyscore", 4, Write, zremrangebyscore),
    Spec::new("zremrangebyrank", 4, Write, zremrangebyrank),
];

/// What a range command selects. An undecided field may be set by an option word.
#[derive(Default, Clone, Copy)]
struct Query {
    by_score: Option<bool>,
    reverse: Option<bool>,
    with_scores: bool,
    /// How many to skip and how many to return; a negative count is all.
    limit: Option<(i64, i64)>,
}

impl Query {
    fn parse(mut self, mut words: &[Bytes]) -> Result<Self, Refusal> {
        while let [word, rest @ ..] = words {
            words = rest;
            if is(word, "WITHSCORES") {
                self.with_scores = true;
            } else if is(word, "LIMIT") {
                let [skip, most, rest @ ..] = rest else {
                    return Err(Refusal::Syntax);
                };
                self.limit = Some((int(skip)?, int(most)?));
                words = rest;
            } else if is(word, "REV") && self.reverse.is_none() {
                self.reverse = Some(true);
            } else if is(word, "BYSCORE") && self.by_score.is_none() {
                self.by_score = Some(true);
            } else {
                return Err(Refusal::Syntax);
            }
        }
        // A count of -1 is the default, so Redis does not see that it was given.
        let limited = self.limit.is_some_and(|(_, most)| most != -1);
        if limited && self.by_score != Some(true) {
            return Err(Refusal::err(
                "syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        Ok(self)
    }

    fn reply<'s>(&self, members: impl Iterator<Item = (&'s Bytes, f64)>) -> Reply {
        let mut replies = Vec::new();
        for (member, score) in members {
            replies.push(Reply::Bytes(member.clone()));
            if self.with_scores {
                replies.push(score_reply(score));
            }
        }
        Reply::Array(replies)
    }

    /// What `LIMIT` leaves of `members`.
    fn limited<'s>(&self, members: impl Iterator<Item = (&'s Bytes, f64)>) -> Reply {
        let (skip, most) = self.limit.unwrap_or((0, -1));
        let Ok(skip) = usize::try_from(skip) else {
            return Reply::Array(Vec::new());
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.reply(members.skip(skip).take(most))
    }
}

fn zrange(call: &mut Call<'_>) -> Answer {
    range(call, Query::default())
}

fn zrevrange(call: &mut Call<'_>) -> Answer {
    range(
        call,
        Query {
            by_score: Some(false),
            reverse: Some(true),
            ..Query::default()
        },
    )
}

fn zrangebyscore(call: &mut Call<'_>) -> Answer {
    range(
        call,
        Query {
            by_score: Some(true),
            reverse: Some(false),
            ..Query::default()
        },
    )
}

fn zrevrangebyscore(call: &mut Call<'_>) -> Answer {
    range(
        call,
        Query {
            by_score: Some(true),
            reverse: Some(true),
            ..Query::default()
        },
    )
}

fn range(call: &Call<'_>, query: Query) -> Answer {
    let [_, key, first, last, options @ ..] = call.words else {
        return call.arity();
    };
    let query = query.parse(options)?;
    let reverse = query.reverse == Some(true);
    if query.by_score == Some(true) {
        let (min, max) = if reverse {
            (last, first)
        } else {
            (first, last)
        };
        let range = score_range(min, max)?;
        let Some(set) = call.keyspace.get::<SortedSet>(key)? else {
            return Ok(Reply::Array(Vec::new()));
        };
        return Ok(if reverse {
            query.limited(set.in_range_rev(range))
        } else {
            query.limited(set.in_range(range))
        });
    }
    let (first, last) = (int(first)?, int(last)?);
    let Some(set) = call.keyspace.get::<SortedSet>(key)? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let (start, end) = index_range(first, last, set.len());
    Ok(if reverse {
        query.reply(set.iter().rev().skip(start).take(end - start))
    } else {
        query.reply(set.iter().skip(start).take(end - start))
    })
}

fn score_range(min: &[u8], max: &[u8]) -> Result<ScoreRange, Refusal> {
    let bound = |text: &[u8]| {
        let (text, exclusive) = match text {
            [b'(', text @ ..] => (text, true),
            text => (text, false),
        };
        // C reads nothing as zero, and so does Redis here.
        let score = if text.is_empty() {
            0.0
        } else {
            parse_float(text)?
        };
        Some(Bound { score, exclusive })
    };
    match (bound(min), bound(max)) {
        (Some(min), Some(max)) => Ok(ScoreRange { min, max }),
        _ => Err(Refusal::err("min or max is not a float")),
    }
}

fn zcount(call: &mut Call<'_>) -> Answer {
    let [_, key, min, max] = call.words else {
        return call.arity();
    };
    let range = score_range(min, max)?;
    let set = call.keyspace.get::<SortedSet>(key)?;
    Ok(count(set.map_or(0, |set| set.in_range(range).count())))
}

fn zrevrank(call: &mut Call<'_>) -> Answer {
    let [_, key, member] = call.words else {
        return call.arity();
    };
    let set = call.keyspace.get::<SortedSet>(key)?;
    let rank = set.and_then(|set| set.iter().rev().position(|(other, _)| other == member));
    Ok(rank.map_or(Reply::Nil, count))
}

fn zrank(call: &mut Call<'_>) -> Answer {
    let [_, key, member] = call.words else {
        return call.arity();
    };
    let set = call.keyspace.get::<SortedSet>(key)?;
    let rank = set.and_then(|set| set.iter().position(|(other, _)| other == member));
    Ok(rank.map_or(Reply::Nil, count))
}

fn zremrangebyscore(call: &mut Call<'_>) -> Answer {
    let [_, key, min, max] = call.words else {
        return call.arity();
    };
    let range = score_range(min, max)?;
    remove(call, key, |set| {
        set.in_range(range)
            .map(|(member, _)| member.clone())
            .collect()
    })
}

fn zremrangebyrank(call: &mut Call<'_>) -> Answer {
    let [_, key, first, last] = call.words else {
        return call.arity();
    };
    let (first, last) = (int(first)?, int(last)?);
    remove(call, key, |set| {
        let (start, end) = index_range(first, last, set.len());
        let members = set.iter().skip(start).take(end - start);
        members.map(|(member, _)| member.clone()).collect()
    })
}

/// Removes the members that `choose` names.
fn remove(
    call: &mut Call<'_>,
    key: &Bytes,
    choose: impl FnOnce(&SortedSet) -> Vec<Bytes>,
) -> Answer {
    let Some(set) = call.keyspace.get_mut::<SortedSet>(key)? else {
        return Ok(Reply::Int(0));
    };
    let chosen = choose(set);
    for member in &chosen {
        set.remove(member);
    }
    if !chosen.is_empty() {
        call.keyspace.drop_if_spent(key);
        call.changed();
    }
    Ok(count(chosen.len()))
}
