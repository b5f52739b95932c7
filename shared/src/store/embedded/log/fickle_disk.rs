//! Test equipment: a disk in memory that forgets in a crash what was not synced, and that fails
//! when it is told to.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::disk::{Disk, LogFile};

const LOG: &str = "log";
const NEW: &str = "new";
const TORN: &str = "torn";

/// A disk, and the machine it is in. Clones are one.
#[derive(Clone, Default)]
pub(super) struct FickleDisk(Arc<(Mutex<Machine>, Condvar)>);

#[derive(Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that can go wrong by itself"
)]
struct Machine {
    files: Vec<Contents>,
    names: BTreeMap<&'static str, usize>,
    lasting_names: BTreeMap<&'static str, usize>,
    is_off: bool,
    /// Changes so far.
    operations: u64,
    /// The machine is lost at this one.
    crash_at: Option<u64>,
    syncs: u64,
    sync_takes: Duration,
    /// Syncs wait as long as this is set.
    holds_syncs: bool,
    /// Bytes that can still be written.
    room: Option<usize>,
    fails_syncs: bool,
    fails_names: bool,
}

#[derive(Clone, Default)]
struct Contents {
    bytes: Vec<u8>,
    synced: usize,
}

/// What a crash leaves of what was not synced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mercy {
    /// How many bytes of each file.
    pub(super) bytes: usize,
    /// Whether names last.
    pub(super) names: bool,
}

impl FickleDisk {
    /// A disk that has the log `bytes`.
    pub(super) fn with_log(bytes: &[u8]) -> Self {
        let disk = Self::default();
        {
            let mut machine = disk.lock();
            let (bytes, synced) = (bytes.to_vec(), bytes.len());
            machine.files.push(Contents { bytes, synced });
            machine.names.insert(LOG, 0);
            machine.lasting_names.insert(LOG, 0);
        }
        disk
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.0.0.lock().unwrap()
    }

    /// All bytes of the log.
    pub(super) fn log(&self) -> Vec<u8> {
        self.contents(LOG).unwrap_or_default()
    }

    /// What was kept of a torn end.
    pub(super) fn torn(&self) -> Option<Vec<u8>> {
        self.contents(TORN)
    }

    fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let machine = self.lock();
        let file = machine.names.get(name)?;
        Some(machine.files[*file].bytes.clone())
    }

    /// Loses the machine: from now on nothing succeeds. Returns what another machine finds.
    pub(super) fn crash(&self, mercy: Mercy) -> Self {
        let mut machine = self.lock();
        machine.is_off = true;
        self.0.1.notify_all();
        let names = if mercy.names {
            &machine.names
        } else {
            &machine.lasting_names
        };
        let survivor = |contents: &Contents| {
            let unsynced = contents.bytes.len() - contents.synced;
            let kept = contents.synced + mercy.bytes.min(unsynced);
            let bytes = contents.bytes[..kept].to_vec();
            Contents {
                bytes,
                synced: kept,
            }
        };
        let found = Machine {
            files: machine.files.iter().map(survivor).collect(),
            names: names.clone(),
            lasting_names: names.clone(),
            ..Machine::default()
        };
        Self(Arc::new((Mutex::new(found), Condvar::new())))
    }

    /// Loses the machine at its change number `operation`, counted from 0.
    pub(super) fn crash_at(&self, operation: u64) {
        self.lock().crash_at = Some(operation);
    }

    pub(super) fn operations(&self) -> u64 {
        self.lock().operations
    }

    pub(super) fn syncs(&self) -> u64 {
        self.lock().syncs
    }

    pub(super) fn let_syncs_take(&self, time: Duration) {
        self.lock().sync_takes = time;
    }

    pub(super) fn hold_syncs(&self, holds: bool) {
        self.lock().holds_syncs = holds;
        self.0.1.notify_all();
    }

    /// Leaves room for so many bytes more, or for any number.
    pub(super) fn set_room(&self, room: Option<usize>) {
        self.lock().room = room;
    }

    pub(super) fn fail_syncs(&self) {
        self.lock().fails_syncs = true;
    }

    pub(super) fn fail_names(&self) {
        self.lock().fails_names = true;
    }
}

