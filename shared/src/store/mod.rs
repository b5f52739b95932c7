//! The store: every change of more than one key is one Lua script, run on one of two hosts.

pub mod embedded;
pub mod faulty;
pub mod host;
pub mod redis_host;
pub mod script;
