//! Finds events: in one file, in one run's folder, or across all runs.
//!
//! Searching streams. It holds one line at a time, and looks for the filter's
//! words in a line's bytes before it parses it, so that a million events take
//! seconds and a hundred bytes each. A line that the bytes rule out is not looked
//! at further; one that is looked at and makes no sense is reported and skipped.
//!
//! **Invariant:** what is found is printable ASCII. A line with any other byte
//! was not written by us, and is not given to somebody's terminal.

mod filter;
mod follow;
mod sources;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::event::Event;
use crate::line::{self, LineError};
use crate::line_reader::{LinePosition, LineReader, NextLine};
use crate::segment::ListedSegment;
use filter::LineFilter;
pub use filter::{HostFilter, NotAHostFilter, NotAStatusFilter, SearchQuery, StatusFilter};
pub use follow::{Follow, Following};
pub use sources::SearchError;

/// Searches what is at `path` for events that fit `query`, oldest first.
///
/// `path` is a file of lines, the folder of one log, or a directory with such
/// folders in it or in its `runs`. Folders are searched in the order of their
/// names.
pub fn search(path: &Path, query: &SearchQuery) -> Result<Search, SearchError> {
    Ok(Search { filter: LineFilter::new(query), left: sources::logs(path)?, current: None })
}

/// The events that fit, one at a time.
#[derive(Debug)]
pub struct Search {
    filter: LineFilter,
    left: VecDeque<sources::SearchSource>,
    current: Option<SearchedFile>,
}

/// An event that fits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FoundEvent {
    pub file: Arc<Path>,
    pub place: LinePosition,
    line: String,
}

impl FoundEvent {
    /// The line as written, without its newline: printable ASCII.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The whole event.
    pub fn event(&self) -> Result<Event, LineError> {
        line::read(self.line.as_bytes())
    }
}

/// Something that was looked at and could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Skipped {
    #[error("{}, line {}: {why}", file.display(), place.line)]
    Line { file: Arc<Path>, place: LinePosition, why: LineError },
    /// The rest of this file is skipped.
    #[error("cannot read {}", file.display())]
    Read { file: PathBuf, source: io::Error },
}

impl Iterator for Search {
    type Item = Result<FoundEvent, Skipped>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(file) = &mut self.current {
                match file.next(&self.filter) {
                    Some(Err(unreadable @ Skipped::Read { .. })) => {
                        self.current = None;
                        return Some(Err(unreadable));
                    }
                    Some(seen) => return Some(seen),
                    None => self.current = None,
                }
            }
            match self.left.pop_front()?.open(&mut self.left) {
                Ok(file) => self.current = file,
                Err(unreadable) => return Some(Err(unreadable)),
            }
        }
    }
}

/// A file being searched.
#[derive(Debug)]
struct SearchedFile {
    file: Arc<Path>,
    lines: LineReader<File>,
}

impl SearchedFile {
    fn open(segment: ListedSegment) -> Result<Self, Skipped> {
        let path = segment.path().to_owned();
        Self::from(&path, segment.open())
    }

    fn from(path: &Path, opened: io::Result<File>) -> Result<Self, Skipped> {
        match opened {
            Ok(file) => Ok(Self { file: path.into(), lines: LineReader::new(file) }),
            Err(source) => Err(Skipped::Read { file: path.to_owned(), source }),
        }
    }

    /// The next line that fits, or that should have been readable; nothing at the
    /// end. A last line without its newline is still being written.
    fn next(&mut self, filter: &LineFilter) -> Option<Result<FoundEvent, Skipped>> {
        loop {
            let (why, place) = match self.lines.next() {
                Ok(None) => return None,
                Ok(Some(NextLine::Line { bytes, place })) => match filter.fits(bytes) {
                    Ok(None) => continue,
                    Ok(Some(line)) => {
                        let (file, line) = (Arc::clone(&self.file), line.to_owned());
                        return Some(Ok(FoundEvent { file, place, line }));
                    }
                    Err(why) => (why, place),
                },
                Ok(Some(NextLine::TooLong { bytes, place })) => {
                    (LineError::TooLong { bytes }, place)
                }
                Err(source) => {
                    return Some(Err(Skipped::Read { file: self.file.to_path_buf(), source }));
                }
            };
            return Some(Err(Skipped::Line { file: Arc::clone(&self.file), place, why }));
        }
    }
}
