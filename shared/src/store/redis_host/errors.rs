//! What Redis refuses and how the store must take it.

use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use crate::store::host::HostError;

/// Most characters of an error text that are kept.
const TEXT_MAX: usize = 300;

/// Refusals after which the same item may be sent again; nothing of it was applied.
const RETRY_LATER: [&str; 11] = [
    "TRYAGAIN",
    "ASK",
    "MOVED",
    "CLUSTERDOWN",
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "BUSY",
    "UNBLOCKED",
];

/// Refusals that say that the connection leads to the wrong server.
const WRONG_SERVER: [&str; 5] = [
    "READONLY",
    "MASTERDOWN",
    "UNBLOCKED",
    "MOVED",
    "CLUSTERDOWN",
];

/// How Redis names a script's access to a slot it does not own.
const NON_LOCAL_KEY: &str = "non local key";

/// Why no connection to Redis was made. No text contains a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The URL is not a Redis URL.
    #[error("read the Redis URL: {0}")]
    Url(String),
    /// The URL asks for something that is not supported.
    #[error("read the Redis URL: {0} is not supported yet")]
    Unsupported(&'static str),
    /// The name did not resolve, or no server took the connection, or TLS failed.
    #[error("connect to Redis at {server}: {reason}")]
    Unreachable {
        /// `host:port`, or the path of a socket.
        server: String,
        /// What the system said.
        reason: String,
    },
    /// The connection was not ready in time.
    #[error("connect to Redis at {server}: not ready within {} s", after.as_secs_f32())]
    Silent {
        /// `host:port`, or the path of a socket.
        server: String,
        /// How long it was given.
        after: Duration,
    },
    /// Something answers that does not speak Redis's protocol.
    #[error("connect to Redis at {server}: the server there does not speak the Redis protocol")]
    NotRedis {
        /// `host:port`, or the path of a socket.
        server: String,
    },
    /// Redis refused the login or the first command: a wrong password, or it is still loading.
    #[error("log in to Redis at {server}: {reason}")]
    Refused {
        /// `host:port`, or the path of a socket.
        server: String,
        /// What Redis said.
        reason: String,
    },
}

impl ConnectError {
    /// Why logging in at `server` failed; `password` is cut out of what the server said.
    pub(super) fn from_login(server: &str, password: Option<&str>, error: &RedisError) -> Self {
        let server = server.to_owned();
        let reason = || match password {
            Some(password) if !password.is_empty() => {
                bounded(&error.to_string().replace(password, "[redacted]"))
            }
            _ => bounded(&error.to_string()),
        };
        match error.kind() {
            ErrorKind::Io => Self::Unreachable {
                server,
                reason: reason(),
            },
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Self::NotRedis { server },
            _ => Self::Refused {
                server,
                reason: reason(),
            },
        }
    }
}

impl From<ConnectError> for HostError {
    fn from(error: ConnectError) -> Self {
        Self::RetryLater(error.to_string())
    }
}

/// How the store must take `error`, a refusal of one item.
pub(super) fn classify(error: &ServerError) -> HostError {
    let text = bounded(&full_text(error));
    let code = code_of(error);
    if code == "OOM" {
        HostError::Full(text)
    } else if RETRY_LATER.contains(&code) || text.contains(NON_LOCAL_KEY) {
        HostError::RetryLater(text)
    } else {
        HostError::Fault(text)
    }
}

/// Whether the connection that brought `error` must be made anew, its server looked up again.
pub(super) fn is_wrong_server(error: &ServerError) -> bool {
    WRONG_SERVER.contains(&code_of(error)) || full_text(error).contains(NON_LOCAL_KEY)
}

/// Whether Redis does not know the script.
pub(super) fn is_unknown_script(error: &ServerError) -> bool {
    error.kind() == Some(ServerErrorKind::NoScript)
}

/// What a command whose answer did not come means.
pub(super) fn lost(error: &RedisError) -> HostError {
    HostError::Lost(bounded(&error.to_string()))
}

/// The code of `error`. Redis 6.2 reports what a command inside a script refused under the code
/// `ERR`, the true code after a dash in the text.
fn code_of(error: &ServerError) -> &str {
    let details = error.details().unwrap_or_default();
    if error.code() != "ERR" {
        return error.code();
    }
    RETRY_LATER
        .into_iter()
        .chain(["OOM"])
        .find(|code| details.contains(&format!("-{code} ")))
        .unwrap_or("ERR")
}

fn full_text(error: &ServerError) -> String {
    format!("{} {}", error.code(), error.details().unwrap_or_default())
}

fn bounded(text: &str) -> String {
    text.chars().take(TEXT_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> ServerError {
        let line = format!("-{line}\r\n");
        match redis::parse_redis_value(line.as_bytes()) {
            Ok(redis::Value::ServerError(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_refusal_for_now_is_told_apart_from_a_fault() {
        for code in RETRY_LATER {
            let plain = refusal(&format!("{code} some text"));
            assert!(
                matches!(classify(&plain), HostError::RetryLater(_)),
                "{code}"
            );
            let in_script = refusal(&format!(
                "ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -{code} x"
            ));
            assert!(
                matches!(classify(&in_script), HostError::RetryLater(_)),
                "{code}"
            );
            assert!(classify(&plain).is_refusal(), "{code}");
            assert_eq!(is_wrong_server(&plain), WRONG_SERVER.contains(&code));
        }
        let foreign = "ERR Error running script: Script attempted to access a non local key in a \
                       cluster node";
        assert!(matches!(
            classify(&refusal(foreign)),
            HostError::RetryLater(_)
        ));
        assert!(is_wrong_server(&refusal(foreign)));
        for fault in [
            "ERR syntax error",
            "WRONGTYPE Operation against a key holding the wrong kind of value",
            "NOPERM this user has no permissions",
            "CROSSSLOT Keys in request don't hash to the same slot",
            "BUSYGROUP Consumer Group name already exists",
            "BUSYKEY Target key name already exists.",
            "ERR value is not an integer, see BUSY and OOM",
            "NOSCRIPT No matching script. Please use EVAL.",
        ] {
            let error = refusal(fault);
            assert!(matches!(classify(&error), HostError::Fault(_)), "{fault}");
            assert!(!is_wrong_server(&error), "{fault}");
        }
    }

    #[test]
    fn a_server_that_is_not_reached_has_refused_nothing() {
        let server = "h:1".to_owned();
        let after = Duration::from_secs(1);
        let silent = ConnectError::Silent { server, after };
        for error in [silent.into(), HostError::Lost("READONLY".to_owned())] {
            assert!(!HostError::is_refusal(&error), "{error}");
        }
    }

    #[test]
    fn a_full_store_is_full_also_inside_a_script_of_redis_6_2() {
        for full in [
            "OOM command not allowed when used memory > 'maxmemory'.",
            "ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -OOM command \
             not allowed when used memory > 'maxmemory'.",
        ] {
            assert!(
                matches!(classify(&refusal(full)), HostError::Full(_)),
                "{full}"
            );
        }
    }

    #[test]
    fn f18_a_password_that_the_server_repeats_is_cut_out() {
        let error = refusal("ERR unknown command, with args beginning with: 'hunter2'").into();
        let error = ConnectError::from_login("h:1", Some("hunter2"), &error);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
