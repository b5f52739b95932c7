//! The caller's side: publishing messages durably, and the hooks of agent runtimes.

pub mod hooks;
pub mod publish;
pub mod runtime;
