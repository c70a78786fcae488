//! What the terminal showed, as it happened (asciicast v3).
//!
//! One JSON line per event, each written in one go, so the file is usable
//! whenever it is cut off: a reader drops the line that did not end. Times are
//! intervals in whole microseconds of one clock, so rounding does not add up.
//!
//! What was typed is not recorded unless somebody asks: it holds passwords.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use files::printable::ascii_json;
use serde::{Deserialize, Serialize};

/// The first line of a recording.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Header {
    pub version: u32,
    pub term: Term,
    /// When it began, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// The terminal's size.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Term {
    pub cols: u16,
    pub rows: u16,
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

impl Header {
    /// The header of a command that starts now.
    pub fn new(command: &[String], cols: u16, rows: u16) -> Self {
        Self {
            version: 3,
            term: Term { cols, rows, kind: None },
            timestamp: Some(jiff::Timestamp::now().as_second()),
            command: Some(command.join(" ")),
            title: None,
        }
    }
}

/// Where output came from. Both are shown in one terminal, but a character may
/// be cut in two in each of them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    Error,
    Output,
}

/// A recording in progress.
pub struct Transcript<W = File> {
    out: W,
    clock: Box<dyn FnMut() -> Duration + Send>,
    last_micros: u64,
    /// Bytes of output that may still be recorded.
    left: u64,
    left_out: u64,
    pending: [Pending; 2],
}

impl<W> std::fmt::Debug for Transcript<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transcript").field("left", &self.left).finish_non_exhaustive()
    }
}

impl Transcript {
    /// Begins a recording in a new file, of at most `limit` bytes of output; `clock`
    /// says how much time has passed.
    pub fn create(
        path: &Path,
        header: &Header,
        limit: u64,
        clock: Box<dyn FnMut() -> Duration + Send>,
    ) -> io::Result<Self> {
        let out = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
        Self::begin(out, header, limit, clock)
    }
}

impl<W: Write> Transcript<W> {
    /// Begins a recording; `clock` says how much time has passed.
    pub fn begin(
        mut out: W,
        header: &Header,
        limit: u64,
        clock: Box<dyn FnMut() -> Duration + Send>,
    ) -> io::Result<Self> {
        let mut line = ascii_json(&serde_json::to_string(header)?);
        line.push('\n');
        out.write_all(line.as_bytes())?;
        let pending = [Pending::default(), Pending::default()];
        Ok(Self { out, clock, last_micros: 0, left: limit, left_out: 0, pending })
    }

    /// What the command wrote. Beyond the limit it is counted and forgotten.
    pub fn output(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX);
        let (kept, over) = bytes.split_at(bytes.len().min(room));
        self.left -= kept.len() as u64;
        let [output, error] = &mut self.pending;
        let pending = match stream {
            Stream::Error => error,
            Stream::Output => output,
        };
        let text = pending.text(kept);
        if !text.is_empty() {
            self.event("o", &text)?;
        }
        if !over.is_empty() && self.left_out == 0 {
            self.event("m", "the output limit was reached; the rest is not recorded")?;
        }
        self.left_out += over.len() as u64;
        Ok(())
    }

    /// What was typed. Only for those who asked to record it.
    pub fn input(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.event("i", &String::from_utf8_lossy(bytes))
    }

    pub fn resize(&mut self, cols: u16, rows: u16) -> io::Result<()> {
        self.event("r", &format!("{cols}x{rows}"))
    }

    /// The command ended; nothing comes after. Returns how many bytes of output
    /// were left out.
    pub fn exit(mut self, code: i32) -> io::Result<u64> {
        let [output, error] = &mut self.pending;
        let rest = output.rest() + &error.rest();
        if !rest.is_empty() {
            self.event("o", &rest)?;
        }
        self.event("x", &code.to_string())?;
        self.out.flush()?;
        Ok(self.left_out)
    }

    fn event(&mut self, code: &str, data: &str) -> io::Result<()> {
        let now = u64::try_from((self.clock)().as_micros()).unwrap_or(u64::MAX);
        let interval = now.saturating_sub(self.last_micros);
        self.last_micros = self.last_micros.max(now);
        let data = ascii_json(&serde_json::to_string(data)?);
        let mut line = String::new();
        writeln!(
            line,
            "[{}.{:06}, \"{code}\", {data}]",
            interval / 1_000_000,
            interval % 1_000_000
        )
        .expect("writing to a string cannot fail");
        self.out.write_all(line.as_bytes())
    }
}

/// The beginning of a character whose end has not come yet.
#[derive(Debug, Default)]
struct Pending(Vec<u8>);

impl Pending {
    /// The text that is whole now. Bytes that no text has become `U+FFFD`: a
    /// recording is text.
    fn text(&mut self, bytes: &[u8]) -> String {
        self.0.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.0.len());
        let mut kept = Vec::new();
        for chunk in self.0.utf8_chunks() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            // Only the last chunk can be a character that goes on.
            let at_end = invalid.as_ptr_range().end == self.0.as_ptr_range().end;
            if at_end && std::str::from_utf8(invalid).is_err_and(|err| err.error_len().is_none()) {
                kept = invalid.to_vec();
            } else {
                text.push('\u{fffd}');
            }
        }
        self.0 = kept;
        text
    }

    fn rest(&mut self) -> String {
        if std::mem::take(&mut self.0).is_empty() { String::new() } else { "\u{fffd}".to_owned() }
    }
}

/// A recording to be read.
#[derive(Debug)]
pub struct Recording<R> {
    pub header: Header,
    from: R,
}

/// Something that happened after `interval`.
#[derive(Clone, Debug, PartialEq)]
pub struct TranscriptEvent {
    pub interval: Duration,
    pub what: What,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    Exit(String),
    Input(String),
    Marker(String),
    Output(String),
    Resize(String),
}

/// A line longer than this is not ours: we write what one read gave.
const LONGEST_LINE: u64 = 16 * 1024 * 1024;

impl Recording<BufReader<File>> {
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::read(BufReader::new(File::open(path)?))
    }
}

impl<R: BufRead> Recording<R> {
    /// Reads the header.
    pub fn read(mut from: R) -> io::Result<Self> {
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is not an asciicast v3");
        let line = line(&mut from)?.ok_or_else(damaged)?;
        let header: Header = serde_json::from_slice(&line).map_err(|_| damaged())?;
        if header.version != 3 {
            return Err(damaged());
        }
        Ok(Self { header, from })
    }

    /// The next event. A line that did not end, or that says nothing we know,
    /// is where the recording ends or is passed over.
    #[expect(clippy::should_implement_trait, reason = "a loop that may fail is not an iterator")]
    pub fn next(&mut self) -> io::Result<Option<TranscriptEvent>> {
        while let Some(line) = line(&mut self.from)? {
            if let Some(event) = TranscriptEvent::parse(&line) {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

impl TranscriptEvent {
    fn parse(line: &[u8]) -> Option<Self> {
        let (seconds, code, data): (f64, String, String) = serde_json::from_slice(line).ok()?;
        let interval = Duration::try_from_secs_f64(seconds).ok()?;
        let what = match code.as_str() {
            "i" => What::Input(data),
            "m" => What::Marker(data),
            "o" => What::Output(data),
            "r" => What::Resize(data),
            "x" => What::Exit(data),
            _ => return None,
        };
        Some(Self { interval, what })
    }
}

/// The next whole line; none at the end, also where the last one was cut off.
fn line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    Ok((line.pop() == Some(b'\n')).then_some(line))
}
