//! The client against real sockets.

mod failures;
mod guard;
mod protocol;
mod support;
