//! The frame of stored values: a version, the length of a JSON header in hexadecimal, the header,
//! then bytes. Readable from its first few kilobytes without the rest.

use bytes::{BufMut, Bytes, BytesMut};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes before the header: 4 of version, 8 of length.
pub const FRAME_PREFIX_BYTES: usize = 12;
const VERSION_BYTES: usize = 4;
/// Largest header in bytes. All limits of a message and of its two callbacks together stay well
/// below it.
const HEADER_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Why a stored value could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The value begins with another version, or with none.
    #[error("the stored value has an unknown version")]
    Version,
    /// The length is not 8 hexadecimal digits, or too large.
    #[error("the stored value has a wrong header length")]
    Length,
    /// The value ends before its header does.
    #[error("the stored value is cut off")]
    CutOff,
    /// The header cannot be written or read.
    #[error("the header of the stored value is not valid")]
    Header(#[source] serde_json::Error),
}

/// A header found at the beginning of a value.
pub(super) enum Found<H> {
    /// The header, and where the bytes after it begin.
    Header(H, usize),
    /// This many bytes of the value are needed to read the header.
    NeedMore(usize),
}

/// Writes a value.
pub(super) fn write<H: Serialize>(
    version: [u8; VERSION_BYTES],
    header: &H,
    rest: &[u8],
) -> Result<Bytes, FrameError> {
    let header = serde_json::to_vec(header).map_err(FrameError::Header)?;
    if header.len() > HEADER_BYTES_MAX {
        return Err(FrameError::Length);
    }
    let mut value = BytesMut::with_capacity(FRAME_PREFIX_BYTES + header.len() + rest.len());
    value.put_slice(&version);
    value.put_slice(format!("{:08x}", header.len()).as_bytes());
    value.put_slice(&header);
    value.put_slice(rest);
    Ok(value.freeze())
}

/// Reads the header of a value of which `start` is the beginning.
pub(super) fn read_header<H: DeserializeOwned>(
    version: [u8; VERSION_BYTES],
    start: &[u8],
) -> Result<Found<H>, FrameError> {
    let known = start.len().min(VERSION_BYTES);
    if start.get(..known) != version.get(..known) {
        return Err(FrameError::Version);
    }
    let Some(digits) = start.get(VERSION_BYTES..FRAME_PREFIX_BYTES) else {
        return Ok(Found::NeedMore(FRAME_PREFIX_BYTES));
    };
    let end = FRAME_PREFIX_BYTES + header_length(digits)?;
    let Some(header) = start.get(FRAME_PREFIX_BYTES..end) else {
        return Ok(Found::NeedMore(end));
    };
    let header = serde_json::from_slice(header).map_err(FrameError::Header)?;
    Ok(Found::Header(header, end))
}

/// Reads a whole value.
pub(super) fn read<H: DeserializeOwned>(
    version: [u8; VERSION_BYTES],
    value: &Bytes,
) -> Result<(H, Bytes), FrameError> {
    match read_header(version, value)? {
        Found::Header(header, end) => Ok((header, value.slice(end..))),
        Found::NeedMore(_) => Err(FrameError::CutOff),
    }
}

/// Whether a field has its default and is not stored.
pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn header_length(digits: &[u8]) -> Result<usize, FrameError> {
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(FrameError::Length);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| FrameError::Length)?;
    let length = usize::from_str_radix(digits, 16).map_err(|_| FrameError::Length)?;
    if length > HEADER_BYTES_MAX {
        return Err(FrameError::Length);
    }
    Ok(length)
}
