//! Commands that walk a collection page by page.
//!
//! The cursor is a place in the order of the keys' hashes, so whatever stays for the whole walk
//! is returned, exactly once.

use bytes::Bytes;

use super::super::dict::Dict;
use super::super::glob;
use super::super::number::{format_float, parse_unsigned};
use super::super::refusal::Refusal;
use super::super::sorted_set::SortedSet;
use super::Access::Read;
use super::{Answer, Call, Spec, int, is};
use crate::store::host::Reply;

/// Elements of a page that names no `COUNT`.
const PAGE: usize = 10;

pub(super) const COMMANDS: &[Spec] = &[
    Spec::new("scan", -2, Read, scan),
    Spec::new("hscan", -3, Read, hscan),
    Spec::new("sscan", -3, Read, sscan),
    Spec::new("zscan", -3, Read, zscan),
];

/// What the words after the cursor ask for.
struct Options<'a> {
    count: usize,
    pattern: Option<&'a Bytes>,
    type_name: Option<&'a Bytes>,
}

impl<'a> Options<'a> {
    fn parse(mut words: &'a [Bytes], by_type: bool) -> Result<Self, Refusal> {
        let mut options = Self {
            count: PAGE,
            pattern: None,
            type_name: None,
        };
        while let [option, value, rest @ ..] = words {
            words = rest;
            if is(option, "COUNT") {
                let count = usize::try_from(int(value)?).unwrap_or(0);
                if count == 0 {
                    return Err(Refusal::Syntax);
                }
                options.count = count;
            } else if is(option, "MATCH") {
                options.pattern = Some(value);
            } else if is(option, "TYPE") && by_type {
                options.type_name = Some(value);
            } else {
                return Err(Refusal::Syntax);
            }
        }
        if words.is_empty() {
            Ok(options)
        } else {
            Err(Refusal::Syntax)
        }
    }

    fn wants(&self, name: &Bytes) -> bool {
        self.pattern
            .is_none_or(|pattern| glob::matches(pattern, name))
    }
}

fn cursor(text: &Bytes) -> Result<u64, Refusal> {
    parse_unsigned(text).ok_or_else(|| Refusal::err("invalid cursor"))
}

/// The reply: where to go on, and the page.
fn page_reply(next: u64, elements: Vec<Reply>) -> Reply {
    let next = Reply::Bytes(Bytes::from(next.to_string()));
    Reply::Array(vec![next, Reply::Array(elements)])
}

/// One page of `dict`, each entry as `show` writes it.
fn page<V>(
    dict: &Dict<V>,
    from: u64,
    options: &Options<'_>,
    show: impl Fn(&Bytes, &V, &mut Vec<Reply>),
) -> Reply {
    let (next, entries) = dict.page(from, options.count);
    let mut elements = Vec::new();
    for (name, value) in entries {
        if options.wants(name) {
            show(name, value, &mut elements);
        }
    }
    page_reply(next, elements)
}

fn scan(call: &mut Call<'_>) -> Answer {
    let [_, from, options @ ..] = call.words else {
        return call.arity();
    };
    let from = cursor(from)?;
    let options = Options::parse(options, true)?;
    let wants_type = |name: &str| options.type_name.is_none_or(|wanted| is(wanted, name));
    let show = |key: &Bytes, entry: &super::super::keyspace::Entry, page: &mut Vec<Reply>| {
        if wants_type(entry.value.type_name()) {
            page.push(Reply::Bytes(key.clone()));
        }
    };
    Ok(page(call.keyspace.entries(), from, &options, show))
}

fn hscan(call: &mut Call<'_>) -> Answer {
    let [_, key, from, options @ ..] = call.words else {
        return call.arity();
    };
    let from = cursor(from)?;
    let Some(hash) = call.keyspace.get::<Dict<Bytes>>(key)? else {
        return Ok(page_reply(0, Vec::new()));
    };
    let options = Options::parse(options, false)?;
    Ok(page(hash, from, &options, |field, value, page| {
        page.push(Reply::Bytes(field.clone()));
        page.push(Reply::Bytes(value.clone()));
    }))
}

fn sscan(call: &mut Call<'_>) -> Answer {
    let [_, key, from, options @ ..] = call.words else {
        return call.arity();
    };
    let from = cursor(from)?;
    let Some(set) = call.keyspace.get::<Dict<()>>(key)? else {
        return Ok(page_reply(0, Vec::new()));
    };
    let options = Options::parse(options, false)?;
    Ok(page(set, from, &options, |member, (), page| {
        page.push(Reply::Bytes(member.clone()));
    }))
}

fn zscan(call: &mut Call<'_>) -> Answer {
    let [_, key, from, options @ ..] = call.words else {
        return call.arity();
    };
    let from = cursor(from)?;
    let Some(set) = call.keyspace.get::<SortedSet>(key)? else {
        return Ok(page_reply(0, Vec::new()));
    };
    let options = Options::parse(options, false)?;
    Ok(page(set.dict(), from, &options, |member, score, page| {
        page.push(Reply::Bytes(member.clone()));
        page.push(Reply::Bytes(Bytes::from(format_float(*score))));
    }))
}
