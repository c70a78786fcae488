//! Follows a log as it is written, across segments.

use std::fs::Metadata;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::filter::{LineFilter, SearchQuery};
use super::{FoundEvent, SearchedFile, Skipped};
use crate::segment::{ListedSegment, Segment};

/// A log that is read as it grows.
///
/// [`Follow::poll`] gives what is new and then nothing until more is written; it
/// never waits. To show the last twenty events and go on, keep the last twenty
/// until the first poll that gives nothing.
#[derive(Debug)]
pub struct Follow {
    dir: PathBuf,
    filter: LineFilter,
    current: Option<SearchedFile>,
}

impl Follow {
    /// Follows the log in `dir` from its first line. The log may not exist yet.
    pub fn from_start(dir: &Path, query: &SearchQuery) -> Self {
        Self { dir: dir.to_owned(), filter: LineFilter::new(query), current: None }
    }

    /// Follows the log in `dir` from what is written after this call.
    pub fn from_end(dir: &Path, query: &SearchQuery) -> io::Result<Self> {
        let mut follow = Self::from_start(dir, query);
        if let Some(last) = segments(dir)?.pop() {
            let mut file = SearchedFile::open(last).map_err(into_io)?;
            while file.lines.next()?.is_some() {}
            follow.current = Some(file);
        }
        Ok(follow)
    }

    /// The next event that fits; nothing if there is none at present.
    pub fn poll(&mut self) -> Option<Result<FoundEvent, Skipped>> {
        loop {
            if let Some(seen) = self.read() {
                return Some(seen);
            }
            let next = match self.next_segment() {
                Ok(next) => next?,
                Err(source) => {
                    return Some(Err(Skipped::Read { file: self.dir.clone(), source }));
                }
            };
            // Ours was finished before we asked, so what it has now is all of it.
            if let Some(seen) = self.read() {
                return Some(seen);
            }
            match SearchedFile::open(next) {
                Ok(file) => self.current = Some(file),
                Err(unreadable) => return Some(Err(unreadable)),
            }
        }
    }

    fn read(&mut self) -> Option<Result<FoundEvent, Skipped>> {
        self.current.as_mut()?.next(&self.filter)
    }

    /// The segment after the one being read, if there is one.
    fn next_segment(&self) -> io::Result<Option<ListedSegment>> {
        let mut segments = segments(&self.dir)?.into_iter();
        let Some(file) = &self.current else {
            return Ok(segments.next());
        };
        let ours = file.lines.source().metadata()?;
        let is_ours = |one: &ListedSegment| one.metadata().is_ok_and(|its| same(&its, &ours));
        Ok(segments.find(is_ours).and_then(|_| segments.next()))
    }

    /// Goes on for ever, calling `wait` whenever there is nothing new. It decides
    /// how long to wait, and whether to go on.
    pub fn waiting<W: FnMut() -> ControlFlow<()>>(self, wait: W) -> Following<W> {
        Following { follow: self, wait }
    }
}

/// The events of a log, as they come.
#[derive(Debug)]
pub struct Following<W> {
    follow: Follow,
    wait: W,
}

impl<W: FnMut() -> ControlFlow<()>> Iterator for Following<W> {
    type Item = Result<FoundEvent, Skipped>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(seen) = self.follow.poll() {
                return Some(seen);
            }
            if (self.wait)().is_break() {
                return None;
            }
        }
    }
}

/// A folder that does not exist yet has no segments yet.
fn segments(dir: &Path) -> io::Result<Vec<ListedSegment>> {
    match Segment::list_open(dir) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

/// A segment keeps its identity when it is renamed.
fn same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

fn into_io(unreadable: Skipped) -> io::Error {
    match unreadable {
        Skipped::Line { why, .. } => io::Error::new(io::ErrorKind::InvalidData, why),
        Skipped::Read { source, .. } => source,
    }
}
