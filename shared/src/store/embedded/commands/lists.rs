//! Commands on lists.

use std::collections::VecDeque;

use bytes::Bytes;

use super::super::number::parse_int;
use super::super::refusal::Refusal;
use super::Access::{Grow, Read, Write};
use super::{Answer, Call, Spec, bulk, count, index_range, int, is, ok, positive};
use crate::store::host::Reply;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("rpush", -3, Grow, rpush),
    Spec::new("lpush", -3, Grow, lpush),
    Spec::new("lpop", -2, Write, lpop),
    Spec::new("rpop", -2, Write, rpop),
    Spec::new("lrange", 4, Read, lrange),
    Spec::new("llen", 2, Read, llen),
    Spec::new("lindex", 3, Read, lindex),
    Spec::new("ltrim", 4, Write, ltrim),
    Spec::new("lrem", 4, Write, lrem),
    Spec::new("lpos", -3, Read, lpos),
];

type List = VecDeque<Bytes>;

fn rpush(call: &mut Call<'_>) -> Answer {
    push(call, List::push_back)
}

fn lpush(call: &mut Call<'_>) -> Answer {
    push(call, List::push_front)
}

fn push(call: &mut Call<'_>, put: fn(&mut List, Bytes)) -> Answer {
    let [_, key, elements @ ..] = call.words else {
        return call.arity();
    };
    let list = call.keyspace.get_or_create::<List>(key)?;
    for element in elements {
        put(list, element.clone());
    }
    let len = list.len();
    call.changed();
    Ok(count(len))
}

fn lpop(call: &mut Call<'_>) -> Answer {
    pop(call, List::pop_front)
}

fn rpop(call: &mut Call<'_>) -> Answer {
    pop(call, List::pop_back)
}

fn pop(call: &mut Call<'_>, take: fn(&mut List) -> Option<Bytes>) -> Answer {
    let (key, wanted) = match call.words {
        [_, key] => (key, None),
        [_, key, wanted] => (key, Some(positive(wanted)?)),
        _ => return call.arity(),
    };
    let Some(list) = call.keyspace.get_mut::<List>(key)? else {
        return Ok(Reply::Nil);
    };
    let reply = match wanted {
        None => take(list).map_or(Reply::Nil, Reply::Bytes),
        Some(0) => return Ok(Reply::Array(Vec::new())),
        Some(wanted) => {
            let taken = std::iter::from_fn(|| take(list)).take(wanted);
            Reply::Array(taken.map(Reply::Bytes).collect())
        }
    };
    call.keyspace.drop_if_spent(key);
    call.changed();
    Ok(reply)
}

fn lrange(call: &mut Call<'_>) -> Answer {
    let [_, key, start, stop] = call.words else {
        return call.arity();
    };
    let (start, stop) = (int(start)?, int(stop)?);
    let Some(list) = call.keyspace.get::<List>(key)? else {
        return Ok(Reply::Array(Vec::new()));
    };
    let (start, end) = index_range(start, stop, list.len());
    let elements = list.range(start..end).cloned().map(Reply::Bytes);
    Ok(Reply::Array(elements.collect()))
}

fn llen(call: &mut Call<'_>) -> Answer {
    let list = call.keyspace.get::<List>(call.key()?)?;
    Ok(count(list.map_or(0, List::len)))
}

fn lindex(call: &mut Call<'_>) -> Answer {
    let [_, key, index] = call.words else {
        return call.arity();
    };
    let Some(list) = call.keyspace.get::<List>(key)? else {
        return Ok(Reply::Nil);
    };
    let index = int(index)?;
    let from_end = || {
        list.len()
            .checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
    };
    let index = if index < 0 {
        from_end()
    } else {
        usize::try_from(index).ok()
    };
    Ok(bulk(index.and_then(|index| list.get(index))))
}

