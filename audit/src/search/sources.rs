//! Where logs are.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{SearchedFile, Skipped};
use crate::segment::{ListedSegment, Segment};

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
pub(super) enum SearchSource {
    /// A file that the caller named. It may be a pipe.
    File(PathBuf),
    Segment(ListedSegment),
    /// A log's folder. Its files are listed when its turn comes.
    Folder(PathBuf),
}

impl SearchSource {
    /// Opens a file. A folder puts its files at the front of `left` instead.
    pub(super) fn open(self, left: &mut VecDeque<Self>) -> Result<Option<SearchedFile>, Skipped> {
        match self {
            Self::File(path) => SearchedFile::from(&path, File::open(&path)).map(Some),
            Self::Segment(segment) => SearchedFile::open(segment).map(Some),
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
pub(super) fn logs(path: &Path) -> Result<VecDeque<SearchSource>, SearchError> {
    let read = |source| SearchError::Read { path: path.to_owned(), source };
    if !fs::metadata(path).map_err(read)?.is_dir() {
        return Ok(VecDeque::from([SearchSource::File(path.to_owned())]));
    }
    if holds_a_log(path) {
        return Ok(VecDeque::from([SearchSource::Folder(path.to_owned())]));
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
    Ok(folders.into_iter().map(SearchSource::Folder).collect())
}

/// A folder that cannot be listed holds none; the caller's own is read first.
fn holds_a_log(path: &Path) -> bool {
    Segment::list_wherever(path).is_ok_and(|segments| !segments.is_empty())
}
