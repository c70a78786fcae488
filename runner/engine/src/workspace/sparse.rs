//! Reads a file piece by piece, and its holes without reading them.
//!
//! A hole reads as zeros and takes no room, so a sandbox can make a file of any
//! size for nothing. Where the file system tells holes from data (`SEEK_DATA`),
//! a hole is handed on as what it is; elsewhere it is read like anything else.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use audit::{Digest, Hasher};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The next piece of a file.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum SparsePiece<'b> {
    Data(&'b [u8]),
    /// So many zeros that take no room, at most [`PIECE_BYTES`].
    Hole(&'b [u8]),
}

impl SparsePiece<'_> {
    /// The bytes that whoever reads the file gets.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Data(bytes) | Self::Hole(bytes) => bytes,
        }
    }
}

/// Pieces are no larger than this.
pub(crate) const PIECE_BYTES: usize = 64 * 1024;

/// A regular file from its beginning up to a size that was looked up before:
/// what it grows by meanwhile is not read.
#[derive(Debug)]
pub(crate) struct Pieces {
    file: File,
    at: u64,
    end: u64,
    /// Up to where the bytes at `at` are all of one kind, and whether that is a
    /// hole.
    extent: (u64, bool),
    buffer: Vec<u8>,
}

static ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

impl Pieces {
    pub(crate) fn new(file: File, size: u64) -> Self {
        Self { file, at: 0, end: size, extent: (0, false), buffer: vec![0; PIECE_BYTES] }
    }

    /// The next piece; nothing at the end, which comes early if the file shrank.
    pub(crate) fn next(&mut self) -> io::Result<Option<SparsePiece<'_>>> {
        if self.at >= self.end {
            return Ok(None);
        }
        if self.at >= self.extent.0 {
            self.extent = extent(&self.file, self.at, self.end)?;
            if !self.extent.1 {
                rustix::fs::seek(&self.file, SeekFrom::Start(self.at))?;
            }
        }
        let (until, is_hole) = self.extent;
        let length =
            usize::try_from(until.min(self.end) - self.at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        if is_hole {
            self.at += length as u64;
            return Ok(Some(SparsePiece::Hole(ZEROS.get(..length).unwrap_or_default())));
        }
        let room = self.buffer.get_mut(..length).unwrap_or_default();
        let count = loop {
            match self.file.read(room) {
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.at += count as u64;
        Ok(self.buffer.get(..count).filter(|bytes| !bytes.is_empty()).map(SparsePiece::Data))
    }

    /// How much of the file is holes, as far as the first `most` of them say.
    pub(crate) fn holes(&self, most: usize) -> io::Result<u64> {
        let (mut at, mut holes) = (0, 0);
        for _ in 0..most.saturating_mul(2) {
            if at >= self.end {
                break;
            }
            let (until, is_hole) = extent(&self.file, at, self.end)?;
            if is_hole {
                holes += until - at;
            }
            at = until;
        }
        Ok(holes)
    }
}

/// Copies a file into an empty one, holes as holes; the digest of what was
/// copied, and how much that was. `check` is asked before each piece.
pub(crate) fn copy(
    mut from: Pieces,
    mut to: &File,
    check: impl Fn() -> io::Result<()>,
) -> io::Result<(Digest, u64)> {
    let (mut hasher, mut copied) = (Hasher::default(), 0_u64);
    let mut ends_in_hole = false;
    while let Some(piece) = from.next()? {
        check()?;
        hasher.update(piece.bytes());
        copied += piece.bytes().len() as u64;
        ends_in_hole = matches!(piece, SparsePiece::Hole(_));
        if ends_in_hole {
            rustix::fs::seek(to, SeekFrom::Start(copied))?;
        } else {
            to.write_all(piece.bytes())?;
        }
    }
    if ends_in_hole {
        to.set_len(copied)?;
    }
    Ok((hasher.finish(), copied))
}

/// Up to where the bytes from `at` on are of one kind, and whether that is a hole.
fn extent(file: &File, at: u64, end: u64) -> io::Result<(u64, bool)> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) if data > at => Ok((data.min(end), true)),
        Ok(_) => match rustix::fs::seek(file, SeekFrom::Hole(at)) {
            Ok(hole) if hole > at => Ok((hole.min(end), false)),
            // It changed in between; what is read is what counts.
            Ok(_) | Err(_) => Ok((end, false)),
        },
        // No data after it: a hole up to the end, unless the end has moved.
        Err(Errno::NXIO) if file.metadata()?.len() >= end => Ok((end, true)),
        Err(Errno::NXIO) => Err(io::Error::other("it changed meanwhile")),
        // The file system does not tell.
        Err(_) => Ok((end, false)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn pieces_are_the_files_bytes_and_holes_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = File::create_new(&path).unwrap();
        file.set_len(5 << 20).unwrap();
        file.write_all_at(b"first", 1 << 20).unwrap();
        file.write_all_at(b"last", (4 << 20) + 7).unwrap();
        let size = file.metadata().unwrap().len();

        let mut pieces = Pieces::new(File::open(&path).unwrap(), size);
        let told = pieces.holes(1000).unwrap();
        let (mut bytes, mut holes) = (Vec::new(), 0);
        while let Some(piece) = pieces.next().unwrap() {
            bytes.extend_from_slice(piece.bytes());
            if let SparsePiece::Hole(zeros) = &piece {
                holes += zeros.len() as u64;
            }
        }
        assert!(bytes == std::fs::read(&path).unwrap(), "not the file's content");
        assert_eq!(told, holes);
        assert!(holes > 3 << 20, "{holes} bytes of holes were found");
    }

    #[test]
    fn a_file_that_shrank_is_not_filled_up_with_zeros_and_one_that_grew_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "12345").unwrap();
        let read = |size| {
            let mut pieces = Pieces::new(File::open(&path).unwrap(), size);
            let mut bytes = Vec::new();
            while let Some(piece) = pieces.next()? {
                bytes.extend_from_slice(piece.bytes());
            }
            Ok::<_, io::Error>(bytes)
        };
        assert_eq!(read(3).unwrap(), b"123");
        assert_eq!(read(0).unwrap(), b"");
        assert_ne!(read(9).unwrap_or_default(), b"12345\0\0\0\0");
    }
}
