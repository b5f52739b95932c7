//! The directory of a log on this machine, held by one process.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::disk::{Disk, LogFile};
use super::error::OpenError;

/// The log: the name Redis gives its own, so that a Redis can be started on a copy.
const LOG: &str = "appendonly.aof";
/// A log that is being written to take its place.
const NEW: &str = "appendonly.aof.new";
/// What was dropped from the end of the log.
const TORN: &str = "appendonly.aof.torn";
/// Held for as long as a process uses the directory. Its content means nothing.
const LOCK: &str = "hookstash.lock";
/// Where a Redis from 7.0 on puts a log that it takes over.
const TAKEN_OVER: &str = "appendonlydir";

/// Messages are their publishers' business: nobody else may read them.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A directory that this process alone uses, until it is dropped or the process ends.
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Takes `path`, which is made when it is not there.
    pub(super) fn claim(path: &Path) -> Result<Self, OpenError> {
        let failed = |source| OpenError::Directory {
            path: path.to_owned(),
            source,
        };
        make(path).map_err(failed)?;
        let lock = writable(&path.join(LOCK)).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        if path.join(TAKEN_OVER).exists() {
            return Err(OpenError::TakenOver(path.join(TAKEN_OVER)));
        }
        let path = path.to_owned();
        Ok(Self { path, _lock: lock })
    }

    fn open_log(&self) -> io::Result<Option<File>> {
        match File::open(self.path.join(LOG)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Makes the directory with all that it lies in, and makes their names last.
fn make(path: &Path) -> io::Result<()> {
    let absent: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY_MODE)
        .create(path)?;
    for made in absent {
        match made.parent() {
            Some(parent) if parent != Path::new("") => File::open(parent)?.sync_all()?,
            _ => {}
        }
    }
    Ok(())
}

/// The file `path`, made when it is not there, as it is when it is.
fn writable(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    options.mode(FILE_MODE).open(path)
}

/// An empty file `path`.
fn empty(path: &Path) -> io::Result<File> {
    let file = writable(path)?;
    file.set_len(0)?;
    Ok(file)
}

impl Disk for Directory {
    fn place(&self) -> String {
        self.path.join(LOG).display().to_string()
    }

    fn read(&self, offset: u64) -> io::Result<Option<Box<dyn Read + Send>>> {
        let Some(mut file) = self.open_log()? else {
            return Ok(None);
        };
        file.seek(SeekFrom::Start(offset))?;
        Ok(Some(Box::new(file)))
    }

    fn begin(&self) -> io::Result<Box<dyn LogFile>> {
        Ok(Box::new(empty(&self.path.join(NEW))?))
    }

    fn discard(&self) -> io::Result<()> {
        std::fs::remove_file(self.path.join(NEW))
    }

    fn replace(&self) -> io::Result<()> {
        std::fs::rename(self.path.join(NEW), self.path.join(LOG))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn keep_torn(&self, offset: u64) -> io::Result<()> {
        let mut torn = empty(&self.path.join(TORN))?;
        if let Some(mut rest) = self.read(offset)? {
            io::copy(&mut rest, &mut torn)?;
        }
        torn.sync_all()?;
        self.sync_names()
    }
}

impl LogFile for File {
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }
}
