//! The log of an embedded store: what every step changed, in the form of Redis's append-only file.
//!
//! - **What**: effects, as Redis itself writes them. Times are absolute, ids of stream entries are
//!   given, and a step with more than one effect stands between `MULTI` and `EXEC`.
//! - **Writing** ([`writer`]): steps put their effects into a buffer, in order, under the store's
//!   lock; one thread writes and syncs it. Whoever ran a step waits, without the lock, until the
//!   log has what the step saw. So all that gathers during one sync shares the next one.
//! - **Trouble**: a write that fails is tried again while the store refuses everything; a sync
//!   that fails is final, because nobody knows what of the file will last.
//! - **Starting** ([`replay`]): the log is replayed and written anew. An end that was torn off is
//!   dropped back to the last whole group; damage before the end stops the start.
//! - **Compaction** ([`compaction`]): a log of four times its size after the last one is written
//!   anew beside the store's work, and takes the old one's place by a rename.

mod compaction;
mod directory;
mod disk;
mod error;
#[cfg(test)]
mod fickle_disk;
mod progress;
mod reader;
mod replay;
mod resp;
mod snapshot;
mod tail;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use self::compaction::Compacted;
use self::directory::Directory;
use self::disk::Disk;
use self::progress::Shared;
use self::replay::replay;
use self::writer::Writer;
use super::database::Effects;
use super::keyspace::Keyspace;
use crate::clock::Clock;
use crate::store::host::HostError;

pub use self::error::OpenError;

/// When the log is forced onto the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DataSync {
    /// Every second. A process that is killed loses nothing; a machine that is lost loses up to two
    /// seconds.
    #[default]
    EverySecond,
    /// Before every answer. A machine that is lost loses nothing.
    Always,
}

/// How a log is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) sync: DataSync,
    /// Below this many bytes the log is not compacted while the store runs.
    pub(super) compact_from_bytes: u64,
}

impl Options {
    pub(super) fn new(sync: DataSync) -> Self {
        Self {
            sync,
            compact_from_bytes: 64 * 1024 * 1024,
        }
    }
}

/// The log of one running store. When it is dropped, everything is written and synced.
pub(super) struct Log {
    shared: Arc<Shared>,
    disk: Arc<dyn Disk>,
    writer: Option<JoinHandle<()>>,
    /// The latest compaction.
    compaction: Mutex<Option<JoinHandle<()>>>,
}

impl Log {
    /// The store of the directory `path`, and its log from here on.
    pub(super) fn open(
        path: &Path,
        options: Options,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Keyspace, Self), OpenError> {
        Self::open_on(Arc::new(Directory::claim(path)?), options, clock)
    }

    fn open_on(
        disk: Arc<dyn Disk>,
        options: Options,
        clock: &Arc<dyn Clock>,
    ) -> Result<(Keyspace, Self), OpenError> {
        let started_at = clock.monotonic();
        let replayed = replay(&*disk, &**clock)?;
        let write = |source| OpenError::Write {
            file: disk.place(),
            source,
        };
        if replayed.torn_bytes > 0 {
            disk.keep_torn(replayed.bytes).map_err(write)?;
            tracing::warn!(
                log = disk.place(),
                dropped_bytes = replayed.torn_bytes,
                kept_bytes = replayed.bytes,
                "the log ended in the middle of a write, as after a crash: that end was dropped \
                 (it is kept beside the log, with .torn in its name)"
            );
        }
        // Whatever an earlier process could not sync: a log that was written anew is on the disk.
        let compacted = compaction::compact(&*disk, &replayed.keyspace, 0, &|| Some(0));
        let Compacted { file, len, .. } = compacted.map_err(write)?;
        disk.replace().map_err(write)?;
        disk.sync_names().map_err(write)?;
        let took = clock.monotonic().saturating_sub(started_at);
        tracing::info!(
            log = disk.place(),
            commands = replayed.commands,
            keys = replayed.keyspace.len(),
            from_bytes = replayed.bytes,
            to_bytes = len,
            took_ms = took.as_millis(),
            "the log was replayed and written anew"
        );
        let shared = Arc::new(Shared::new(options.sync, len));
        let writer = Writer::new(
            Arc::clone(&shared),
            Arc::clone(&disk),
            Arc::clone(clock),
            file,
            len,
            options.compact_from_bytes,
        );
        let writer = std::thread::Builder::new()
            .name("hookstash-log".to_owned())
            .spawn(move || writer.run())
            .map_err(OpenError::Thread)?;
        let log = Self {
            shared,
            disk,
            writer: Some(writer),
            compaction: Mutex::default(),
        };
        Ok((replayed.keyspace, log))
    }

    /// Puts the effects of one step behind those of earlier ones. Called under the store's lock.
    pub(super) fn append(&self, effects: &Effects) {
        self.shared.append(effects);
    }

    /// Up to where the log goes with all that was appended.
    pub(super) fn end(&self) -> u64 {
        self.shared.end()
    }

    /// Whether a step may run now: `false` while too much waits to be written. An error when the
    /// log takes nothing.
    pub(super) fn admits(&self) -> Result<bool, HostError> {
        self.shared.admits()
    }

    /// Waits until the log takes more, or takes nothing.
    pub(super) async fn room(&self) {
        self.shared.room().await;
    }

    /// Waits until the log is as safe up to `end` as an answer asks. An error says that this is not
    /// known.
    pub(super) async fn kept(&self, end: u64) -> Result<(), HostError> {
        self.shared.kept(end).await
    }

    /// Waits until everything appended so far is on the disk.
    pub(super) async fn synced(&self) -> Result<(), HostError> {
        self.shared.synced().await
    }

    /// Whether the log is to be compacted: then the keyspace goes to [`Log::compact`].
    pub(super) fn wants_snapshot(&self) -> bool {
        self.shared.wants_snapshot()
    }

    /// Writes the log anew in the background from `keyspace`, which has exactly what was appended.
    /// Called under the store's lock.
    pub(super) fn compact(&self, keyspace: Keyspace) {
        let from = self.shared.begin_compaction();
        let (shared, disk) = (Arc::clone(&self.shared), Arc::clone(&self.disk));
        let compact = move || {
            let on_disk = || shared.on_disk();
            let compacted = compaction::compact(&*disk, &keyspace, from, &on_disk);
            shared.end_compaction(compacted);
        };
        let thread = std::thread::Builder::new().name("hookstash-compaction".to_owned());
        match thread.spawn(compact) {
            Ok(thread) => *self.compaction() = Some(thread),
            Err(error) => self.shared.end_compaction(Err(error)),
        }
    }

    fn compaction(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.compaction
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.close();
        let compaction = self.compaction().take();
        for thread in [compaction, self.writer.take()].into_iter().flatten() {
            // A panic of that thread has been told, and there is nobody left to tell.
            drop(thread.join());
        }
    }
}
