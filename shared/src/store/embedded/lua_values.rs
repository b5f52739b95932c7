//! Values between Lua and replies, converted as Redis does.

use bytes::Bytes;
use mlua::{Lua, MultiValue, Table, Value};

use super::number::format_float;
use super::refusal::Refusal;
use crate::store::host::Reply;

/// Deepest nesting of a script's result.
const DEPTH_MAX: usize = 64;

/// The words of a command from the arguments of `redis.call`.
pub(super) fn command_words(args: &MultiValue) -> Result<Vec<Bytes>, Refusal> {
    if args.is_empty() {
        return Err(Refusal::err(
            "Please specify at least one argument for this redis lib call",
        ));
    }
    args.iter().map(word).collect()
}

fn word(value: &Value) -> Result<Bytes, Refusal> {
    /// Above this `%.17g` writes an exponent.
    const PLAIN_MAX: u64 = 100_000_000_000_000_000;
    match value {
        Value::String(text) => Ok(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(number) if number.unsigned_abs() < PLAIN_MAX => {
            Ok(Bytes::from(number.to_string()))
        }
        #[expect(clippy::cast_precision_loss, reason = "Lua 5.1 numbers are floats")]
        Value::Integer(number) => Ok(Bytes::from(format_float(*number as f64))),
        Value::Number(number) if number.is_nan() => Ok(Bytes::from_static(b"nan")),
        Value::Number(number) => Ok(Bytes::from(format_float(*number))),
        _ => Err(Refusal::err(
            "Lua redis lib command arguments must be strings or integers",
        )),
    }
}

/// A reply as a script sees it.
pub(super) fn value_of(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Nil => Value::Boolean(false),
        Reply::Int(number) => Value::Integer(*number),
        Reply::Bytes(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Status(text) => {
            let table = lua.create_table_with_capacity(0, 1)?;
            table.raw_set("ok", text.as_str())?;
            Value::Table(table)
        }
        Reply::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(value_of(lua, item)?)?;
            }
            Value::Table(table)
        }
    })
}

/// An error as a script sees it.
pub(super) fn error_table(lua: &Lua, text: &str) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", text)?;
    Ok(Value::Table(table))
}

/// What a script's result says to the caller: a reply, or an error text.
pub(super) fn reply_of(value: &Value) -> mlua::Result<Result<Reply, String>> {
    nested_reply(value, DEPTH_MAX)
}

fn nested_reply(value: &Value, depth: usize) -> mlua::Result<Result<Reply, String>> {
    Ok(Ok(match value {
        Value::String(text) => Reply::Bytes(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(number) => Reply::Int(*number),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "Redis truncates a script's number to an integer"
        )]
        Value::Number(number) => Reply::Int(*number as i64),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => return table_reply(table, depth),
        _ => Reply::Nil,
    }))
}

fn table_reply(table: &Table, depth: usize) -> mlua::Result<Result<Reply, String>> {
    let Some(depth) = depth.checked_sub(1) else {
        return Ok(Err("ERR reached lua stack limit".to_owned()));
    };
    if let Value::String(text) = table.raw_get::<Value>("err")? {
        return Ok(Err(text.to_string_lossy()));
    }
    if let Value::String(text) = table.raw_get::<Value>("ok")? {
        return Ok(Ok(Reply::Status(text.to_string_lossy())));
    }
    let mut items = Vec::with_capacity(table.raw_len());
    for index in 1.. {
        let item = table.raw_get::<Value>(index)?;
        if item.is_nil() {
            break;
        }
        match nested_reply(&item, depth)? {
            Ok(item) => items.push(item),
            refused => return Ok(refused),
        }
    }
    Ok(Ok(Reply::Array(items)))
}
