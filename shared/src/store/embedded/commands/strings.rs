//! Commands on strings.

use bytes::Bytes;

use super::super::keyspace::{Entry, Value};
use super::super::number::int_bytes;
use super::super::refusal::Refusal;
use super::Access::{Grow, Read};
use super::{Answer, Call, Effect, Spec, bulk, count, int, is, ok};
use crate::store::host::Reply;

/// Longest string, in bytes: Redis's `proto-max-bulk-len`.
const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("get", 2, Read, get),
    Spec::new("mget", -2, Read, mget),
    Spec::new("strlen", 2, Read, strlen),
    Spec::new("getrange", 4, Read, getrange),
    Spec::new("set", -3, Grow, set),
    Spec::new("setrange", 4, Grow, setrange),
    Spec::new("append", 3, Grow, append),
    Spec::new("incr", 2, Grow, incr),
    Spec::new("decr", 2, Grow, decr),
    Spec::new("incrby", 3, Grow, incrby),
    Spec::new("decrby", 3, Grow, decrby),
];

fn get(call: &mut Call<'_>) -> Answer {
    Ok(bulk(call.keyspace.get::<Bytes>(call.key()?)?))
}

fn mget(call: &mut Call<'_>) -> Answer {
    let keys = call.words.iter().skip(1);
    let values = keys.map(|key| bulk(call.keyspace.get::<Bytes>(key).unwrap_or(None)));
    Ok(Reply::Array(values.collect()))
}

fn strlen(call: &mut Call<'_>) -> Answer {
    let text = call.keyspace.get::<Bytes>(call.key()?)?;
    Ok(count(text.map_or(0, Bytes::len)))
}

fn getrange(call: &mut Call<'_>) -> Answer {
    let [_, key, start, stop] = call.words else {
        return call.arity();
    };
    let (start, stop) = (int(start)?, int(stop)?);
    let text = call
        .keyspace
        .get::<Bytes>(key)?
        .cloned()
        .unwrap_or_default();
    if start < 0 && stop < 0 && start > stop {
        return Ok(Reply::Bytes(Bytes::new()));
    }
    let len = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let resolve = |index: i64| {
        let index = if index < 0 {
            index.saturating_add(len)
        } else {
            index
        };
        usize::try_from(index.max(0)).unwrap_or(0)
    };
    let end = resolve(stop).saturating_add(1).min(text.len());
    let start = resolve(start);
    if start >= end {
        return Ok(Reply::Bytes(Bytes::new()));
    }
    Ok(Reply::Bytes(text.slice(start..end)))
}

/// What the words after the value of `SET` ask for.
#[derive(Default)]
struct SetOptions {
    /// `Some(true)` is XX, `Some(false)` is NX.
    must_exist: Option<bool>,
    keeps_ttl: bool,
    expires_at_ms: Option<u64>,
}

fn set(call: &mut Call<'_>) -> Answer {
    let [_, key, value, options @ ..] = call.words else {
        return call.arity();
    };
    let options = set_options(options, call.now_ms)?;
    let exists = call.keyspace.contains(key);
    if options.must_exist.is_some_and(|wanted| wanted != exists) {
        return Ok(Reply::Nil);
    }
    let kept = call
        .keyspace
        .entry(key)
        .and_then(|entry| entry.expires_at_ms);
    let expires_at_ms = match options.expires_at_ms {
        None if options.keeps_ttl => kept,
        given => given,
    };
    if expires_at_ms.is_some_and(|at_ms| at_ms < call.now_ms) {
        call.keyspace.remove(key);
        let del = vec![Bytes::from_static(b"DEL"), key.clone()];
        call.effect = Effect::Rewritten(vec![del]);
        return Ok(ok());
    }
    let value_kept = Value::Text(value.clone());
    call.keyspace.put(
        key,
        Entry {
            value: value_kept,
            expires_at_ms,
        },
    );
    let mut words = vec![Bytes::from_static(b"SET"), key.clone(), value.clone()];
    if let Some(at_ms) = expires_at_ms {
        words.push(Bytes::from_static(b"PXAT"));
        words.push(Bytes::from(at_ms.to_string()));
    }
    call.effect = Effect::Rewritten(vec![words]);
    Ok(ok())
}

