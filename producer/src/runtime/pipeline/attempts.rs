//! Running a tool, and again where that is worth it. Controls are outside of this.

use super::deferral::{Deferral, ToolRun};
use super::{ATTEMPTS_MAX, ToolRequest};
use crate::hooks::ToolRunResult;
use crate::runtime::operation::Operation;
use crate::runtime::ports::PortError;

/// How running a tool ended.
pub(super) enum Ran {
    /// It brought a result, maybe a failed one.
    Result(Box<ToolRunResult>),
    /// It brought none.
    Failed(PortError),
    /// The run was cancelled meanwhile.
    Cancelled,
}

/// Runs the tool up to [`ATTEMPTS_MAX`] times; how often it did.
pub(super) async fn run(
    operation: &Operation,
    request: &ToolRequest,
    deferral: &Deferral,
) -> (Ran, u32) {
    let clock = &operation.runtime().parts().clock;
    let start = clock.monotonic();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let run = ToolRun {
            call: &request.call,
            attempt,
            operation,
            deferral,
        };
        let ran = tokio::select! {
            biased;
            () = operation.cancel.cancelled() => return (Ran::Cancelled, attempt),
            ran = request.tool.run(run) => ran,
        };
        if operation.is_cancelled() {
            return (Ran::Cancelled, attempt);
        }
        let mut result = match ran {
            Ok(result) => result,
            Err(error) => return (Ran::Failed(error), attempt),
        };
        let is_last = attempt >= ATTEMPTS_MAX || result.success || is_deferred(&result);
        if is_last || !request.tool.may_retry(&result) {
            if result.execution_time.is_none() {
                let taken = clock.monotonic().saturating_sub(start);
                result.execution_time = Some((taken.as_secs_f64() * 1000.0).round());
            }
            return (Ran::Result(Box::new(result)), attempt);
        }
    }
}

pub(super) fn is_deferred(result: &ToolRunResult) -> bool {
    result.deferred == Some(true)
}
