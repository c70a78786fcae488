//! Reads what stands under a name, with a bound on how much is hashed.

use audit::{Digest, Hasher};
use files::Bytes;
use files::tree::{Directory, FileStat};
use rustix::fs::FileType;

use super::changes::{Node, Unhashed};
use super::compare::ChangeLimits;
use super::sparse::{Pieces, SparsePiece};
use crate::work_budget::{CutShort, WorkBudget};

/// How much may still be read.
#[derive(Debug)]
pub(super) struct Reading<'b> {
    /// Bytes of data that are still hashed, over all files.
    data: u64,
    /// Bytes of holes that are.
    holes: u64,
    budget: &'b WorkBudget,
}

/// Holes of a file that are counted before it is read.
const COUNTED_HOLES: usize = 1000;

impl<'b> Reading<'b> {
    pub(super) fn new(limits: &ChangeLimits, budget: &'b WorkBudget) -> Self {
        Self { data: limits.hashed, holes: limits.holes, budget }
    }

    /// What stands under `name`. A file is hashed unless there is a reason not to.
    pub(super) fn node(
        &mut self,
        directory: &Directory,
        name: &[u8],
        seen: &FileStat,
        not_hashed: Option<Unhashed>,
    ) -> Node {
        let special = |what: &str| Node::Special { what: what.to_owned() };
        match seen.kind() {
            FileType::Directory => Node::Directory { mode: seen.mode() },
            FileType::RegularFile => {
                let hashed = match not_hashed {
                    Some(why) => Err(why),
                    None => self.hash(directory, name, seen),
                };
                Node::File {
                    mode: seen.mode(),
                    size: seen.size(),
                    sha256: hashed.ok(),
                    unhashed: hashed.err(),
                }
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

    fn hash(
        &mut self,
        directory: &Directory,
        name: &[u8],
        seen: &FileStat,
    ) -> Result<Digest, Unhashed> {
        self.budget.check_for_long_work()?;
        let (file, _) = directory.file(name).map_err(|_| Unhashed::Unreadable)?;
        let mut pieces = Pieces::new(file, seen.size());
        let holes = pieces.holes(COUNTED_HOLES).map_err(|_| Unhashed::Unreadable)?;
        if holes > self.holes || seen.size().saturating_sub(holes) > self.data {
            return Err(Unhashed::TooLarge);
        }
        let mut hasher = Hasher::default();
        let mut size = 0;
        while let Some(piece) = pieces.next().map_err(|_| Unhashed::Unreadable)? {
            let length = piece.bytes().len() as u64;
            let left = match piece {
                SparsePiece::Data(_) => &mut self.data,
                SparsePiece::Hole(_) => &mut self.holes,
            };
            *left = left.checked_sub(length).ok_or(Unhashed::TooLarge)?;
            hasher.update(piece.bytes());
            size += length;
            self.budget.check_for_long_work()?;
        }
        if size == seen.size() { Ok(hasher.finish()) } else { Err(Unhashed::Unreadable) }
    }
}

impl From<CutShort> for Unhashed {
    fn from(why: CutShort) -> Self {
        match why {
            CutShort::Stopped { .. } => Self::Stopped,
            CutShort::Time { .. } => Self::NotInTime,
        }
    }
}
