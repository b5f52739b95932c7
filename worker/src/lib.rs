//! The delivering side: leases messages, signs and sends them, settles what came of it.

pub mod contact;
pub mod fairness;
