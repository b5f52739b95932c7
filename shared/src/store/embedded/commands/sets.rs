//! Commands on sets.

use super::super::dict::Dict;
use super::Access::{Grow, Read, Write};
use super::{Answer, Call, Spec, count};
use crate::store::host::Reply;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("sadd", -3, Grow, sadd),
    Spec::new("srem", -3, Write, srem),
    Spec::new("sismember", 3, Read, sismember),
    Spec::new("smembers", 2, Read, smembers),
    Spec::new("scard", 2, Read, scard),
];

type Set = Dict<()>;

fn sadd(call: &mut Call<'_>) -> Answer {
    let [_, key, members @ ..] = call.words else {
        return call.arity();
    };
    let set = call.keyspace.get_or_create::<Set>(key)?;
    let added = members
        .iter()
        .filter(|member| set.insert(member, ()).is_none())
        .count();
    if added > 0 {
        call.changed();
    }
    Ok(count(added))
}

fn srem(call: &mut Call<'_>) -> Answer {
    let [_, key, members @ ..] = call.words else {
        return call.arity();
    };
    let Some(set) = call.keyspace.get_mut::<Set>(key)? else {
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

fn sismember(call: &mut Call<'_>) -> Answer {
    let [_, key, member] = call.words else {
        return call.arity();
    };
    let set = call.keyspace.get::<Set>(key)?;
    let found = set.is_some_and(|set| set.contains(member));
    Ok(Reply::Int(i64::from(found)))
}

fn smembers(call: &mut Call<'_>) -> Answer {
    let set = call.keyspace.get::<Set>(call.key()?)?;
    let members = set.into_iter().flat_map(Set::iter);
    let replies = members.map(|(member, ())| Reply::Bytes(member.clone()));
    Ok(Reply::Array(replies.collect()))
}

fn scard(call: &mut Call<'_>) -> Answer {
    let set = call.keyspace.get::<Set>(call.key()?)?;
    Ok(count(set.map_or(0, Set::len)))
}
