//! The directory a log lives in, and taking it over from whoever wrote before.
//!
//! The directory is 0700 and its files 0600: an audit log lists hosts and paths that
//! an attacker would like to know. A looser one is refused and not repaired, because
//! others may have read or written it already. The lock is on the directory itself,
//! so it adds no file to the evidence.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::PreviousWriter;
use super::sink::{Durable, Sink};
use super::unavailable::Unavailable;
use crate::chain::ChainHead;
use crate::digest::{Digest, Hasher};
use crate::event::{EventKind, Recovered, SegmentStarted};
use crate::folder_lock::LockedFolder;
use crate::line::{ChainLink, LineError};
use crate::line_reader::{LinePosition, LineReader, NextLine};
use crate::seal::SEAL;
use crate::segment::{self, CURRENT_SEGMENT, Segment};
use crate::whole_file::loose_mode;

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("another process is writing the log in {}", dir.display())]
    Busy { dir: PathBuf },
    #[error("cannot {step} {}", path.display())]
    Disk { step: &'static str, path: PathBuf, source: io::Error },
    #[error("others can reach {} (mode {mode:o}): run `chmod {wanted:o} {0}`", path.display())]
    Loose { path: PathBuf, mode: u32, wanted: u32 },
    #[error(
        "{} is not an audit log that can be continued: line {}: {why}; move the folder away to begin a new one",
        path.display(), place.line
    )]
    NotALog { path: PathBuf, place: LinePosition, why: LineError },
    #[error("{} is sealed: what is added now would break its seal", dir.display())]
    Sealed { dir: PathBuf },
    #[error("cannot start the writer's thread")]
    Thread(#[source] io::Error),
    #[error("cannot begin the log")]
    Write(#[source] Unavailable),
    #[error("{} is not a {wanted}", path.display())]
    WrongType { path: PathBuf, wanted: &'static str },
}

/// A log's directory, locked, with its current segment.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held for its lock, and synced when a name in it changes.
    dir: LockedFolder,
    current: Arc<File>,
    next_number: u32,
    /// The name the current segment was given when there was no room for the
    /// next one.
    pub(super) finished: Option<String>,
}

/// What an opened folder held.
#[derive(Debug)]
pub(super) struct FolderContents {
    pub(super) previous: Option<PreviousWriter>,
    pub(super) recovered: Option<Recovered>,
    /// The current segment is empty and another came before it.
    pub(super) continues: Option<SegmentStarted>,
    pub(super) current_bytes: u64,
    pub(super) current_hash: Hasher,
}

impl Folder {
    pub(super) fn open(path: &Path) -> Result<(Self, FolderContents), OpenError> {
        let dir = lock(open_dir(path)?, path)?;
        if path.join(SEAL).symlink_metadata().is_ok() {
            return Err(OpenError::Sealed { dir: path.to_owned() });
        }
        let segments = Segment::list(path).map_err(disk("list", path))?;
        let finished = segments.iter().rfind(|segment| segment.number().is_some());

        let current_path = path.join(CURRENT_SEGMENT);
        let current = open_current(&current_path)?;
        dir.sync_all().map_err(disk("sync", path))?;
        let mut scan = scan(&current, &current_path)?;
        let recovered = cut_torn(&current, &current_path, &scan)?;

        let mut continues = None;
        let mut last = scan.last.take();
        if let (None, Some(segment)) = (&last, finished) {
            let file = segment::open(segment.path()).map_err(disk("open", segment.path()))?;
            let before = self::scan(&file, segment.path())?;
            continues = Some(SegmentStarted {
                previous: segment.name().into(),
                previous_sha256: before.hash.finish(),
            });
            last = before.last;
        }

        let found = FolderContents {
            previous: last,
            recovered,
            continues,
            current_bytes: scan.bytes,
            current_hash: scan.hash,
        };
        let next_number = finished.and_then(Segment::number).unwrap_or(0).saturating_add(1);
        let (path, current) = (path.to_owned(), Arc::new(current));
        Ok((Self { path, dir, current, next_number, finished: None }, found))
    }
}

impl Sink for Folder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.current).write(bytes)
    }

    fn durable(&self) -> Arc<dyn Durable> {
        Arc::clone(&self.current) as Arc<dyn Durable>
    }

    /// The old name is free before the new file exists, so a crash in between
    /// leaves no current segment, which opening again repairs.
    fn rotate(&mut self) -> io::Result<String> {
        let name = match self.finished.take() {
            Some(name) => name,
            None => self.finish_current()?,
        };
        match create(&self.path.join(CURRENT_SEGMENT)) {
            Ok(current) => self.current = Arc::new(current),
            Err(err) => {
                self.finished = Some(name);
                return Err(err);
            }
        }
        self.dir.sync_all()?;
        self.next_number += 1;
        Ok(name)
    }
}

