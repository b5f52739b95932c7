//! Telling a torn end from damage that only looks like one.
//!
//! A length that was damaged may reach beyond the end of the log, as that of an interrupted write
//! does. But an interrupted write is the last one: nothing whole comes after its beginning.

use std::io::{self, Read};

use super::disk::Disk;
use super::reader::{LogReader, Next};

/// More than one step can write, so more than an interrupted write can leave.
const TORN_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// What begins the next step of more than one command.
const BEGINNING: &[u8] = b"\r\n*1\r\n$5\r\nMULTI\r\n";
/// Beginnings that are looked at. A body may hold any number that are none.
const BEGINNINGS_MAX: usize = 1_000;

/// How many bytes the log has from byte `offset` on, where a group begins that has no end; `None`
/// when they cannot be an interrupted write.
pub(super) fn torn_bytes(disk: &dyn Disk, offset: u64) -> io::Result<Option<u64>> {
    let mut tail = Vec::new();
    if let Some(rest) = disk.read(offset)? {
        rest.take(TORN_BYTES_MAX + 1).read_to_end(&mut tail)?;
    }
    let len = tail.len() as u64;
    Ok((len <= TORN_BYTES_MAX && !goes_on(&tail)).then_some(len))
}

/// Whether whole groups follow somewhere in `tail`, up to its very end.
fn goes_on(tail: &[u8]) -> bool {
    let newline = 2;
    let beginnings = tail.windows(BEGINNING.len()).enumerate();
    beginnings
        .filter(|(_, window)| *window == BEGINNING)
        .take(BEGINNINGS_MAX)
        .filter_map(|(at, _)| tail.get(at + newline..))
        .any(is_whole)
}

fn is_whole(groups: &[u8]) -> bool {
    let mut reader = LogReader::new(groups);
    loop {
        match reader.next_group() {
            Ok(Next::Group(_)) => {}
            Ok(Next::End) => return true,
            _ => return false,
        }
    }
}
