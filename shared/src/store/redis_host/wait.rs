//! Blocking waits, each on a connection of its own.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::{RedisError, Value};

use super::connect::RedisOptions;
use super::errors::{classify, is_wrong_server, lost};
use super::link::{Link, Place};
use crate::store::host::HostError;

/// Most connections kept for the next wait.
const IDLE_MAX: usize = 16;
/// Shortest wait: Redis takes 0 for "without end".
const WAIT_MIN: Duration = Duration::from_millis(1);
/// Longest wait; a longer one ends after this without a token.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// The connections for waits to one server. A wait that is dropped closes its connection, so that
/// Redis gives no token to a waiter that is gone.
pub(super) struct Waiters {
    place: Place,
    options: RedisOptions,
    idle: Mutex<Vec<Link>>,
}

impl Waiters {
    pub(super) fn new(place: Place, options: RedisOptions) -> Self {
        Self {
            place,
            options,
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Takes one token from the list `key`; see [`crate::store::host::Host::wait`].
    pub(super) async fn wait(&self, key: &[u8], timeout: Duration) -> Result<bool, HostError> {
        let link = self.take();
        let taken = self.pop(&link, key, timeout).await;
        self.put_back(link);
        taken
    }

    async fn pop(&self, link: &Link, key: &[u8], timeout: Duration) -> Result<bool, HostError> {
        let live = link.get().await?;
        let timeout = timeout.clamp(WAIT_MIN, WAIT_MAX);
        let seconds = timeout.as_secs_f64();
        let mut command = redis::cmd("BLPOP");
        command.arg(key).arg(format!("{seconds:.3}"));
        let mut connection = live.connection.clone();
        let answer = tokio::time::timeout(
            timeout + self.options.response_timeout,
            connection.send_packed_command(&command),
        )
        .await;
        let taken = match answer {
            Ok(Ok(Value::Nil)) => return Ok(false),
            Ok(Ok(Value::Array(_))) => return Ok(true),
            Ok(Ok(Value::ServerError(error))) if !is_wrong_server(&error) => {
                return Err(classify(&error));
            }
            Ok(Ok(Value::ServerError(error))) => Err(classify(&error)),
            Ok(Ok(_)) => Err(HostError::Fault("BLPOP answered oddly".to_owned())),
            Ok(Err(error)) => Err(lost(&error)),
            Err(elapsed) => Err(lost(&RedisError::from(std::io::Error::from(elapsed)))),
        };
        link.forget(&live).await;
        taken
    }

    fn take(&self) -> Link {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.pop()
            .unwrap_or_else(|| Link::new(self.place.clone(), self.options.clone(), None))
    }

    fn put_back(&self, link: Link) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(link);
        }
    }
}
