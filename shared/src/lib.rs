//! What every part of Hookstash agrees on: the message and its life, the retry rules, signing, the
//! guarded HTTP client, the store and its scripts, configuration and telemetry.
//!
//! This crate knows no caller: `producer` and `worker` build on it and never meet.

pub mod boolean;
pub mod clock;
pub mod config;
pub mod cron;
pub mod descriptors;
pub mod duration;
pub mod environment;
pub mod error_class;
pub mod headers;
pub mod http;
pub mod message;
pub mod random;
pub mod retry;
pub mod signing;
pub mod store;
pub mod telemetry;
