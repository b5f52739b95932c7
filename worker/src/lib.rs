//! The delivering side: leases messages, signs and sends them, settles what came of it.
//!
//! A worker is one *store thread* and some *delivery threads* ([`start`]).
//!
//! - The store thread alone talks to the store. One `claimer` a shard `exchange`s settlements for
//!   leases, `intake` reads their envelopes and `dispatch`es them, the `heart` renews, the
//!   `scheduler` fires schedules, the `sweeper` repairs, the `supervisor` keeps the threads and ends
//!   the worker in order.
//! - A delivery thread (`runtime`) is an apalis worker over a channel (`backend`): it makes the
//!   attempt (`deliver`, `request`, `attempt`) and hands its end to the `outbox`
//!   (`settle`). It knows no store.
//!
//! `slots` bound what is held, `in_flight` knows every lease. Errors of the store are never
//! fatal: calls go on, settlements are kept, and the claimer goes on when the store does.

mod attempt;
mod backend;
mod call;
mod callbacks;
mod claimer;
mod crew;
mod deliver;
mod dispatch;
mod exchange;
mod heart;
mod in_flight;
mod intake;
mod job;
mod outbox;
mod patience;
mod phase;
mod report;
mod request;
mod running;
mod runtime;
mod scheduler;
mod settings;
mod settle;
mod slots;
mod supervisor;
mod sweeper;
mod upkeep;
mod waiter;
mod worker;

pub mod contact;
pub mod fairness;
pub mod inline;

pub use call::Call;
pub use report::{AttemptReport, Observer};
pub use running::{BuildHttpClient, Drained, Load, RunningWorker, StartError, WorkerParts, start};
pub use settings::{WorkerSettings, slots_for};
