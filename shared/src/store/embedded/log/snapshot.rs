//! A keyspace as commands that make an equal one from nothing.

use std::io;

use bytes::Bytes;

use super::super::keyspace::{Entry, Keyspace, Value};
use super::super::number::format_float;
use super::super::stream::Stream;
use super::disk::{LogFile, append_all};
use super::resp::{push_command, push_head, push_word};

/// Elements of one command.
const ELEMENTS: usize = 64;
/// Bytes gathered before they are written.
const CHUNK_BYTES: usize = 1024 * 1024;

/// Writes `keyspace` to the empty `file` and says how many bytes that took. Stops at an error of
/// `check`, which is asked before each part.
pub(super) fn write(
    keyspace: &Keyspace,
    file: &mut dyn LogFile,
    check: &dyn Fn() -> io::Result<()>,
) -> io::Result<u64> {
    let mut len = 0;
    let mut chunk = Vec::with_capacity(CHUNK_BYTES);
    push_command(&mut chunk, &["SELECT", "0"]);
    for (key, entry) in keyspace.entries().iter() {
        push_entry(&mut chunk, key, entry);
        if chunk.len() >= CHUNK_BYTES {
            check()?;
            append_all(file, &chunk)?;
            len += chunk.len() as u64;
            chunk.clear();
        }
    }
    append_all(file, &chunk)?;
    Ok(len + chunk.len() as u64)
}

fn push_entry(out: &mut Vec<u8>, key: &Bytes, entry: &Entry) {
    match &entry.value {
        Value::Text(text) => push_command(out, &[b"SET", &**key, text]),
        Value::List(list) => {
            let words: Vec<&[u8]> = list.iter().map(|element| &**element).collect();
            push_elements(out, "RPUSH", key, &words, 1);
        }
        Value::Hash(hash) => {
            let pairs = hash.iter().flat_map(|(field, value)| [&**field, &**value]);
            push_elements(out, "HSET", key, &pairs.collect::<Vec<_>>(), 2);
        }
        Value::Set(set) => {
            let members: Vec<&[u8]> = set.iter().map(|(member, ())| &**member).collect();
            push_elements(out, "SADD", key, &members, 1);
        }
        Value::SortedSet(set) => {
            let pairs: Vec<_> = set
                .iter()
                .map(|(member, score)| (format_float(score), member))
                .collect();
            let words = pairs
                .iter()
                .flat_map(|(score, member)| [score.as_bytes(), &***member]);
            push_elements(out, "ZADD", key, &words.collect::<Vec<_>>(), 2);
        }
        Value::Stream(stream) => push_stream(out, key, stream),
    }
    if let Some(at_ms) = entry.expires_at_ms {
        push_command(out, &[b"PEXPIREAT", &**key, at_ms.to_string().as_bytes()]);
    }
}

/// Elements of `width` words each, some to a command.
fn push_elements(out: &mut Vec<u8>, name: &str, key: &Bytes, words: &[&[u8]], width: usize) {
    for words in words.chunks(ELEMENTS * width) {
        push_head(out, 2 + words.len());
        push_word(out, name.as_bytes());
        push_word(out, key);
        for word in words {
            push_word(out, word);
        }
    }
}

fn push_stream(out: &mut Vec<u8>, key: &Bytes, stream: &Stream) {
    for (id, fields) in &stream.entries {
        push_head(out, 3 + fields.len());
        push_word(out, b"XADD");
        push_word(out, key);
        push_word(out, id.to_string().as_bytes());
        for field in fields {
            push_word(out, field);
        }
    }
    if stream.entries.is_empty() {
        // An entry that goes at once leaves an empty stream.
        push_command(out, &[b"XADD", &**key, b"MAXLEN", b"0", b"0-1", b"f", b"v"]);
    }
    let last = stream.last.to_string();
    push_command(out, &[b"XSETID", &**key, last.as_bytes()]);
}
