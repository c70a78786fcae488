//! Request paths, in the one spelling that is judged and forwarded.
//!
//! A path on the wire has many spellings, and servers differ in which of them
//! they take for the same file. A [`RequestPath`] has one spelling, and it is
//! the one sent upstream: what policy saw is what the server gets. Spellings on
//! which servers are known to disagree (dot segments, doubled slashes, double
//! escapes, backslashes) are not normalised but refused, because each way of
//! normalising them is right for one server and a bypass at the next. What is
//! left to disagree about (`%2F`, parameters, spaces, look-alikes) has uses, and
//! is kept: such a path has several [`RequestPath::readings`], and each of them
//! is judged.

use std::fmt;

use crate::path_readings;
use crate::path_spelling::{PathFault, canonical};
use crate::quoted_input::QuotedInput;

/// An absolute path in canonical form.
///
/// - Escapes of characters that may stand for themselves are decoded, all other
///   escapes are upper-case.
/// - Characters that may not stand in a path are escaped.
/// - No segment is empty, `.` or `..`, however it was spelt. One trailing `/` is
///   kept, since servers tell `/a` from `/a/`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestPath {
    canonical: Box<str>,
    /// What else servers take it for; empty, and not allocated, for most paths.
    others: Box<[Box<str>]>,
}

impl RequestPath {
    /// Reads a path as it stood in a request, without its query.
    ///
    /// ```
    /// use policies::RequestPath;
    ///
    /// let path = RequestPath::parse("/%7eacme/%40scope%2fname/")?;
    /// assert_eq!(path.as_str(), "/~acme/@scope%2Fname/");
    ///
    /// let err = RequestPath::parse("/repos/ok/%2e%2e/secret").unwrap_err();
    /// assert_eq!(
    ///     err.to_string(),
    ///     "the path `/repos/ok/%2e%2e/secret` is refused: \
    ///      it has a `.` or `..` segment; send the path it leads to",
    /// );
    /// # Ok::<(), policies::PathError>(())
    /// ```
    pub fn parse(written: &str) -> Result<Self, PathError> {
        Self::parse_bytes(written.as_bytes())
    }

    /// Reads a path from the wire.
    pub fn parse_bytes(written: &[u8]) -> Result<Self, PathError> {
        let path = canonical(written).and_then(|canonical| {
            let others = path_readings::others(&canonical)?;
            Ok(Self { canonical: canonical.into(), others })
        });
        path.map_err(|why| PathError::new(TargetPart::Path, written, why))
    }

    /// The path `/`.
    pub fn root() -> Self {
        Self { canonical: "/".into(), others: Box::default() }
    }

    /// What is judged, forwarded and recorded.
    pub fn as_str(&self) -> &str {
        &self.canonical
    }

    /// Every path that some server takes this one for, this one first. Almost
    /// always it is the only one.
    ///
    /// ```
    /// # use policies::RequestPath;
    /// let path = RequestPath::parse("/@scope%2Fname")?;
    /// assert_eq!(path.readings().collect::<Vec<_>>(), ["/@scope%2Fname", "/@scope/name"]);
    /// # Ok::<(), policies::PathError>(())
    /// ```
    pub fn readings(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.as_str()).chain(self.others.iter().map(|reading| &**reading))
    }

    /// Whether every server takes it for the same path.
    pub fn has_one_reading(&self) -> bool {
        self.others.is_empty()
    }

    /// What stands between the slashes; the last one is empty after a trailing
    /// slash. An escaped slash (`%2F`) does not end a segment.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.canonical.split('/').skip(1)
    }
}

impl fmt::Display for RequestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A path or query that has no single reading, and why.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the {part} `{written}` is refused: {why}")]
pub struct PathError {
    part: TargetPart,
    written: QuotedInput,
    why: PathFault,
}

impl PathError {
    pub(crate) fn new(part: TargetPart, written: &[u8], why: PathFault) -> Self {
        Self { part, written: QuotedInput::of_bytes(written), why }
    }

    pub fn fault(&self) -> PathFault {
        self.why
    }
}

/// Which part of a request target an error speaks of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TargetPart {
    Path,
    Query,
}

impl fmt::Display for TargetPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Path => "path",
            Self::Query => "query",
        })
    }
}

#[cfg(test)]
mod tests;
