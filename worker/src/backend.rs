//! The apalis backend: the receiving end of a channel.
//!
//! An error of a backend ends an apalis worker and drops its calls, so this one has none: it never
//! touches the store. It ends when its channel is closed and empty.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use apalis_core::backend::finalize::Ephemeral;
use apalis_core::backend::{Backend, BackendConfig};
use apalis_core::task::Task;
use apalis_core::worker::context::WorkerContext;
use tokio::sync::mpsc;

use crate::job::Job;
use crate::settle::SettleLayer;

/// Jobs for one delivery thread.
pub(crate) struct Jobs {
    taken: mpsc::UnboundedReceiver<Arc<Job>>,
    settle: SettleLayer,
}

impl Jobs {
    pub(crate) fn new(taken: mpsc::UnboundedReceiver<Arc<Job>>, settle: SettleLayer) -> Self {
        Self { taken, settle }
    }
}

impl Backend for Jobs {
    type Task = Task<Arc<Job>>;
    type Error = Infallible;

    fn poll_ready(
        &mut self,
        _: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Infallible>>> {
        self.taken
            .poll_recv(cx)
            .map(|job| job.map(|job| Ok(Task::new(job))))
    }

    fn poll_close(
        &mut self,
        _: &mut Context<'_>,
        _: &WorkerContext,
    ) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for Jobs {
    type Args = Arc<Job>;
    type Id = String;
    type Kind = Ephemeral;
    type Config = ();
    type Layer = SettleLayer;

    fn config(&self) -> &() {
        &()
    }

    fn middleware(&mut self, _: &mut WorkerContext) -> SettleLayer {
        self.settle.clone()
    }
}
