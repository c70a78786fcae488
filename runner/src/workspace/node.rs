//! Reads what stands under a name, with a bound on how much is hashed.

use std::io;

use audit::Digest;
use rustix::fs::FileType;

use super::changes::Node;
use super::path::Bytes;
use super::tree::{Directory, Seen};

/// How much has been read.
#[derive(Debug)]
pub(super) struct Reading {
    limit: u64,
    hashed: u64,
}

impl Reading {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, hashed: 0 }
    }

    /// What stands under `name`. A file is hashed unless it is `sealed` to us.
    pub(super) fn node(
        &mut self,
        directory: &Directory,
        name: &[u8],
        seen: &Seen,
        sealed: bool,
    ) -> Node {
        let special = |what: &str| Node::Special { what: what.to_owned() };
        match seen.kind() {
            FileType::Directory => Node::Directory { mode: seen.mode() },
            FileType::RegularFile => {
                let sha256 = if sealed { None } else { self.hash(directory, name, seen) };
                Node::File { mode: seen.mode(), size: seen.size(), sha256 }
            }
            FileType::Symlink => match directory.link(name) {
                Ok(target) => Node::Link { target: Bytes(target) },
                Err(_) => special("unreadable link"),
            },
            FileType::BlockDevice => special("block device"),
            FileType::CharacterDevice => special("character device"),
            FileType::Fifo => special("pipe"),
            FileType::Socket => special("socket"),
            FileType::Unknown => special("unknown"),
        }
    }

    fn hash(&mut self, directory: &Directory, name: &[u8], seen: &Seen) -> Option<Digest> {
        if self.hashed.saturating_add(seen.size()) > self.limit {
            return None;
        }
        self.hashed += seen.size();
        let (file, _) = directory.file(name).ok()?;
        let (digest, size) = Digest::of_reader(io::Read::take(file, seen.size())).ok()?;
        (size == seen.size()).then_some(digest)
    }
}