impl Machine {
    /// Begins a change; an error once the machine is lost.
    fn change(&mut self) -> io::Result<()> {
        self.is_off |= self.crash_at.is_some_and(|at| self.operations >= at);
        self.operations += 1;
        if self.is_off {
            return Err(io::Error::other("the machine is off"));
        }
        Ok(())
    }
}

impl Disk for FickleDisk {
    fn place(&self) -> String {
        "fickle".to_owned()
    }

    fn read(&self, offset: u64) -> io::Result<Option<Box<dyn Read + Send>>> {
        let Some(bytes) = self.contents(LOG) else {
            return Ok(None);
        };
        let mut cursor = Cursor::new(bytes);
        cursor.set_position(offset);
        Ok(Some(Box::new(cursor)))
    }

    fn begin(&self) -> io::Result<Box<dyn LogFile>> {
        let mut machine = self.lock();
        machine.change()?;
        let file = machine.files.len();
        machine.files.push(Contents::default());
        machine.names.insert(NEW, file);
        let disk = self.clone();
        Ok(Box::new(FickleFile { disk, file }))
    }

    fn discard(&self) -> io::Result<()> {
        let mut machine = self.lock();
        machine.change()?;
        let new = machine.names.remove(NEW).ok_or(io::ErrorKind::NotFound)?;
        let freed = std::mem::take(&mut machine.files[new]).bytes.len();
        machine.room = machine.room.map(|room| room + freed);
        Ok(())
    }

    fn replace(&self) -> io::Result<()> {
        let mut machine = self.lock();
        machine.change()?;
        let new = machine.names.remove(NEW).ok_or(io::ErrorKind::NotFound)?;
        machine.names.insert(LOG, new);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        let mut machine = self.lock();
        machine.change()?;
        if machine.fails_names {
            return Err(io::Error::other("no name lasts"));
        }
        machine.lasting_names = machine.names.clone();
        Ok(())
    }

    fn keep_torn(&self, offset: u64) -> io::Result<()> {
        let bytes = self.log().split_off(usize::try_from(offset).unwrap());
        let mut machine = self.lock();
        machine.change()?;
        let (file, synced) = (machine.files.len(), bytes.len());
        machine.files.push(Contents { bytes, synced });
        machine.names.insert(TORN, file);
        machine.lasting_names = machine.names.clone();
        Ok(())
    }
}

struct FickleFile {
    disk: FickleDisk,
    file: usize,
}

impl LogFile for FickleFile {
    /// Some of `bytes`, as a disk does that is nearly full, or that is lost meanwhile.
    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut machine = self.disk.lock();
        let was_off = machine.is_off;
        let changed = machine.change();
        let most = match machine.room {
            _ if changed.is_err() && was_off => return changed.map(|()| 0),
            _ if changed.is_err() => bytes.len() / 2,
            Some(0) => return Err(io::ErrorKind::StorageFull.into()),
            Some(room) => room.min(bytes.len()),
            None => bytes.len(),
        };
        machine.room = machine.room.map(|room| room - most.min(room));
        machine.files[self.file].bytes.extend(&bytes[..most]);
        changed.map(|()| most)
    }

    fn sync(&mut self) -> io::Result<()> {
        let takes = self.disk.lock().sync_takes;
        std::thread::sleep(takes);
        let held = |machine: &mut Machine| machine.holds_syncs && !machine.is_off;
        let (machine, changed) = &*self.disk.0;
        let mut machine = changed.wait_while(machine.lock().unwrap(), held).unwrap();
        machine.change()?;
        if machine.fails_syncs {
            return Err(io::Error::other("nothing lasts"));
        }
        machine.syncs += 1;
        let contents = &mut machine.files[self.file];
        contents.synced = contents.bytes.len();
        Ok(())
    }
}
