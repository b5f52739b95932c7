//! The script engine: an in-process Lua 5.1 that sees what Redis would show it.
//!
//! Bytes in, bytes out. Nothing reaches the machine: no files, no clock, no randomness. A script
//! that fails midway keeps what it had applied.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use mlua::VmState;
use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value};

use super::database::Database;
use super::lua_values::{command_words, error_table, reply_of, value_of};
use crate::store::host::Reply;
use crate::store::script::Script;

/// Most instructions of one script, in units of [`HOOK_EVERY`]: about a second. Scripts do work
/// proportional to their batch, so one that gets there does not end by itself.
const BUDGET_HOOKS: u32 = 10_000;

/// Instructions between two looks at the budget.
const HOOK_EVERY: u32 = 10_000;

/// What shows in place of a file name in Lua's own errors, as in Redis.
const CHUNK_NAME: &str = "@user_script";

/// Names of Lua's own that a script sees.
const ALLOWED: &[&str] = &[
    "_VERSION",
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "math",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "string",
    "table",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
];

/// Completes the environment; its arguments are the command function and the globals. Returns
/// what runs a compiled script: whether it succeeded, and its result or error table.
const ENVIRONMENT: &str = include_str!("environment.lua");

/// Lua with the scripts it has compiled.
pub(super) struct ScriptEngine {
    lua: Lua,
    globals: Table,
    guard: Function,
    /// Functions by digest. A table of Lua's, because Lua bounds what Rust may refer to at once.
    compiled: Table,
    hooks_left: Arc<AtomicU32>,
}

impl ScriptEngine {
    /// An engine whose scripts run their commands on `database`.
    pub(super) fn new(database: Arc<Mutex<Database>>) -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
        let command = lua.create_function(move |lua, args: MultiValue| {
            let outcome = match command_words(&args) {
                Ok(words) => {
                    let mut database = database.lock().unwrap_or_else(PoisonError::into_inner);
                    database.command_of_script(&words)
                }
                Err(refusal) => Err(refusal),
            };
            match outcome {
                Ok(reply) => value_of(lua, &reply),
                Err(refusal) => error_table(lua, &refusal.to_string()),
            }
        })?;
        let globals = lua.globals();
        for pair in globals.pairs::<LuaString, Value>() {
            let (name, _) = pair?;
            if !ALLOWED.iter().any(|allowed| name == *allowed) {
                globals.raw_set(name, Value::Nil)?;
            }
        }
        let environment = lua.load(ENVIRONMENT).set_name("@environment");
        let guard = environment.call((command, &globals))?;
        Ok(Self {
            hooks_left: bound_instructions(&lua)?,
            compiled: lua.create_table()?,
            lua,
            globals,
            guard,
        })
    }

    /// Runs `script`. An error is the text Redis would send, without the place it arose.
    pub(super) fn run(
        &self,
        script: &Script,
        keys: &[Bytes],
        args: &[Bytes],
    ) -> Result<Reply, String> {
        let outcome = self.try_run(script, keys, args);
        outcome.unwrap_or_else(|error| Err(format!("ERR {error}")))
    }

    fn try_run(
        &self,
        script: &Script,
        keys: &[Bytes],
        args: &[Bytes],
    ) -> mlua::Result<Result<Reply, String>> {
        let function = match self.compiled(script) {
            Ok(function) => function,
            Err(error) => {
                return Ok(Err(format!(
                    "ERR Error compiling script (new function): {error}"
                )));
            }
        };
        self.globals.raw_set("KEYS", self.sequence(keys)?)?;
        self.globals.raw_set("ARGV", self.sequence(args)?)?;
        self.hooks_left.store(BUDGET_HOOKS, Ordering::Relaxed);
        let result: Value = self.guard.call(function)?;
        reply_of(&result)
    }

    fn compiled(&self, script: &Script) -> mlua::Result<Function> {
        if let Some(function) = self.compiled.raw_get(script.sha1())? {
            return Ok(function);
        }
        let chunk = self.lua.load(script.source()).set_name(CHUNK_NAME);
        let function = chunk.set_mode(ChunkMode::Text).into_function()?;
        self.compiled.raw_set(script.sha1(), &function)?;
        Ok(function)
    }

    fn sequence(&self, items: &[Bytes]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(items.len(), 0)?;
        for item in items {
            table.raw_push(self.lua.create_string(item)?)?;
        }
        Ok(table)
    }
}

/// Makes Lua stop a script that has used up its instructions. The counter is refilled per script.
fn bound_instructions(lua: &Lua) -> mlua::Result<Arc<AtomicU32>> {
    let hooks_left = Arc::new(AtomicU32::new(BUDGET_HOOKS));
    let counter = hooks_left.clone();
    let triggers = HookTriggers::new().every_nth_instruction(HOOK_EVERY);
    lua.set_hook(triggers, move |_, _| {
        let left = counter.load(Ordering::Relaxed);
        counter.store(left.saturating_sub(1), Ordering::Relaxed);
        if left == 0 {
            return Err(mlua::Error::runtime("the script ran too long"));
        }
        Ok(VmState::Continue)
    })?;
    Ok(hooks_left)
}
