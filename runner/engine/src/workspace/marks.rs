//! The marks that overlayfs leaves in an upper layer.
//!
//! They are extended attributes of one of two namespaces, by how the overlay was
//! mounted. Only that one is read: a sandbox may be able to set the other's, and
//! would then choose what we see.

use std::io;
use std::os::fd::AsFd;

use files::tree;

/// Where the kernel put its marks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Marks {
    /// `trusted.overlay.*`, which only root can read.
    Trusted,
    /// `user.overlay.*`: mounted with `userxattr`, as we do.
    User,
}

impl Marks {
    /// The mark of this name on an open file, if it has it.
    pub(super) fn of(self, file: impl AsFd, mark: &str) -> io::Result<Option<Vec<u8>>> {
        tree::mark(file, &self.name(mark))
    }

    fn name(self, mark: &str) -> String {
        match self {
            Self::Trusted => format!("trusted.overlay.{mark}"),
            Self::User => format!("user.overlay.{mark}"),
        }
    }
}
