//! The thread that alone writes to the log.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::compaction::{self, Compacted, catch_up};
use super::disk::{Disk, LogFile, append_some};
use super::progress::{Shared, Work};
use crate::clock::Clock;

/// Longest time that what is written may wait for its sync, unless every answer waits for one.
const SYNC_EVERY: Duration = Duration::from_secs(1);
/// Pause before a failed write is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The log is compacted when it has so many times its size after the last compaction.
const GROWTH: u64 = 4;

/// Writes what steps append, in order, until the log is closed or a sync fails.
pub(super) struct Writer {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    file: Box<dyn LogFile>,
    /// Bytes of the file.
    len: u64,
    /// When the oldest byte without a sync was written.
    unsynced_since: Option<Duration>,
    compact_from: u64,
    /// Size at which the log is compacted next.
    compact_at: u64,
}

/// Why the thread ends before the log is closed. What is said about it has been said.
struct Ended;

impl Writer {
    /// A writer that goes on at the end of `file`, whose `len` bytes are synced.
    pub(super) fn new(
        shared: Arc<Shared>,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        file: Box<dyn LogFile>,
        len: u64,
        compact_from: u64,
    ) -> Self {
        Self {
            shared,
            disk,
            clock,
            file,
            len,
            unsynced_since: None,
            compact_from,
            compact_at: compact_from.max(GROWTH * len),
        }
    }

    /// Runs until the log is closed.
    pub(super) fn run(mut self) {
        let mut spare = Vec::new();
        loop {
            let work = self.shared.next_work(spare, self.until_sync());
            let is_last = work.is_last;
            match self.perform(work) {
                Ok(buffer) if !is_last => spare = buffer,
                _ => return,
            }
        }
    }

    fn perform(&mut self, work: Work) -> Result<Vec<u8>, Ended> {
        self.write(&work.bytes)?;
        let is_due = self.until_sync().is_some_and(|left| left.is_zero());
        if self.shared.syncs_always() || is_due || work.is_last {
            self.sync()?;
        }
        if let Some(compacted) = work.compacted {
            self.switch(compacted)?;
        }
        if self.len >= self.compact_at {
            self.shared.want_snapshot();
        }
        Ok(work.bytes)
    }

    /// Time until the next sync; `None` when everything is synced.
    fn until_sync(&self) -> Option<Duration> {
        let age = self.clock.monotonic().saturating_sub(self.unsynced_since?);
        Some(SYNC_EVERY.saturating_sub(age))
    }

    /// Writes all of `bytes`, however often that must be tried.
    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Ended> {
        while !bytes.is_empty() {
            match append_some(&mut *self.file, bytes) {
                Ok(written) => {
                    bytes = bytes.get(written..).unwrap_or_default();
                    self.len += written as u64;
                    self.unsynced_since
                        .get_or_insert_with(|| self.clock.monotonic());
                    self.shared.wrote(written as u64);
                }
                Err(error) => {
                    if self.shared.stall(&error) {
                        tracing::error!(
                            log = self.disk.place(),
                            %error,
                            "the log cannot be written: everything is refused until it can"
                        );
                    }
                    if !self.shared.pause(RETRY_PAUSE) {
                        return Err(Ended);
                    }
                }
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Ended> {
        if self.unsynced_since.is_none() {
            return Ok(());
        }
        if let Err(error) = self.file.sync() {
            return Err(self.give_up(&error, "the log cannot be synced"));
        }
        self.unsynced_since = None;
        self.shared.noted_sync();
        Ok(())
    }

    /// Puts a compacted log in the place of this one. Until its name is synced nothing is lost by
    /// going on with this one.
    fn switch(&mut self, compacted: io::Result<Compacted>) -> Result<(), Ended> {
        let before = self.len;
        let replaced = compacted.and_then(|mut new| {
            catch_up(&*self.disk, &mut new, self.len)?;
            new.file.sync()?;
            self.disk.replace()?;
            Ok(new)
        });
        let new = match replaced {
            Ok(new) => new,
            Err(error) => {
                compaction::discard(&*self.disk);
                self.compact_at = self.len + self.compact_from.max(self.len / GROWTH);
                tracing::warn!(
                    log = self.disk.place(),
                    %error,
                    "the log cannot be compacted and goes on growing; trying again later"
                );
                return Ok(());
            }
        };
        // The new name may or may not last, so writing to either file would be a guess.
        if let Err(error) = self.disk.sync_names() {
            return Err(self.give_up(&error, "the compacted log's name cannot be synced"));
        }
        (self.file, self.len) = (new.file, new.len);
        self.compact_at = self.compact_from.max(GROWTH * self.len);
        self.unsynced_since = None;
        self.shared.replaced(self.len);
        self.shared.noted_sync();
        tracing::info!(
            log = self.disk.place(),
            from_bytes = before,
            to_bytes = self.len,
            "the log was compacted"
        );
        Ok(())
    }

    fn give_up(&self, error: &io::Error, what: &str) -> Ended {
        tracing::error!(
            log = self.disk.place(),
            %error,
            "{what}, and nobody knows what of it will last: everything is refused until this \
             process is started again"
        );
        self.shared.fail(error.to_string());
        Ended
    }
}

impl Drop for Writer {
    /// Nobody waits for a thread that has gone.
    fn drop(&mut self) {
        self.shared.fail("its thread has ended".to_owned());
    }
}
