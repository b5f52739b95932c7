//! The behaviour vectors of hooks, each a test that is named after its number, against real
//! receivers. Those that need the inside of the crate stand beside the code (`producer/src/hooks`).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and its equipment asks the real machine"
)]

mod answers;
mod controls;
mod dispatch;
mod emails;
mod environment;
mod headers;
mod limits;
mod mock;
mod not_yet;
mod panics;
mod payload;
mod queue;
mod registration;
mod reports;
mod schema;
mod support;
mod transport;
