//! Commands on streams.

use bytes::Bytes;

use super::super::refusal::Refusal;
use super::super::stream::{Stream, StreamId};
use super::Access::{Grow, Read, Write};
use super::stream_trim::{Options, id};
use super::{Answer, Call, Effect, Spec, count, int, is, ok};
use crate::store::host::Reply;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("xadd", -5, Grow, xadd),
    Spec::new("xlen", 2, Read, xlen),
    Spec::new("xrange", -4, Read, xrange),
    Spec::new("xrevrange", -4, Read, xrevrange),
    Spec::new("xtrim", -4, Write, xtrim),
    Spec::new("xdel", -3, Write, xdel),
    Spec::new("xsetid", 3, Grow, xsetid),
];

/// The id a new entry gets after `last`.
fn next_id(asked: &[u8], last: StreamId, now_ms: u64) -> Result<StreamId, Refusal> {
    let exhausted =
        || Refusal::err("The stream has exhausted the last possible ID, unable to add more items");
    let after = last.next().ok_or_else(exhausted)?;
    let too_small = || {
        let text = "The ID specified in XADD is equal or smaller than the target stream top item";
        Refusal::err(text)
    };
    if asked == b"*" {
        return Ok(if now_ms > last.ms {
            StreamId { ms: now_ms, seq: 0 }
        } else {
            after
        });
    }
    let id = match asked.strip_suffix(b"-*") {
        None => id(asked, 0)?,
        Some(ms) => {
            let ms = id(ms, 0)?.ms;
            if ms == last.ms {
                after
            } else {
                StreamId { ms, seq: 0 }
            }
        }
    };
    if id > last { Ok(id) } else { Err(too_small()) }
}

fn xadd(call: &mut Call<'_>) -> Answer {
    let [_, key, words @ ..] = call.words else {
        return call.arity();
    };
    let (options, words) = Options::parse(words, true)?;
    let Some((asked, fields)) = words.split_first() else {
        return call.arity();
    };
    if &**asked != b"*" && asked.strip_suffix(b"-*").is_none() {
        id(asked, 0)?;
    }
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return call.arity();
    }
    if matches!(&**asked, b"0-0" | b"0") {
        return Err(Refusal::err(
            "The ID specified in XADD must be greater than 0-0",
        ));
    }
    let before = call.keyspace.get::<Stream>(key)?;
    if before.is_none() && options.must_exist {
        return Ok(Reply::Nil);
    }
    let last = before.map(|stream| stream.last).unwrap_or_default();
    let new = next_id(asked, last, call.now_ms)?;
    let stream = call.keyspace.get_or_create::<Stream>(key)?;
    stream.last = new;
    stream.entries.insert(new, fields.to_vec());
    let mut words = vec![Bytes::from_static(b"XADD"), key.clone(), new.to_bytes()];
    words.extend_from_slice(fields);
    let mut effect = vec![words];
    if options.trim.is_some_and(|trim| trim.apply(stream) > 0) {
        effect.push(trimmed(key, stream));
    }
    call.effect = Effect::Rewritten(effect);
    Ok(Reply::Bytes(new.to_bytes()))
}

/// The command that trims a copy of `stream` to what is left of it.
fn trimmed(key: &Bytes, stream: &Stream) -> Vec<Bytes> {
    let word = Bytes::from_static;
    let len = Bytes::from(stream.entries.len().to_string());
    vec![
        word(b"XTRIM"),
        key.clone(),
        word(b"MAXLEN"),
        word(b"="),
        len,
    ]
}

fn xtrim(call: &mut Call<'_>) -> Answer {
    let [_, key, words @ ..] = call.words else {
        return call.arity();
    };
    let (options, _) = Options::parse(words, false)?;
    let Some(trim) = options.trim else {
        let text = "syntax error, XTRIM must be called with a trimming strategy";
        return Err(Refusal::err(text));
    };
    let Some(stream) = call.keyspace.get_mut::<Stream>(key)? else {
        return Ok(Reply::Int(0));
    };
    let removed = trim.apply(stream);
    if removed > 0 {
        call.effect = Effect::Rewritten(vec![trimmed(key, stream)]);
    }
    Ok(count(removed))
}

