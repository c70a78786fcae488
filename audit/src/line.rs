//! One event to one line, and back.
//!
//! **Invariant:** a written line consists of the bytes 0x20 to 0x7e and one
//! newline. Everything else is a `\uXXXX` escape: control characters of either
//! kind, line separators, bidirectional overrides, zero-width characters, and
//! simply all that is not ASCII. A name cannot end its line, close its string,
//! recolour a terminal that shows the file, or look like another name. The cost
//! is that honest non-ASCII text is spelled out; host names and paths are ASCII
//! already.
//!
//! A line is serialized once. What is hashed, stored, sealed and searched is
//! those bytes; nothing ever re-serializes a line to check it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

use crate::event::{Event, FORMAT};
use crate::text::Text;

/// No line is longer, newline not counted: the limits of all texts of the
/// largest kind, each byte escaped, stay below it.
pub const LONGEST: usize = 256 * 1024;

/// Appends `event` and a newline to `out`.
pub fn write(event: &Event, out: &mut Vec<u8>) {
    write_json(event, out);
    out.push(b'\n');
}

/// Appends any value the way lines are written, without a newline.
pub(crate) fn write_json(value: &impl Serialize, out: &mut Vec<u8>) {
    value
        .serialize(&mut Serializer::with_formatter(out, Ascii))
        .expect("a Vec takes every byte, and our types have only strings as keys");
}

/// Reads one line, given without its newline.
///
/// ```
/// let err = audit::line::read(b"{}").unwrap_err();
/// assert!(err.to_string().starts_with("not an audit event: missing field"));
/// ```
pub fn read(line: &[u8]) -> Result<Event, LineError> {
    if line.len() > LONGEST {
        return Err(LineError::TooLong { bytes: line.len() as u64 });
    }
    let event: Event =
        serde_json::from_slice(line).map_err(|err| LineError::NotAnEvent { why: told(&err) })?;
    if event.v != FORMAT {
        return Err(LineError::Version { found: event.v });
    }
    Ok(event)
}

/// Why a line could not be read. The line itself is hostile, so what is quoted
/// of it is bounded and must still be escaped before it is shown.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LineError {
    #[error("not an audit event: {why}")]
    NotAnEvent { why: Text<256> },
    #[error("a line of {bytes} bytes; the longest that is ever written has {LONGEST}")]
    TooLong { bytes: u64 },
    #[error("format version {found}; this program reads version {FORMAT}")]
    Version { found: u32 },
}

/// The parser's complaint, without control characters it may quote.
pub(crate) fn told(err: &serde_json::Error) -> Text<256> {
    err.to_string().escape_debug().to_string().into()
}

/// Writes JSON in printable ASCII alone.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()>
    where
        W: ?Sized + Write,
    {
        if is_printable(fragment.as_bytes()) {
            return writer.write_all(fragment.as_bytes());
        }
        for character in fragment.chars() {
            match character {
                ' '..='~' => writer.write_all(&[character as u8])?,
                _ => {
                    for unit in character.encode_utf16(&mut [0; 2]) {
                        write!(writer, "\\u{unit:04x}")?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn is_printable(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| matches!(byte, b' '..=b'~'))
}
