//! The lock on a folder of evidence: one writer, and no seal while it writes.
//!
//! It is unlocked explicitly. Closing the file is not enough: a child that this
//! process has just forked holds a copy of the descriptor until it calls `exec`, and
//! the kernel keeps the lock while any copy is open.

use std::fs::{File, TryLockError};
use std::ops::Deref;

/// A locked directory; the lock ends when this is dropped.
#[derive(Debug)]
pub(crate) struct LockedFolder(File);

impl LockedFolder {
    /// Locks `dir`, or says that somebody else has.
    pub(crate) fn lock(dir: File) -> Result<Self, TryLockError> {
        dir.try_lock().map(|()| Self(dir))
    }
}

impl Deref for LockedFolder {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFolder {
    fn drop(&mut self) {
        // If this fails, closing the file still unlocks it in most cases.
        drop(self.0.unlock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_a_forked_child_still_has_the_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::open(dir.path()).unwrap();
        let file = open();
        let inherited = file.try_clone().unwrap();
        let locked = LockedFolder::lock(file).unwrap();
        assert!(matches!(LockedFolder::lock(open()), Err(TryLockError::WouldBlock)));
        drop(locked);
        assert!(LockedFolder::lock(open()).is_ok());
        drop(inherited);
    }
}
