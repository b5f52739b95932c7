//! Delivering: the service that makes one attempt of a leased message.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use apalis_core::error::BoxDynError;
use apalis_core::task::Task;
use bytes::Bytes;
use futures::future::BoxFuture;
use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::http::{Request, Trust};
use hookstash_shared::message::EnvelopeHeader;
use hookstash_shared::store::LOST_MAX;
use http::HeaderMap;
use tower::Service;

use crate::attempt::Attempt;
use crate::call::Call;
use crate::in_flight::Interrupt;
use crate::job::{Job, Message};
use crate::request::{AttemptOf, Refused, headers};
use crate::worker::Worker;

/// How a delivery ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// Its lease was not ours to use: nothing was called and there is nothing to settle.
    NotStarted,
    /// It was dropped before its end.
    Interrupted(Interrupt),
    /// It was made and judged.
    Attempted(Box<Attempt>),
}

/// Makes attempts with the HTTP client of one delivery thread.
#[derive(Clone)]
pub(crate) struct Deliver {
    http: Arc<dyn Call>,
    worker: Arc<Worker>,
}

impl Deliver {
    pub(crate) fn new(http: Arc<dyn Call>, worker: Arc<Worker>) -> Self {
        Self { http, worker }
    }

    async fn deliver(&self, job: &Job) -> Ended {
        let header = job.message().header.as_ref();
        let timeout = header.map_or(Duration::ZERO, |header| self.timeout(header));
        if !self
            .worker
            .in_flight
            .start(&job.lease.id, job.lease.token, timeout)
        {
            return Ended::NotStarted;
        }
        tokio::select! {
            biased;
            attempt = self.attempt(job) => Ended::Attempted(Box::new(attempt)),
            why = job.interruption.wait() => Ended::Interrupted(*why),
        }
    }

    async fn attempt(&self, job: &Job) -> Attempt {
        let begun = self.worker.clock.monotonic();
        let judging = || {
            self.worker
                .judging(job, self.worker.clock.monotonic().saturating_sub(begun))
        };
        let header = job.message().header.as_ref();
        let (header, headers, body) = match self.prepare(job) {
            Ok(prepared) => prepared,
            Err(refused) => return Attempt::failed(header, refused, judging()),
        };
        let request = Request {
            method: header.method.into(),
            url: header.url.as_str(),
            headers,
            body,
            timeout: self.timeout(header),
            response_keep_bytes: self.worker.settings.response_keep_bytes,
            trust: Trust::Policy,
        };
        let result = self.http.call(request).await;
        Attempt::called(header, result, judging())
    }

    /// What to send, unless nothing must be sent.
    fn prepare<'a>(&self, job: &'a Job) -> Result<(&'a EnvelopeHeader, HeaderMap, Bytes), Refused> {
        if job.lease.lost >= LOST_MAX {
            let text = format!("{LOST_MAX} workers were lost while they held the message");
            return Err(Refused::new(ErrorClass::WorkerLost, text));
        }
        let Message { header, body } = job.message();
        let body = body.clone()?;
        let unreadable = || Refused::new(ErrorClass::BodyMissing, "the stored message is missing");
        let header = header.as_ref().ok_or_else(unreadable)?;
        let attempt = AttemptOf {
            id: &job.lease.id,
            retried: job.lease.failed,
            body: &body,
            now_s: self.worker.clock.now_s(),
        };
        let Worker {
            environment,
            random,
            signer,
            ..
        } = &*self.worker;
        let signer = signer.borrow().clone();
        let headers = headers(header, attempt, signer.as_ref(), &**environment, &**random)?;
        Ok((header, headers, body))
    }

    fn timeout(&self, header: &EnvelopeHeader) -> Duration {
        Duration::from_millis(header.timeout_ms).min(self.worker.settings.timeout_max)
    }
}

impl Service<Task<Arc<Job>>> for Deliver {
    type Response = Ended;
    type Error = BoxDynError;
    type Future = BoxFuture<'static, Result<Ended, BoxDynError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxDynError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, task: Task<Arc<Job>>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.deliver(&task.args).await) })
    }
}