fn ltrim(call: &mut Call<'_>) -> Answer {
    let [_, key, start, stop] = call.words else {
        return call.arity();
    };
    let (start, stop) = (int(start)?, int(stop)?);
    if let Some(list) = call.keyspace.get_mut::<List>(key)? {
        let (start, end) = index_range(start, stop, list.len());
        list.truncate(end);
        list.drain(..start);
        call.keyspace.drop_if_spent(key);
        call.changed();
    }
    Ok(ok())
}

fn lrem(call: &mut Call<'_>) -> Answer {
    let [_, key, limit, element] = call.words else {
        return call.arity();
    };
    let limit = int(limit)?;
    let Some(list) = call.keyspace.get_mut::<List>(key)? else {
        return Ok(Reply::Int(0));
    };
    let most = match usize::try_from(limit.unsigned_abs()) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(most) => most,
    };
    let mut removed = 0;
    let mut keep = |other: &Bytes| {
        let goes = removed < most && other == element;
        removed += usize::from(goes);
        !goes
    };
    if limit < 0 {
        let mut kept: List = std::mem::take(list)
            .into_iter()
            .rev()
            .filter(keep)
            .collect();
        kept.make_contiguous().reverse();
        *list = kept;
    } else {
        list.retain(&mut keep);
    }
    call.keyspace.drop_if_spent(key);
    if removed > 0 {
        call.changed();
    }
    Ok(count(removed))
}

/// What the words after the element of `LPOS` ask for.
struct Position {
    rank: i64,
    /// Absent: the first match alone; 0: all.
    most: Option<usize>,
    /// How many elements to look at; 0: all.
    look_at: usize,
}

fn lpos(call: &mut Call<'_>) -> Answer {
    let [_, key, element, options @ ..] = call.words else {
        return call.arity();
    };
    let wanted = position(options)?;
    let Some(list) = call.keyspace.get::<List>(key)? else {
        let none = wanted.most.map_or(Reply::Nil, |_| Reply::Array(Vec::new()));
        return Ok(none);
    };
    let look_at = if wanted.look_at == 0 {
        list.len()
    } else {
        wanted.look_at
    };
    let skip = usize::try_from(wanted.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let forward = list.iter().enumerate();
    let matches = |(index, other): (usize, &Bytes)| (other == element).then_some(index);
    let most = match wanted.most {
        None => 1,
        Some(0) => usize::MAX,
        Some(most) => most,
    };
    let found: Vec<usize> = if wanted.rank > 0 {
        let looked_at = forward.take(look_at);
        looked_at
            .filter_map(matches)
            .skip(skip)
            .take(most)
            .collect()
    } else {
        let looked_at = forward.rev().take(look_at);
        looked_at
            .filter_map(matches)
            .skip(skip)
            .take(most)
            .collect()
    };
    Ok(match wanted.most {
        None => found.first().map_or(Reply::Nil, |index| count(*index)),
        Some(_) => Reply::Array(found.into_iter().map(count).collect()),
    })
}

fn position(mut words: &[Bytes]) -> Result<Position, Refusal> {
    let mut wanted = Position {
        rank: 1,
        most: None,
        look_at: 0,
    };
    while let [option, value, rest @ ..] = words {
        words = rest;
        let unsigned = |refused| {
            let number = parse_int(value).and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| Refusal::err(refused))
        };
        if is(option, "RANK") {
            wanted.rank = rank(int(value)?)?;
        } else if is(option, "COUNT") {
            wanted.most = Some(unsigned("COUNT can't be negative")?);
        } else if is(option, "MAXLEN") {
            wanted.look_at = unsigned("MAXLEN can't be negative")?;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    if words.is_empty() {
        Ok(wanted)
    } else {
        Err(Refusal::Syntax)
    }
}

fn rank(rank: i64) -> Result<i64, Refusal> {
    match rank {
        0 => Err(Refusal::err(
            "RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
             or use negative to start from the end of the list",
        )),
        i64::MIN => Err(Refusal::err("value is out of range")),
        rank => Ok(rank),
    }
}
