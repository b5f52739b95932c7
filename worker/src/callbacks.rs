//! The callbacks of an attempt: messages that enter the store with the attempt's settlement.
//!
//! Their ids are drawn here, once, and kept over every resend of the settlement, so that an attempt
//! has one set of callbacks however often it is sent. An attempt that was never settled has none.

use bytes::Bytes;
use hookstash_shared::message::{
    CallbackKind, CallbackReport, CallbackSpec, EnvelopeHeader, MessageId,
};
use hookstash_shared::retry::judge::Outcome;
use hookstash_shared::store::Child;

use crate::attempt::Attempt;
use crate::job::Job;
use crate::worker::Worker;

impl Worker {
    /// Who is to be told of `attempt`: of every call that was made, and of every death once.
    pub(crate) fn callbacks(&self, job: &Job, attempt: &Attempt) -> Vec<Child> {
        let Some(header) = &job.message().header else {
            return Vec::new();
        };
        let is_dead = matches!(attempt.outcome, Outcome::Dead { .. });
        let is_due = |kind| match kind {
            CallbackKind::Callback => attempt.is_called,
            CallbackKind::Failure => is_dead,
        };
        let due = header.callbacks().filter(|(kind, _)| is_due(*kind));
        due.filter_map(|(kind, callback)| {
            let report = report(job, header, attempt);
            let report = match kind {
                CallbackKind::Callback => report,
                CallbackKind::Failure => report.dead(),
            };
            let child = self.child(job, header, callback, &report);
            if child.is_none() {
                let id = job.lease.id;
                tracing::error!(%id, ?kind, "a callback cannot be stored: nobody is told");
            }
            child
        })
        .collect()
    }

    fn child(
        &self,
        job: &Job,
        header: &EnvelopeHeader,
        callback: &CallbackSpec,
        report: &CallbackReport,
    ) -> Option<Child> {
        let source = job.lease.id;
        let now_ms = self.clock.now_ms();
        // Without a body, or with one that is lost, there is nothing to name.
        let has_body = job
            .message()
            .body
            .as_ref()
            .is_ok_and(|body| !body.is_empty());
        let own = || source.to_string();
        let body_of = has_body.then(|| job.lease.body_key.clone().unwrap_or_else(own));
        let source_bytes = match (&body_of, &job.lease.body_key) {
            (None, _) => 0,
            (Some(_), Some(_)) => job.stored.shared_bytes(),
            (Some(_), None) => job.stored.own_bytes(),
        };
        let report = report.encode().ok()?;
        let envelope = callback.envelope((&source, header), report, body_of, now_ms);
        let id = MessageId::new(source.shard(), now_ms, &*self.random);
        Child::new(id, envelope.ok()?, callback.delay(), source_bytes).ok()
    }
}

fn report(job: &Job, header: &EnvelopeHeader, attempt: &Attempt) -> CallbackReport {
    let report = CallbackReport::new(job.lease.id, header, job.lease.failed);
    match &attempt.answer {
        Some(answer) => {
            let body = Bytes::clone(&answer.body);
            report.answered(answer.status.as_u16(), &answer.headers, body)
        }
        None => report,
    }
}
