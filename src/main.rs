//! The `hookstash` program.

fn main() {}
