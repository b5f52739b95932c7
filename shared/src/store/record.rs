//! The packed record of a message, as the scripts write it. Read-only here: only scripts write it.

use crate::message::State;

/// What the store knows of one message besides its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Where the message is in its life.
    pub state: State,
    /// Number of leases so far.
    pub leases: u64,
    /// Failures that were followed by a retry: the next attempt's `Upstash-Retried`.
    pub failed: u32,
    /// Leases that ended without a settlement.
    pub lost: u32,
    /// Retries allowed after the first attempt.
    pub retries: u32,
    /// A cancel was requested while it was leased.
    pub is_cancel_requested: bool,
    /// Key whose body it shares; `None` when the body is its own.
    pub body_key: Option<String>,
    /// The lane it waits in.
    pub lane: String,
    /// The queue whose slot it holds, for a callback of a queued message.
    pub holds: Option<String>,
}

impl Record {
    /// Reads `1|state|lease number|nonce|failed|lost|retries|flags|size|body key|lane|host|holds`.
    /// `None` when the bytes are not such a record, or when the message was redriven: it lives on
    /// under its new id.
    pub fn parse(packed: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(packed).ok()?;
        let fields: Vec<&str> = text.split('|').collect();
        let [
            version,
            state,
            leases,
            _nonce,
            failed,
            lost,
            retries,
            flags,
            _size,
            body,
            lane,
            _host,
            holds,
        ] = fields.as_slice()
        else {
            return None;
        };
        if *version != "1" {
            return None;
        }
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Some(Self {
            state: State::from_code(state.chars().next()?)?,
            leases: leases.parse().ok()?,
            failed: failed.parse().ok()?,
            lost: lost.parse().ok()?,
            retries: retries.parse().ok()?,
            is_cancel_requested: flags.contains('c'),
            body_key: some(body),
            lane: (*lane).to_owned(),
            holds: some(holds),
        })
    }
}
