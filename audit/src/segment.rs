//! The files of one log.
//!
//! `audit.jsonl` is the one being written. When it is full it becomes
//! `audit.000001.jsonl`, the next time `audit.000002.jsonl`, and a new
//! `audit.jsonl` begins; the chain goes on across files. So the order is: the
//! numbered ones by number, then the current one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The segment being written.
pub const CURRENT: &str = "audit.jsonl";

/// The folder below a run's in which its gateway writes, and nobody else can.
pub const WITH_GATEWAY: &str = "gateway";

/// One file of a log.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Segment {
    order: Order,
    path: PathBuf,
}

/// The variants are in the order of the files, which is what is compared.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Order {
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
        match Self::list(&dir.join(WITH_GATEWAY)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(own),
            listed => listed,
        }
    }

    /// Its number, if it is finished.
    pub fn number(&self) -> Option<u32> {
        match self.order {
            Order::Finished(number) => Some(number),
            Order::Current => None,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its file name.
    pub fn name(&self) -> String {
        match self.order {
            Order::Finished(number) => finished(number),
            Order::Current => CURRENT.to_owned(),
        }
    }
}

/// The name of the finished segment with this number.
pub fn finished(number: u32) -> String {
    format!("audit.{number:06}.jsonl")
}

/// Reads a file name; one that we would spell differently is not ours.
fn order(name: &str) -> Option<Order> {
    if name == CURRENT {
        return Some(Order::Current);
    }
    let digits = name.strip_prefix("audit.")?.strip_suffix(".jsonl")?;
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    (finished(number) == name).then_some(Order::Finished(number))
}

#[cfg(test)]
mod tests {
    use super::*;

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