fn xlen(call: &mut Call<'_>) -> Answer {
    let stream = call.keyspace.get::<Stream>(call.key()?)?;
    Ok(count(stream.map_or(0, |stream| stream.entries.len())))
}

fn xdel(call: &mut Call<'_>) -> Answer {
    let [_, key, asked @ ..] = call.words else {
        return call.arity();
    };
    if call.keyspace.get::<Stream>(key)?.is_none() {
        return Ok(Reply::Int(0));
    }
    let ids = asked
        .iter()
        .map(|text| id(text, 0))
        .collect::<Result<Vec<_>, _>>()?;
    let Some(stream) = call.keyspace.get_mut::<Stream>(key)? else {
        return Ok(Reply::Int(0));
    };
    let removed = ids
        .iter()
        .filter(|id| stream.entries.remove(id).is_some())
        .count();
    if removed > 0 {
        call.changed();
    }
    Ok(count(removed))
}

/// Sets the last id, which no entry's may be greater than.
fn xsetid(call: &mut Call<'_>) -> Answer {
    let [_, key, last] = call.words else {
        return call.arity();
    };
    let last = id(last, 0)?;
    let Some(stream) = call.keyspace.get_mut::<Stream>(key)? else {
        return Err(Refusal::err("no such key"));
    };
    let top = stream.entries.last_key_value();
    if top.is_some_and(|(top, _)| last < *top) {
        return Err(Refusal::err(
            "The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    stream.last = last;
    call.changed();
    Ok(ok())
}

fn xrange(call: &mut Call<'_>) -> Answer {
    let [_, _, first, last, ..] = call.words else {
        return call.arity();
    };
    range(call, first, last, false)
}

fn xrevrange(call: &mut Call<'_>) -> Answer {
    let [_, _, last, first, ..] = call.words else {
        return call.arity();
    };
    range(call, first, last, true)
}

fn range(call: &Call<'_>, first: &[u8], last: &[u8], reverse: bool) -> Answer {
    let first = first_id(first)?;
    let last = last_id(last)?;
    let most = match call.words.get(4..).unwrap_or_default() {
        [] => usize::MAX,
        [option, value] if is(option, "COUNT") => usize::try_from(int(value)?).unwrap_or(0),
        _ => return Err(Refusal::Syntax),
    };
    let Some(stream) = call.keyspace.get::<Stream>(call.key()?)? else {
        return Ok(Reply::Array(Vec::new()));
    };
    if most == 0 {
        return Ok(Reply::Nil);
    }
    if first > last {
        return Ok(Reply::Array(Vec::new()));
    }
    let show = |(id, fields): (&StreamId, &Vec<Bytes>)| {
        let fields = fields.iter().cloned().map(Reply::Bytes).collect();
        Reply::Array(vec![Reply::Bytes(id.to_bytes()), Reply::Array(fields)])
    };
    let entries = stream.entries.range(first..=last);
    Ok(Reply::Array(if reverse {
        entries.rev().take(most).map(show).collect()
    } else {
        entries.take(most).map(show).collect()
    }))
}

fn first_id(text: &[u8]) -> Result<StreamId, Refusal> {
    match text {
        b"-" => Ok(StreamId::default()),
        b"+" => Ok(StreamId::MAX),
        [b'(', text @ ..] => id(text, 0)?
            .next()
            .ok_or_else(|| Refusal::err("invalid start ID for the interval")),
        text => id(text, 0),
    }
}

fn last_id(text: &[u8]) -> Result<StreamId, Refusal> {
    match text {
        b"-" => Ok(StreamId::default()),
        b"+" => Ok(StreamId::MAX),
        [b'(', text @ ..] => id(text, u64::MAX)?
            .previous()
            .ok_or_else(|| Refusal::err("invalid end ID for the interval")),
        text => id(text, u64::MAX),
    }
}
