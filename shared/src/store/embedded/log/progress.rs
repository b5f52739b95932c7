//! What the steps and the writer's thread share: the buffer, how far the log has come, its health.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::super::database::Effects;
use super::DataSync;
use super::compaction::Compacted;
use super::resp::push_group;
use crate::store::host::HostError;

/// Bytes that may wait to be written; one step more may come on top.
const WAITING_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Buffers are kept for the next time up to this size.
const SPARE_BYTES_MAX: usize = 1024 * 1024;

/// Shared by the steps, the writer's thread and a compaction.
pub(super) struct Shared {
    sync: DataSync,
    state: Mutex<State>,
    /// There is something for the writer's thread.
    work: Condvar,
    progress: watch::Sender<Progress>,
}

struct State {
    /// Appended and not taken by the writer's thread.
    buffer: Vec<u8>,
    /// Bytes appended since the start. Unlike the file, this only grows.
    end: u64,
    /// Where in the file the next byte appended goes.
    file_end: u64,
    /// Bytes of the file that are written.
    file_written: u64,
    compaction: Compaction,
    is_closing: bool,
}

enum Compaction {
    None,
    Wanted,
    Running,
    Ended(io::Result<Compacted>),
}

/// How far the log has come, in bytes since the start.
#[derive(Debug, Clone, Default)]
struct Progress {
    written: u64,
    synced: u64,
    trouble: Option<Trouble>,
}

impl Progress {
    /// Whether little enough of what goes up to `end` waits to be written.
    fn has_room(&self, end: u64) -> bool {
        end.saturating_sub(self.written) < WAITING_BYTES_MAX
    }
}

/// Why the log takes nothing.
#[derive(Debug, Clone)]
enum Trouble {
    /// A write failed and is tried again.
    Stalled { is_full: bool, why: String },
    /// Nothing is written any more by this process.
    Ended(String),
}

impl Trouble {
    /// The refusal of a step that has not run.
    fn refusal(&self) -> HostError {
        match self {
            Self::Stalled { is_full: true, why } => HostError::Full(format!(
                "its log cannot be written ({why}); it goes on by itself when there is room"
            )),
            Self::Stalled { why, .. } => HostError::RetryLater(format!(
                "its log cannot be written ({why}); it goes on by itself when that is possible"
            )),
            Self::Ended(why) => HostError::RetryLater(format!(
                "its log failed ({why}); this process takes nothing until it is started again"
            )),
        }
    }

    /// The end of a step that has run.
    fn unknown(&self) -> HostError {
        let (Self::Stalled { why, .. } | Self::Ended(why)) = self;
        HostError::Lost(format!("its log cannot be written: {why}"))
    }
}

/// What the writer's thread does next.
pub(super) struct Work {
    /// To be written; may be empty.
    pub(super) bytes: Vec<u8>,
    /// A compaction that has ended.
    pub(super) compacted: Option<io::Result<Compacted>>,
    /// Nothing follows.
    pub(super) is_last: bool,
}

