//! The caller's side: publishing messages durably.

pub mod publish;
