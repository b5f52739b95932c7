//! Commands on hashes.

use bytes::Bytes;

use super::super::dict::Dict;
use super::super::number::{int_bytes, parse_int};
use super::super::refusal::Refusal;
use super::Access::{Grow, Read, Write};
use super::{Answer, Call, Spec, bulk, count, int, ok};
use crate::store::host::Reply;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("hget", 3, Read, hget),
    Spec::new("hmget", -3, Read, hmget),
    Spec::new("hexists", 3, Read, hexists),
    Spec::new("hlen", 2, Read, hlen),
    Spec::new("hgetall", 2, Read, hgetall),
    Spec::new("hkeys", 2, Read, hkeys),
    Spec::new("hvals", 2, Read, hvals),
    Spec::new("hstrlen", 3, Read, hstrlen),
    Spec::new("hset", -4, Grow, hset),
    Spec::new("hmset", -4, Grow, hmset),
    Spec::new("hsetnx", 4, Grow, hsetnx),
    Spec::new("hincrby", 4, Grow, hincrby),
    Spec::new("hdel", -3, Write, hdel),
];

type Hash = Dict<Bytes>;

/// The value of the field that the command names.
fn field<'c>(call: &'c Call<'_>) -> Result<Option<&'c Bytes>, Refusal> {
    let hash = call.keyspace.get::<Hash>(call.key()?)?;
    Ok(hash.and_then(|hash| hash.get(call.words.get(2)?)))
}

fn hget(call: &mut Call<'_>) -> Answer {
    field(call).map(bulk)
}

fn hexists(call: &mut Call<'_>) -> Answer {
    Ok(Reply::Int(i64::from(field(call)?.is_some())))
}

fn hstrlen(call: &mut Call<'_>) -> Answer {
    Ok(count(field(call)?.map_or(0, Bytes::len)))
}

fn hmget(call: &mut Call<'_>) -> Answer {
    let hash = call.keyspace.get::<Hash>(call.key()?)?;
    let fields = call.words.iter().skip(2);
    let values = fields.map(|field| bulk(hash.and_then(|hash| hash.get(field))));
    Ok(Reply::Array(values.collect()))
}

fn hlen(call: &mut Call<'_>) -> Answer {
    let hash = call.keyspace.get::<Hash>(call.key()?)?;
    Ok(count(hash.map_or(0, Hash::len)))
}

/// What `part` keeps of every field and value.
fn all(call: &Call<'_>, part: fn(&Bytes, &Bytes, &mut Vec<Reply>)) -> Answer {
    let mut replies = Vec::new();
    if let Some(hash) = call.keyspace.get::<Hash>(call.key()?)? {
        for (field, value) in hash.iter() {
            part(field, value, &mut replies);
        }
    }
    Ok(Reply::Array(replies))
}

fn hgetall(call: &mut Call<'_>) -> Answer {
    all(call, |field, value, replies| {
        replies.push(Reply::Bytes(field.clone()));
        replies.push(Reply::Bytes(value.clone()));
    })
}

fn hkeys(call: &mut Call<'_>) -> Answer {
    all(call, |field, _, replies| {
        replies.push(Reply::Bytes(field.clone()));
    })
}

fn hvals(call: &mut Call<'_>) -> Answer {
    all(call, |_, value, replies| {
        replies.push(Reply::Bytes(value.clone()));
    })
}

fn hset(call: &mut Call<'_>) -> Answer {
    set_fields(call).map(count)
}

fn hmset(call: &mut Call<'_>) -> Answer {
    set_fields(call)?;
    Ok(ok())
}

/// How many fields are new.
fn set_fields(call: &mut Call<'_>) -> Result<usize, Refusal> {
    let (key, pairs) = match call.words {
        [_, key, pairs @ ..] if pairs.len().is_multiple_of(2) => (key, pairs),
        _ => return Err(Refusal::Arity(call.name)),
    };
    let hash = call.keyspace.get_or_create::<Hash>(key)?;
    let mut added = 0;
    for pair in pairs.chunks_exact(2) {
        if let [field, value] = pair {
            added += usize::from(hash.insert(field, value.clone()).is_none());
        }
    }
    call.changed();
    Ok(added)
}

fn hsetnx(call: &mut Call<'_>) -> Answer {
    let [_, key, field, value] = call.words else {
        return call.arity();
    };
    let hash = call.keyspace.get_or_create::<Hash>(key)?;
    if hash.contains(field) {
        return Ok(Reply::Int(0));
    }
    hash.insert(field, value.clone());
    call.changed();
    Ok(Reply::Int(1))
}

fn hincrby(call: &mut Call<'_>) -> Answer {
    let [_, key, field, by] = call.words else {
        return call.arity();
    };
    let by = int(by)?;
    let before = match call
        .keyspace
        .get::<Hash>(key)?
        .and_then(|hash| hash.get(field))
    {
        None => 0,
        Some(text) => {
            parse_int(text).ok_or_else(|| Refusal::err("hash value is not an integer"))?
        }
    };
    let Some(after) = before.checked_add(by) else {
        return Err(Refusal::err("increment or decrement would overflow"));
    };
    let hash = call.keyspace.get_or_create::<Hash>(key)?;
    hash.insert(field, int_bytes(after));
    call.changed();
    Ok(Reply::Int(after))
}

fn hdel(call: &mut Call<'_>) -> Answer {
    let [_, key, fields @ ..] = call.words else {
        return call.arity();
    };
    let Some(hash) = call.keyspace.get_mut::<Hash>(key)? else {
        return Ok(Reply::Int(0));
    };
    let removed = fields
        .iter()
        .filter(|field| hash.remove(field).is_some())
        .count();
    if removed > 0 {
        call.keyspace.drop_if_spent(key);
        call.changed();
    }
    Ok(count(removed))
}
