//! Commands on keys of any type.

use super::super::refusal::Refusal;
use super::Access::{Read, Write};
use super::{Answer, Call, Spec, count, ok};
use crate::store::host::Reply;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("exists", -2, Read, exists),
    Spec::new("type", 2, Read, type_of),
    Spec::new("del", -2, Write, del),
    Spec::new("unlink", -2, Write, del),
    Spec::new("rename", 3, Write, rename),
    Spec::new("renamenx", 3, Write, renamenx),
];

fn exists(call: &mut Call<'_>) -> Answer {
    let keys = call.words.iter().skip(1);
    Ok(count(
        keys.filter(|key| call.keyspace.contains(key)).count(),
    ))
}

fn type_of(call: &mut Call<'_>) -> Answer {
    let entry = call.keyspace.entry(call.key()?);
    let name = entry.map_or("none", |entry| entry.value.type_name());
    Ok(Reply::Status(name.to_owned()))
}

fn del(call: &mut Call<'_>) -> Answer {
    let keys = call.words.iter().skip(1);
    let removed = keys
        .filter(|key| call.keyspace.remove(key).is_some())
        .count();
    if removed > 0 {
        call.changed();
    }
    Ok(count(removed))
}

fn rename(call: &mut Call<'_>) -> Answer {
    move_key(call, true)?;
    Ok(ok())
}

fn renamenx(call: &mut Call<'_>) -> Answer {
    Ok(Reply::Int(i64::from(move_key(call, false)?)))
}

/// Moves the value with its expiry; `false` when the new name was taken and is not overwritten.
fn move_key(call: &mut Call<'_>, overwrites: bool) -> Result<bool, Refusal> {
    let [_, from, to] = call.words else {
        return Err(Refusal::Syntax);
    };
    if !call.keyspace.contains(from) {
        return Err(Refusal::err("no such key"));
    }
    if from == to {
        return Ok(overwrites);
    }
    if !overwrites && call.keyspace.contains(to) {
        return Ok(false);
    }
    if let Some(entry) = call.keyspace.remove(from) {
        call.keyspace.put(to, entry);
        call.changed();
    }
    Ok(true)
}
