//! The receiver behind the one seam: answers by a script, remembers every call, and holds the laws
//! that only it can see.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::http::{AttemptError, Request, Response};
use hookstash_worker::Call;
use http::{HeaderMap, StatusCode};

use super::ground::{At, Ground};
use super::process::Control;

/// What the receiver does with one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Answers with this status after this many milliseconds.
    Status(u16, u64),
    /// Closes the connection after this many milliseconds.
    Break(u64),
    /// The sending code panics.
    Panic,
}

impl Answer {
    pub fn is_success(self) -> bool {
        matches!(self, Self::Status(200..300, _))
    }

    pub fn takes(self) -> Duration {
        match self {
            Self::Status(_, ms) | Self::Break(ms) => Duration::from_millis(ms),
            Self::Panic => Duration::ZERO,
        }
    }
}

pub struct Caller {
    pub ground: Arc<Ground>,
    pub control: Arc<Control>,
}

/// A call that ends for the receiver when it is dropped.
struct Open<'a> {
    ground: &'a Ground,
    call: usize,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.ground.call_dropped(self.call);
    }
}

impl Call for Caller {
    fn call<'a>(&'a self, request: Request<'a>) -> BoxFuture<'a, Result<Response, AttemptError>> {
        Box::pin(async move {
            self.control.alive().await;
            self.ground.point(At::Call, &self.control).await;
            let (call, answer) = self.ground.arrives(self.control.number, &request);
            let open = Open {
                ground: &self.ground,
                call,
            };
            self.ground.point(At::Received, &self.control).await;
            let answered =
                tokio::time::timeout(request.timeout, tokio::time::sleep(answer.takes()));
            let answered = answered.await;
            self.control.alive().await;
            if answered.is_ok() {
                self.ground.answered(call, answer);
            }
            drop(open);
            self.ground.point(At::Answered, &self.control).await;
            answered.map_err(|_| failed(ErrorClass::Timeout))?;
            match answer {
                Answer::Status(status, _) => Ok(Response {
                    status: StatusCode::from_u16(status).expect("a status"),
                    headers: HeaderMap::new(),
                    body: Bytes::from_static(b"scripted"),
                    is_truncated: false,
                }),
                Answer::Break(_) => Err(failed(ErrorClass::Network)),
                Answer::Panic => std::panic::resume_unwind(Box::new("scripted")),
            }
        })
    }
}

fn failed(class: ErrorClass) -> AttemptError {
    AttemptError {
        class,
        message: "scripted".to_owned(),
    }
}
