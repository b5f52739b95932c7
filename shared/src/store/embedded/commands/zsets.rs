//! Commands that change a sorted set or read single members.

use bytes::Bytes;

use super::super::number::{format_float, parse_float};
use super::super::refusal::Refusal;
use super::super::sorted_set::SortedSet;
use super::Access::{Grow, Read, Write};
use super::{Answer, Call, Spec, count, is, positive};
use crate::store::host::Reply;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("zadd", -4, Grow, zadd),
    Spec::new("zincrby", 4, Grow, zincrby),
    Spec::new("zrem", -3, Write, zrem),
    Spec::new("zpopmin", -2, Write, zpopmin),
    Spec::new("zscore", 3, Read, zscore),
    Spec::new("zmscore", -3, Read, zmscore),
    Spec::new("zcard", 2, Read, zcard),
];

/// A score as a bulk string.
pub(super) fn score_reply(score: f64) -> Reply {
    Reply::Bytes(Bytes::from(format_float(score)))
}

/// The options of `ZADD`.
#[derive(Default, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one option word of the command"
)]
struct Flags {
    nx: bool,
    xx: bool,
    gt: bool,
    lt: bool,
    ch: bool,
    incr: bool,
}

impl Flags {
    /// The flags and the words after them.
    fn parse(mut words: &[Bytes]) -> (Self, &[Bytes]) {
        let mut flags = Self::default();
        while let [word, rest @ ..] = words {
            let named = [
                ("NX", &mut flags.nx),
                ("XX", &mut flags.xx),
                ("GT", &mut flags.gt),
                ("LT", &mut flags.lt),
                ("CH", &mut flags.ch),
                ("INCR", &mut flags.incr),
            ];
            match named.into_iter().find(|(name, _)| is(word, name)) {
                Some((_, flag)) => *flag = true,
                None => break,
            }
            words = rest;
        }
        (flags, words)
    }

    fn check(self, pairs: &[Bytes]) -> Result<(), Refusal> {
        if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
            return Err(Refusal::Syntax);
        }
        if self.nx && self.xx {
            let text = "XX and NX options at the same time are not compatible";
            return Err(Refusal::err(text));
        }
        if [self.nx, self.gt, self.lt]
            .into_iter()
            .filter(|set| *set)
            .count()
            > 1
        {
            let text = "GT, LT, and/or NX options at the same time are not compatible";
            return Err(Refusal::err(text));
        }
        if self.incr && pairs.len() > 2 {
            let text = "INCR option supports a single increment-element pair";
            return Err(Refusal::err(text));
        }
        Ok(())
    }

    /// The score a member gets; absent when it is left as it is.
    fn next_score(self, before: Option<f64>, given: f64) -> Result<Option<f64>, Refusal> {
        let Some(before) = before else {
            return Ok((!self.xx).then_some(given));
        };
        if self.nx {
            return Ok(None);
        }
        let after = if self.incr { before + given } else { given };
        if after.is_nan() {
            return Err(Refusal::err("resulting score is not a number (NaN)"));
        }
        let refused = (self.gt && after <= before) || (self.lt && after >= before);
        Ok((!refused).then_some(after))
    }
}

fn zadd(call: &mut Call<'_>) -> Answer {
    let [_, key, words @ ..] = call.words else {
        return call.arity();
    };
    let (flags, pairs) = Flags::parse(words);
    flags.check(pairs)?;
    add(call, key, flags, pairs)
}

fn zincrby(call: &mut Call<'_>) -> Answer {
    let [_, key, pair @ ..] = call.words else {
        return call.arity();
    };
    let incr = Flags {
        incr: true,
        ..Flags::default()
    };
    add(call, key, incr, pair)
}

/// Adds `pairs` of score and member.
fn add(call: &mut Call<'_>, key: &Bytes, flags: Flags, pairs: &[Bytes]) -> Answer {
    let mut given = Vec::with_capacity(pairs.len() / 2);
    for pair in pairs.chunks_exact(2) {
        if let [score, member] = pair {
            let score = parse_float(score).ok_or(Refusal::NotAFloat)?;
            given.push((score, member));
        }
    }
    if call.keyspace.get::<SortedSet>(key)?.is_none() && flags.xx {
        return Ok(if flags.incr {
            Reply::Nil
        } else {
            Reply::Int(0)
        });
    }
    let set = call.keyspace.get_or_create::<SortedSet>(key)?;
    let (mut added, mut updated, mut last) = (0, 0, None);
    for (score, member) in given {
        let before = set.score(member);
        last = flags.next_score(before, score)?;
        let Some(after) = last else { continue };
        added += usize::from(before.is_none());
        #[expect(clippy::float_cmp, reason = "only the very same score is no update")]
        let moved = before.is_some_and(|before| before != after);
        updated += usize::from(moved);
        if before.is_none() || moved {
            set.insert(member, after);
        }
    }
    call.keyspace.drop_if_spent(key);
    if added + updated > 0 {
        call.changed();
    }
    Ok(match (flags.incr, flags.ch) {
        (true, _) => last.map_or(Reply::Nil, score_reply),
        (false, true) => count(added + updated),
        (false, false) => count(added),
    })
}

fn zrem(call: &mut Call<'_>) -> Answer {
    let [_, key, members @ ..] = call.words else {
        return call.arity();
    };
    let Some(set) = call.keyspace.get_mut::<SortedSet>(key)? else {
        return Ok(Reply::Int(0));
    };
    let removed = members
        .iter()
        .filter(|member| set.remove(member).is_some())
        .count();
    if removed > 0 {
        call.keyspace.drop_if_spent(key);
        call.changed();
    }
    Ok(count(removed))
}

fn zpopmin(call: &mut Call<'_>) -> Answer {
    let (key, wanted) = match call.words {
        [_, key] => (key, 1),
        [_, key, wanted] => (key, positive(wanted)?),
        _ => return Err(Refusal::Syntax),
    };
    let mut replies = Vec::new();
    if let Some(set) = call.keyspace.get_mut::<SortedSet>(key)? {
        let popped: Vec<_> = set
            .iter()
            .take(wanted)
            .map(|(m, s)| (m.clone(), s))
            .collect();
        for (member, score) in popped {
            set.remove(&member);
            replies.push(Reply::Bytes(member));
            replies.push(score_reply(score));
        }
    }
    if !replies.is_empty() {
        call.keyspace.drop_if_spent(key);
        call.changed();
    }
    Ok(Reply::Array(replies))
}

fn zmscore(call: &mut Call<'_>) -> Answer {
    let set = call.keyspace.get::<SortedSet>(call.key()?)?;
    let members = call.words.iter().skip(2);
    let scores = members.map(|member| set.and_then(|set| set.score(member)));
    let replies = scores.map(|score| score.map_or(Reply::Nil, score_reply));
    Ok(Reply::Array(replies.collect()))
}

fn zscore(call: &mut Call<'_>) -> Answer {
    let [_, key, member] = call.words else {
        return call.arity();
    };
    let set = call.keyspace.get::<SortedSet>(key)?;
    let score = set.and_then(|set| set.score(member));
    Ok(score.map_or(Reply::Nil, score_reply))
}

fn zcard(call: &mut Call<'_>) -> Answer {
    let set = call.keyspace.get::<SortedSet>(call.key()?)?;
    Ok(count(set.map_or(0, SortedSet::len)))
}
