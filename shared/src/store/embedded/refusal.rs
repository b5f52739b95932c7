//! Why a command was refused, in Redis's own words.

/// An error reply. Display is the text Redis sends, code first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("WRONGTYPE Operation against a key holding the wrong kind of value")]
    WrongType,
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
    #[error("ERR value is not a valid float")]
    NotAFloat,
    #[error("ERR wrong number of arguments for '{0}' command")]
    Arity(&'static str),
    #[error("ERR invalid expire time in '{0}' command")]
    ExpireTime(&'static str),
    #[error("OOM command not allowed when used memory > 'maxmemory'.")]
    Full,
    /// Any other text, with its code.
    #[error("{0}")]
    Other(String),
}

impl Refusal {
    /// `ERR` and a fixed text.
    pub(super) fn err(text: &str) -> Self {
        Self::Other(format!("ERR {text}"))
    }
}
