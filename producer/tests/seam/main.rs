//! The seam between a runtime and its hooks: the behaviour vectors of the tool pipeline, of
//! deferred completions, approvals and bridges, each a test that is named after its number, and the
//! orders that once were wrong, against real receivers.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and its equipment asks the real machine"
)]

mod after_control;
mod approvals;
mod before_control;
mod bridges;
mod deferred;
mod first;
mod life;
mod ports;
mod support;
mod tools;
