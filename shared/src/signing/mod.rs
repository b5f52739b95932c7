//! Signatures of deliveries, made and verified.
//!
//! Every delivery carries a `QStash` signature ([`jwt`]: a JWT over destination and body) and, when a
//! secret is configured, the [Standard Webhooks](https://www.standardwebhooks.com) headers
//! ([`standard_webhooks`]). [`Signer`] makes both over exactly the bytes that are sent;
//! [`Receiver`] verifies both. Keys live in [`keys`] and [`webhook_secret`] and are never shown.

pub mod jwt;
pub mod keys;
mod mac;
pub mod receiver;
mod sealed;
pub mod signer;
pub mod standard_webhooks;
pub mod webhook_secret;

pub use keys::SigningKeys;
pub use receiver::Receiver;
pub use sealed::{KeySeal, SealError, StoredKeys};
pub use signer::Signer;
pub use webhook_secret::WebhookSecret;

#[cfg(test)]
mod independent_verifiers;