impl Folder {
    /// Gives the current segment its number.
    pub(super) fn finish_current(&self) -> io::Result<String> {
        let name = segment::finished(self.next_number);
        self.current.sync_all()?;
        // Renaming would overwrite; a finished segment never is.
        if self.path.join(&name).try_exists()? {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, name));
        }
        fs::rename(self.path.join(CURRENT_SEGMENT), self.path.join(&name))?;
        Ok(name)
    }
}

fn open_dir(path: &Path) -> Result<File, OpenError> {
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        Ok(()) => {}
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(disk("create", path)(source)),
    }
    let dir = File::open(path).map_err(disk("open", path))?;
    let metadata = dir.metadata().map_err(disk("open", path))?;
    if !metadata.is_dir() {
        return Err(OpenError::WrongType { path: path.to_owned(), wanted: "directory" });
    }
    refuse_loose(path, &metadata, 0o700)?;
    Ok(dir)
}

fn lock(dir: File, path: &Path) -> Result<LockedFolder, OpenError> {
    LockedFolder::lock(dir).map_err(|err| match err {
        TryLockError::WouldBlock => OpenError::Busy { dir: path.to_owned() },
        TryLockError::Error(source) => disk("lock", path)(source),
    })
}

fn open_current(path: &Path) -> Result<File, OpenError> {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            return create(path).map_err(disk("create", path));
        }
        Err(source) => return Err(disk("open", path)(source)),
    };
    if !metadata.is_file() {
        return Err(OpenError::WrongType { path: path.to_owned(), wanted: "regular file" });
    }
    refuse_loose(path, &metadata, 0o600)?;
    OpenOptions::new().read(true).append(true).open(path).map_err(disk("open", path))
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(path)
}

fn refuse_loose(path: &Path, metadata: &fs::Metadata, wanted: u32) -> Result<(), OpenError> {
    match loose_mode(metadata) {
        None => Ok(()),
        Some(mode) => Err(OpenError::Loose { path: path.to_owned(), mode, wanted }),
    }
}

/// What a segment holds.
struct SegmentScan {
    last: Option<PreviousWriter>,
    /// Of the whole lines.
    bytes: u64,
    hash: Hasher,
    torn: u64,
}

/// Reads a segment through. Only its last line has to make sense: whether the
/// others do is for `verify`, which names the place.
fn scan(file: &File, path: &Path) -> Result<SegmentScan, OpenError> {
    let mut hash = Hasher::default();
    let mut last = (Vec::new(), LinePosition { line: 0, offset: 0 });
    let mut lines = LineReader::new(file);
    while let Some(piece) = lines.next().map_err(disk("read", path))? {
        match piece {
            NextLine::Line { bytes, place } => {
                hash.update(bytes);
                hash.update(b"\n");
                last.0.clear();
                last.0.extend_from_slice(bytes);
                last.1 = place;
            }
            NextLine::TooLong { bytes, place } => {
                let why = LineError::TooLong { bytes };
                return Err(OpenError::NotALog { path: path.to_owned(), place, why });
            }
        }
    }
    let (line, place) = last;
    let last = match place.line {
        0 => None,
        _ => {
            let link = ChainLink::read(&line).map_err(|why| OpenError::NotALog {
                path: path.to_owned(),
                place,
                why,
            })?;
            let head = ChainHead { seq: link.seq, hash: Digest::of(&line) };
            Some(PreviousWriter { head, closed: link.kind == EventKind::LogClosed.as_str() })
        }
    };
    Ok(SegmentScan { last, bytes: lines.place().offset, hash, torn: lines.unfinished() })
}

/// Cuts off a last line that a crash left without its newline. What it was is
/// kept as a digest: enough to recognise it, too little to mistake it for a record.
fn cut_torn(
    mut file: &File,
    path: &Path,
    scan: &SegmentScan,
) -> Result<Option<Recovered>, OpenError> {
    if scan.torn == 0 {
        return Ok(None);
    }
    let read = file.seek(SeekFrom::Start(scan.bytes)).and_then(|_| Digest::of_reader(file));
    let (sha256, bytes) = read.map_err(disk("read", path))?;
    file.set_len(scan.bytes).map_err(disk("cut", path))?;
    file.sync_all().map_err(disk("sync", path))?;
    Ok(Some(Recovered { bytes, sha256 }))
}

fn disk(step: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::Disk { step, path: path.to_owned(), source }
}
