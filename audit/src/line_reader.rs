//! Lines of a file, one at a time, in bounded memory.
//!
//! A file that claims to be a log may be anything: a line without end must not
//! fill memory, so one that is longer than [`MAX_LINE_BYTES`] is stepped over and
//! reported. At the end of the file the rest without a newline is kept, so the
//! same reader goes on when more has been written.

use std::io::{self, Read};

use memchr::memchr;

use crate::line::MAX_LINE_BYTES;

/// How much one read asks for.
const READ_CHUNK_BYTES: usize = 128 * 1024;

/// Reads lines from `R`.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    from: R,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    /// How much of that part is known to have no newline.
    searched: usize,
    /// Bytes of the present line that were too many to keep.
    skipped: u64,
    /// Where the present line begins.
    place: LinePosition,
}

/// Where a line stands in its file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LinePosition {
    /// Counted from 1.
    pub line: u64,
    /// Of the line's first byte, counted from 0.
    pub offset: u64,
}

/// The next line of the file.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum NextLine<'a> {
    /// A whole line, without its newline.
    Line { bytes: &'a [u8], place: LinePosition },
    /// A line too long to be kept.
    TooLong { bytes: u64, place: LinePosition },
}

impl<R: Read> LineReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self {
            from,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            searched: 0,
            skipped: 0,
            place: LinePosition { line: 1, offset: 0 },
        }
    }

    /// The next line; nothing when the file has no whole line more at present.
    pub(crate) fn next(&mut self) -> io::Result<Option<NextLine<'_>>> {
        loop {
            let unseen = self.buffer.get(self.start + self.searched..self.end).unwrap_or_default();
            if let Some(at) = memchr(b'\n', unseen) {
                let length = self.searched + at;
                return Ok(Some(self.take(length)));
            }
            self.searched = self.end - self.start;
            if self.searched > MAX_LINE_BYTES {
                self.skip();
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// How many bytes stand after the last newline read so far.
    pub(crate) fn unfinished(&self) -> u64 {
        self.skipped + (self.end - self.start) as u64
    }

    /// Where those bytes begin.
    pub(crate) fn place(&self) -> LinePosition {
        self.place
    }

    /// What is read from, to be asked whether it is still the current segment.
    pub(crate) fn source(&self) -> &R {
        &self.from
    }

    /// Hands out the `length` bytes before the newline and steps over it.
    fn take(&mut self, length: usize) -> NextLine<'_> {
        let place = self.place;
        let from = self.start;
        let total = self.skipped + length as u64;
        self.place = LinePosition { line: place.line + 1, offset: place.offset + total + 1 };
        self.start += length + 1;
        self.searched = 0;
        let skipped = std::mem::take(&mut self.skipped);
        match self.buffer.get(from..from + length) {
            Some(bytes) if skipped == 0 && length <= MAX_LINE_BYTES => {
                NextLine::Line { bytes, place }
            }
            _ => NextLine::TooLong { bytes: total, place },
        }
    }

    fn skip(&mut self) {
        self.skipped += self.searched as u64;
        self.start = self.end;
        self.searched = 0;
    }

    /// Reads more; false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() < self.end + READ_CHUNK_BYTES {
            self.buffer.resize(self.end + READ_CHUNK_BYTES, 0);
        }
        let room = self.buffer.get_mut(self.end..).unwrap_or_default();
        loop {
            match self.from.read(room) {
                Ok(0) => return Ok(false),
                Ok(count) => {
                    self.end += count;
                    return Ok(true);
                }
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                Err(err) => return Err(err),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_without_end_is_stepped_over_in_bounded_memory() {
        let mut file = b"first\n".to_vec();
        file.extend(vec![b'x'; 5 * MAX_LINE_BYTES]);
        file.extend(b"\nlast\n");
        let mut lines = LineReader::new(&file[..]);

        let first = NextLine::Line { bytes: b"first", place: LinePosition { line: 1, offset: 0 } };
        assert_eq!(lines.next().unwrap(), Some(first));
        let long = NextLine::TooLong {
            bytes: 5 * MAX_LINE_BYTES as u64,
            place: LinePosition { line: 2, offset: 6 },
        };
        assert_eq!(lines.next().unwrap(), Some(long));
        let place = LinePosition { line: 3, offset: 7 + 5 * MAX_LINE_BYTES as u64 };
        assert_eq!(lines.next().unwrap(), Some(NextLine::Line { bytes: b"last", place }));
        assert_eq!(lines.next().unwrap(), None);
        assert!(
            lines.buffer.len() <= MAX_LINE_BYTES + 2 * READ_CHUNK_BYTES,
            "{}",
            lines.buffer.len()
        );
    }

    #[test]
    fn the_longest_line_is_still_a_line() {
        for (length, whole) in [(MAX_LINE_BYTES, true), (MAX_LINE_BYTES + 1, false)] {
            let mut file = vec![b'x'; length];
            file.push(b'\n');
            let mut lines = LineReader::new(&file[..]);
            let piece = lines.next().unwrap().unwrap();
            assert_eq!(matches!(piece, NextLine::Line { .. }), whole, "{length}");
        }
    }

    #[test]
    fn an_interrupted_read_is_tried_again() {
        struct Interrupted<'a>(bool, &'a [u8]);
        impl Read for Interrupted<'_> {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                match std::mem::take(&mut self.0) {
                    true => Err(io::ErrorKind::Interrupted.into()),
                    false => self.1.read(into),
                }
            }
        }
        let mut lines = LineReader::new(Interrupted(true, b"line\n"));
        assert!(matches!(lines.next().unwrap(), Some(NextLine::Line { bytes: b"line", .. })));
    }

    #[test]
    fn what_was_read_behind_a_line_is_unfinished() {
        let mut lines = LineReader::new(&b"first\nrest"[..]);
        lines.next().unwrap().unwrap();
        assert_eq!(lines.unfinished(), 4);
    }

    /// Gives `step` bytes a read, as a file that is being written would.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(into.len());
            let (now, later) = self.0.split_at(count);
            into[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_line_or_unfinished(
            file in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            step in 1usize..20,
        ) {
            let mut lines = LineReader::new(Trickle(&file, step));
            let mut seen = Vec::new();
            while let Some(piece) = lines.next().unwrap() {
                let NextLine::Line { bytes, place } = piece else { panic!("none is that long") };
                prop_assert_eq!(place.offset, seen.len() as u64);
                seen.extend_from_slice(bytes);
                seen.push(b'\n');
            }
            prop_assert_eq!(seen.len() as u64, lines.place().offset);
            prop_assert_eq!(seen.len() as u64 + lines.unfinished(), file.len() as u64);
            prop_assert_eq!(&seen[..], &file[..seen.len()]);
            prop_assert!(!file[seen.len()..].contains(&b'\n'), "every line was given");
        }
    }
}