impl Shared {
    /// A log whose file has `len` bytes.
    pub(super) fn new(sync: DataSync, len: u64) -> Self {
        Self {
            sync,
            state: Mutex::new(State {
                buffer: Vec::new(),
                end: 0,
                file_end: len,
                file_written: len,
                compaction: Compaction::None,
                is_closing: false,
            }),
            work: Condvar::new(),
            progress: watch::Sender::new(Progress::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- The side of the steps -------------------------------------------------------------------

    pub(super) fn append(&self, effects: &Effects) {
        let mut state = self.lock();
        let before = state.buffer.len();
        push_group(&mut state.buffer, effects);
        let grown = (state.buffer.len() - before) as u64;
        // Also when nothing is written any more: an end that is never reached is never answered.
        state.end += grown;
        state.file_end += grown;
        if matches!(self.progress.borrow().trouble, Some(Trouble::Ended(_))) {
            state.buffer = Vec::new();
        }
        drop(state);
        self.work.notify_one();
    }

    pub(super) fn end(&self) -> u64 {
        self.lock().end
    }

    pub(super) fn admits(&self) -> Result<bool, HostError> {
        let end = self.end();
        let progress = self.progress.borrow();
        match &progress.trouble {
            Some(trouble) => Err(trouble.refusal()),
            None => Ok(progress.has_room(end)),
        }
    }

    pub(super) async fn room(&self) {
        let end = self.end();
        self.until(|progress| progress.has_room(end)).await;
    }

    pub(super) async fn kept(&self, end: u64) -> Result<(), HostError> {
        let sync = self.sync;
        let is_kept = |progress: &Progress| match sync {
            DataSync::EverySecond => progress.written >= end,
            DataSync::Always => progress.synced >= end,
        };
        self.reached(is_kept).await
    }

    pub(super) async fn synced(&self) -> Result<(), HostError> {
        let end = self.end();
        self.reached(|progress| progress.synced >= end).await
    }

    async fn reached(&self, has_come: impl Fn(&Progress) -> bool) -> Result<(), HostError> {
        let progress = self.until(&has_come).await;
        match progress.trouble {
            Some(trouble) if !has_come(&progress) => Err(trouble.unknown()),
            _ => Ok(()),
        }
    }

    /// Waits until the log has come so far, or has trouble.
    async fn until(&self, has_come: impl Fn(&Progress) -> bool) -> Progress {
        let mut progress = self.progress.subscribe();
        let is_over = |progress: &Progress| has_come(progress) || progress.trouble.is_some();
        // The sender is this one's own, so waiting cannot fail.
        let reached = progress.wait_for(is_over).await.map(|now| now.clone());
        reached.unwrap_or_default()
    }

    // --- Compaction ------------------------------------------------------------------------------

    pub(super) fn wants_snapshot(&self) -> bool {
        matches!(self.lock().compaction, Compaction::Wanted)
    }

    /// Up to which byte of the file the store's present state goes.
    pub(super) fn begin_compaction(&self) -> u64 {
        let mut state = self.lock();
        state.compaction = Compaction::Running;
        state.file_end
    }

    /// How many bytes of the file are written; `None` when the log is being closed.
    pub(super) fn on_disk(&self) -> Option<u64> {
        let state = self.lock();
        (!state.is_closing).then_some(state.file_written)
    }

    pub(super) fn end_compaction(&self, compacted: io::Result<Compacted>) {
        self.lock().compaction = Compaction::Ended(compacted);
        self.work.notify_one();
    }

    // --- The side of the writer's thread ---------------------------------------------------------

    /// Whether answers wait for a sync.
    pub(super) fn syncs_always(&self) -> bool {
        self.sync == DataSync::Always
    }

    /// Waits for work, at most for `patience`; `spare` is a buffer that may be used again.
    pub(super) fn next_work(&self, mut spare: Vec<u8>, patience: Option<Duration>) -> Work {
        let is_idle = |state: &mut State| {
            let has_compacted = matches!(state.compaction, Compaction::Ended(_));
            state.buffer.is_empty() && !has_compacted && !state.is_closing
        };
        let state = self.lock();
        let mut state = match patience {
            None => self
                .work
                .wait_while(state, is_idle)
                .unwrap_or_else(PoisonError::into_inner),
            Some(patience) => {
                let waited = self.work.wait_timeout_while(state, patience, is_idle);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        if spare.capacity() > SPARE_BYTES_MAX {
            spare = Vec::new();
        }
        spare.clear();
        let compacted = match std::mem::replace(&mut state.compaction, Compaction::None) {
            Compaction::Ended(compacted) => Some(compacted),
            other => {
                state.compaction = other;
                None
            }
        };
        Work {
            bytes: std::mem::replace(&mut state.buffer, spare),
            compacted,
            is_last: state.is_closing,
        }
    }

    /// Waits before a write is tried again; `false` when there is no more time for that.
    pub(super) fn pause(&self, pause: Duration) -> bool {
        let waited = self
            .work
            .wait_timeout_while(self.lock(), pause, |state| !state.is_closing);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_closing
    }

    /// So many bytes more are in the file, and nothing stands in the way.
    pub(super) fn wrote(&self, bytes: u64) {
        self.lock().file_written += bytes;
        self.progress.send_modify(|progress| {
            progress.written += bytes;
            progress.trouble = None;
        });
    }

    /// All that was written is on the disk.
    pub(super) fn noted_sync(&self) {
        self.progress
            .send_modify(|progress| progress.synced = progress.written);
    }

    /// A write failed and will be tried again. `true` when this is new.
    pub(super) fn stall(&self, error: &io::Error) -> bool {
        let is_full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let why = error.to_string();
        let stalled = Trouble::Stalled { is_full, why };
        let mut is_new = false;
        self.progress.send_modify(|progress| {
            is_new = progress.trouble.is_none();
            progress.trouble = Some(stalled);
        });
        is_new
    }

    /// Nothing is written any more. The first reason stands.
    pub(super) fn fail(&self, why: String) {
        self.progress.send_modify(|progress| {
            if !matches!(progress.trouble, Some(Trouble::Ended(_))) {
                progress.trouble = Some(Trouble::Ended(why));
            }
        });
        self.lock().buffer = Vec::new();
    }

    /// The log is to be compacted at the next step, unless that is under way.
    pub(super) fn want_snapshot(&self) {
        let mut state = self.lock();
        if matches!(state.compaction, Compaction::None) {
            state.compaction = Compaction::Wanted;
        }
    }

    /// The file is another one now, whose `len` bytes are all that was written.
    pub(super) fn replaced(&self, len: u64) {
        let mut state = self.lock();
        state.file_written = len;
        state.file_end = len + state.buffer.len() as u64;
    }

    /// Nothing will be appended any more.
    pub(super) fn close(&self) {
        self.lock().is_closing = true;
        self.work.notify_all();
    }
}
