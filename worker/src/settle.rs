//! Settling: the layer around every delivery that turns its end into a settlement.
//!
//! It is the outermost of our layers. A delivery that panicked arrives here as an error and counts
//! as an attempt that failed, of class `configuration`: something about this message or this
//! process is such that it cannot be sent. What the panic said is left out, for it may quote data.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use apalis_core::error::BoxDynError;
use apalis_core::task::Task;
use futures::future::BoxFuture;
use hookstash_shared::error_class::ErrorClass;
use hookstash_shared::message::LoggedEvent;
use hookstash_shared::store::{self, Settlement};
use tower::{Layer, Service};

use crate::attempt::Attempt;
use crate::deliver::Ended;
use crate::in_flight::Interrupt;
use crate::job::Job;
use crate::report::report;
use crate::request::Refused;
use crate::worker::Worker;

/// Makes [`Settle`].
#[derive(Clone)]
pub(crate) struct SettleLayer(pub(crate) Arc<Worker>);

/// See the module.
#[derive(Clone)]
pub(crate) struct Settle<S> {
    worker: Arc<Worker>,
    inner: S,
}

impl<S> Layer<S> for SettleLayer {
    type Service = Settle<S>;

    fn layer(&self, inner: S) -> Settle<S> {
        Settle {
            worker: Arc::clone(&self.0),
            inner,
        }
    }
}

impl<S> Service<Task<Arc<Job>>> for Settle<S>
where
    S: Service<Task<Arc<Job>>, Response = Ended>,
    S::Future: Send + 'static,
    S::Error: Into<BoxDynError>,
{
    type Response = ();
    type Error = BoxDynError;
    type Future = BoxFuture<'static, Result<(), BoxDynError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxDynError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, task: Task<Arc<Job>>) -> Self::Future {
        let job = Arc::clone(&task.args);
        let worker = Arc::clone(&self.worker);
        let delivery = self.inner.call(task);
        Box::pin(async move {
            match delivery.await {
                Ok(ended) => worker.settle(&job, ended),
                Err(_panic) => {
                    let attempt = worker.panicked(&job);
                    worker.settle(&job, Ended::Attempted(Box::new(attempt)));
                }
            }
            Ok(())
        })
    }
}

impl Worker {
    fn settle(&self, job: &Job, ended: Ended) {
        let header = job.message().header.as_ref();
        let (id, token) = (job.lease.id, job.lease.token);
        let (outcome, event, children) = match ended {
            Ended::NotStarted => return,
            Ended::Interrupted(Interrupt::Cancelled) => {
                tracing::info!(%id, outcome = "cancelled", "attempt");
                let event = header.map(LoggedEvent::of).unwrap_or_default();
                (store::Outcome::Cancelled, event.encode(), Vec::new())
            }
            Ended::Interrupted(why) => {
                tracing::info!(%id, ?why, "attempt dropped");
                return;
            }
            Ended::Attempted(attempt) => {
                report(self.observer.as_ref(), job, &attempt);
                let children = self.callbacks(job, &attempt);
                (attempt.store_outcome(), attempt.event(header), children)
            }
        };
        let is_ours = self.in_flight.finish(&id, token);
        // A success counts even when the lease is gone.
        if is_ours || outcome == store::Outcome::Delivered {
            // A queue or a flow-control key may wait for it, or a callback that it brings.
            let can_wait = outcome == store::Outcome::Delivered
                && children.is_empty()
                && job.lease.lane.starts_with("h:")
                && !job.lease.holds_queue;
            let settlement = Settlement {
                id,
                token,
                outcome,
                event,
                children,
            };
            self.push(settlement, can_wait);
        }
    }

    fn panicked(&self, job: &Job) -> Attempt {
        tracing::error!(id = %job.lease.id, "a delivery panicked");
        let refused = Refused::new(ErrorClass::Configuration, "the delivery panicked");
        let judging = self.judging(job, Duration::ZERO);
        Attempt::failed(job.message().header.as_ref(), refused, judging)
    }
}
