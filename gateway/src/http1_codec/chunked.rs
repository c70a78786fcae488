//! The chunked coding, read strictly and written plainly.
//!
//! Chunks are taken apart and put together again, so that whatever a lenient
//! server might read differently (extensions, odd spacing, a bare line feed) is
//! either refused here or not passed on.

use std::io::Write as _;

use crate::http1_codec::fields::{FieldFault, Fields, is_text};

/// Reads chunks from pieces of any size.
#[derive(Debug)]
pub(crate) struct ChunkDecoder {
    state: ChunkState,
    /// Bytes of the current chunk's size line.
    line: usize,
    /// Bytes of extensions so far, beyond what the data has earned.
    extensions: u64,
    block: Vec<u8>,
    trailers: Fields,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ChunkState {
    Data(u64),
    DataFeed,
    DataReturn,
    Done,
    Extension(u64),
    Size { value: u64, digits: u8 },
    SizeFeed(u64),
    Trailers,
}

/// What the next bytes are: first framing, which ends here, then data.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ChunkStep {
    pub(crate) framing: usize,
    pub(crate) data: usize,
}

/// Why a chunked body is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ChunkFault {
    #[error("a chunk's data does not end in CR LF")]
    DataEnd,
    #[error("a chunk's extension is too long")]
    Extension,
    #[error("a trailer is wrong: {0}")]
    Field(#[from] FieldFault),
    #[error("a chunk's size is not a hexadecimal number, or too large")]
    Size,
    #[error("the trailers are too long")]
    Trailers,
}

/// Extensions are not passed on; this many bytes of one are tolerated.
const MAX_EXTENSION_LINE_BYTES: usize = 256;
/// And this many in one body, beyond one for each byte of data.
const MAX_EXTENSION_BYTES: u64 = 16 * 1024;
const MAX_TRAILER_BYTES: usize = 8 * 1024;
const MAX_TRAILERS: usize = 32;
/// Fifteen digits are a petabyte, and cannot overflow.
const MAX_SIZE_DIGITS: u8 = 15;

impl ChunkDecoder {
    pub(crate) fn new() -> Self {
        let state = ChunkState::Size { value: 0, digits: 0 };
        let (line, extensions) = (0, 0);
        Self { state, line, extensions, block: Vec::new(), trailers: Fields::default() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// What came after the last chunk. Whether it may be passed on is for
    /// [`crate::trailers`] to say.
    pub(crate) fn trailers(&self) -> &Fields {
        &self.trailers
    }

    pub(crate) fn trailers_mut(&mut self) -> &mut Fields {
        &mut self.trailers
    }

    /// Takes framing bytes off the front of `input` until data begins, and says
    /// how much of what follows is data. Both count as taken.
    pub(crate) fn step(&mut self, input: &[u8]) -> Result<ChunkStep, ChunkFault> {
        let mut framing = 0;
        for byte in input {
            if matches!(self.state, ChunkState::Data(_) | ChunkState::Done) {
                break;
            }
            self.frame(*byte)?;
            framing += 1;
        }
        let mut data = 0;
        if let ChunkState::Data(left) = &mut self.state {
            let available = input.len() - framing;
            data = usize::try_from(*left).map_or(available, |left| left.min(available));
            *left -= data as u64;
            self.extensions = self.extensions.saturating_sub(data as u64);
            if *left == 0 {
                self.state = ChunkState::DataReturn;
            }
        }
        Ok(ChunkStep { framing, data })
    }

    fn frame(&mut self, byte: u8) -> Result<(), ChunkFault> {
        self.state = match (self.state, byte) {
            (ChunkState::Size { value, digits }, digit) if digit.is_ascii_hexdigit() => {
                if digits == MAX_SIZE_DIGITS {
                    return Err(ChunkFault::Size);
                }
                let digit = char::from(digit).to_digit(16).ok_or(ChunkFault::Size)?;
                ChunkState::Size { value: value * 16 + u64::from(digit), digits: digits + 1 }
            }
            (ChunkState::Size { digits: 0, .. }, _) => return Err(ChunkFault::Size),
            (ChunkState::Size { value, .. } | ChunkState::Extension(value), b'\r') => {
                ChunkState::SizeFeed(value)
            }
            (ChunkState::Size { value, .. }, b';') => ChunkState::Extension(value),
            (ChunkState::Size { .. }, _) => return Err(ChunkFault::Size),
            (ChunkState::Extension(value), byte) if is_text(byte) => {
                self.line += 1;
                self.extensions += 1;
                if self.line > MAX_EXTENSION_LINE_BYTES || self.extensions > MAX_EXTENSION_BYTES {
                    return Err(ChunkFault::Extension);
                }
                ChunkState::Extension(value)
            }
            (ChunkState::Extension(_), _) => return Err(ChunkFault::Extension),
            (ChunkState::SizeFeed(0), b'\n') => ChunkState::Trailers,
            (ChunkState::SizeFeed(value), b'\n') => ChunkState::Data(value),
            (ChunkState::SizeFeed(_), _) => return Err(ChunkFault::Size),
            (ChunkState::DataReturn, b'\r') => ChunkState::DataFeed,
            (ChunkState::DataFeed, b'\n') => {
                self.line = 0;
                ChunkState::Size { value: 0, digits: 0 }
            }
            (ChunkState::DataReturn | ChunkState::DataFeed, _) => return Err(ChunkFault::DataEnd),
            (ChunkState::Trailers, byte) => self.trailer(byte)?,
            (state @ (ChunkState::Data(_) | ChunkState::Done), _) => state,
        };
        Ok(())
    }

    fn trailer(&mut self, byte: u8) -> Result<ChunkState, ChunkFault> {
        self.block.push(byte);
        if self.block.len() > MAX_TRAILER_BYTES {
            return Err(ChunkFault::Trailers);
        }
        let fields = match self.block.as_slice() {
            [b'\r', b'\n'] => &[],
            [fields @ .., b'\r', b'\n', b'\r', b'\n'] => {
                self.block.get(..fields.len() + 2).unwrap_or_default()
            }
            // A line feed without its return would let the block go on past
            // what others take for its end.
            [.., last, b'\n'] if *last != b'\r' => return Err(FieldFault::LineEnd.into()),
            _ => return Ok(ChunkState::Trailers),
        };
        self.trailers.read(fields, MAX_TRAILERS)?;
        Ok(ChunkState::Done)
    }
}

/// How many bytes [`write_chunk`] writes around so much data.
pub(crate) fn around(length: usize) -> usize {
    let digits = length.checked_ilog(16).map_or(1, |power| power as usize + 1);
    digits + b"\r\n\r\n".len()
}

/// Writes one chunk.
pub(crate) fn write_chunk(data: &[u8], out: &mut Vec<u8>) {
    write!(out, "{:x}\r\n", data.len()).expect("writing to memory cannot fail");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// What ends a chunked body without trailers.
pub(crate) const END: &[u8] = b"0\r\n\r\n";

/// Writes the end of a chunked body.
pub(crate) fn write_end(trailers: &Fields, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    for (_, name, value) in trailers.iter() {
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
