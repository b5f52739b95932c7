//! Making the keyspace that a log describes.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::database::Database;
use super::super::keyspace::Keyspace;
use super::disk::Disk;
use super::error::OpenError;
use super::reader::{LogReader, Next};
use super::tail;
use crate::clock::{Clock, ManualClock};

/// Time between two log lines on the progress.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Groups between two looks at the clock.
const LOOK_EVERY: u64 = 10_000;

/// What a log held.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    pub(super) keyspace: Keyspace,
    pub(super) commands: u64,
    /// Bytes of the groups that are whole.
    pub(super) bytes: u64,
    /// Bytes after them: of a group that was not written to its end.
    pub(super) torn_bytes: u64,
}

/// Replays the log of `disk` on an empty keyspace whose time stands at 0, so that nothing expires
/// but what the log says. Without a log the keyspace is empty. `clock` paces what is told meanwhile.
pub(super) fn replay(disk: &dyn Disk, clock: &dyn Clock) -> Result<Replayed, OpenError> {
    let read = |source| OpenError::Read {
        file: disk.place(),
        source,
    };
    let Some(source) = disk.read(0).map_err(read)? else {
        return Ok(Replayed::default());
    };
    let mut reader = LogReader::new(source);
    let mut replay = Replay {
        database: Database::new(Arc::new(ManualClock::at(0))),
        commands: 0,
        groups: 0,
        told_at: clock.monotonic(),
    };
    loop {
        let whole = reader.offset();
        let damaged = |at, what| OpenError::Damaged {
            file: disk.place(),
            at,
            whole,
            what,
        };
        let torn_bytes = match reader.next_group().map_err(read)? {
            Next::Group(commands) => {
                let applied = replay.apply(&commands);
                applied.map_err(|what| damaged(whole, what))?;
                replay.tell(clock, reader.offset());
                continue;
            }
            Next::End => 0,
            Next::Torn => {
                let torn = tail::torn_bytes(disk, whole).map_err(read)?;
                torn.ok_or_else(|| damaged(whole, "a step has no end".to_owned()))?
            }
            Next::Damaged { at, what } => {
                if !is_blank_from(disk, at).map_err(read)? {
                    return Err(damaged(at, what.to_owned()));
                }
                len_from(disk, whole).map_err(read)?
            }
        };
        return Ok(Replayed {
            keyspace: std::mem::take(&mut replay.database.keyspace),
            commands: replay.commands,
            bytes: whole,
            torn_bytes,
        });
    }
}

struct Replay {
    database: Database,
    commands: u64,
    groups: u64,
    told_at: Duration,
}

impl Replay {
    fn apply(&mut self, commands: &[Vec<Bytes>]) -> Result<(), String> {
        for words in commands {
            self.commands += 1;
            if let [name, number] = words.as_slice()
                && name.eq_ignore_ascii_case(b"SELECT")
            {
                if number == "0" {
                    continue;
                }
                return Err("it is for another database than 0".to_owned());
            }
            let name =
                || String::from_utf8_lossy(words.first().map_or(&[], |name| name)).into_owned();
            let answer = self.database.command_always(words);
            answer.map_err(|refusal| format!("{} is refused: {refusal}", name()))?;
        }
        self.groups += 1;
        Ok(())
    }

    fn tell(&mut self, clock: &dyn Clock, bytes: u64) {
        if !self.groups.is_multiple_of(LOOK_EVERY) {
            return;
        }
        let now = clock.monotonic();
        if now.saturating_sub(self.told_at) >= TELL_EVERY {
            self.told_at = now;
            tracing::info!(commands = self.commands, bytes, "the log is being replayed");
        }
    }
}

fn len_from(disk: &dyn Disk, offset: u64) -> std::io::Result<u64> {
    let rest = disk.read(offset)?;
    rest.map_or(Ok(0), |mut rest| {
        std::io::copy(&mut rest, &mut std::io::sink())
    })
}

/// Whether there is nothing but zeros from `offset` on: room that a lost machine had given to the
/// file, but not filled.
fn is_blank_from(disk: &dyn Disk, offset: u64) -> std::io::Result<bool> {
    let Some(mut rest) = disk.read(offset)? else {
        return Ok(true);
    };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = rest.read(&mut buffer)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        if bytes.is_empty() || bytes.iter().any(|byte| *byte != 0) {
            return Ok(bytes.is_empty());
        }
    }
}
