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

mod api_batch;
mod api_bodies;
mod api_bulk;
mod api_cancel_many;
mod api_completions;
mod api_dead_letters;
mod api_delays;
mod api_destinations;
mod api_enqueue;
mod api_events;
mod api_filters;
mod api_flow_control;
mod api_groups;
mod api_headers;
mod api_health;
mod api_messages;
mod api_outages;
mod api_publish;
mod api_queues;
mod api_refusals;
mod both_hosts;
mod callbacks_kept;
mod callbacks_queues;
mod callbacks_told;
mod callbacks_views;
mod cli_bench;
mod cli_dlq;
mod cli_doctor;
mod cli_end;
mod cli_remote;
mod cli_secrets;
mod cli_start;
mod data_dir;
mod dead_letter_pages;
mod deploy;
mod differential;
mod equipment;
mod example_agent;
mod flow_control_load;
mod hooks_queue;
mod hooks_secrets;
mod key_ring;
mod many_messages;
mod outages_cluster;
mod outages_cuts;
mod outages_disturbed;
mod outages_failover;
mod outages_restart;
mod promises_durable;
mod promises_full;
mod promises_replicas;
mod promises_shutdown;
mod promises_workers;
mod redis_host;
mod redrive_options;
mod schedules_api;
mod schedules_copies;
mod schedules_program;
mod schedules_worker;
mod seam_arbitration;
mod seam_kills;
mod support;
mod worker_delivery;
mod worker_ending;
mod worker_groups;
mod worker_healing;
mod worker_hosts;
mod worker_load;
mod worker_queues;

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
