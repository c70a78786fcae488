//! The chunked coding, read strictly and written plainly.
//!
//! Chunks are taken apart and put together again, so that whatever a lenient
//! server might read differently (extensions, odd spacing, a bare line feed) is
//! either refused here or not passed on.

use std::io::Write as _;

use crate::http1::fields::{FieldFault, Fields, is_text};

/// Reads chunks from pieces of any size.
#[derive(Debug)]
pub(crate) struct Decoder {
    state: State,
    /// Bytes of the current chunk's size line.
    line: usize,
    /// Bytes of extensions so far, beyond what the data has earned.
    extensions: u64,
    block: Vec<u8>,
    trailers: Fields,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
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
pub(crate) struct Step {
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

/// Extensions are passed on to nobody; this many bytes of them are tolerated.
const LONGEST_LINE: usize = 256;
/// And this many in one body, beyond one for each byte of data.
const MOST_EXTENSIONS: u64 = 16 * 1024;
const LONGEST_TRAILERS: usize = 8 * 1024;
const MOST_TRAILERS: usize = 32;
/// Fifteen digits are a petabyte, and cannot overflow.
const MOST_DIGITS: u8 = 15;

impl Decoder {
    pub(crate) fn new() -> Self {
        let state = State::Size { value: 0, digits: 0 };
        let (line, extensions) = (0, 0);
        Self { state, line, extensions, block: Vec::new(), trailers: Fields::default() }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
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
    pub(crate) fn step(&mut self, input: &[u8]) -> Result<Step, ChunkFault> {
        let mut framing = 0;
        for byte in input {
            if matches!(self.state, State::Data(_) | State::Done) {
                break;
            }
            self.frame(*byte)?;
            framing += 1;
        }
        let mut data = 0;
        if let State::Data(left) = &mut self.state {
            let available = input.len() - framing;
            data = usize::try_from(*left).map_or(available, |left| left.min(available));
            *left -= data as u64;
            self.extensions = self.extensions.saturating_sub(data as u64);
            if *left == 0 {
                self.state = State::DataReturn;
            }
        }
        Ok(Step { framing, data })
    }

    fn frame(&mut self, byte: u8) -> Result<(), ChunkFault> {
        self.state = match (self.state, byte) {
            (State::Size { value, digits }, digit) if digit.is_ascii_hexdigit() => {
                if digits == MOST_DIGITS {
                    return Err(ChunkFault::Size);
                }
                let digit = char::from(digit).to_digit(16).ok_or(ChunkFault::Size)?;
                State::Size { value: value * 16 + u64::from(digit), digits: digits + 1 }
            }
            (State::Size { digits: 0, .. }, _) => return Err(ChunkFault::Size),
            (State::Size { value, .. } | State::Extension(value), b'\r') => State::SizeFeed(value),
            (State::Size { value, .. }, b';') => State::Extension(value),
            (State::Size { .. }, _) => return Err(ChunkFault::Size),
            (State::Extension(value), byte) if is_text(byte) => {
                self.line += 1;
                self.extensions += 1;
                if self.line > LONGEST_LINE || self.extensions > MOST_EXTENSIONS {
                    return Err(ChunkFault::Extension);
                }
                State::Extension(value)
            }
            (State::Extension(_), _) => return Err(ChunkFault::Extension),
            (State::SizeFeed(0), b'\n') => State::Trailers,
            (State::SizeFeed(value), b'\n') => State::Data(value),
            (State::SizeFeed(_), _) => return Err(ChunkFault::Size),
            (State::DataReturn, b'\r') => State::DataFeed,
            (State::DataFeed, b'\n') => {
                self.line = 0;
                State::Size { value: 0, digits: 0 }
            }
            (State::DataReturn | State::DataFeed, _) => return Err(ChunkFault::DataEnd),
            (State::Trailers, byte) => self.trailer(byte)?,
            (state @ (State::Data(_) | State::Done), _) => state,
        };
        Ok(())
    }

    fn trailer(&mut self, byte: u8) -> Result<State, ChunkFault> {
        self.block.push(byte);
        if self.block.len() > LONGEST_TRAILERS {
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
            _ => return Ok(State::Trailers),
        };
        self.trailers.read(fields, MOST_TRAILERS)?;
        Ok(State::Done)
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
