//! Events of compressing a conversation.

use std::fmt::Display;

use super::operation::Operation;
use super::truncate::head;
use crate::hooks::{AfterCompact, BeforeCompact, OnCompactError};

/// Most UTF-16 units of a summary that hooks are told.
const SUMMARY_UNITS: usize = 500;

/// A conversation that is about to be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compaction {
    /// Number of the step, from 0.
    pub step_index: u64,
    /// Messages there are.
    pub message_count: u64,
    /// Tokens they have.
    pub token_count: u64,
}

/// A conversation that was compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compacted {
    /// The group of messages that the summary replaces.
    pub group_id: String,
    /// Messages that are left.
    pub message_count: u64,
    /// The summary, whole.
    pub summary: String,
}

impl Operation {
    /// Tells hooks, compresses, and tells them how it went; the hooks run detached. `compress`
    /// answers `None` when there turned out to be nothing to do: then no second event follows.
    ///
    /// # Errors
    /// Those of `compress`, after hooks were told.
    pub async fn compact<E: Display>(
        &self,
        what: Compaction,
        compress: impl Future<Output = Result<Option<Compacted>, E>>,
    ) -> Result<Option<Compacted>, E> {
        let user_id = self.user_id().map(str::to_owned);
        let before = BeforeCompact {
            operation_id: self.id().to_owned(),
            step_index: what.step_index,
            message_count: what.message_count,
            token_count: what.token_count,
            user_id: user_id.clone(),
        };
        self.runtime.announce(before, self.hooks());
        let compressed = compress.await;
        match &compressed {
            Ok(None) => {}
            Ok(Some(done)) => {
                let after = AfterCompact {
                    operation_id: self.id().to_owned(),
                    step_index: what.step_index,
                    group_id: done.group_id.clone(),
                    messages_before: what.message_count,
                    messages_after: done.message_count,
                    summary: head(&done.summary, SUMMARY_UNITS).to_owned(),
                    user_id,
                };
                self.runtime.announce(after, self.hooks());
            }
            Err(error) => {
                let failed = OnCompactError {
                    operation_id: self.id().to_owned(),
                    step_index: what.step_index,
                    error: error.to_string(),
                    token_count: what.token_count,
                    user_id,
                };
                self.runtime.announce(failed, self.hooks());
            }
        }
        compressed
    }
}
