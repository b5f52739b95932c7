//! Behaviour against real servers and the real program: one binary, one module for each subject.
//!
//! Every test starts what it needs on a free port and ends it, also when it panics.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and its equipment asks the real machine"
)]

mod api_bodies;
mod api_completions;
mod api_dead_letters;
mod api_delays;
mod api_destinations;
mod api_headers;
mod api_health;
mod api_messages;
mod api_outages;
mod api_publish;
mod api_refusals;
mod both_hosts;
mod cli_dlq;
mod cli_end;
mod cli_secrets;
mod cli_start;
mod differential;
mod equipment;
mod example_agent;
mod hooks_queue;
mod hooks_secrets;
mod promises_durable;
mod promises_full;
mod promises_workers;
mod redis_host;
mod seam_arbitration;
mod seam_kills;
mod support;
mod worker_delivery;
mod worker_ending;
mod worker_healing;
mod worker_load;

#[expect(
    dead_code,
    reason = "the simulation has more to it than is played here"
)]
#[path = "../sim"]
mod sim {
    pub(crate) mod laws;
    pub(crate) mod observer;
    pub(crate) mod view;
    pub(crate) mod world;
}