fn set_options(mut words: &[Bytes], now_ms: u64) -> Result<SetOptions, Refusal> {
    let mut options = SetOptions::default();
    let mut expiry: Option<(&Bytes, &Bytes)> = None;
    while let [word, rest @ ..] = words {
        words = rest;
        if is(word, "NX") && options.must_exist != Some(true) {
            options.must_exist = Some(false);
        } else if is(word, "XX") && options.must_exist != Some(false) {
            options.must_exist = Some(true);
        } else if is(word, "KEEPTTL") && expiry.is_none() {
            options.keeps_ttl = true;
        } else if ["EX", "PX", "EXAT", "PXAT"]
            .iter()
            .any(|unit| is(word, unit))
        {
            let [amount, rest @ ..] = rest else {
                return Err(Refusal::Syntax);
            };
            let other = expiry.is_some_and(|(unit, _)| !unit.eq_ignore_ascii_case(word));
            if options.keeps_ttl || other {
                return Err(Refusal::Syntax);
            }
            expiry = Some((word, amount));
            words = rest;
        } else {
            return Err(Refusal::Syntax);
        }
    }
    if let Some((unit, amount)) = expiry {
        options.expires_at_ms = Some(set_deadline(unit, int(amount)?, now_ms)?);
    }
    Ok(options)
}

fn set_deadline(unit: &[u8], amount: i64, now_ms: u64) -> Result<u64, Refusal> {
    let base = if is(unit, "EX") || is(unit, "PX") {
        now_ms
    } else {
        0
    };
    let scale = if is(unit, "EX") || is(unit, "EXAT") {
        1000
    } else {
        1
    };
    let deadline = || {
        let ms = amount.checked_mul(scale)?;
        let base = i64::try_from(base).ok()?;
        u64::try_from(ms.checked_add(base)?).ok()
    };
    let refused = Refusal::ExpireTime("set");
    if amount <= 0 {
        return Err(refused);
    }
    deadline().ok_or(refused)
}

fn fits(len: usize) -> Result<(), Refusal> {
    if len > STRING_BYTES_MAX {
        let text = "string exceeds maximum allowed size (proto-max-bulk-len)";
        return Err(Refusal::err(text));
    }
    Ok(())
}

fn setrange(call: &mut Call<'_>) -> Answer {
    let [_, key, offset, patch] = call.words else {
        return call.arity();
    };
    let Ok(offset) = usize::try_from(int(offset)?) else {
        return Err(Refusal::err("offset is out of range"));
    };
    let before = call.keyspace.get::<Bytes>(key)?;
    if patch.is_empty() {
        return Ok(count(before.map_or(0, Bytes::len)));
    }
    let end = offset.saturating_add(patch.len());
    fits(end)?;
    let mut text = before.map(|bytes| bytes.to_vec()).unwrap_or_default();
    let len = text.len().max(end);
    text.resize(len, 0);
    text.splice(offset..end, patch.iter().copied());
    *call.keyspace.get_or_create(key)? = Bytes::from(text);
    call.changed();
    Ok(count(len))
}

fn append(call: &mut Call<'_>) -> Answer {
    let [_, key, tail] = call.words else {
        return call.arity();
    };
    let before = call.keyspace.get::<Bytes>(key)?;
    let len = before.map_or(0, Bytes::len).saturating_add(tail.len());
    fits(len)?;
    let mut text = Vec::with_capacity(len);
    text.extend_from_slice(before.map_or(&[], |bytes| bytes));
    text.extend_from_slice(tail);
    *call.keyspace.get_or_create(key)? = Bytes::from(text);
    call.changed();
    Ok(count(len))
}

fn incr(call: &mut Call<'_>) -> Answer {
    add(call, 1)
}

fn decr(call: &mut Call<'_>) -> Answer {
    add(call, -1)
}

fn incrby(call: &mut Call<'_>) -> Answer {
    let by = int(call.words.get(2).map_or(&[], |word| word))?;
    add(call, by)
}

fn decrby(call: &mut Call<'_>) -> Answer {
    let by = int(call.words.get(2).map_or(&[], |word| word))?;
    let Some(by) = by.checked_neg() else {
        return Err(Refusal::err("decrement would overflow"));
    };
    add(call, by)
}

fn add(call: &mut Call<'_>, by: i64) -> Answer {
    let key = call.key()?;
    let before = match call.keyspace.get::<Bytes>(key)? {
        Some(text) => int(text)?,
        None => 0,
    };
    let Some(after) = before.checked_add(by) else {
        return Err(Refusal::err("increment or decrement would overflow"));
    };
    *call.keyspace.get_or_create(key)? = int_bytes(after);
    call.changed();
    Ok(Reply::Int(after))
}
