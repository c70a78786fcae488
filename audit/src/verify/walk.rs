//! Walks a chain line by line.
//!
//! A broken link shows at the line after the damage, so the walk looks one line
//! further to tell which of the two was changed: a line whose own successor
//! still names it is as it was written.

use std::collections::HashSet;
use std::mem;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::fault::{Break, Fault, VerifyError};
use crate::chain::ChainHead;
use crate::digest::{Digest, Hasher};
use crate::event::EventKind;
use crate::line::{ChainLink, LineError};
use crate::line_reader::{LinePosition, LineReader, NextLine};
use crate::segment::{self, Segment};

/// How far a walk has come without finding a break.
#[derive(Debug)]
pub(crate) struct WalkedChain {
    pub(crate) head: ChainHead,
    pub(crate) segments: u64,
    pub(crate) closed: bool,
    pub(crate) recovered: u64,
    pub(crate) open: HashSet<Uuid>,
    /// Where the line `head` stands.
    pub(crate) last_file: PathBuf,
    pub(crate) last_place: LinePosition,
}

/// Walks one file that begins a log.
pub(super) fn file(path: &Path, sealed: Option<ChainHead>) -> Result<WalkedChain, VerifyError> {
    let name = path.file_name().map(PathBuf::from).unwrap_or_default();
    let mut walk = ChainWalk::new(vec![(path.to_owned(), name)], sealed);
    walk.file(path)?;
    Ok(walk.done)
}

/// Walks all segments of a log; nothing if there are none.
pub(super) fn segments(
    segments: &[Segment],
    sealed: Option<ChainHead>,
) -> Result<Option<WalkedChain>, VerifyError> {
    if segments.is_empty() {
        return Ok(None);
    }
    // A gap in the numbers is a missing file, whatever the lines say.
    for (segment, wanted) in segments.iter().zip(1..) {
        if segment.number().is_some_and(|number| number != wanted) {
            return Err(Break::of_file(segment::finished(wanted), Fault::MissingFile).into());
        }
    }
    let files = segments.iter().map(|one| (one.path().to_owned(), one.name().into())).collect();
    let mut walk = ChainWalk::new(files, sealed);
    for segment in segments {
        walk.file(segment.path())?;
    }
    Ok(Some(walk.done))
}

struct ChainWalk {
    /// All files of the log in order, with the names to report.
    files: Vec<(PathBuf, PathBuf)>,
    sealed: Option<ChainHead>,
    done: WalkedChain,
    /// The file being walked.
    name: PathBuf,
    hash: Hasher,
    /// The digest of the whole file before.
    previous: Option<(PathBuf, Digest)>,
}

impl ChainWalk {
    fn new(files: Vec<(PathBuf, PathBuf)>, sealed: Option<ChainHead>) -> Self {
        let done = WalkedChain {
            head: ChainHead::START,
            segments: 0,
            closed: false,
            recovered: 0,
            open: HashSet::new(),
            // Where the first line would stand, until there is one.
            last_file: files.first().map(|(_, name)| name.clone()).unwrap_or_default(),
            last_place: LinePosition { line: 1, offset: 0 },
        };
        Self { files, sealed, done, name: PathBuf::new(), hash: Hasher::default(), previous: None }
    }

    fn file(&mut self, path: &Path) -> Result<(), VerifyError> {
        let read = |source| VerifyError::Read { path: path.to_owned(), source };
        let name = self.files.iter().find(|(found, _)| found == path).map(|(_, name)| name.clone());
        self.name = name.unwrap_or_default();

        let mut lines = LineReader::new(segment::open(path).map_err(read)?);
        while let Some(piece) = lines.next().map_err(read)? {
            match piece {
                NextLine::Line { bytes, place } => self.line(bytes, place)?,
                NextLine::TooLong { bytes, place } => {
                    return Err(self.edited(place, &LineError::TooLong { bytes }).into());
                }
            }
        }
        if lines.unfinished() > 0 {
            let fault = Fault::TornTail { bytes: lines.unfinished() };
            return Err(self.broken(lines.place(), fault).into());
        }
        let whole = mem::take(&mut self.hash).finish();
        self.previous = Some((mem::take(&mut self.name), whole));
        self.done.segments += 1;
        Ok(())
    }

