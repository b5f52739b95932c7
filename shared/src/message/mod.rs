//! The message: what a caller asks to be delivered, how it is named, where it waits, how it is
//! stored and what may happen to it.

mod callback;
mod callback_report;
mod dedup;
mod destination;
mod envelope;
mod event;
mod framing;
mod id;
mod lane;
mod last_response;
mod limits;
mod new_message;
mod placement;
mod policy;
mod refusal;
mod state;

pub use callback::{CallbackKind, CallbackSpec};
pub use callback_report::CallbackReport;
pub use dedup::{DEDUP_ID_BYTES_MAX, DedupError, DedupId};
pub use destination::{DESTINATION_BYTES_MAX, Destination, DestinationError};
pub use envelope::{Envelope, EnvelopeError, EnvelopeHeader, Peek};
pub use event::LoggedEvent;
pub use framing::FRAME_PREFIX_BYTES;
pub use id::{MessageId, MessageIdError, Shard, ShardError, Shards, random_name};
pub use lane::{Lane, LaneError, LaneKind, is_plain_name};
pub use last_response::{LastResponse, RESPONSE_BODY_BYTES_MAX};
pub use limits::{Limits, When};
pub use new_message::{NewMessage, NewMessageBuilder};
pub use placement::{
    dedup_name, place, place_schedule, shard_of_lane, shard_of_operation, shard_of_url_group,
    stable_hash,
};
pub use policy::{
    Fallback, FlowLimits, GroupEndpoint, Method, RedactField, RetryDelay, UnknownField,
    UnknownMethod,
};
pub use refusal::NewMessageError;
pub use state::{Event, State, next};
