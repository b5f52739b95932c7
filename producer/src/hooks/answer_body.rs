//! Reading the answer of a control: at most 64 KiB, counted after decoding, piece by piece, so that
//! no receiver decides how much memory it takes.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use flate2::{Decompress, FlushDecompress, Status};
use hookstash_shared::http::OpenResponse;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};

use super::error::{DeliveryError, HookErrorCode};

/// Most bytes of an answer, after decoding.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of an answer before decoding: a coding may add a little, but nothing makes an answer
/// twice as long.
const ENCODED_BYTES_MAX: usize = 2 * ANSWER_BYTES_MAX;
/// Decoded at a time.
const STEP_BYTES: usize = 4 * 1024;

/// Reads the body to its end.
///
/// # Errors
/// `response_too_large`, `invalid_response` for a coding that is unknown or broken, or how the
/// call failed.
pub(crate) async fn read(answer: &mut OpenResponse) -> Result<Vec<u8>, DeliveryError> {
    let declared = answer.headers().get(CONTENT_LENGTH);
    let declared = declared.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > ANSWER_BYTES_MAX as u64) {
        return Err(too_large());
    }
    let mut decoder = Decoder::of(answer)?;
    let mut encoded = 0;
    while let Some(chunk) = answer.chunk().await? {
        encoded += chunk.len();
        if encoded > ENCODED_BYTES_MAX {
            return Err(too_large());
        }
        decoder.decode(&chunk)?;
    }
    decoder.finish(encoded == 0)
}

fn too_large() -> DeliveryError {
    DeliveryError::new(HookErrorCode::ResponseTooLarge)
}

fn invalid() -> DeliveryError {
    DeliveryError::new(HookErrorCode::InvalidResponse)
}

/// The decoded bytes, as many as are allowed.
#[derive(Default)]
struct Capped {
    bytes: Vec<u8>,
    is_full: bool,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > ANSWER_BYTES_MAX {
            self.is_full = true;
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Decoder {
    Plain(Capped),
    Gzip(Box<MultiGzDecoder<Capped>>),
    Deflate(Deflate),
}

impl Decoder {
    fn of(answer: &OpenResponse) -> Result<Self, DeliveryError> {
        let mut codings = answer.headers().get_all(CONTENT_ENCODING).iter();
        let coding = match (codings.next(), codings.next()) {
            (None, _) => "identity".to_owned(),
            (Some(coding), None) => coding.to_str().map_err(|_| invalid())?.to_ascii_lowercase(),
            (Some(_), Some(_)) => return Err(invalid()),
        };
        match coding.trim() {
            "" | "identity" => Ok(Self::Plain(Capped::default())),
            "gzip" | "x-gzip" => Ok(Self::Gzip(Box::new(MultiGzDecoder::new(Capped::default())))),
            "deflate" => Ok(Self::Deflate(Deflate::default())),
            _ => Err(invalid()),
        }
    }

    fn decode(&mut self, chunk: &[u8]) -> Result<(), DeliveryError> {
        match self {
            Self::Plain(out) => out.write_all(chunk).map_err(|_| too_large()),
            Self::Gzip(decoder) => decoder
                .write_all(chunk)
                .map_err(|_| failure(decoder.get_ref())),
            Self::Deflate(decoder) => decoder.decode(chunk),
        }
    }

    /// All decoded bytes. Nothing at all is a complete answer in every coding.
    fn finish(self, is_empty: bool) -> Result<Vec<u8>, DeliveryError> {
        match self {
            Self::Plain(out) => Ok(out.bytes),
            Self::Gzip(_) | Self::Deflate(_) if is_empty => Ok(Vec::new()),
            Self::Gzip(mut decoder) => {
                let finished = decoder.try_finish();
                finished.map_err(|_| failure(decoder.get_ref()))?;
                let out = decoder.finish().map_err(|_| invalid())?;
                Ok(out.bytes)
            }
            Self::Deflate(decoder) if decoder.has_ended => Ok(decoder.out.bytes),
            Self::Deflate(_) => Err(invalid()),
        }
    }
}

fn failure(out: &Capped) -> DeliveryError {
    if out.is_full { too_large() } else { invalid() }
}

/// `deflate`: with the header that the standard asks for, or without, as some servers send it.
#[derive(Default)]
struct Deflate {
    decoder: Option<Decompress>,
    out: Capped,
    has_ended: bool,
}

impl Deflate {
    fn decode(&mut self, chunk: &[u8]) -> Result<(), DeliveryError> {
        /// The method in the header's first byte, which no stream without a header begins with.
        const METHOD: u8 = 8;
        let Some(first) = chunk.first() else {
            return Ok(());
        };
        let decoder = self
            .decoder
            .get_or_insert_with(|| Decompress::new(first & 0x0f == METHOD));
        let begun = decoder.total_in();
        let mut step = [0; STEP_BYTES];
        loop {
            let used = usize::try_from(decoder.total_in() - begun).unwrap_or(usize::MAX);
            let input = chunk.get(used..).unwrap_or_default();
            if self.has_ended {
                return if input.is_empty() {
                    Ok(())
                } else {
                    Err(invalid())
                };
            }
            let before = decoder.total_out();
            let status = decoder
                .decompress(input, &mut step, FlushDecompress::None)
                .map_err(|_| invalid())?;
            let made = usize::try_from(decoder.total_out() - before).unwrap_or(0);
            let made = step.get(..made).unwrap_or_default();
            self.out.write_all(made).map_err(|_| too_large())?;
            self.has_ended = status == Status::StreamEnd;
            let rest = chunk.len() as u64 - (decoder.total_in() - begun);
            if rest == 0 && made.len() < STEP_BYTES && !self.has_ended {
                return Ok(());
            }
            if rest == input.len() as u64 && made.is_empty() && !self.has_ended {
                return Err(invalid());
            }
        }
    }
}
