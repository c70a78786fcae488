//! Where logs are.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Reading, Skipped};
use crate::segment::{Listed, Segment};

/// There is nothing to search.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error("there is no audit log in {}", path.display())]
    NoLog { path: PathBuf },
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

/// Something to be searched.
#[derive(Debug)]
pub(super) enum Source {
    /// A file that somebody named. It may be a pipe: they know who writes.
    File(PathBuf),
    Segment(Listed),
    /// A log's folder. Its files are listed when its turn comes.
    Folder(PathBuf),
}

impl Source {
    /// Opens a file; a folder puts its files first in the line instead.
    pub(super) fn open(self, left: &mut VecDeque<Self>) -> Result<Option<Reading>, Skipped> {
        match self {
            Self::File(path) => Reading::from(&path, File::open(&path)).map(Some),
            Self::Segment(segment) => Reading::open(segment).map(Some),
            Self::Folder(path) => {
                let segments = Segment::list_open(&path)
                    .map_err(|source| Skipped::Read { file: path.clone(), source })?;
                for segment in segments.into_iter().rev() {
                    left.push_front(Self::Segment(segment));
                }
                Ok(None)
            }
        }
    }
}

/// What is to be searched at `path`.
pub(super) fn logs(path: &Path) -> Result<VecDeque<Source>, SearchError> {
    let read = |source| SearchError::Read { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(read)?.is_dir() {
        return Ok(VecDeque::from([Source::File(path.to_owned())]));
    }
    if holds_a_log(path) {
        return Ok(VecDeque::from([Source::Folder(path.to_owned())]));
    }
    let runs = path.join("runs");
    let above = if runs.is_dir() { runs } else { path.to_owned() };
    let mut folders = Vec::new();
    for item in fs::read_dir(&above).map_err(read)? {
        let folder = item.map_err(read)?.path();
        if holds_a_log(&folder) {
            folders.push(folder);
        }
    }
    if folders.is_empty() {
        return Err(SearchError::NoLog { path: path.to_owned() });
    }
    folders.sort();
    Ok(folders.into_iter().map(Source::Folder).collect())
}

/// A folder that cannot be listed holds none; the caller's own is read first.
fn holds_a_log(path: &Path) -> bool {
    Segment::list_wherever(path).is_ok_and(|segments| !segments.is_empty())
}
