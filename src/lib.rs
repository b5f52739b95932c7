//! What the `hookstash` program is made of, so that its tests can start parts of it by themselves.

pub mod api;
