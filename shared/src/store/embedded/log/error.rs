//! Why a log cannot be opened.

use std::io;
use std::path::PathBuf;

/// The embedded store cannot be opened from its directory. Nothing in the directory was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be made or used.
    #[error("cannot use the directory {}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "another process uses the directory {}: stop it, or choose another directory; a store in \
         a directory belongs to one process at a time",
        .0.display()
    )]
    InUse(PathBuf),
    /// A Redis has moved the log to a place of its own.
    #[error(
        "a Redis has taken over this store ({} is its own): give the URL of that Redis, or choose \
         another directory",
        .0.display()
    )]
    TakenOver(PathBuf),
    /// The log cannot be read.
    #[error("cannot read the log {file}")]
    Read {
        /// The log.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The log is damaged somewhere before its end.
    #[error(
        "the log {file} is damaged at byte {at} ({what}), and more comes after it, so that this is \
         not the end of an interrupted write. Nothing was changed. Put back a copy of the file; or, \
         to give up all that comes after, keep a copy and cut it: truncate -s {whole} {file}"
    )]
    Damaged {
        /// The log.
        file: String,
        /// The byte, counted from 0.
        at: u64,
        /// How many bytes at its start are whole.
        whole: u64,
        /// What is wrong there.
        what: String,
    },
    /// A new log cannot be written.
    #[error("cannot write the log {file}: it needs about as much room as the store's data")]
    Write {
        /// The log.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The thread that writes the log cannot be started.
    #[error("cannot start the thread that writes the log")]
    Thread(#[source] io::Error),
    /// The script engine cannot be started.
    #[error("cannot start the script engine")]
    Engine(#[from] mlua::Error),
}