    fn line(&mut self, bytes: &[u8], place: LinePosition) -> Result<(), VerifyError> {
        let link = ChainLink::read(bytes).map_err(|why| self.edited(place, &why))?;
        let expected = self.done.head.seq + 1;
        if link.prev != self.done.head.hash {
            return Err(self.unlinked(&link, bytes, place)?.into());
        }
        // It names the line before it, so it is in its place; then its number
        // was changed.
        if link.seq != expected {
            let why = format!("its seq is {} and should be {expected}", link.seq);
            return Err(self.broken(place, Fault::Edited { why: Some(why) }).into());
        }
        self.continues_the_segment_before(&link, place)?;
        self.count(&link);
        self.hash.update(bytes);
        self.hash.update(b"\n");
        self.done.head = self.done.head.after(bytes);
        self.done.last_file.clone_from(&self.name);
        self.done.last_place = place;
        Ok(())
    }

    /// The first line of a further segment names the file before it.
    fn continues_the_segment_before(
        &self,
        link: &ChainLink,
        place: LinePosition,
    ) -> Result<(), Break> {
        let Some((name, whole)) = self.previous.as_ref().filter(|_| place.line == 1) else {
            return Ok(());
        };
        let named = link.previous_segment.as_deref().map(Path::new);
        if named == Some(name) && link.previous_segment_sha256 == Some(*whole) {
            return Ok(());
        }
        let why = format!("it does not continue {}", name.display());
        Err(self.broken(place, Fault::Edited { why: Some(why) }))
    }

    fn count(&mut self, link: &ChainLink) {
        let is = |kind: EventKind| link.kind == kind.as_str();
        self.done.closed = is(EventKind::LogClosed);
        self.done.recovered += u64::from(is(EventKind::Recovered));
        if is(EventKind::Opened) {
            self.done.open.insert(link.id);
        } else {
            self.done.open.remove(&link.id);
        }
    }

    /// `line` does not name the line before it: finds out why.
    fn unlinked(
        &self,
        link: &ChainLink,
        line: &[u8],
        place: LinePosition,
    ) -> Result<Break, VerifyError> {
        let expected = self.done.head.seq + 1;
        let found = link.seq;
        if found < expected {
            return Ok(self.broken(place, Fault::Duplicated { seq: found }));
        }
        if found > expected {
            let fault = match self.exists_after(place, expected)? {
                true => Fault::Reordered { expected, found },
                false => Fault::Deleted { expected, found },
            };
            return Ok(self.broken(place, fault));
        }
        // The right number with the wrong link: this line or the one before it
        // was changed.
        let here = ChainHead { seq: found, hash: Digest::of(line) };
        let here_is_whole = match self.line_after(place)? {
            Some(next) => next.prev == here.hash,
            None => self.sealed.is_none_or(|sealed| sealed == here),
        };
        if here_is_whole && self.done.head.seq > 0 {
            let (file, place) = (self.done.last_file.clone(), Some(self.done.last_place));
            return Ok(Break { file, place, fault: Fault::Edited { why: None } });
        }
        Ok(self.broken(place, Fault::Edited { why: None }))
    }

    /// Whether a later line has this number.
    fn exists_after(&self, place: LinePosition, seq: u64) -> Result<bool, VerifyError> {
        let mut exists = false;
        self.after(place, |link| {
            exists = link.is_some_and(|link| link.seq == seq);
            !exists
        })?;
        Ok(exists)
    }

    /// The link of the line after this one.
    fn line_after(&self, place: LinePosition) -> Result<Option<ChainLink>, VerifyError> {
        let mut next = None;
        self.after(place, |link| {
            next = link;
            false
        })?;
        Ok(next)
    }

    /// Reads on from the line after `place` while `go_on` says so. A line that
    /// cannot be read is given as nothing.
    fn after(
        &self,
        place: LinePosition,
        mut go_on: impl FnMut(Option<ChainLink>) -> bool,
    ) -> Result<(), VerifyError> {
        let from = self.files.iter().position(|(_, name)| *name == self.name).unwrap_or(0);
        for (path, name) in self.files.iter().skip(from) {
            let read = |source| VerifyError::Read { path: path.clone(), source };
            let mut lines = LineReader::new(segment::open(path).map_err(read)?);
            while let Some(piece) = lines.next().map_err(read)? {
                let (link, at) = match piece {
                    NextLine::Line { bytes, place } => (ChainLink::read(bytes).ok(), place),
                    NextLine::TooLong { place, .. } => (None, place),
                };
                let later = *name != self.name || at.line > place.line;
                if later && !go_on(link) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn edited(&self, place: LinePosition, why: &LineError) -> Break {
        self.broken(place, Fault::Edited { why: Some(why.to_string()) })
    }

    fn broken(&self, place: LinePosition, fault: Fault) -> Break {
        Break { file: self.name.clone(), place: Some(place), fault }
    }
}
