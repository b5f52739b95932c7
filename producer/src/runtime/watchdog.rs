//! A second look at runs that wait: a child may die without a word.

use std::sync::Arc;
use std::time::Duration;

use super::AgentRuntime;

/// The pauses between looks at a run that waits.
pub const RECHECKS: [Duration; 5] = [
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_mins(1),
    Duration::from_mins(2),
    Duration::from_mins(4),
];

impl AgentRuntime {
    /// Looks at an operation that has begun to wait for results of tools: now, because one may
    /// have come before it waited, and after each of [`RECHECKS`] until it goes on or is over.
    /// Call it whenever an operation is parked, and for those that were when the process started.
    ///
    /// # Errors
    /// The first look failed; the later ones are made nevertheless.
    pub async fn watch(&self, operation_id: &str) -> Result<bool, super::BarrierError> {
        let looked = self.check_barrier(operation_id).await;
        if !matches!(looked, Ok(true)) {
            let (weak, id) = (Arc::downgrade(&self.0), operation_id.to_owned());
            let ended = self.0.watching.clone();
            tokio::spawn(ended.run_until_cancelled_owned(async move {
                for pause in RECHECKS {
                    tokio::time::sleep(pause).await;
                    let Some(inner) = weak.upgrade() else { return };
                    if Self(inner).is_settled(&id).await {
                        return;
                    }
                }
                tracing::warn!(
                    operation_id = id,
                    "a run still waits and is not watched any more"
                );
            }));
        }
        looked
    }

    /// Whether nothing is left to watch.
    async fn is_settled(&self, operation_id: &str) -> bool {
        let status = self.parts().runs.status(operation_id).await;
        if matches!(status, Ok(Some(status)) if status.is_over()) {
            return true;
        }
        match self.check_barrier(operation_id).await {
            Ok(is_resumed) => is_resumed,
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    operation_id,
                    error,
                    "a run that waits could not be looked at"
                );
                false
            }
        }
    }
}
