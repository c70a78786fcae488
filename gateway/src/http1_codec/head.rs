//! Heads: a first line, header fields, an empty line.
//!
//! [`HeadSearch`] finds where a head ends and nothing else; it refuses a line
//! feed without its carriage return on the way, so that a client that cannot end
//! a line is told at once and not when its time is up. [`RequestHead`] and
//! [`ResponseHead`] are what came before that end.

use crate::http_version::HttpVersion;
use crate::http1_codec::fields::{FieldFault, Fields, is_text, is_token};

/// Looks for the end of a head in bytes that grow, up to a limit.
#[derive(Debug)]
pub(crate) struct HeadSearch {
    /// How many of the bytes were searched before.
    searched: usize,
    max_bytes: usize,
}

impl HeadSearch {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { searched: 0, max_bytes }
    }

    /// The length of the head that `bytes` begin with. `None` means that more has
    /// to be read. After a length the search is ready for the next head.
    pub(crate) fn end(&mut self, bytes: &[u8]) -> Result<Option<usize>, HeadFault> {
        let end = end(bytes, self.searched)?;
        if end.unwrap_or(bytes.len() + 1) > self.max_bytes {
            return Err(HeadFault::TooLong { limit: self.max_bytes });
        }
        self.searched = if end.is_some() { 0 } else { bytes.len() };
        Ok(end)
    }
}

/// Looks for the end of a head in `bytes`, of which the first `seen` were looked
/// at before. `None` means that more has to be read.
pub(crate) fn end(bytes: &[u8], seen: usize) -> Result<Option<usize>, HeadFault> {
    // A head is at least two bytes, and an end may straddle what was seen.
    let from = seen.saturating_sub(3);
    for feed in memchr::memchr_iter(b'\n', bytes.get(from..).unwrap_or_default()) {
        let (before, _) = bytes.split_at_checked(from + feed).unwrap_or_default();
        match before {
            [.., b'\r', b'\n', b'\r'] => return Ok(Some(from + feed + 1)),
            // An empty line where the first line should be.
            [b'\r'] => return Err(HeadFault::FirstLine),
            [.., b'\r'] => {}
            _ => return Err(HeadFault::LineEnd),
        }
    }
    Ok(None)
}

/// Why a head is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum HeadFault {
    #[error("{0}")]
    Field(#[from] FieldFault),
    #[error("its first line is not one of HTTP/1")]
    FirstLine,
    #[error("HTTP/2 is not spoken in clear text; use HTTP/1.1, or TLS")]
    Http2Preface,
    #[error("a line does not end in CR LF")]
    LineEnd,
    #[error("its method is not a token")]
    Method,
    #[error("its Connection header nominates a field that is not between two hops")]
    Nominated,
    #[error("its status is not three digits")]
    Status,
    #[error("its target has a character that cannot stand in one, or is empty")]
    Target,
    #[error("its head is too long")]
    TooLong { limit: usize },
    #[error("its version is not HTTP/1.0 or HTTP/1.1")]
    Version,
}

/// The head of a request, as it was sent.
#[derive(Debug)]
pub(crate) struct RequestHead {
    line: Vec<u8>,
    method: usize,
    target: usize,
    pub(crate) version: HttpVersion,
    pub(crate) fields: Fields,
}

impl Default for RequestHead {
    fn default() -> Self {
        let (line, fields) = (Vec::new(), Fields::default());
        Self { line, method: 0, target: 0, version: HttpVersion::Http11, fields }
    }
}

impl RequestHead {
    /// Reads a whole head, its empty line included.
    pub(crate) fn read(&mut self, head: &[u8], most: usize) -> Result<(), HeadFault> {
        let (line, block) = divide(head)?;
        if line.starts_with(b"PRI * HTTP/2") {
            return Err(HeadFault::Http2Preface);
        }
        let method = memchr::memchr(b' ', line).ok_or(HeadFault::FirstLine)?;
        let after = line.get(method + 1..).unwrap_or_default();
        let target = memchr::memchr(b' ', after).ok_or(HeadFault::FirstLine)?;
        let version = after.get(target + 1..).unwrap_or_default();

        let name = line.get(..method).unwrap_or_default();
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return Err(HeadFault::Method);
        }
        let asked = after.get(..target).unwrap_or_default();
        if asked.is_empty() || !asked.iter().all(u8::is_ascii_graphic) {
            return Err(HeadFault::Target);
        }
        self.version = read_version(version)?;
        self.line.clear();
        self.line.extend_from_slice(line);
        (self.method, self.target) = (method, method + 1 + target);
        self.fields.read(block, most)?;
        // A server that removes these reads another message, or one for another host.
        let nominates = |name: &[u8]| self.fields.connection_lists(name);
        if nominates(b"content-length") || nominates(b"host") {
            return Err(HeadFault::Nominated);
        }
        self.fields.keep_end_to_end()?;
        Ok(())
    }

    pub(crate) fn method(&self) -> &[u8] {
        self.line.get(..self.method).unwrap_or_default()
    }

    pub(crate) fn target(&self) -> &[u8] {
        self.line.get(self.method + 1..self.target).unwrap_or_default()
    }
}

/// The head of a response, as it was sent.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    reason: Vec<u8>,
    pub(crate) version: HttpVersion,
    pub(crate) fields: Fields,
}

impl Default for ResponseHead {
    fn default() -> Self {
        let (reason, fields) = (Vec::new(), Fields::default());
        Self { status: 0, reason, version: HttpVersion::Http11, fields }
    }
}

impl ResponseHead {
    /// Reads a whole head, its empty line included.
    pub(crate) fn read(&mut self, head: &[u8], most: usize) -> Result<(), HeadFault> {
        let (line, block) = divide(head)?;
        let (version, rest) = line.split_at_checked(8).ok_or(HeadFault::FirstLine)?;
        self.version = read_version(version)?;
        // The reason may be missing, and with it its space.
        let (status, reason) = match rest {
            [b' ', a, b, c] => ([*a, *b, *c], &[][..]),
            [b' ', a, b, c, b' ', reason @ ..] => ([*a, *b, *c], reason),
            _ => return Err(HeadFault::Status),
        };
        if !status.iter().all(u8::is_ascii_digit) || status.first() == Some(&b'0') {
            return Err(HeadFault::Status);
        }
        if !reason.iter().all(|byte| is_text(*byte)) {
            return Err(HeadFault::FirstLine);
        }
        self.status = status.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
        self.reason.clear();
        self.reason.extend_from_slice(reason);
        self.fields.read(block, most)?;
        self.fields.keep_end_to_end()?;
        Ok(())
    }

    pub(crate) fn reason(&self) -> &[u8] {
        &self.reason
    }
}

/// The first line without its end, and the fields without the empty line.
fn divide(head: &[u8]) -> Result<(&[u8], &[u8]), HeadFault> {
    let head = head.strip_suffix(b"\r\n").ok_or(HeadFault::LineEnd)?;
    let feed = memchr::memchr(b'\n', head).ok_or(HeadFault::FirstLine)?;
    let (line, block) = head.split_at_checked(feed + 1).ok_or(HeadFault::FirstLine)?;
    Ok((line.strip_suffix(b"\r\n").ok_or(HeadFault::LineEnd)?, block))
}

fn read_version(written: &[u8]) -> Result<HttpVersion, HeadFault> {
    match written {
        b"HTTP/1.1" => Ok(HttpVersion::Http11),
        b"HTTP/1.0" => Ok(HttpVersion::Http10),
        _ => Err(HeadFault::Version),
    }
}

#[cfg(test)]
mod tests;
