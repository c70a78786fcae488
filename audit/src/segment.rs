//! The files of one log.
//!
//! `audit.jsonl` is the one being written. When it is full it becomes
//! `audit.000001.jsonl`, the next time `audit.000002.jsonl`, and a new
//! `audit.jsonl` begins; the chain goes on across files. So the order is: the
//! numbered ones by number, then the current one.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// The segment being written.
pub const CURRENT_SEGMENT: &str = "audit.jsonl";

/// The folder below a run's in which its gateway writes, and nobody else can.
pub const GATEWAY_FOLDER: &str = "gateway";

/// One file of a log.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Segment {
    order: SegmentOrder,
    path: PathBuf,
}

/// A segment of a log that may be written meanwhile.
#[derive(Debug)]
pub(crate) struct ListedSegment {
    segment: Segment,
    /// The current one is opened when it is listed.
    opened: Option<io::Result<File>>,
}

impl ListedSegment {
    pub(crate) fn path(&self) -> &Path {
        &self.segment.path
    }

    /// The file that was listed, whatever its name is by now.
    pub(crate) fn open(self) -> io::Result<File> {
        self.opened.unwrap_or_else(|| open(&self.segment.path))
    }

    /// Tells one file from another.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        match &self.opened {
            Some(Ok(file)) => file.metadata(),
            Some(Err(_)) | None => self.segment.path.metadata(),
        }
    }
}

/// The variants are in the order of the files, which is what is compared.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum SegmentOrder {
    Finished(u32),
    Current,
}

impl Segment {
    /// The log's segments that exist in `dir`, oldest first.
    pub fn list(dir: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for item in fs::read_dir(dir)? {
            let item = item?;
            let name = item.file_name();
            if let Some(order) = name.to_str().and_then(order) {
                found.push(Self { order, path: item.path() });
            }
        }
        found.sort();
        Ok(found)
    }

    /// The same for whoever reads along: a run that lives has its log still in
    /// the folder of its gateway, and so has one that was killed.
    pub fn list_wherever(dir: &Path) -> io::Result<Vec<Self>> {
        let own = Self::list(dir)?;
        if !own.is_empty() {
            return Ok(own);
        }
        match Self::list(&dir.join(GATEWAY_FOLDER)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(own),
            listed => listed,
        }
    }

    /// The segments of a log that may be written meanwhile, with the current one
    /// opened. Its name is another file's as soon as it is full, so whoever lists
    /// first and opens later would miss what it holds.
    pub(crate) fn list_open(dir: &Path) -> io::Result<Vec<ListedSegment>> {
        loop {
            let segments = Self::list_wherever(dir)?;
            let open_current = |segment: &Self| match segment.order {
                SegmentOrder::Finished(_) => None,
                SegmentOrder::Current => Some(open(&segment.path)),
            };
            let opened: Vec<_> = segments.iter().map(open_current).collect();
            // A segment that is finished adds a number.
            if Self::list_wherever(dir)? == segments {
                let listed = |(segment, opened)| ListedSegment { segment, opened };
                return Ok(segments.into_iter().zip(opened).map(listed).collect());
            }
        }
    }

    /// Its number, if it is finished.
    pub fn number(&self) -> Option<u32> {
        match self.order {
            SegmentOrder::Finished(number) => Some(number),
            SegmentOrder::Current => None,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its file name.
    pub fn name(&self) -> String {
        match self.order {
            SegmentOrder::Finished(number) => finished(number),
            SegmentOrder::Current => CURRENT_SEGMENT.to_owned(),
        }
    }
}

/// Opens a segment to be read.
///
/// What is not a file is not opened: a pipe would keep us waiting for a writer
/// who never comes.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    File::open(path)
}

/// The name of the finished segment with this number.
pub fn finished(number: u32) -> String {
    format!("audit.{number:06}.jsonl")
}

/// Reads a file name; one that we would spell differently is not ours.
fn order(name: &str) -> Option<SegmentOrder> {
    if name == CURRENT_SEGMENT {
        return Some(SegmentOrder::Current);
    }
    let digits = name.strip_prefix("audit.")?.strip_suffix(".jsonl")?;
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    (finished(number) == name).then_some(SegmentOrder::Finished(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_found_in_its_folder_or_with_its_gateway() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Segment::list_wherever(dir.path()).unwrap().is_empty());
        let gateways = dir.path().join(GATEWAY_FOLDER);
        std::fs::create_dir_all(&gateways).unwrap();
        std::fs::write(gateways.join("audit.jsonl"), "").unwrap();
        let found = Segment::list_wherever(dir.path()).unwrap();
        assert_eq!(
            found.iter().map(Segment::path).collect::<Vec<_>>(),
            [gateways.join("audit.jsonl")]
        );

        let broken = tempfile::tempdir().unwrap();
        let file = broken.path().join(GATEWAY_FOLDER);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "no folder").unwrap();
        assert!(Segment::list_wherever(broken.path()).is_err(), "not the same as no log");
    }

    #[test]
    fn the_current_segment_is_read_though_its_name_went_on_to_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let current = dir.path().join(CURRENT_SEGMENT);
        fs::write(&current, "first").unwrap();
        let mut listed = Segment::list_open(dir.path()).unwrap();
        fs::rename(&current, dir.path().join(finished(1))).unwrap();
        fs::write(&current, "second").unwrap();
        let read = std::io::read_to_string(listed.remove(0).open().unwrap()).unwrap();
        assert_eq!(read, "first");
    }

    #[test]
    fn segments_come_in_the_order_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let names = [
            "audit.jsonl",
            "audit.1000000.jsonl",
            "audit.000010.jsonl",
            "audit.000009.jsonl",
            // Not ours.
            "audit.0000009.jsonl",
            "audit.000000.jsonl",
            "audit.+00001.jsonl",
            "audit.9.jsonl",
            "audit.jsonl.bak",
        ];
        for name in names {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let listed: Vec<_> = Segment::list(dir.path()).unwrap().iter().map(Segment::name).collect();
        assert_eq!(
            listed,
            ["audit.000009.jsonl", "audit.000010.jsonl", "audit.1000000.jsonl", "audit.jsonl"],
        );
    }
}
