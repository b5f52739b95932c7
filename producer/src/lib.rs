//! The caller's side: publishing.
