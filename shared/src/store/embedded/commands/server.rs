//! Commands on the database as a whole.

use bytes::Bytes;

use super::super::keyspace::Keyspace;
use super::super::refusal::Refusal;
use super::Access::{Read, Write};
use super::{Answer, Call, Spec, count, is, ok};
use crate::store::host::Reply;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("ping", -1, Read, ping),
    Spec::new("time", 1, Read, time),
    Spec::new("dbsize", 1, Read, dbsize),
    Spec::new("flushall", -1, Write, flushall),
];

fn ping(call: &mut Call<'_>) -> Answer {
    match call.words {
        [_] => Ok(Reply::Status("PONG".to_owned())),
        [_, text] => Ok(Reply::Bytes(text.clone())),
        _ => call.arity(),
    }
}

fn time(call: &mut Call<'_>) -> Answer {
    let text = |number: u64| Reply::Bytes(Bytes::from(number.to_string()));
    let (seconds, micros) = (call.now_ms / 1000, call.now_ms % 1000 * 1000);
    Ok(Reply::Array(vec![text(seconds), text(micros)]))
}

fn dbsize(call: &mut Call<'_>) -> Answer {
    Ok(count(call.keyspace.len()))
}

fn flushall(call: &mut Call<'_>) -> Answer {
    match call.words {
        [_] => {}
        [_, how] if is(how, "SYNC") || is(how, "ASYNC") => {}
        _ => return Err(Refusal::Syntax),
    }
    *call.keyspace = Keyspace::default();
    call.changed();
    Ok(ok())
}
