//! What the `hookstash` program is made of, so that its tests can start parts of it by themselves.

pub mod api;
pub mod app;
pub mod cli;
pub mod key_ring;
pub mod lifecycle;

mod front;
mod probes;
