//! A leased message on its way to one attempt.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::message::{Envelope, EnvelopeError, EnvelopeHeader};
use hookstash_shared::store::Lease;

use crate::in_flight::Interruption;
use crate::request::Refused;
use crate::slots::Reserved;

/// A lease with all that its attempt needs. What it reserves is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Job {
    /// The lease.
    pub(crate) lease: Lease,
    /// What the store has of it.
    pub(crate) stored: Stored,
    message: OnceLock<Message>,
    /// Tells its call to end.
    pub(crate) interruption: Interruption,
    /// Its slot and bytes.
    _room: Reserved,
    /// Its place in a delivery thread.
    _seat: Seat,
}

/// The stored bytes of a message.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// Its envelope; `None` when the store has none.
    pub(crate) envelope: Option<Bytes>,
    /// The envelope whose body it shares; `None` when it shares none, or the store has none.
    pub(crate) shared: Option<Bytes>,
}

/// A message as it is sent.
#[derive(Debug)]
pub(crate) struct Message {
    /// Where and how; `None` when it cannot be read.
    pub(crate) header: Option<EnvelopeHeader>,
    /// The exact bytes to send: its own or shared body, or what a callback tells.
    pub(crate) body: Result<Bytes, Refused>,
}

impl Job {
    /// A job that keeps `room` and `seat` until it is dropped.
    pub(crate) fn new(
        lease: Lease,
        stored: Stored,
        interruption: Interruption,
        room: Reserved,
        seat: Seat,
    ) -> Self {
        Self {
            lease,
            stored,
            message: OnceLock::new(),
            interruption,
            _room: room,
            _seat: seat,
        }
    }

    /// The message, read at the first call, on the thread that delivers it.
    pub(crate) fn message(&self) -> &Message {
        self.message.get_or_init(|| self.stored.read())
    }
}

impl Stored {
    /// How many bytes its delivery holds.
    pub(crate) fn bytes(&self) -> usize {
        let own = self.envelope.as_deref().unwrap_or_default();
        let is_callback = Envelope::is_callback(own);
        Envelope::bytes_held(own.len(), self.shared_bytes(), is_callback)
    }

    /// Size of the stored value whose body it shares; 0 when it shares none.
    pub(crate) fn shared_bytes(&self) -> usize {
        self.shared.as_ref().map_or(0, Bytes::len)
    }

    /// Size of its own stored value.
    pub(crate) fn own_bytes(&self) -> usize {
        self.envelope.as_ref().map_or(0, Bytes::len)
    }

    fn read(&self) -> Message {
        let own = match decode(self.envelope.as_ref(), "message") {
            Ok(envelope) => envelope,
            Err(refused) => {
                return Message {
                    header: None,
                    body: Err(refused),
                };
            }
        };
        let named = match own.header.body_of {
            Some(_) => decode(self.shared.as_ref(), "body").map(|shared| shared.body),
            None => Ok(Bytes::new()),
        };
        let body = named.and_then(|named| own.payload(&named).map_err(|error| unreadable(&error)));
        Message {
            header: Some(own.header),
            body,
        }
    }
}

fn decode(stored: Option<&Bytes>, what: &str) -> Result<Envelope, Refused> {
    let missing = || format!("the stored {what} is missing");
    let bytes = stored.ok_or_else(|| Refused::new(ErrorClass::BodyMissing, missing()))?;
    Envelope::decode(bytes).map_err(|error| unreadable(&error))
}

fn unreadable(error: &EnvelopeError) -> Refused {
    Refused::new(ErrorClass::BodyMissing, error.to_string())
}

/// Counts a job in its delivery thread.
#[derive(Debug)]
pub(crate) struct Seat(Arc<AtomicUsize>);

impl Seat {
    /// Takes a seat: one more until it is dropped.
    pub(crate) fn take(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
