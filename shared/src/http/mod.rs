//! The one way out: the HTTP client every outbound call goes through, and the egress policy that
//! decides which addresses it may reach.
//!
//! The policy is asked three times for one call: about the literal address in the URL, about every
//! address the name resolved to, and about the peer the socket is really connected to. Redirects
//! are never followed and proxy variables are ignored, so no answer and no environment can move a
//! call to a place that was not checked.

mod address;
mod attempt_error;
mod client;
mod egress;
mod idle;
mod peer;
mod resolver;

pub use address::AddressRange;
pub use attempt_error::{ATTEMPT_MESSAGE_BYTES_MAX, AttemptError};
pub use client::{
    CONNECT_TIMEOUT, HttpClient, HttpClientError, OpenResponse, RESPONSE_KEEP_BYTES, Request,
    Response, Trust, install_crypto_provider,
};
pub use egress::{EGRESS_ALLOW, EgressAllowError, EgressPolicy, EgressRefusal, is_trusted};
pub use resolver::{Resolver, ResolverError};

#[cfg(test)]
mod tests;
