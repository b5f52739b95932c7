//! Commands on the time a key has left.

use bytes::Bytes;

use super::super::refusal::Refusal;
use super::Access::{Read, Write};
use super::{Answer, Call, Effect, Spec, int};
use crate::store::host::Reply;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("ttl", 2, Read, ttl),
    Spec::new("pttl", 2, Read, pttl),
    Spec::new("pexpiretime", 2, Read, pexpiretime),
    Spec::new("persist", 2, Write, persist),
    Spec::new("expire", 3, Write, expire),
    Spec::new("pexpire", 3, Write, pexpire),
    Spec::new("expireat", 3, Write, expireat),
    Spec::new("pexpireat", 3, Write, pexpireat),
];

/// No such key.
const ABSENT: i64 = -2;
/// A key without an expiry.
const ENDLESS: i64 = -1;

fn deadline(call: &Call<'_>) -> Result<Result<u64, i64>, Refusal> {
    Ok(match call.keyspace.entry(call.key()?) {
        None => Err(ABSENT),
        Some(entry) => entry.expires_at_ms.ok_or(ENDLESS),
    })
}

fn left_ms(call: &Call<'_>) -> Result<i64, Refusal> {
    Ok(match deadline(call)? {
        Ok(at_ms) => i64::try_from(at_ms.saturating_sub(call.now_ms)).unwrap_or(i64::MAX),
        Err(code) => code,
    })
}

fn pttl(call: &mut Call<'_>) -> Answer {
    left_ms(call).map(Reply::Int)
}

fn ttl(call: &mut Call<'_>) -> Answer {
    let ms = left_ms(call)?;
    Ok(Reply::Int(if ms < 0 {
        ms
    } else {
        ms.saturating_add(500) / 1000
    }))
}

fn pexpiretime(call: &mut Call<'_>) -> Answer {
    Ok(Reply::Int(match deadline(call)? {
        Ok(at_ms) => i64::try_from(at_ms).unwrap_or(i64::MAX),
        Err(code) => code,
    }))
}

fn persist(call: &mut Call<'_>) -> Answer {
    let key = call.key()?;
    let had = call
        .keyspace
        .entry(key)
        .and_then(|entry| entry.expires_at_ms);
    if had.is_none() {
        return Ok(Reply::Int(0));
    }
    call.keyspace.set_expiry(key, None);
    call.changed();
    Ok(Reply::Int(1))
}

fn expire(call: &mut Call<'_>) -> Answer {
    expire_at(call, 1000, call.now_ms)
}

fn pexpire(call: &mut Call<'_>) -> Answer {
    expire_at(call, 1, call.now_ms)
}

fn expireat(call: &mut Call<'_>) -> Answer {
    expire_at(call, 1000, 0)
}

fn pexpireat(call: &mut Call<'_>) -> Answer {
    expire_at(call, 1, 0)
}

/// Sets the expiry to the given amount of units of `unit_ms` after `base_ms`. A time that is not
/// in the future removes the key.
fn expire_at(call: &mut Call<'_>, unit_ms: i64, base_ms: u64) -> Answer {
    let [_, key, amount] = call.words else {
        return call.arity();
    };
    let amount = int(amount)?;
    let base_ms = i64::try_from(base_ms).unwrap_or(i64::MAX);
    let at_ms = amount
        .checked_mul(unit_ms)
        .and_then(|ms| ms.checked_add(base_ms))
        .ok_or(Refusal::ExpireTime(call.name))?;
    if !call.keyspace.contains(key) {
        return Ok(Reply::Int(0));
    }
    let key_word = key.clone();
    let future = u64::try_from(at_ms).ok().filter(|at| *at > call.now_ms);
    let words = if let Some(at_ms) = future {
        call.keyspace.set_expiry(key, Some(at_ms));
        let at = Bytes::from(at_ms.to_string());
        vec![Bytes::from_static(b"PEXPIREAT"), key_word, at]
    } else {
        call.keyspace.remove(key);
        vec![Bytes::from_static(b"DEL"), key_word]
    };
    call.effect = Effect::Rewritten(vec![words]);
    Ok(Reply::Int(1))
}
