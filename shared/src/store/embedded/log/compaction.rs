//! Writing a log anew: what the store holds, then what the old log got meanwhile.

use std::io::{self, Read};

use super::super::keyspace::Keyspace;
use super::disk::{Disk, LogFile, append_all};
use super::snapshot;

/// How often the new log catches up with the old one before the writer's thread is held up.
const CATCH_UPS: usize = 8;
/// What may be left to that thread.
const REST_BYTES: u64 = 1024 * 1024;
/// Bytes copied at once.
const CHUNK_BYTES: usize = 256 * 1024;

/// A log that can take the place of the old one after [`catch_up`].
pub(super) struct Compacted {
    pub(super) file: Box<dyn LogFile>,
    /// Its bytes.
    pub(super) len: u64,
    /// Up to which byte of the old log it has everything.
    pub(super) upto: u64,
}

/// Throws away a log that is of no use and may fill the disk.
pub(super) fn discard(disk: &dyn Disk) {
    // There may be none; and if one stays, the next one takes its place.
    drop(disk.discard());
}

/// Writes a log of `keyspace`, which has the effects of the old log up to byte `from`, and syncs
/// it. `on_disk` says how many bytes of the old log can be read by now; nothing when a new log is
/// not wanted any more.
pub(super) fn compact(
    disk: &dyn Disk,
    keyspace: &Keyspace,
    from: u64,
    on_disk: &dyn Fn() -> Option<u64>,
) -> io::Result<Compacted> {
    // Here and not where it is taken over: that thread may be waiting for room.
    write(disk, keyspace, from, on_disk).inspect_err(|_| discard(disk))
}

fn write(
    disk: &dyn Disk,
    keyspace: &Keyspace,
    from: u64,
    on_disk: &dyn Fn() -> Option<u64>,
) -> io::Result<Compacted> {
    let wanted = || on_disk().ok_or_else(|| io::Error::other("the store is being closed"));
    let mut file = disk.begin()?;
    let len = snapshot::write(keyspace, &mut *file, &|| wanted().map(drop))?;
    let upto = from;
    let mut new = Compacted { file, len, upto };
    for _ in 0..CATCH_UPS {
        let to = wanted()?;
        if to <= new.upto.saturating_add(REST_BYTES) {
            break;
        }
        catch_up(disk, &mut new, to)?;
    }
    new.file.sync()?;
    Ok(new)
}

/// Copies what the old log has up to byte `to`, where a group ends.
pub(super) fn catch_up(disk: &dyn Disk, new: &mut Compacted, to: u64) -> io::Result<()> {
    if to <= new.upto {
        return Ok(());
    }
    let mut missing = to - new.upto;
    let mut old = disk.read(new.upto)?.ok_or(io::ErrorKind::NotFound)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    while missing > 0 {
        let most = usize::try_from(missing).map_or(CHUNK_BYTES, |missing| missing.min(CHUNK_BYTES));
        let bytes = chunk.get_mut(..most).unwrap_or_default();
        old.read_exact(bytes)?;
        append_all(&mut *new.file, bytes)?;
        missing -= most as u64;
    }
    new.len += to - new.upto;
    new.upto = to;
    Ok(())
}
