//! What the log asks of a disk: the one seam between it and the machine.

use std::io::{self, Read};

/// A place for one log. Names and bytes are lost in a crash of the machine until they are synced;
/// a name then leads to the old file or to the new one, never to neither.
pub(super) trait Disk: Send + Sync + 'static {
    /// Where the log is, for messages.
    fn place(&self) -> String;

    /// The log from byte `offset` on; `None` when there is no log.
    fn read(&self, offset: u64) -> io::Result<Option<Box<dyn Read + Send>>>;

    /// Begins a log beside the current one; one that was begun before is thrown away.
    fn begin(&self) -> io::Result<Box<dyn LogFile>>;

    /// Throws away the log that was begun, and with it the room that it takes.
    fn discard(&self) -> io::Result<()>;

    /// Puts the log that was begun in the place of the current one.
    fn replace(&self) -> io::Result<()>;

    /// Makes names last.
    fn sync_names(&self) -> io::Result<()>;

    /// Keeps the bytes of the log from `offset` on beside it and makes them last; earlier ones go.
    fn keep_torn(&self, offset: u64) -> io::Result<()>;
}

/// A file that only grows.
pub(super) trait LogFile: Send {
    /// Writes some of `bytes` at the end and says how many. After an error none were written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Makes all that was written last. After an error nobody knows what does.
    fn sync(&mut self) -> io::Result<()>;
}

/// Writes all of `bytes`. After an error some may have been written.
pub(super) fn append_all(file: &mut dyn LogFile, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = append_some(file, bytes)?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Writes at least one of `bytes`, which are not empty.
pub(super) fn append_some(file: &mut dyn LogFile, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match file.append(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
